"""What is missing of a verdict, a remedy or a backend that was added by halves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
import yaml

import actions
from init_egress.backends.backend import BackendKind
from init_egress.backends.registry import BACKENDS, POLICY_BACKENDS, WEBHOOK
from init_egress.config import BackendChoice, PolicyKind
from init_egress.kube.kinds import OURS
from init_egress.rule.checks import CHECKS
from init_egress.rule.policy import RemedyKind
from init_egress.rule.remedies import REMEDIES
from init_egress.rule.verdict import Verdict
from tests.functional import installation

PARAMS = {
    "audit": actions.AuditParams,
    "explain": actions.ExplainParams,
    "mutate-existing-pods": actions.MutateParams,
    "verify": actions.VerifyParams,
}
NO_DEFAULT = {"string": "", "boolean": False, "integer": 0}
ROOT = Path(__file__).resolve().parents[2]
CHARM = yaml.safe_load((ROOT / "charmcraft.yaml").read_text())
CASES = [yaml.safe_load(path.read_text()) for path in (ROOT / "tests/cases").glob("*.yaml")]
VERDICTS = [verdict.value for verdict in Verdict]
REMEDY_NAMES = [kind.value for kind in RemedyKind]


def unnamed(page: str, names: Iterable[str]) -> list[str]:
    """The names that a file of the repository does not hold."""
    text = (ROOT / page).read_text()
    return [name for name in names if name not in text]


def test_every_verdict_has_its_check_in_order() -> None:
    assert [check.verdict for check in CHECKS] == list(Verdict)


def test_every_check_says_when_it_holds() -> None:
    assert [check.verdict for check in CHECKS if not check.documentation.endswith(".")] == []


def test_the_audit_can_be_asked_for_every_verdict() -> None:
    assert CHARM["actions"]["audit"]["params"]["verdict"]["enum"] == VERDICTS


def test_every_verdict_has_a_case() -> None:
    expected = {case["expect"]["verdict"] for case in CASES}
    after = {case["expect"].get("after") for case in CASES}

    assert set(VERDICTS) - expected - after == set()


@pytest.mark.parametrize(
    "page",
    [
        "docs/reference/verdicts.md",
        "docs/how-to/troubleshooting.md",
    ],
)
def test_every_verdict_is_documented(page: str) -> None:
    assert unnamed(page, VERDICTS) == []


def test_every_value_of_the_option_has_its_remedy() -> None:
    assert list(REMEDIES) == list(RemedyKind)
    assert [kind for kind, remedy in REMEDIES.items() if remedy.kind is not kind] == []


def test_the_option_names_every_remedy() -> None:
    described = CHARM["config"]["options"]["remedy"]["description"]

    assert [name for name in REMEDY_NAMES if f"{name}:" not in described] == []


def test_every_remedy_has_a_case() -> None:
    default = CHARM["config"]["options"]["remedy"]["default"]
    configured = {case.get("config", {}).get("remedy", default) for case in CASES}

    assert set(REMEDY_NAMES) - configured == set()


@pytest.mark.parametrize(
    "page",
    [
        "docs/explanation/choosing-a-remedy.md",
        "docs/reference/configuration.md",
        "docs/reference/data-plane.md",
        "docs/reference/command-line.md",
        "README.md",
    ],
)
def test_every_remedy_is_documented(page: str) -> None:
    names = REMEDY_NAMES if page != "README.md" else REMEDY_NAMES[-1:]

    assert unnamed(page, names) == []


@pytest.mark.parametrize("kind", RemedyKind, ids=lambda kind: kind.value)
def test_every_template_that_a_remedy_names_is_there(kind: RemedyKind) -> None:
    remedy = REMEDIES[kind]
    names = (*remedy.cel_variables, remedy.cel_mutation)

    assert [name for name in names if not (ROOT / "templates" / name).is_file()] == []


def test_every_kind_of_backend_has_its_backend() -> None:
    assert list(BACKENDS) == list(BackendKind)


def test_every_value_of_the_option_asks_for_a_backend() -> None:
    choices = {backend.choice for backend in BACKENDS.values()}
    policy_kinds = {backend.policy_kind for backend in BACKENDS.values()} - {None}

    assert choices == set(BackendChoice) - {BackendChoice.AUTO}
    assert policy_kinds == set(PolicyKind) - {PolicyKind.AUTO}


def test_the_option_names_every_backend() -> None:
    described = CHARM["config"]["options"]["backend"]["description"]
    choices = [choice.value for choice in BackendChoice if choice is not BackendChoice.AUTO]

    assert [name for name in choices if f"{name}:" not in described] == []


def test_what_carries_a_backend_out_is_pruned() -> None:
    assert [b.kind for b in BACKENDS.values() if b.resource not in OURS] == []


def test_every_option_of_a_backends_own_exists() -> None:
    own = {option for b in BACKENDS.values() for option in b.capabilities.own_options}

    assert own - set(CHARM["config"]["options"]) == set()


def test_some_backend_can_apply_every_remedy() -> None:
    assert [
        kind
        for kind in RemedyKind
        if not any(kind in b.capabilities.remedies for b in BACKENDS.values())
    ] == []


def test_every_template_that_a_backend_names_is_there() -> None:
    names = [name for backend in (*POLICY_BACKENDS, WEBHOOK) for name in backend.templates]

    assert [name for name in names if not (ROOT / "templates" / name).is_file()] == []


@pytest.mark.parametrize(
    "page",
    [
        "docs/explanation/backends-compared.md",
        "docs/how-to/choose-a-backend.md",
        "docs/reference/configuration.md",
    ],
)
def test_every_backend_is_documented(page: str) -> None:
    assert unnamed(page, {backend.choice.value for backend in BACKENDS.values()}) == []


def test_every_case_runs_under_every_backend() -> None:
    assert set(installation.OPTIONS) == set(BackendKind)


ACTIONS = pytest.mark.parametrize("action", CHARM["actions"])


@ACTIONS
def test_every_action_has_its_handler(action: str) -> None:
    event = f"{action.replace('-', '_')}_action"
    code = "".join((ROOT / "src" / name).read_text() for name in ("charm.py", "actions.py"))

    assert code.count(f".on.{event},") == 1


@ACTIONS
def test_every_action_takes_the_parameters_that_charmcraft_names(action: str) -> None:
    described = CHARM["actions"][action].get("params") or {}
    params = PARAMS.get(action)
    taken = {field.name.replace("_", "-"): field for field in fields(params)} if params else {}

    assert set(taken) == set(described)
    for name, field in taken.items():
        assert described[name].get("default", NO_DEFAULT[described[name]["type"]]) == (
            "" if field.default is MISSING else field.default
        )


@ACTIONS
@pytest.mark.parametrize("page", ["docs/reference/actions.md", "tests/packed/test_actions.py"])
def test_every_action_is_documented_and_run_by_the_packed_charm(action: str, page: str) -> None:
    assert unnamed(page, [action]) == []
