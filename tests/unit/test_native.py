"""The native policy and its bindings: what is asked when."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from init_egress.backends.backend import Backend
from init_egress.backends.registry import (
    MUTATING_POLICY,
    NATIVE,
)
from init_egress.config import Settings
from init_egress.rule import istio, selector
from init_egress.rule.istio import PROBE_LABEL
from init_egress.rule.policy import ExistingAnnotation, RemedyKind
from tests.rendering import (
    APPLICATION,
    EACH_EXISTING,
    EACH_REMEDY,
    at,
    metadata,
    policy_of,
    render,
    selects,
    with_policy,
)


def test_the_native_policy_is_asked_again_after_the_webhooks() -> None:
    spec = policy_of(NATIVE)["spec"]
    assert spec["reinvocationPolicy"] == "IfNeeded"
    assert spec["matchConstraints"]["matchPolicy"] == "Equivalent"


@EACH_REMEDY
def test_no_selector_or_condition_of_the_native_policy_asks_for_what_a_webhook_adds(
    remedy: RemedyKind,
) -> None:
    # A policy that is skipped in the first round isn't called in the second one.
    a_settings = with_policy(
        remedy=remedy, pods=selector.parse("added-by-a-webhook"), namespaces=selector.parse("team")
    )
    early = []
    for manifest in render(NATIVE, a_settings, APPLICATION, by_default=True):
        assert at(manifest, "matchConditions") == []
        early += at(manifest, "matchConstraints") + at(manifest, "matchResources")
    assert early
    text = json.dumps(early)
    for late in (
        "initContainers",
        "sidecar.istio.io/status",
        "annotations",
        "istio-proxy",
        "added-by-a-webhook",
        PROBE_LABEL,
    ):
        assert late not in text
    assert istio.SKIP_LABEL not in json.dumps(at(early, "objectSelector"))


def test_what_a_webhook_adds_is_asked_in_the_variables_of_the_native_policy() -> None:
    a_settings = with_policy(pods=selector.parse("added-by-a-webhook"))
    spec = policy_of(NATIVE, a_settings)["spec"]
    text = json.dumps(spec["variables"])
    for late in ("initContainers", "sidecar.istio.io/status", "added-by-a-webhook", PROBE_LABEL):
        assert late in text


@pytest.mark.parametrize("backend", [NATIVE, MUTATING_POLICY], ids=lambda b: b.kind.value)
@EACH_REMEDY
@EACH_EXISTING
def test_a_cel_variable_stands_before_it_is_used(
    backend: Backend, remedy: RemedyKind, existing: ExistingAnnotation
) -> None:
    a_settings = with_policy(
        remedy=remedy, existing=existing, ports=("443",), pods=selector.parse("a in (b),!c")
    )
    spec = policy_of(backend, a_settings)["spec"]
    known: set[str] = set()
    for variable in spec["variables"]:
        assert set(re.findall(r"variables\.(\w+)", variable["expression"])) <= known
        assert variable["name"] not in known
        known.add(variable["name"])
    (mutation,) = spec["mutations"]
    assert mutation["patchType"] == "JSONPatch"
    assert set(re.findall(r"variables\.(\w+)", mutation["jsonPatch"]["expression"])) <= known


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("a=b", '("a" in variables.labels && variables.labels["a"] in ["b"])'),
        ("a!=b", '!("a" in variables.labels && variables.labels["a"] in ["b"])'),
        ("a", '"a" in variables.labels'),
        ("!a", '!("a" in variables.labels)'),
    ],
)
def test_a_pod_selector_is_asked_in_cel(text: str, expression: str) -> None:
    spec = policy_of(NATIVE, with_policy(pods=selector.parse(text)))["spec"]
    (applies,) = [v["expression"] for v in spec["variables"] if v["name"] == "applies"]
    assert f"&& {expression}" in applies


def test_a_binding_stands_for_each_way_of_being_injected() -> None:
    objects: list[Any] = render(NATIVE, Settings(), APPLICATION)
    bindings = objects[1:]
    assert [o["kind"] for o in objects] == [
        "MutatingAdmissionPolicy",
        *["MutatingAdmissionPolicyBinding"] * 4,
    ]
    assert {b["spec"]["policyName"] for b in bindings} == {objects[0]["metadata"]["name"]}
    everywhere = render(NATIVE, Settings(), APPLICATION, by_default=True)
    assert everywhere[:-1] == objects
    assert metadata(everywhere[-1])["name"] == f"{APPLICATION.object_name}.by-default"


def bound(
    namespace: dict[str, str], pod: dict[str, str], *, injects_by_default: bool = False
) -> bool:
    """Whether any binding selects a Pod with these labels in a namespace with these labels."""
    objects: list[Any] = render(NATIVE, Settings(), APPLICATION, by_default=injects_by_default)
    resources = [o["spec"]["matchResources"] for o in objects[1:]]
    return any(
        selects(r["namespaceSelector"], namespace) and selects(r["objectSelector"], pod)
        for r in resources
    )


@pytest.mark.parametrize(
    ("namespace", "pod", "expected"),
    [
        pytest.param({"istio-injection": "enabled"}, {}, True, id="namespace"),
        pytest.param(
            {"istio-injection": "enabled"}, {"sidecar.istio.io/inject": "true"}, True, id="both"
        ),
        pytest.param(
            {"istio-injection": "enabled"}, {"sidecar.istio.io/inject": "False"}, True, id="False"
        ),
        pytest.param(
            {"istio-injection": "enabled"},
            {"sidecar.istio.io/inject": "false"},
            False,
            id="pod-no",
        ),
        pytest.param(
            {"istio-injection": "disabled"},
            {"sidecar.istio.io/inject": "true"},
            False,
            id="namespace-no",
        ),
        pytest.param(
            {"istio-injection": "enabled", "istio.io/rev": "canary"}, {}, True, id="both-labels"
        ),
        pytest.param({"istio.io/rev": "canary"}, {}, True, id="revision"),
        pytest.param(
            {"istio.io/rev": "canary"},
            {"sidecar.istio.io/inject": "false"},
            False,
            id="revision-no",
        ),
        pytest.param({}, {"sidecar.istio.io/inject": "true"}, True, id="pod"),
        pytest.param({}, {"istio.io/rev": "canary"}, True, id="pod-revision"),
        pytest.param(
            {},
            {"istio.io/rev": "canary", "sidecar.istio.io/inject": "true"},
            True,
            id="pod-revision-and-label",
        ),
        pytest.param(
            {},
            {"istio.io/rev": "canary", "sidecar.istio.io/inject": "false"},
            False,
            id="pod-revision-no",
        ),
        pytest.param({}, {}, False, id="outside"),
        pytest.param({"istio.io/dataplane-mode": "ambient"}, {}, False, id="ambient"),
    ],
)
def test_pods_outside_the_mesh_cost_nothing_and_none_inside_is_missed(
    namespace: dict[str, str], pod: dict[str, str], expected: bool
) -> None:
    assert bound(namespace, pod) is expected


@pytest.mark.parametrize(
    ("namespace", "pod", "expected"),
    [
        pytest.param({}, {}, True, id="unlabelled"),
        pytest.param({}, {"sidecar.istio.io/inject": "true"}, True, id="asks"),
        pytest.param({}, {"sidecar.istio.io/inject": "false"}, False, id="refuses"),
        pytest.param({"istio-injection": "disabled"}, {}, False, id="namespace-refuses"),
    ],
)
def test_where_istio_injects_by_default_namespaces_without_a_label_are_bound(
    namespace: dict[str, str], pod: dict[str, str], expected: bool
) -> None:
    assert bound(namespace, pod, injects_by_default=True) is expected
