"""charmcraft.yaml says what the code does: options, actions, endpoints."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import yaml

from init_egress.config import BackendChoice, Config, FailurePolicy, PolicyKind
from init_egress.mesh import relations
from init_egress.rule.policy import ExistingAnnotation, RemedyKind

ROOT = Path(__file__).resolve().parents[2]
CHARMCRAFT: dict[str, Any] = yaml.safe_load((ROOT / "charmcraft.yaml").read_text())
OPTIONS: dict[str, Any] = CHARMCRAFT["config"]["options"]
ACTIONS: dict[str, Any] = CHARMCRAFT["actions"]
ENDPOINTS: dict[str, Any] = {
    name: endpoint
    for role in ("requires", "provides", "peers")
    for name, endpoint in CHARMCRAFT.get(role, {}).items()
}
DEFAULTS = {field.name.replace("_", "-"): field.default for field in fields(Config)}
CHOICES: dict[str, type[Enum]] = {
    "backend": BackendChoice,
    "failure-policy": FailurePolicy,
    "kyverno-policy-kind": PolicyKind,
    "remedy": RemedyKind,
    "existing-annotation": ExistingAnnotation,
}


def test_the_options_are_those_of_the_code() -> None:
    assert set(OPTIONS) == set(DEFAULTS)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_options_default_is_that_of_the_code(name: str) -> None:
    assert OPTIONS[name]["type"] == {str: "string", int: "int"}[type(DEFAULTS[name])]
    assert OPTIONS[name]["default"] == DEFAULTS[name]


@pytest.mark.parametrize("name", CHOICES)
def test_an_option_that_is_a_choice_describes_every_choice(name: str) -> None:
    assert all(c.value in OPTIONS[name]["description"] for c in CHOICES[name])


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_described(name: str) -> None:
    assert OPTIONS[name]["description"].strip()


@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_is_described_and_takes_no_unknown_parameter(name: str) -> None:
    action = ACTIONS[name]
    assert action["description"].strip()
    assert action["additionalProperties"] is False
    for parameter in action.get("params", {}).values():
        assert parameter["type"]
        assert parameter["description"].strip()
    assert set(action.get("required", [])) <= set(action.get("params", {}))


@pytest.mark.parametrize("name", ENDPOINTS)
def test_every_endpoint_is_described(name: str) -> None:
    assert ENDPOINTS[name]["description"].strip()
    assert ENDPOINTS[name]["interface"]


@pytest.mark.parametrize(
    ("name", "interface"),
    [(relations.GATEWAY_INFO, "istio-gateway-info"), (relations.ISTIO_METADATA, "istio_metadata")],
)
def test_the_mesh_is_told_by_one_optional_relation_each(name: str, interface: str) -> None:
    endpoint = CHARMCRAFT["requires"][name]
    assert endpoint["interface"] == interface
    assert endpoint["limit"] == 1
    assert endpoint["optional"] is True


def test_the_charm_is_for_kubernetes_and_a_juju_that_it_was_written_for() -> None:
    assert CHARMCRAFT["type"] == "charm"
    assert "k8s-api" in CHARMCRAFT["assumes"]
    assert any(
        isinstance(assumed, str) and assumed.startswith("juju >=")
        for assumed in CHARMCRAFT["assumes"]
    )


def test_a_charm_without_a_workload_runs_as_no_root() -> None:
    assert CHARMCRAFT["charm-user"] == "non-root"


def test_the_templates_are_packed() -> None:
    parts = CHARMCRAFT["parts"].values()
    assert any("templates" in part.get("stage", []) for part in parts)
    assert any("src" in part.get("stage", []) for part in parts)
