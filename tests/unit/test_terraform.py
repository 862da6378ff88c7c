"""The Terraform module says what charmcraft.yaml says, and its README what the module says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import hcl2
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "terraform"
CHARMCRAFT: dict[str, Any] = yaml.safe_load((ROOT / "charmcraft.yaml").read_text())
# What the modules of Charmed Kubeflow take and return, so that one above them treats all alike:
# https://github.com/canonical/kserve-operators, charms/kserve-controller/terraform. Since its
# version 1 the provider takes a model by its UUID.
INPUTS = {"app_name", "base", "channel", "config", "model_uuid", "resources", "revision"}
OUTPUTS = {"app_name", "provides", "requires"}


def parse(name: str) -> dict[str, Any]:
    """A file of the module, with its strings free of quotes and its blocks free of marks."""
    with (MODULE / name).open() as file:
        return _plain(hcl2.load(file))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        marks = ("__is_block__", "__comments__", "__inline_comments__")
        return {_plain(key): _plain(item) for key, item in value.items() if key not in marks}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str) and value.startswith('"'):
        return json.loads(value)
    return value


def blocks(name: str, kind: str) -> dict[str, Any]:
    """The blocks of one kind in a file, by their label."""
    return {label: body for block in parse(name)[kind] for label, body in block.items()}


VARIABLES = blocks("variables.tf", "variable")
OUTPUT = blocks("outputs.tf", "output")
APPLICATION: dict[str, Any] = blocks("main.tf", "resource")["juju_application"][
    CHARMCRAFT["name"].replace("-", "_")
]


@pytest.mark.parametrize("role", ["provides", "requires"])
def test_the_outputs_name_every_endpoint(role: str) -> None:
    endpoints = CHARMCRAFT.get(role, {})

    assert OUTPUT[role]["value"] == {name.replace("-", "_"): name for name in endpoints}


def test_the_module_has_the_shape_of_charmed_kubeflows() -> None:
    assert {path.name for path in MODULE.iterdir()} >= {
        *("README.md", "main.tf", "outputs.tf", "variables.tf", "versions.tf")
    }
    assert set(VARIABLES) >= INPUTS
    assert set(OUTPUT) == OUTPUTS
    assert [name for name, body in VARIABLES.items() if "default" not in body] == ["model_uuid"]
    assert parse("versions.tf")["terraform"][0]["required_providers"][0]["juju"]["source"] == (
        "juju/juju"
    )


def test_the_application_is_the_charm_and_trusted() -> None:
    assert APPLICATION["charm"][0]["name"] == CHARMCRAFT["name"]
    assert APPLICATION["trust"] is True
    assert VARIABLES["app_name"]["default"] == CHARMCRAFT["name"]
    assert VARIABLES["base"]["default"] == CHARMCRAFT["base"]


def test_every_input_is_handed_on() -> None:
    text = (MODULE / "main.tf").read_text()

    assert set(re.findall(r"\bvar\.(\w+)", text)) == set(VARIABLES)


def test_the_resources_that_it_takes_are_the_charms() -> None:
    condition = VARIABLES["resources"]["validation"][0]["condition"]
    taken = re.findall(r'"([^"]+)"', condition)

    assert taken == list(CHARMCRAFT["resources"])
    assert all(name in VARIABLES["resources"]["description"] for name in taken)


@pytest.mark.parametrize("body", [*VARIABLES.values(), *OUTPUT.values()])
def test_every_input_and_output_is_described(body: dict[str, Any]) -> None:
    assert body["description"].strip()


def test_the_readme_describes_every_input_and_output() -> None:
    readme = (MODULE / "README.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", readme, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]

    assert sorted(named) == sorted([*VARIABLES, *OUTPUT])


@pytest.mark.parametrize("name", VARIABLES)
def test_the_readme_gives_an_inputs_type_and_default(name: str) -> None:
    readme = (MODULE / "README.md").read_text()
    row = re.search(rf"^\| `{name}` \| (.*?) \| (.*?) \|", readme, re.MULTILINE)
    assert row

    default = VARIABLES[name].get("default", "required")
    assert row[1] == VARIABLES[name]["type"].removeprefix("${").removesuffix("}")
    assert row[2] in (f"`{default}`", str(default)) if default is not None else row[2]


def test_the_readmes_example_can_be_parsed_and_uses_what_is_there() -> None:
    example = re.search(r"```hcl\n(.*?)```", (MODULE / "README.md").read_text(), re.DOTALL)
    assert example
    parsed = _plain(hcl2.loads(example[1]))
    (module,) = (body for block in parsed["module"] for body in block.values())

    assert set(module) - {"source"} <= set(VARIABLES)
    assert set(module["config"]) <= set(CHARMCRAFT["config"]["options"])
    used = re.findall(r"module\.istio_init_egress\.(\w+)(?:\.(\w+))?", example[1])
    assert used
    for output, key in used:
        assert not key or key in OUTPUT[output]["value"]
