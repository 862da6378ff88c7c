"""The Terraform module says what charmcraft.yaml says, and its README what the module says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hcl2
import yaml
from hcl2 import SerializationOptions

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "terraform"
README = (MODULE / "README.md").read_text()
CHARMCRAFT: dict[str, Any] = yaml.safe_load((ROOT / "charmcraft.yaml").read_text())


def _parse(name: str) -> dict[str, list[dict[str, Any]]]:
    options = SerializationOptions(
        with_comments=False, explicit_blocks=False, strip_string_quotes=True
    )
    with (MODULE / name).open() as file:
        return hcl2.load(file, serialization_options=options)


def _blocks(name: str, kind: str) -> dict[str, Any]:
    """The blocks of one kind in a file, by their label."""
    return {label: body for block in _parse(name)[kind] for label, body in block.items()}


VARIABLES = _blocks("variables.tf", "variable")
OUTPUTS = _blocks("outputs.tf", "output")


def test_the_outputs_name_every_endpoint() -> None:
    for role in ("provides", "requires"):
        assert OUTPUTS[role]["value"] == {n.replace("-", "_"): n for n in CHARMCRAFT[role]}


def test_the_module_has_the_shape_of_charmed_kubeflows() -> None:
    """So that a module above them treats all alike; https://github.com/canonical/kserve-operators,
    charms/kserve-controller/terraform. Since its version 1 the provider takes a model by its UUID.
    """
    assert {"app_name", "base", "channel", "config", "model_uuid", "resources", "revision"} <= set(
        VARIABLES
    )
    assert OUTPUTS.keys() == {"app_name", "provides", "requires"}
    assert [name for name, body in VARIABLES.items() if "default" not in body] == ["model_uuid"]


def test_the_application_is_the_charm_and_trusted() -> None:
    application = _blocks("main.tf", "resource")["juju_application"]["istio_init_egress"]

    assert application["charm"][0]["name"] == CHARMCRAFT["name"]
    assert application["trust"] is True
    assert VARIABLES["app_name"]["default"] == CHARMCRAFT["name"]
    assert VARIABLES["base"]["default"] == CHARMCRAFT["base"]


def test_every_input_is_handed_on() -> None:
    used = re.findall(r"\bvar\.(\w+)", (MODULE / "main.tf").read_text())

    assert set(used) == VARIABLES.keys()


def test_the_resources_that_it_takes_are_the_charms() -> None:
    condition = VARIABLES["resources"]["validation"][0]["condition"]

    assert re.findall(r'"([^"]+)"', condition) == list(CHARMCRAFT["resources"])


def test_the_readme_gives_every_inputs_type_and_default_and_names_every_output() -> None:
    for name, body in VARIABLES.items():
        row = re.search(rf"^\| `{name}` \| (.*?) \| (.*?) \| .", README, re.MULTILINE)
        assert row, name
        assert row[1] == body["type"].removeprefix("${").removesuffix("}")
        default = body.get("default", "required")
        assert default is None or row[2].strip("`") == str(default)
    for name in OUTPUTS:
        assert re.search(rf"^\| .*`{name}`.* \| .", README, re.MULTILINE), name


def test_the_readmes_example_uses_what_is_there() -> None:
    example = re.search(r"```hcl\n(.*?)```", README, re.DOTALL)
    assert example
    (module,) = (body for block in hcl2.loads(example[1])["module"] for body in block.values())
    used = re.findall(r"module\.istio_init_egress\.(\w+)(?:\.(\w+))?", example[1])

    assert set(module) - {"source", "__is_block__"} <= VARIABLES.keys()
    assert module["config"].keys() <= CHARMCRAFT["config"]["options"].keys()
    assert used
    assert all(not key or key in OUTPUTS[output]["value"] for output, key in used)
