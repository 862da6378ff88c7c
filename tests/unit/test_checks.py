"""What each check says: its reason, and the facts that it read, whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from init_egress.rule import selector
from init_egress.rule.decision import Decision, decide
from init_egress.rule.inspection import Inspection
from init_egress.rule.istio import (
    EXCLUDE_PORTS,
    EXCLUDE_RANGES,
    INCLUDE_PORTS,
    INCLUDE_RANGES,
    INTERCEPTION_MODE,
    SKIP_LABEL,
    STATUS,
)
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.policy import ExistingAnnotation, Policy, RemedyKind
from init_egress.rule.trace import trace
from init_egress.rule.verdict import Verdict

TEAM = Namespace("team")
Json = dict[str, Any]
PROXY: Json = {"name": "istio-proxy", "args": ["proxy", "sidecar", "--domain"]}


def pod(*names: str | Json, proxy: Json | None = PROXY, **metadata: Any) -> Pod:
    """An injected Pod with these init containers."""
    annotations = {STATUS: "{}", **metadata.pop("annotations", {})}
    return Pod.from_dict(
        {
            "metadata": {"annotations": annotations, **metadata},
            "spec": {
                "initContainers": [n if isinstance(n, dict) else {"name": n} for n in names],
                "containers": [{"name": "app"}, *([proxy] if proxy else [])],
            },
        }
    )


def facts(a_pod: Pod, policy: Policy = Policy(), namespace: Namespace = TEAM) -> tuple[str, ...]:  # noqa: B008
    """What the last check read."""
    return trace(Inspection(a_pod, namespace, policy))[-1].read


def decided(a_pod: Pod, policy: Policy = Policy(), namespace: Namespace = TEAM) -> Decision:  # noqa: B008
    return decide(a_pod, namespace, policy)


# Reasons


@pytest.mark.parametrize(
    ("a_pod", "policy", "namespace", "reason"),
    [
        (pod("fetch"), Policy(), Namespace("kube-system"), "kube-system is a system namespace"),
        (
            pod("fetch", labels={SKIP_LABEL: "true"}),
            Policy(),
            TEAM,
            "the Pod is labelled istio-init-egress/skip=true",
        ),
        (
            pod("fetch"),
            Policy(),
            Namespace("team", {SKIP_LABEL: "true"}),
            "namespace team is labelled istio-init-egress/skip=true",
        ),
        (
            pod("fetch"),
            Policy(namespaces=selector.parse("stage=dev")),
            TEAM,
            "namespace-selector stage in (dev) does not match team",
        ),
        (
            pod("fetch"),
            Policy(pods=selector.parse("!legacy,app")),
            TEAM,
            "pod-selector !legacy,app does not match the Pod",
        ),
        (Pod(), Policy(), TEAM, "Istio did not inject it: no annotation sidecar.istio.io/status"),
        (
            pod("istio-validation", "chown"),
            Policy(ignored=("chown",)),
            TEAM,
            "it has only Istio's own and ignored init containers, or none",
        ),
        (
            pod("istio-proxy", "fetch", "load", proxy=None),
            Policy(),
            TEAM,
            "fetch, load start after the native sidecar istio-proxy",
        ),
        (
            pod("fetch", "load", proxy=None),
            Policy(),
            TEAM,
            "the traffic of fetch, load is not redirected to a proxy",
        ),
        (
            pod({"name": "fetch", "securityContext": {"runAsGroup": 1337}}),
            Policy(),
            TEAM,
            "fetch run as the proxy's user or group",
        ),
        (
            pod("fetch", annotations={EXCLUDE_RANGES: "10.0.0.0/8"}),
            Policy(existing=ExistingAnnotation.KEEP),
            TEAM,
            "its exclude annotations stay as they are (existing-annotation=keep)",
        ),
        (
            pod("fetch", annotations={EXCLUDE_RANGES: "0.0.0.0/0,::/0"}),
            Policy(),
            TEAM,
            "its exclude annotations hold all that is configured",
        ),
        (
            pod("fetch", annotations={EXCLUDE_RANGES: "0.0.0.0/0,::/0"}),
            Policy(remedy=RemedyKind.PROXY_USER, existing=ExistingAnnotation.KEEP),
            TEAM,
            "its exclude annotations hold all that is configured",
        ),
        (
            pod("istio-init", "fetch", "load"),
            Policy(),
            TEAM,
            "fetch, load: istio-init runs first, and its arguments were set at injection, so"
            " annotations have no effect",
        ),
        (
            pod({"name": "fetch", "securityContext": {"runAsUser": 5}}),
            Policy(remedy=RemedyKind.PROXY_USER),
            TEAM,
            "fetch set runAsUser already, which proxy-user does not change",
        ),
        (
            pod({"name": "fetch", "securityContext": {"runAsGroup": 5}}),
            Policy(remedy=RemedyKind.PROXY_GROUP),
            TEAM,
            "fetch set runAsGroup already, which proxy-group does not change",
        ),
        (pod("fetch", "load"), Policy(), TEAM, "fetch, load cut off before the sidecar runs"),
    ],
)
def test_the_reason(a_pod: Pod, policy: Policy, namespace: Namespace, reason: str) -> None:
    assert decided(a_pod, policy, namespace).reason == reason


# Facts


def test_what_opts_a_pod_out() -> None:
    policy = Policy(namespaces=selector.parse("stage=dev"), pods=selector.parse("app"))
    a_pod = pod("fetch", labels={"app": "x"})

    assert facts(a_pod, policy) == (
        "label istio-init-egress/skip of the Pod: absent",
        "label istio-init-egress/skip of namespace team: absent",
        "namespace-selector stage in (dev): does not match",
        "pod-selector app: matches",
    )


def test_whose_an_init_container_is() -> None:
    a_pod = pod("istio-validation", "chown")

    assert facts(a_pod, Policy(ignored=("chown",))) == (
        "init container istio-validation: Istio's own",
        "init container chown: ignored by ignore-init-containers",
    )
    told = trace(Inspection(pod("fetch"), TEAM, Policy()))
    (step,) = [step for step in told if step.verdict is Verdict.NO_INIT_CONTAINERS]
    assert step.read == ("init container fetch: the user's",)


def test_the_order_behind_a_native_sidecar() -> None:
    assert facts(pod("istio-proxy", "fetch", proxy=None)) == (
        "order of init containers: istio-proxy, fetch",
        "cut off: none",
    )


def test_why_nothing_is_redirected() -> None:
    proxy = {**PROXY, "env": [{"name": "DISABLE_ENVOY", "value": v} for v in ("false", "true")]}
    a_pod = pod("fetch", proxy=proxy, annotations={INCLUDE_RANGES: "", INCLUDE_PORTS: "443"})

    assert facts(a_pod) == (
        "container istio-proxy: present",
        "its first arguments: 'proxy sidecar'",
        "its variable DISABLE_ENVOY: 'true'",
        f"annotation {INTERCEPTION_MODE}: absent",
        f"annotation {INCLUDE_RANGES}: ''",
        f"annotation {INCLUDE_PORTS}: '443'",
        "init container istio-init: absent",
        "cut off: none",
    )


def test_why_nothing_is_redirected_without_a_proxy() -> None:
    assert facts(pod("fetch", "istio-init", proxy=None)) == (
        "container istio-proxy: absent",
        f"annotation {INTERCEPTION_MODE}: absent",
        f"annotation {INCLUDE_RANGES}: absent",
        f"annotation {INCLUDE_PORTS}: absent",
        "init container istio-init: present",
        "cut off: none",
    )


def test_a_proxy_without_arguments_or_variables_is_told_so() -> None:
    a_pod = pod("fetch", proxy={"name": "istio-proxy"}, annotations={INTERCEPTION_MODE: "NONE"})

    assert facts(a_pod)[1:3] == (
        "its first arguments: none",
        "its variable DISABLE_ENVOY: absent",
    )


@pytest.mark.parametrize(
    ("policy", "configured"),
    [
        (
            Policy(ranges=("10.0.0.0/8", "fd00::/8"), ports=("443", "53")),
            ("10.0.0.0/8,fd00::/8", "443,53", "merge"),
        ),
        (
            Policy(ranges=(), ports=("443",), existing=ExistingAnnotation.REPLACE),
            ("none", "443", "replace"),
        ),
        (Policy(existing=ExistingAnnotation.KEEP), ("0.0.0.0/0,::/0", "none", "keep")),
    ],
)
def test_what_is_excluded_and_what_should_be(
    policy: Policy, configured: tuple[str, str, str]
) -> None:
    annotations = {
        EXCLUDE_RANGES: ",".join(policy.ranges) or "x",
        EXCLUDE_PORTS: ",".join(policy.ports),
    }

    ranges, ports, existing = configured
    assert facts(pod("fetch", annotations=annotations), policy) == (
        f"annotation {EXCLUDE_RANGES}: {annotations[EXCLUDE_RANGES]!r}",
        f"configured ranges: {ranges}",
        f"annotation {EXCLUDE_PORTS}: {annotations[EXCLUDE_PORTS]!r}",
        f"configured ports: {ports}",
        f"existing-annotation: {existing}",
    )


def test_the_proxy_remedies_ask_for_the_ranges_alone() -> None:
    policy = Policy(remedy=RemedyKind.PROXY_GROUP, ports=("443",))
    a_pod = pod("fetch", annotations={EXCLUDE_RANGES: "0.0.0.0/0,::/0"})

    assert facts(a_pod, policy) == (
        f"annotation {EXCLUDE_RANGES}: '0.0.0.0/0,::/0'",
        "configured ranges: 0.0.0.0/0,::/0",
    )


@pytest.mark.parametrize(
    ("remedy", "field"),
    [(RemedyKind.PROXY_USER, "runAsUser"), (RemedyKind.PROXY_GROUP, "runAsGroup")],
)
def test_what_is_in_a_proxy_remedys_way(remedy: RemedyKind, field: str) -> None:
    a_pod = pod({"name": "fetch", "securityContext": {field: 5}})

    assert facts(a_pod, Policy(remedy=remedy)) == (
        f"remedy: {remedy.value}",
        f"{field} of fetch: 5",
    )


def test_what_a_remedy_sets() -> None:
    assert facts(pod("fetch"), Policy(ports=("443",))) == (
        "cut off and not exempt: fetch",
        f"the remedy sets annotation {EXCLUDE_RANGES}: '0.0.0.0/0,::/0'",
        f"the remedy sets annotation {EXCLUDE_PORTS}: '443'",
    )


def test_a_long_value_is_cut() -> None:
    value = "x" * 500
    shown = facts(
        pod("fetch", annotations={EXCLUDE_RANGES: value}),
        Policy(existing=ExistingAnnotation.KEEP),
    )[0]

    assert shown == f"annotation {EXCLUDE_RANGES}: '{'x' * 400}…'"


# What is easily got wrong


@pytest.mark.parametrize(
    ("remedy", "field", "identity"),
    [(RemedyKind.PROXY_USER, "runAsUser", 2001), (RemedyKind.PROXY_GROUP, "runAsGroup", 2002)],
)
def test_a_proxy_remedy_gives_the_identity_of_this_pods_proxy(
    remedy: RemedyKind, field: str, identity: int
) -> None:
    proxy = {**PROXY, "securityContext": {"runAsUser": 2001, "runAsGroup": 2002}}

    (operation,) = decided(pod("fetch", proxy=proxy), Policy(remedy=remedy)).patch

    assert operation.value == {field: identity}


def test_replacing_leaves_the_same_ranges_in_another_order() -> None:
    policy = Policy(existing=ExistingAnnotation.REPLACE)
    a_pod = pod("fetch", annotations={EXCLUDE_RANGES: "::/0,0.0.0.0/0"})

    assert decided(a_pod, policy).verdict is Verdict.ALREADY_EXCLUDED


def test_included_ports_are_blank_as_go_sees_it() -> None:
    blank = {INCLUDE_RANGES: "", INCLUDE_PORTS: " \u00a0\t"}
    no_space_of_go = {INCLUDE_RANGES: "", INCLUDE_PORTS: "\x1c"}

    assert decided(pod("fetch", annotations=blank)).verdict is Verdict.NOT_REDIRECTED
    assert decided(pod("fetch", annotations=no_space_of_go)).verdict is Verdict.NEEDS_REMEDY


def test_a_remedy_patches_only_what_is_not_exempt() -> None:
    policy = replace(Policy(), remedy=RemedyKind.PROXY_USER)
    exempt = {"name": "exempt", "securityContext": {"runAsGroup": 1337}}
    own = {"name": "own", "securityContext": {"runAsUser": 5}}

    decision = decided(pod(exempt, own, "fetch"), policy)

    assert decision.cut_off == ("own", "fetch")
    assert [operation.path for operation in decision.patch] == [
        "/spec/initContainers/2/securityContext"
    ]
