"""The rule's steps: which are told, in what order, and what was read for each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from init_egress.rule import istio, selector
from init_egress.rule.decision import decide
from init_egress.rule.inspection import Inspection
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.policy import Policy, RemedyKind
from init_egress.rule.trace import TraceStep, trace
from init_egress.rule.verdict import Verdict
from init_egress.rule.words import change
from tests.strategies import TEAM, Json, namespaces, pods, policies
from tests.unit.test_rule_properties import searching

PROXY: Json = {
    "name": "istio-proxy",
    "args": ["proxy", "sidecar"],
    "securityContext": {"runAsUser": 1337, "runAsGroup": 1337},
}
FETCH: Json = {"name": "fetch"}
IGNORING = Policy(ignored=("chown",))


def injected(
    *init_containers: Json, annotations: dict[str, str] | None = None, **metadata: Any
) -> Pod:
    """An injected Pod with a sidecar that isn't native."""
    return Pod.from_dict(
        {
            "metadata": {"annotations": {istio.STATUS: "{}", **(annotations or {})}, **metadata},
            "spec": {"initContainers": init_containers, "containers": [PROXY]},
        }
    )


def last(pod: Pod, policy: Policy = IGNORING, namespace: Namespace = TEAM) -> TraceStep:
    return trace(Inspection(pod, namespace, policy))[-1]


@searching
@given(pods, policies, namespaces)
def test_the_last_step_is_the_verdict_and_the_only_one_that_fits(
    raw: Json, policy: Policy, namespace: Namespace
) -> None:
    pod = Pod.from_dict(raw)

    told = trace(Inspection(pod, namespace, policy))

    verdict = decide(pod, namespace, policy).verdict
    assert [step.verdict for step in told] == list(Verdict)[: list(Verdict).index(verdict) + 1]
    assert [step.fits for step in told] == [step.verdict is verdict for step in told]
    assert all(step.read for step in told)


@pytest.mark.parametrize(
    ("pod", "namespace", "verdict", "read"),
    [
        (
            injected(FETCH),
            Namespace("kube-system"),
            Verdict.SYSTEM_NAMESPACE,
            "namespace: kube-system",
        ),
        (
            injected(FETCH, labels={istio.SKIP_LABEL: "true"}),
            TEAM,
            Verdict.OPTED_OUT,
            "label istio-init-egress/skip of the Pod: true",
        ),
        (
            injected(FETCH),
            Namespace("team", {istio.SKIP_LABEL: "true"}),
            Verdict.OPTED_OUT,
            "label istio-init-egress/skip of namespace team: true",
        ),
        (Pod(), TEAM, Verdict.NOT_INJECTED, "annotation sidecar.istio.io/status: absent"),
        (injected(), TEAM, Verdict.NO_INIT_CONTAINERS, "init containers: none"),
        (
            injected({"name": "istio-validation"}, {"name": "chown"}),
            TEAM,
            Verdict.NO_INIT_CONTAINERS,
            "init container chown: ignored by ignore-init-containers",
        ),
        (
            injected(PROXY, FETCH),
            TEAM,
            Verdict.NATIVE_SIDECAR,
            "order of init containers: istio-proxy, fetch",
        ),
        (
            injected(FETCH, annotations={istio.INTERCEPTION_MODE: "NONE"}),
            TEAM,
            Verdict.NOT_REDIRECTED,
            "annotation sidecar.istio.io/interceptionMode: 'NONE'",
        ),
        (
            injected({**FETCH, "securityContext": {"runAsUser": 1337}}),
            TEAM,
            Verdict.ALREADY_EXEMPT,
            "fetch runs as user 1337 and the image's group",
        ),
        (
            injected(FETCH, annotations={istio.EXCLUDE_RANGES: "0.0.0.0/0,::/0"}),
            TEAM,
            Verdict.ALREADY_EXCLUDED,
            "annotation traffic.sidecar.istio.io/excludeOutboundIPRanges: '0.0.0.0/0,::/0'",
        ),
        (
            injected({"name": "istio-init"}, FETCH),
            TEAM,
            Verdict.BEYOND_REMEDY,
            "init container istio-init: present",
        ),
        (
            injected(FETCH),
            TEAM,
            Verdict.NEEDS_REMEDY,
            "the remedy sets annotation traffic.sidecar.istio.io/excludeOutboundIPRanges:"
            " '0.0.0.0/0,::/0'",
        ),
    ],
)
def test_the_step_that_fits_says_what_was_read(
    pod: Pod, namespace: Namespace, verdict: Verdict, read: str
) -> None:
    step = last(pod, namespace=namespace)

    assert step.verdict is verdict
    assert read in step.read


def test_a_selector_is_read_only_where_there_is_one() -> None:
    told = trace(Inspection(injected(FETCH), TEAM, IGNORING))
    pods_of_ml = replace(IGNORING, pods=selector.parse("team=ml"))

    assert "pod-selector team in (ml): does not match" in last(injected(FETCH), pods_of_ml).read
    assert not any("selector" in fact for fact in told[1].read)


def test_the_identity_that_is_told_is_the_one_in_effect() -> None:
    pod = Pod.from_dict(
        {
            "metadata": {"annotations": {istio.STATUS: "{}"}},
            "spec": {
                "securityContext": {"runAsUser": 1000, "runAsGroup": 1337},
                "initContainers": [{**FETCH, "securityContext": {"runAsUser": 5}}],
                "containers": [PROXY],
            },
        }
    )

    step = last(pod)

    assert step.verdict is Verdict.ALREADY_EXEMPT
    assert "never redirected: the proxy's user 1337 and group 1337" in step.read
    assert "fetch runs as user 5 and group 1337, which is the Pod's" in step.read


def test_a_remedy_that_reaches_no_container_says_whose_identity_is_in_the_way() -> None:
    policy = replace(IGNORING, remedy=RemedyKind.PROXY_USER)
    pod = injected({**FETCH, "securityContext": {"runAsUser": 1000}})

    step = last(pod, policy)

    assert step.verdict is Verdict.BEYOND_REMEDY
    assert step.read == ("remedy: proxy-user", "runAsUser of fetch: 1000")


@pytest.mark.parametrize("context", [None, {}, {"runAsNonRoot": True}])
def test_a_changed_identity_is_told_by_the_containers_name(context: Json | None) -> None:
    policy = replace(IGNORING, remedy=RemedyKind.PROXY_GROUP)
    container = FETCH if context is None else {**FETCH, "securityContext": context}
    pod = injected({"name": "chown"}, container)

    (operation,) = decide(pod, TEAM, policy).patch

    assert change(pod, operation) == "fetch: runAsGroup 1337"
