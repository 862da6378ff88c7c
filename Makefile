# make demo and make test do all that a fresh machine needs; python3, go and make must be there.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SBOM := build/sbom/tool/bin
MUTATION := build/mutation
MUTMUT := tool/bin/python ../../tools/mutation/mutate.py
export PYTHONPATH := src:.
# The packages that a requirements file pins, but for those of a Python older than the base's.
PINS := sed -nE "/< '3\.11'/d; s/^([a-z0-9-]+)==.*/\1/p"
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	--no-emit-index-url --no-header

.PHONY: help demo test nightly check lint types format unit cases dataplane node packed harness testbed build bench \
	mutants requirements reference licences sbom clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/ready ## show the charm's main job on a real API server with a real Istio
	@$(BIN)/python -m demo

test: check ## check the code, and test the charm and what its tests stand on
	$(BIN)/pytest

nightly: check ## the same, the slow tests of what seldom breaks, and other examples each time
	$(BIN)/pytest -m '' --hypothesis-profile=default

check: lint types

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/zizmor --offline --quiet .github
	$(BIN)/pip-licenses --packages $$($(PINS) requirements.txt requirements-webhook.txt) >/dev/null

types: $(VENV)/ready
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/ready ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

unit: $(VENV)/ready ## run the tests that need no cluster
	$(BIN)/pytest tests/unit

cases: $(VENV)/ready ## run the cases, and those of the folders in EXTRA_CASES, under each backend
	$(BIN)/pytest tests/functional/test_cases.py

dataplane: $(VENV)/ready ## send packets through Istio's CNI plugin; with UPDATE_DOCS=1 their tables are written again
	$(BIN)/pytest tests/dataplane

node: $(VENV)/ready ## run Pods on a real node, as root: the story of a stuck one, and the webhook's workload
	$(BIN)/pytest tests/node

packed: $(VENV)/ready ## pack the charm and run its hooks and actions
	$(BIN)/pytest tests/packed

harness: $(VENV)/ready ## test what the tests stand on: the testbed, the stand-ins, the workflows
	$(BIN)/pytest tests/harness

testbed: $(VENV)/ready ## open a shell beside a cluster with Istio and Kyverno
	$(BIN)/python -m tests.testbed up --with istio --with kyverno

build: $(VENV)/ready ## build the testbed's servers
	$(BIN)/python -m tests.testbed build

bench: $(VENV)/ready ## measure the webhook and the backends; the figures go to benchmarks/results
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r benchmarks/requirements.txt
	$(BIN)/python -m benchmarks.server
	$(BIN)/python -m benchmarks.floods
	$(BIN)/python -m benchmarks.admission
	$(BIN)/python -m benchmarks.admission --states "no policy,native,webhook" --places "outside the mesh" \
		--rounds 40 --seconds 2 --name admission-outside
	$(BIN)/python -m benchmarks.existing

# mutmut works on the folder that it runs in: on links, so that its copies stay in build.
mutants: ## break the rule and the reconciler in many small ways, and count what the unit tests notice
	@rm -rf $(MUTATION) && $(PYTHON) -m venv $(MUTATION)/tool
	@$(MUTATION)/tool/bin/pip install --quiet --disable-pip-version-check --require-hashes \
	  -r tests/requirements.txt -r tools/mutation/requirements.txt
	@ln -s $(addprefix ../../,src tests benchmarks templates charmcraft.yaml pyproject.toml) $(MUTATION)
	cd $(MUTATION) && env -u PYTHONPATH CI=true $(MUTMUT) run $(MUTANTS) >run.log || { tail -n 40 run.log; exit 1; }
	@cd $(MUTATION) && $(MUTMUT) results --all true >results.txt
	@$(MUTATION)/tool/bin/python -m tools.mutation.score <$(MUTATION)/results.txt

requirements: $(VENV)/ready ## pin again what ships and what the tests need
	$(BIN)/pip install --quiet uv
	$(COMPILE) requirements.in -o requirements.txt
	$(COMPILE) -c requirements.txt requirements-webhook.in -o requirements-webhook.txt
	$(COMPILE) tests/requirements.in -o tests/requirements.txt
	$(COMPILE) -c requirements-webhook.txt benchmarks/requirements.in -o benchmarks/requirements.txt
	$(COMPILE) tests/packed/requirements.in -o tests/packed/requirements.txt
	$(COMPILE) tools/requirements.in -o tools/requirements.txt
	$(COMPILE) -c tests/requirements.txt tools/mutation/requirements.in -o tools/mutation/requirements.txt

reference: $(VENV)/ready ## write the pages that say what charmcraft.yaml and the code say
	$(BIN)/python -m tools.reference

licences: $(VENV)/ready ## write the tables of docs/reference/licences.md; fails at a licence that may not ship
	@page=docs/reference/licences.md; \
	( sed '/^## /,$$d' $$page; \
	  for part in "The charm:requirements.txt" "The webhook's image:requirements-webhook.txt"; do \
	    printf '%s## %s\n\n' "$$gap" "$${part%%:*}"; gap=$$(printf '\n.'); gap=$${gap%.}; \
	    $(BIN)/pip-licenses --packages $$($(PINS) $${part#*:}) || exit 1; \
	  done ) > $$page.new && mv $$page.new $$page || { rm -f $$page.new; exit 1; }

sbom: ## write what ships as CycloneDX documents in build/sbom
	@rm -rf build/sbom && $(PYTHON) -m venv build/sbom/tool
	@$(SBOM)/pip install --quiet --disable-pip-version-check --require-hashes -r tools/requirements.txt
	@for name in charm:requirements.txt webhook:requirements-webhook.txt; do \
	  folder=build/sbom/$${name%%:*}; \
	  $(PYTHON) -m venv --without-pip $$folder && \
	  $(SBOM)/pip --quiet --python $$folder/bin/python install --require-hashes -r $${name#*:} && \
	  env -u PYTHONPATH PYTHONWARNINGS=ignore $(SBOM)/cyclonedx-py environment --pyproject pyproject.toml --mc-type application \
	    --output-reproducible --output-file $$folder.cdx.json $$folder/bin/python || exit 1; \
	done
	@ls build/sbom/*.cdx.json

clean: ## remove what make made here (the testbed's cache stays)
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/ready: requirements.txt requirements-webhook.txt tests/requirements.txt
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r tests/requirements.txt
	@touch $@
