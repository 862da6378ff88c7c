"""The rule: every verdict, every clause of "cut off", and what each remedy changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from init_egress.rule import decision, selector
from init_egress.rule.decision import Decision
from init_egress.rule.istio import (
    EXCLUDE_PORTS,
    EXCLUDE_RANGES,
    INCLUDE_PORTS,
    INCLUDE_RANGES,
    INTERCEPTION_MODE,
    ISTIO_CONTAINERS,
    SKIP_LABEL,
    STATUS,
    SYSTEM_NAMESPACES,
)
from init_egress.rule.patch import PatchOperation, escape
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.policy import ExistingAnnotation, Policy, RemedyKind
from init_egress.rule.verdict import Verdict

TEAM = Namespace("team", {"istio-injection": "enabled"})
EVERYTHING_EXCLUDED = "0.0.0.0/0,::/0"
RANGES_POINTER = "/metadata/annotations/traffic.sidecar.istio.io~1excludeOutboundIPRanges"
PORTS_POINTER = "/metadata/annotations/traffic.sidecar.istio.io~1excludeOutboundPorts"

Json = dict[str, Any]


# --- Pods as Istio makes them --------------------------------------------------------------------


def init(name: str = "fetch", security_context: Json | None = None, **fields: object) -> Json:
    """A user's init container; `security_context` None leaves the field out."""
    container: Json = {"name": name, "image": "example.com/fetch:1", **fields}
    if security_context is not None:
        container["securityContext"] = security_context
    return container


def proxy(
    uid: int | None = 1337, gid: int | None = 1337, env: list[Json] | None = None, **fields: object
) -> Json:
    """The sidecar, with the arguments and the identity that Istio's template gives it."""
    identity = {"runAsUser": uid, "runAsGroup": gid, "runAsNonRoot": True}
    return {
        "name": "istio-proxy",
        "image": "docker.io/istio/proxyv2:1.29.1",
        "args": ["proxy", "sidecar", "--domain", "$(POD_NAMESPACE).svc.cluster.local"],
        "env": env or [{"name": "PILOT_CERT_PROVIDER", "value": "istiod"}],
        "securityContext": {k: v for k, v in identity.items() if v is not None},
        **fields,
    }


def native_proxy(**fields: Any) -> Json:
    return proxy(**fields, restartPolicy="Always")


def validation() -> Json:
    return {
        "name": "istio-validation",
        "args": ["istio-iptables", "-p", "15001", "--run-validation", "--skip-rule-apply"],
        "securityContext": {"runAsUser": 1337, "runAsGroup": 1337, "runAsNonRoot": True},
    }


def istio_init() -> Json:
    return {
        "name": "istio-init",
        "args": ["istio-iptables", "-p", "15001", "-i", "*", "-x", ""],
        "securityContext": {"runAsUser": 0, "runAsGroup": 0, "privileged": False},
    }


def pod(
    init_containers: list[Json],
    containers: list[Json],
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    security_context: Json | None = None,
) -> Pod:
    """An injected Pod."""
    spec: Json = {"initContainers": init_containers, "containers": containers}
    if security_context is not None:
        spec["securityContext"] = security_context
    status = {STATUS: '{"initContainers":[],"containers":["istio-proxy"],"revision":"default"}'}
    metadata = {
        "name": "app-0",
        "labels": {"app": "app", **(labels or {})},
        "annotations": {**status, **(annotations or {})},
    }
    return Pod.from_dict({"metadata": metadata, "spec": spec})


APP: Json = {"name": "app", "image": "example.com/app:1"}


def cni_pod(*own: Json, sidecar: Json | None = None, **fields: Any) -> Pod:
    """Redirection by the CNI plugin, the sidecar a container: istio-validation comes first."""
    return pod([validation(), *(own or (init(),))], [sidecar or proxy(), APP], **fields)


def istio_init_pod(*own: Json, late: tuple[Json, ...] = (), **fields: Any) -> Pod:
    """Redirection by istio-init, which Istio puts last; `late` are added by a later webhook."""
    return pod([*own, istio_init(), *late], [proxy(), APP], **fields)


def native_pod(*own: Json, before: tuple[Json, ...] = (), **fields: Any) -> Pod:
    """A native sidecar: istio-validation, istio-proxy, the rest; `before` was put in front."""
    behind = own or (init(),)
    return pod([*before, validation(), native_proxy(), *behind], [APP], **fields)


def decide(a_pod: Pod, policy: Policy | None = None, namespace: Namespace = TEAM) -> Decision:
    return decision.decide(a_pod, namespace, policy or Policy())


def verdict(a_pod: Pod, policy: Policy | None = None, namespace: Namespace = TEAM) -> Verdict:
    return decide(a_pod, policy, namespace).verdict


def new_annotations(decision: Decision) -> dict[str, object]:
    """What the patch sets, by annotation; any other operation fails the test."""
    keys = {RANGES_POINTER: "ranges", PORTS_POINTER: "ports"}
    assert all(operation.op == "add" for operation in decision.patch)
    return {keys[operation.path]: operation.value for operation in decision.patch}


PROXY_USER = Policy(remedy=RemedyKind.PROXY_USER)
PROXY_GROUP = Policy(remedy=RemedyKind.PROXY_GROUP)


# --- Namespaces, labels, selectors ---------------------------------------------------------------


def test_the_verdicts_stand_in_the_order_in_which_the_rule_asks() -> None:
    assert [v.value for v in Verdict] == [
        "system-namespace",
        "opted-out",
        "not-injected",
        "no-init-containers",
        "native-sidecar",
        "not-redirected",
        "already-exempt",
        "already-excluded",
        "beyond-remedy",
        "needs-remedy",
    ]


def test_the_system_namespaces_are_those_that_istio_never_injects() -> None:
    assert set(SYSTEM_NAMESPACES) == {
        "kube-system",
        "kube-public",
        "kube-node-lease",
        "local-path-storage",
    }


@pytest.mark.parametrize("name", SYSTEM_NAMESPACES)
def test_a_pod_in_a_system_namespace_is_left_alone(name: str) -> None:
    decision = decide(cni_pod(), namespace=Namespace(name))
    assert decision.verdict is Verdict.SYSTEM_NAMESPACE
    assert name in decision.reason
    assert decision.patch == ()


@pytest.mark.parametrize("name", ["kube-system-team", "kube", "default", "kubeflow"])
def test_a_namespace_with_a_name_like_a_system_namespace_is_none(name: str) -> None:
    assert verdict(cni_pod(), namespace=Namespace(name)) is Verdict.NEEDS_REMEDY


def test_the_namespace_that_counts_is_the_one_asked_about_not_the_one_in_the_pod() -> None:
    raw = Pod.from_dict({"metadata": {"namespace": "kube-system"}})
    assert verdict(raw) is Verdict.NOT_INJECTED


def test_a_label_on_the_pod_opts_it_out() -> None:
    decision = decide(cni_pod(labels={"istio-init-egress/skip": "true"}))
    assert decision.verdict is Verdict.OPTED_OUT
    assert SKIP_LABEL in decision.reason
    assert "Pod" in decision.reason


def test_a_label_on_the_namespace_opts_its_pods_out() -> None:
    decision = decide(cni_pod(), namespace=Namespace("quiet", {"istio-init-egress/skip": "true"}))
    assert decision.verdict is Verdict.OPTED_OUT
    assert "quiet" in decision.reason


@pytest.mark.parametrize("value", ["false", "True", "TRUE", "1", "yes", " true", ""])
def test_only_the_literal_true_opts_out(value: str) -> None:
    assert verdict(cni_pod(labels={SKIP_LABEL: value})) is Verdict.NEEDS_REMEDY
    assert verdict(cni_pod(), namespace=Namespace("n", {SKIP_LABEL: value})) is (
        Verdict.NEEDS_REMEDY
    )


def test_an_annotation_of_the_same_name_opts_nothing_out() -> None:
    assert verdict(cni_pod(annotations={SKIP_LABEL: "true"})) is Verdict.NEEDS_REMEDY


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        pytest.param("team=ml", {"team": "ml"}, Verdict.NEEDS_REMEDY, id="equal"),
        pytest.param("team=ml", {"team": "web"}, Verdict.OPTED_OUT, id="unequal"),
        pytest.param("team=ml", {}, Verdict.OPTED_OUT, id="absent"),
        pytest.param("team!=ml", {}, Verdict.NEEDS_REMEDY, id="not-equal-absent"),
        pytest.param("!legacy", {"legacy": ""}, Verdict.OPTED_OUT, id="must-not-exist"),
        pytest.param("a,b", {"a": ""}, Verdict.OPTED_OUT, id="one-of-two"),
        pytest.param("a,b", {"a": "", "b": ""}, Verdict.NEEDS_REMEDY, id="both"),
    ],
)
def test_the_selectors_restrict_namespaces_and_pods(
    text: str, labels: dict[str, str], expected: Verdict
) -> None:
    by_namespace = Policy(namespaces=selector.parse(text))
    assert verdict(cni_pod(), by_namespace, Namespace("n", labels)) is expected
    assert verdict(cni_pod(labels=labels), Policy(pods=selector.parse(text))) is expected


def test_a_selector_that_does_not_match_is_quoted_with_its_option() -> None:
    chosen = selector.parse("team in (ml)")
    assert "namespace-selector team in (ml)" in decide(cni_pod(), Policy(namespaces=chosen)).reason
    assert "pod-selector team in (ml)" in decide(cni_pod(), Policy(pods=chosen)).reason


# --- Injected or not, and whose init containers --------------------------------------------------


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({}, id="no-annotations"),
        pytest.param({"annotations": None}, id="annotations-null"),
        pytest.param({"annotations": {}}, id="annotations-empty"),
        pytest.param({"annotations": {"sidecar.istio.io/inject": "true"}}, id="asks-only"),
        pytest.param({"labels": {STATUS: "{}"}}, id="status-as-label"),
        pytest.param({"annotations": {"ambient.istio.io/redirection": "enabled"}}, id="ambient"),
    ],
)
def test_a_pod_without_istios_status_annotation_is_not_injected(metadata: Json) -> None:
    raw = {"metadata": metadata, "spec": {"initContainers": [init()], "containers": [APP]}}
    decision = decide(Pod.from_dict(raw))
    assert decision.verdict is Verdict.NOT_INJECTED
    assert STATUS in decision.reason


def test_an_empty_status_annotation_still_says_that_istio_injected_the_pod() -> None:
    assert verdict(cni_pod(annotations={STATUS: ""})) is Verdict.NEEDS_REMEDY


@pytest.mark.parametrize("name", ISTIO_CONTAINERS)
def test_istios_own_init_containers_are_not_the_users(name: str) -> None:
    assert verdict(pod([{"name": name}], [proxy(), APP])) is Verdict.NO_INIT_CONTAINERS


def test_istios_own_containers_are_the_five_that_its_templates_make() -> None:
    assert set(ISTIO_CONTAINERS) == {
        "istio-init",
        "istio-validation",
        "istio-proxy",
        "enable-core-dump",
        "grpc-bootstrap-init",
    }


@pytest.mark.parametrize("init_containers", [None, []], ids=["null", "empty"])
def test_a_pod_without_init_containers_needs_nothing(init_containers: list[Json] | None) -> None:
    raw = {
        "metadata": {"annotations": {STATUS: "{}"}},
        "spec": {"initContainers": init_containers, "containers": [proxy(), APP]},
    }
    assert verdict(Pod.from_dict(raw)) is Verdict.NO_INIT_CONTAINERS


def test_a_pod_with_only_ignored_init_containers_needs_nothing() -> None:
    policy = Policy(ignored=("volume-permissions", "init-chown-data"))
    a_pod = cni_pod(init("volume-permissions"), init("init-chown-data"))
    assert verdict(a_pod, policy) is Verdict.NO_INIT_CONTAINERS


@pytest.mark.parametrize("name", ["volume-permissions-2", "my-volume-permissions", "volume"])
def test_names_are_ignored_only_if_they_are_the_same(name: str) -> None:
    policy = Policy(ignored=("volume-permissions",))
    assert verdict(cni_pod(init(name)), policy) is Verdict.NEEDS_REMEDY


def test_an_ignored_container_beside_one_that_is_cut_off_is_left_alone() -> None:
    policy = Policy(remedy=RemedyKind.PROXY_USER, ignored=("volume-permissions",))
    decision = decide(cni_pod(init("volume-permissions"), init("fetch")), policy)
    assert decision.cut_off == ("fetch",)
    assert [operation.path for operation in decision.patch] == [
        "/spec/initContainers/2/securityContext"
    ]


def test_no_name_is_ignored_unless_the_policy_says_so() -> None:
    assert verdict(cni_pod(init("volume-permissions"))) is Verdict.NEEDS_REMEDY


# --- Cut off, or not -----------------------------------------------------------------------------


def test_under_cni_an_init_container_of_the_user_is_cut_off() -> None:
    decision = decide(cni_pod(init("fetch"), init("migrate")))
    assert decision.verdict is Verdict.NEEDS_REMEDY
    assert decision.cut_off == ("fetch", "migrate")
    assert "fetch, migrate" in decision.reason


def test_under_cni_the_place_beside_istio_validation_does_not_matter() -> None:
    a_pod = pod([init("early"), validation(), init("late")], [proxy(), APP])
    assert decide(a_pod).cut_off == ("early", "late")


def test_a_pod_without_istio_validation_is_redirected_all_the_same() -> None:
    assert verdict(pod([init()], [proxy(), APP])) is Verdict.NEEDS_REMEDY


@pytest.mark.parametrize("policy", ["Always", "Never", "OnFailure"])
def test_a_restartable_init_container_of_the_user_counts_like_any_other(policy: str) -> None:
    decision = decide(cni_pod(init("cloud-sql-proxy", restartPolicy=policy)))
    assert decision.verdict is Verdict.NEEDS_REMEDY
    assert decision.cut_off == ("cloud-sql-proxy",)


def test_a_container_before_istio_init_is_not_cut_off() -> None:
    decision = decide(istio_init_pod(init("fetch")))
    assert decision.verdict is Verdict.NOT_REDIRECTED
    assert decision.cut_off == ()


def test_a_container_behind_istio_init_is_cut_off() -> None:
    decision = decide(istio_init_pod(init("early"), late=(init("late"),)))
    assert decision.verdict is Verdict.BEYOND_REMEDY
    assert decision.cut_off == ("late",)


def test_behind_a_native_sidecar_no_init_container_is_cut_off() -> None:
    decision = decide(native_pod(init("fetch"), init("migrate")))
    assert decision.verdict is Verdict.NATIVE_SIDECAR
    assert decision.cut_off == ()
    assert "fetch, migrate" in decision.reason


def test_a_container_in_front_of_a_native_sidecar_is_cut_off() -> None:
    decision = decide(native_pod(init("behind"), before=(init("vault-agent-init"),)))
    assert decision.verdict is Verdict.NEEDS_REMEDY
    assert decision.cut_off == ("vault-agent-init",)


def test_a_restartable_container_in_front_of_a_native_sidecar_is_cut_off() -> None:
    before = init("gke-gcsfuse-sidecar", restartPolicy="Always")
    assert decide(native_pod(before=(before,))).cut_off == ("gke-gcsfuse-sidecar",)


def test_a_sidecar_among_the_init_containers_is_native_whatever_its_restart_policy_says() -> None:
    a_pod = pod([validation(), proxy(), init()], [APP])
    assert verdict(a_pod) is Verdict.NATIVE_SIDECAR


@pytest.mark.parametrize(
    ("order", "expected", "cut_off"),
    [
        pytest.param("init proxy user", Verdict.NATIVE_SIDECAR, (), id="behind-both"),
        pytest.param("init user proxy", Verdict.BEYOND_REMEDY, ("user",), id="between"),
        pytest.param("user init proxy", Verdict.NOT_REDIRECTED, (), id="before-both"),
        pytest.param("proxy user init", Verdict.NATIVE_SIDECAR, (), id="proxy-first"),
    ],
)
def test_with_istio_init_and_a_native_sidecar_only_what_is_between_is_cut_off(
    order: str, expected: Verdict, cut_off: tuple[str, ...]
) -> None:
    known = {"init": istio_init(), "proxy": native_proxy(), "user": init("user")}
    decision = decide(pod([known[name] for name in order.split()], [APP]))
    assert decision.verdict is expected
    assert decision.cut_off == cut_off


def test_a_container_before_istio_init_beside_one_behind_a_native_sidecar_is_not_redirected() -> (
    None
):
    a_pod = pod([init("early"), istio_init(), native_proxy(), init("late")], [APP])
    assert verdict(a_pod) is Verdict.NOT_REDIRECTED


def test_an_ignored_container_in_front_does_not_make_a_native_sidecar_useless() -> None:
    policy = Policy(ignored=("chown",))
    assert verdict(native_pod(before=(init("chown"),)), policy) is Verdict.NATIVE_SIDECAR


def test_without_a_container_istio_proxy_nothing_is_redirected() -> None:
    assert verdict(pod([validation(), init()], [APP])) is Verdict.NOT_REDIRECTED


@pytest.mark.parametrize(
    ("args", "redirected"),
    [
        pytest.param(["proxy", "sidecar"], True, id="sidecar"),
        pytest.param(["proxy", "sidecar", "--domain", "x"], True, id="sidecar-with-flags"),
        pytest.param(["proxy", "router"], False, id="router"),
        pytest.param(["proxy", "router", "--domain", "x"], False, id="router-with-flags"),
        pytest.param(["proxy", "waypoint"], False, id="waypoint"),
        pytest.param(["proxy"], True, id="proxy-alone"),
        pytest.param(["router"], True, id="no-proxy"),
        pytest.param(["--log", "proxy", "router"], True, id="proxy-not-first"),
        pytest.param([], True, id="empty"),
        pytest.param(None, True, id="null"),
    ],
)
def test_only_a_proxy_of_another_type_than_sidecar_is_not_redirected(
    args: list[str] | None, redirected: bool
) -> None:
    expected = Verdict.NEEDS_REMEDY if redirected else Verdict.NOT_REDIRECTED
    assert verdict(cni_pod(sidecar=proxy(args=args))) is expected


@pytest.mark.parametrize("value", ["1", "t", "T", "TRUE", "true", "True"])
def test_disable_envoy_switches_redirection_off(value: str) -> None:
    sidecar = proxy(env=[{"name": "DISABLE_ENVOY", "value": value}])
    assert verdict(cni_pod(sidecar=sidecar)) is Verdict.NOT_REDIRECTED


@pytest.mark.parametrize(
    "value", ["0", "f", "F", "FALSE", "false", "False", "", "yes", "on", "tRUE", " true", "true "]
)
def test_any_other_value_of_disable_envoy_does_not(value: str) -> None:
    sidecar = proxy(env=[{"name": "DISABLE_ENVOY", "value": value}])
    assert verdict(cni_pod(sidecar=sidecar)) is Verdict.NEEDS_REMEDY


@pytest.mark.parametrize(
    ("values", "redirected"),
    [
        pytest.param(["true", "false"], True, id="false-last"),
        pytest.param(["false", "true"], False, id="true-last"),
        pytest.param(["true", "true"], False, id="twice"),
    ],
)
def test_of_several_disable_envoy_the_last_one_counts(values: list[str], redirected: bool) -> None:
    sidecar = proxy(env=[{"name": "DISABLE_ENVOY", "value": value} for value in values])
    expected = Verdict.NEEDS_REMEDY if redirected else Verdict.NOT_REDIRECTED
    assert verdict(cni_pod(sidecar=sidecar)) is expected


def test_disable_envoy_from_a_reference_is_not_true() -> None:
    source = {"fieldRef": {"fieldPath": "metadata.name"}}
    sidecar = proxy(env=[{"name": "DISABLE_ENVOY", "valueFrom": source}])
    assert verdict(cni_pod(sidecar=sidecar)) is Verdict.NEEDS_REMEDY


def test_disable_envoy_on_another_container_means_nothing() -> None:
    env = [{"name": "DISABLE_ENVOY", "value": "true"}]
    assert verdict(cni_pod(init(env=env))) is Verdict.NEEDS_REMEDY


def test_a_sidecar_without_any_variable_is_redirected() -> None:
    assert verdict(cni_pod(sidecar=proxy() | {"env": None})) is Verdict.NEEDS_REMEDY


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("NONE", Verdict.NOT_REDIRECTED),
        ("REDIRECT", Verdict.NEEDS_REMEDY),
        ("TPROXY", Verdict.NEEDS_REMEDY),
        ("none", Verdict.NEEDS_REMEDY),
        ("", Verdict.NEEDS_REMEDY),
    ],
)
def test_only_interception_mode_none_switches_redirection_off(
    mode: str, expected: Verdict
) -> None:
    assert verdict(cni_pod(annotations={INTERCEPTION_MODE: mode})) is expected


@pytest.mark.parametrize(
    ("annotations", "redirected"),
    [
        pytest.param({INCLUDE_RANGES: ""}, False, id="no-ranges"),
        pytest.param({INCLUDE_RANGES: "", INCLUDE_PORTS: ""}, False, id="no-ranges-no-ports"),
        pytest.param({INCLUDE_RANGES: "", INCLUDE_PORTS: " \t"}, False, id="ports-of-space"),
        pytest.param({INCLUDE_RANGES: "", INCLUDE_PORTS: "443"}, True, id="ports-only"),
        pytest.param({INCLUDE_RANGES: "", INCLUDE_PORTS: "*"}, True, id="every-port"),
        pytest.param({INCLUDE_RANGES: "*"}, True, id="every-range"),
        pytest.param({INCLUDE_RANGES: "10.0.0.0/8", INCLUDE_PORTS: ""}, True, id="a-range"),
        pytest.param({INCLUDE_PORTS: ""}, True, id="ranges-absent"),
    ],
)
def test_under_cni_a_pod_that_includes_nothing_is_not_redirected(
    annotations: dict[str, str], redirected: bool
) -> None:
    expected = Verdict.NEEDS_REMEDY if redirected else Verdict.NOT_REDIRECTED
    assert verdict(cni_pod(annotations=annotations)) is expected


@pytest.mark.parametrize("ports", [{}, {INCLUDE_PORTS: ""}, {INCLUDE_PORTS: "443"}])
def test_with_istio_init_the_included_ranges_say_nothing(ports: dict[str, str]) -> None:
    a_pod = istio_init_pod(late=(init("late"),), annotations={INCLUDE_RANGES: "", **ports})
    assert decide(a_pod).cut_off == ("late",)


@pytest.mark.parametrize(
    ("annotations", "sidecar"),
    [
        pytest.param({INTERCEPTION_MODE: "NONE"}, native_proxy(), id="mode-none"),
        pytest.param({INCLUDE_RANGES: ""}, native_proxy(), id="nothing-included"),
        pytest.param({}, native_proxy(args=["proxy", "router"]), id="router"),
        pytest.param(
            {}, native_proxy(env=[{"name": "DISABLE_ENVOY", "value": "1"}]), id="no-envoy"
        ),
    ],
)
def test_in_front_of_a_native_sidecar_nothing_is_cut_off_where_nothing_is_redirected(
    annotations: dict[str, str], sidecar: Json
) -> None:
    in_front = pod([init(), validation(), sidecar], [APP], annotations)
    assert verdict(in_front) is Verdict.NOT_REDIRECTED
    behind = pod([validation(), sidecar, init()], [APP], annotations)
    assert verdict(behind) is Verdict.NATIVE_SIDECAR


# --- First match wins ----------------------------------------------------------------------------


def _less(*without: Verdict) -> tuple[Pod, Policy, Namespace]:
    """An input to which every verdict fits, and then all but those named."""

    def fits(a_verdict: Verdict) -> bool:
        return a_verdict not in without

    own = [] if fits(Verdict.NO_INIT_CONTAINERS) else [init()]
    if not fits(Verdict.NO_INIT_CONTAINERS) and fits(Verdict.ALREADY_EXEMPT):
        own = [init(security_context={"runAsUser": 1337})]
    annotations = {EXCLUDE_RANGES: EVERYTHING_EXCLUDED} if fits(Verdict.ALREADY_EXCLUDED) else {}
    if fits(Verdict.NATIVE_SIDECAR):
        order = [validation(), native_proxy(), *own]
    elif fits(Verdict.NOT_REDIRECTED):
        order = [*own, istio_init(), native_proxy()]
    elif fits(Verdict.BEYOND_REMEDY):
        order = [istio_init(), *own, native_proxy()]
    else:
        order = [validation(), *own, native_proxy()]
    labels = {SKIP_LABEL: "true"} if fits(Verdict.OPTED_OUT) else {}
    a_pod = pod(order, [APP], annotations, labels)
    if fits(Verdict.NOT_INJECTED):
        a_pod = Pod.from_dict(
            {"metadata": {"labels": labels}, "spec": {"initContainers": order}},
        )
    namespace = Namespace("kube-system" if fits(Verdict.SYSTEM_NAMESPACE) else "team")
    return a_pod, Policy(), namespace


@pytest.mark.parametrize("expected", list(Verdict), ids=lambda v: v.value)
def test_the_first_verdict_that_fits_wins(expected: Verdict) -> None:
    earlier = list(Verdict)[: list(Verdict).index(expected)]
    a_pod, policy, namespace = _less(*earlier)
    assert verdict(a_pod, policy, namespace) is expected


# --- Exempt by identity --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shared", "own", "exempt"),
    [
        pytest.param(None, {"runAsUser": 1337}, True, id="own-user"),
        pytest.param(None, {"runAsGroup": 1337}, True, id="own-group"),
        pytest.param(None, {"runAsUser": 1000, "runAsGroup": 1337}, True, id="group-suffices"),
        pytest.param(None, {"runAsUser": 1337, "runAsGroup": 1000}, True, id="user-suffices"),
        pytest.param(None, {"runAsUser": 1000, "runAsGroup": 1000}, False, id="other-ids"),
        pytest.param(None, {"runAsUser": 0}, False, id="root"),
        pytest.param(None, {}, False, id="empty-context"),
        pytest.param(None, None, False, id="no-context"),
        pytest.param({"runAsUser": 1337}, None, True, id="pod-user"),
        pytest.param({"runAsGroup": 1337}, None, True, id="pod-group"),
        pytest.param({"runAsUser": 1337}, {}, True, id="pod-user-empty-context"),
        pytest.param({"runAsUser": 1337}, {"runAsNonRoot": True}, True, id="pod-user-no-own"),
        pytest.param({"runAsUser": 1337}, {"runAsUser": 1000}, False, id="own-user-beats-pod"),
        pytest.param({"runAsUser": 1337}, {"runAsUser": 0}, False, id="own-root-beats-pod"),
        pytest.param({"runAsGroup": 1337}, {"runAsGroup": 0}, False, id="own-group-beats-pod"),
        pytest.param({"runAsUser": 1337}, {"runAsGroup": 1000}, True, id="fields-apart"),
        pytest.param({"runAsUser": 1000}, {"runAsUser": 1337}, True, id="own-proxy-user"),
        pytest.param({"fsGroup": 1337}, None, False, id="fs-group-is-no-group"),
        pytest.param({"supplementalGroups": [1337]}, None, False, id="nor-supplemental"),
        pytest.param({}, None, False, id="pod-context-empty"),
    ],
)
def test_what_counts_is_the_identity_in_effect_the_containers_before_the_pods(
    shared: Json | None, own: Json | None, exempt: bool
) -> None:
    expected = Verdict.ALREADY_EXEMPT if exempt else Verdict.NEEDS_REMEDY
    assert verdict(cni_pod(init(security_context=own), security_context=shared)) is expected


@pytest.mark.parametrize(
    ("proxy_id", "own_id", "exempt"),
    [
        pytest.param(None, 1337, True, id="unset-means-1337"),
        pytest.param(0, 1337, True, id="root-means-1337"),
        pytest.param(0, 0, False, id="root-is-not-exempt"),
        pytest.param(1337, 1337, True, id="istios-default"),
        pytest.param(1000989999, 1000989999, True, id="openshift"),
        pytest.param(1000989999, 1337, False, id="1337-elsewhere"),
    ],
)
def test_the_proxys_ids_are_those_of_its_container(
    proxy_id: int | None, own_id: int, exempt: bool
) -> None:
    expected = Verdict.ALREADY_EXEMPT if exempt else Verdict.NEEDS_REMEDY
    by_user = cni_pod(
        init(security_context={"runAsUser": own_id}), sidecar=proxy(uid=proxy_id, gid=4242)
    )
    assert verdict(by_user) is expected
    by_group = cni_pod(
        init(security_context={"runAsGroup": own_id}), sidecar=proxy(uid=4242, gid=proxy_id)
    )
    assert verdict(by_group) is expected


def test_a_proxy_without_a_security_context_has_the_default_ids() -> None:
    bare = {key: value for key, value in proxy().items() if key != "securityContext"}
    own = init(security_context={"runAsUser": 1337})
    assert verdict(cni_pod(own, sidecar=bare)) is Verdict.ALREADY_EXEMPT


def test_the_pods_identity_is_not_taken_for_the_proxys() -> None:
    bare = {key: value for key, value in proxy().items() if key != "securityContext"}
    a_pod = cni_pod(init(), sidecar=bare, security_context={"runAsUser": 1000})
    assert verdict(a_pod) is Verdict.NEEDS_REMEDY


def test_the_proxys_user_is_not_taken_for_its_group() -> None:
    sidecar = proxy(uid=5000, gid=6000)
    swapped = init(security_context={"runAsUser": 6000, "runAsGroup": 5000})
    assert verdict(cni_pod(swapped, sidecar=sidecar)) is Verdict.NEEDS_REMEDY


def test_a_native_proxys_ids_count_as_well() -> None:
    own = init("first", security_context={"runAsUser": 5000})
    a_pod = pod([own, validation(), native_proxy(uid=5000)], [APP])
    assert verdict(a_pod) is Verdict.ALREADY_EXEMPT


def test_a_pod_is_exempt_only_if_all_that_are_cut_off_are() -> None:
    exempt = init("storage-initializer", security_context={"runAsUser": 1337})
    decision = decide(cni_pod(exempt, init("migrate")))
    assert decision.verdict is Verdict.NEEDS_REMEDY
    assert decision.cut_off == ("migrate",)


def test_an_exempt_container_behind_istio_init_is_exempt_too() -> None:
    late = init("late", security_context={"runAsUser": 1337})
    assert verdict(istio_init_pod(late=(late,))) is Verdict.ALREADY_EXEMPT


def test_exemption_comes_before_exclusion() -> None:
    own = init(security_context={"runAsUser": 1337})
    a_pod = cni_pod(own, annotations={EXCLUDE_RANGES: EVERYTHING_EXCLUDED})
    decision = decide(a_pod)
    assert decision.verdict is Verdict.ALREADY_EXEMPT
    assert decision.cut_off == ()
    assert "fetch" in decision.reason


# --- exclude-ip-ranges ---------------------------------------------------------------------------


def test_the_default_remedy_excludes_every_address_of_both_families() -> None:
    decision = decide(cni_pod())
    assert decision.patch == (PatchOperation("add", RANGES_POINTER, EVERYTHING_EXCLUDED),)


def test_slashes_in_a_key_are_escaped_for_a_json_pointer() -> None:
    assert escape("a~b/c~1") == "a~0b~1c~01"
    assert escape(EXCLUDE_RANGES) == RANGES_POINTER.rpartition("/")[2]
    assert escape("plain.key") == "plain.key"


def test_both_annotations_are_written_where_both_are_configured() -> None:
    policy = Policy(ranges=("10.0.0.0/8",), ports=("443", "5432"))
    assert new_annotations(decide(cni_pod(), policy)) == {
        "ranges": "10.0.0.0/8",
        "ports": "443,5432",
    }


def test_without_configured_ports_the_ports_annotation_is_none_of_ours() -> None:
    a_pod = cni_pod(annotations={EXCLUDE_PORTS: " 15020 , "})
    assert new_annotations(decide(a_pod)) == {"ranges": EVERYTHING_EXCLUDED}


def test_without_configured_ranges_the_ranges_annotation_is_none_of_ours() -> None:
    policy = Policy(ranges=(), ports=("443",))
    a_pod = cni_pod(annotations={EXCLUDE_RANGES: "10.0.0.0/8, 11.0.0.0/8"})
    assert new_annotations(decide(a_pod, policy)) == {"ports": "443"}


RANGES = ("10.0.0.0/8", "fd00::/8")


@pytest.mark.parametrize(
    ("existing", "value", "expected"),
    [
        pytest.param("merge", None, "10.0.0.0/8,fd00::/8", id="merge-absent"),
        pytest.param("merge", "", "10.0.0.0/8,fd00::/8", id="merge-empty"),
        pytest.param("merge", " ", "10.0.0.0/8,fd00::/8", id="merge-space"),
        pytest.param("merge", ",", "10.0.0.0/8,fd00::/8", id="merge-comma"),
        pytest.param(
            "merge", "1.0.0.0/8", "1.0.0.0/8,10.0.0.0/8,fd00::/8", id="merge-existing-first"
        ),
        pytest.param("merge", "fd00::/8", "fd00::/8,10.0.0.0/8", id="merge-what-is-missing"),
        pytest.param("merge", "10.0.0.0/8,fd00::/8", None, id="merge-complete"),
        pytest.param("merge", "fd00::/8,10.0.0.0/8", None, id="merge-complete-other-order"),
        pytest.param("merge", "10.0.0.0/8,1.0.0.0/8,fd00::/8", None, id="merge-more"),
        pytest.param("merge", "10.0.0.0/8, fd00::/8", "10.0.0.0/8,fd00::/8", id="merge-a-space"),
        pytest.param(
            "merge", "\t10.0.0.0/8 ,fd00::/8\n", "10.0.0.0/8,fd00::/8", id="merge-any-space"
        ),
        pytest.param("merge", "10.0.0.0/8,fd00::/8,", "10.0.0.0/8,fd00::/8", id="merge-trailing"),
        pytest.param("merge", ",10.0.0.0/8,,fd00::/8", "10.0.0.0/8,fd00::/8", id="merge-commas"),
        pytest.param(
            "merge", "1.0.0.0/8, ", "1.0.0.0/8,10.0.0.0/8,fd00::/8", id="merge-trailing-space"
        ),
        pytest.param("merge", "*", "*,10.0.0.0/8,fd00::/8", id="merge-drops-no-star"),
        pytest.param(
            "merge", "10.1.2.3/8", "10.1.2.3/8,10.0.0.0/8,fd00::/8", id="merge-compares-text"
        ),
        pytest.param(
            "merge", "FD00::/8,10.0.0.0/8", "FD00::/8,10.0.0.0/8,fd00::/8", id="merge-case"
        ),
        pytest.param("keep", None, "10.0.0.0/8,fd00::/8", id="keep-absent"),
        pytest.param("keep", "", None, id="keep-empty"),
        pytest.param("keep", "1.0.0.0/8", None, id="keep-other"),
        pytest.param("keep", "1.0.0.0/8, ", None, id="keep-as-it-is"),
        pytest.param("replace", None, "10.0.0.0/8,fd00::/8", id="replace-absent"),
        pytest.param("replace", "", "10.0.0.0/8,fd00::/8", id="replace-empty"),
        pytest.param("replace", "1.0.0.0/8", "10.0.0.0/8,fd00::/8", id="replace-other"),
        pytest.param(
            "replace", "10.0.0.0/8,1.0.0.0/8,fd00::/8", "10.0.0.0/8,fd00::/8", id="replace-more"
        ),
        pytest.param("replace", "10.0.0.0/8", "10.0.0.0/8,fd00::/8", id="replace-less"),
        pytest.param("replace", "10.0.0.0/8,fd00::/8", None, id="replace-same"),
        pytest.param(
            "replace", "10.0.0.0/8, fd00::/8", "10.0.0.0/8,fd00::/8", id="replace-a-space"
        ),
    ],
)
def test_a_ranges_annotation_is_treated_as_existing_annotation_says(
    existing: str, value: str | None, expected: str | None
) -> None:
    policy = Policy(ranges=RANGES, existing=ExistingAnnotation(existing))
    annotations = {} if value is None else {EXCLUDE_RANGES: value}
    decision = decide(cni_pod(annotations=annotations), policy)
    if expected is None:
        assert decision.verdict is Verdict.ALREADY_EXCLUDED
        assert decision.patch == ()
    else:
        assert decision.verdict is Verdict.NEEDS_REMEDY
        assert new_annotations(decision) == {"ranges": expected}


@pytest.mark.parametrize(
    ("existing", "value", "expected"),
    [
        pytest.param("merge", None, "443,5432", id="merge-absent"),
        pytest.param("merge", "", "443,5432", id="merge-empty"),
        pytest.param("merge", "15020", "15020,443,5432", id="merge-existing-first"),
        pytest.param("merge", "5432", "5432,443", id="merge-what-is-missing"),
        pytest.param("merge", "443,5432", None, id="merge-complete"),
        pytest.param("merge", "443, 5432", None, id="merge-complete-with-space"),
        pytest.param("merge", "5432 ,443,", None, id="merge-complete-as-it-is"),
        pytest.param("merge", "443, 6379", "443,6379,5432", id="merge-incomplete-with-space"),
        pytest.param("merge", "4430,54320", "4430,54320,443,5432", id="merge-whole-ports"),
        pytest.param("keep", None, "443,5432", id="keep-absent"),
        pytest.param("keep", "15020", None, id="keep-other"),
        pytest.param("keep", "", None, id="keep-empty"),
        pytest.param("replace", "15020", "443,5432", id="replace-other"),
        pytest.param("replace", "443,5432,6379", "443,5432", id="replace-more"),
        pytest.param("replace", "443, 5432", None, id="replace-same-with-space"),
    ],
)
def test_a_ports_annotation_that_lacks_nothing_stays_as_it_is(
    existing: str, value: str | None, expected: str | None
) -> None:
    policy = Policy(ranges=(), ports=("443", "5432"), existing=ExistingAnnotation(existing))
    annotations = {} if value is None else {EXCLUDE_PORTS: value}
    decision = decide(cni_pod(annotations=annotations), policy)
    if expected is None:
        assert decision.verdict is Verdict.ALREADY_EXCLUDED
        assert decision.patch == ()
    else:
        assert decision.verdict is Verdict.NEEDS_REMEDY
        assert new_annotations(decision) == {"ports": expected}


@pytest.mark.parametrize(
    ("existing", "annotations", "expected"),
    [
        pytest.param(
            "keep", {EXCLUDE_RANGES: "1.0.0.0/8"}, {"ports": "443"}, id="keep-ranges-add-ports"
        ),
        pytest.param(
            "keep", {EXCLUDE_PORTS: "80"}, {"ranges": "10.0.0.0/8"}, id="keep-ports-add-ranges"
        ),
        pytest.param("keep", {EXCLUDE_RANGES: "", EXCLUDE_PORTS: ""}, {}, id="keep-both"),
        pytest.param(
            "merge",
            {EXCLUDE_RANGES: "10.0.0.0/8", EXCLUDE_PORTS: "80"},
            {"ports": "80,443"},
            id="merge-ports-only",
        ),
        pytest.param(
            "merge",
            {EXCLUDE_RANGES: "1.0.0.0/8", EXCLUDE_PORTS: "443"},
            {"ranges": "1.0.0.0/8,10.0.0.0/8"},
            id="merge-ranges-only",
        ),
        pytest.param(
            "replace",
            {EXCLUDE_RANGES: "10.0.0.0/8", EXCLUDE_PORTS: "80"},
            {"ports": "443"},
            id="replace-ports-only",
        ),
        pytest.param(
            "replace",
            {EXCLUDE_RANGES: "1.0.0.0/8", EXCLUDE_PORTS: "80"},
            {"ranges": "10.0.0.0/8", "ports": "443"},
            id="replace-both",
        ),
    ],
)
def test_each_annotation_is_treated_by_itself(
    existing: str, annotations: dict[str, str], expected: dict[str, str]
) -> None:
    policy = Policy(ranges=("10.0.0.0/8",), ports=("443",), existing=ExistingAnnotation(existing))
    decision = decide(cni_pod(annotations=annotations), policy)
    assert new_annotations(decision) == expected
    assert (decision.verdict is Verdict.ALREADY_EXCLUDED) == (not expected)


def test_what_go_does_not_trim_is_not_trimmed_here() -> None:
    # str.strip() would cut the file separator off; Go's strings.TrimSpace leaves it.
    policy = Policy(ranges=("10.0.0.0/8",))
    decision = decide(cni_pod(annotations={EXCLUDE_RANGES: "\x1c10.0.0.0/8"}), policy)
    assert new_annotations(decision) == {"ranges": "\x1c10.0.0.0/8,10.0.0.0/8"}


def test_no_annotation_reaches_a_container_behind_istio_init() -> None:
    decision = decide(istio_init_pod(late=(init("late"),)))
    assert decision.verdict is Verdict.BEYOND_REMEDY
    assert decision.patch == ()
    assert "late" in decision.reason
    assert "istio-init" in decision.reason


def test_annotations_help_in_front_of_a_native_sidecar() -> None:
    decision = decide(native_pod(before=(init("first"),)))
    assert new_annotations(decision) == {"ranges": EVERYTHING_EXCLUDED}


# --- proxy-user and proxy-group ------------------------------------------------------------------

IDENTITIES = pytest.mark.parametrize(
    ("policy", "field", "identity"),
    [
        pytest.param(PROXY_USER, "runAsUser", 5000, id="proxy-user"),
        pytest.param(PROXY_GROUP, "runAsGroup", 6000, id="proxy-group"),
    ],
)


def custom_pod(*own: Json, **fields: Any) -> Pod:
    """Under CNI, with a proxy whose uid and gid differ from each other and from the defaults."""
    return cni_pod(*own, sidecar=proxy(uid=5000, gid=6000), **fields)


@IDENTITIES
def test_a_container_without_a_security_context_gets_one_with_the_proxys_id(
    policy: Policy, field: str, identity: int
) -> None:
    assert decide(custom_pod(init()), policy).patch == (
        PatchOperation("add", "/spec/initContainers/1/securityContext", {field: identity}),
    )


@IDENTITIES
@pytest.mark.parametrize(
    "context",
    [
        pytest.param({}, id="empty"),
        pytest.param({"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}, id="other-fields"),
    ],
)
def test_a_container_with_a_security_context_keeps_it(
    policy: Policy, field: str, identity: int, context: Json
) -> None:
    assert decide(custom_pod(init(security_context=context)), policy).patch == (
        PatchOperation("add", f"/spec/initContainers/1/securityContext/{field}", identity),
    )


def test_proxy_user_leaves_a_group_and_proxy_group_leaves_a_user_that_the_author_set() -> None:
    grouped = decide(custom_pod(init(security_context={"runAsGroup": 1000})), PROXY_USER)
    assert [(o.path.rpartition("/")[2], o.value) for o in grouped.patch] == [("runAsUser", 5000)]
    owned = decide(custom_pod(init(security_context={"runAsUser": 1000})), PROXY_GROUP)
    assert [(o.path.rpartition("/")[2], o.value) for o in owned.patch] == [("runAsGroup", 6000)]


@IDENTITIES
def test_an_identity_of_the_pod_does_not_stop_the_remedy(
    policy: Policy, field: str, identity: int
) -> None:
    decision = decide(custom_pod(init(), security_context={field: 1000}), policy)
    assert decision.patch == (
        PatchOperation("add", "/spec/initContainers/1/securityContext", {field: identity}),
    )


@IDENTITIES
@pytest.mark.parametrize("own_id", [0, 1000], ids=["root", "other"])
def test_a_container_that_names_its_own_is_beyond_the_remedy(
    policy: Policy, field: str, identity: int, own_id: int
) -> None:
    decision = decide(custom_pod(init("graylog", {field: own_id})), policy)
    assert decision.verdict is Verdict.BEYOND_REMEDY
    assert decision.patch == ()
    assert decision.cut_off == ("graylog",)
    assert "graylog" in decision.reason
    assert policy.remedy.value in decision.reason


@IDENTITIES
def test_what_can_be_helped_is_helped_and_the_rest_is_named(
    policy: Policy, field: str, identity: int
) -> None:
    stubborn, willing = init("stubborn", {field: 1000}), init("willing")
    before = decide(custom_pod(stubborn, willing), policy)
    assert before.verdict is Verdict.NEEDS_REMEDY
    assert before.cut_off == ("stubborn", "willing")
    assert [operation.path for operation in before.patch] == [
        "/spec/initContainers/2/securityContext"
    ]
    after = decide(custom_pod(stubborn, init("willing", {field: identity})), policy)
    assert after.verdict is Verdict.BEYOND_REMEDY
    assert after.cut_off == ("stubborn",)
    assert after.patch == ()


@IDENTITIES
def test_a_container_that_is_exempt_already_is_left_alone(
    policy: Policy, field: str, identity: int
) -> None:
    exempt = init("exempt", {"runAsUser": 5000} if field == "runAsGroup" else {"runAsGroup": 6000})
    decision = decide(custom_pod(exempt, init("other")), policy)
    assert decision.cut_off == ("other",)
    assert [operation.path for operation in decision.patch] == [
        "/spec/initContainers/2/securityContext"
    ]


@IDENTITIES
def test_a_container_behind_istio_init_can_be_helped_by_identity(
    policy: Policy, field: str, identity: int
) -> None:
    decision = decide(istio_init_pod(init("early"), late=(init("late"),)), policy)
    assert decision.verdict is Verdict.NEEDS_REMEDY
    assert decision.cut_off == ("late",)
    assert decision.patch == (
        PatchOperation("add", "/spec/initContainers/2/securityContext", {field: 1337}),
    )


@IDENTITIES
@pytest.mark.parametrize("proxy_id", [0, None], ids=["root", "unset"])
def test_a_proxy_without_an_id_of_its_own_gives_1337(
    policy: Policy, field: str, identity: int, proxy_id: int | None
) -> None:
    decision = decide(cni_pod(sidecar=proxy(uid=proxy_id, gid=proxy_id)), policy)
    assert [operation.value for operation in decision.patch] == [{field: 1337}]


@IDENTITIES
@pytest.mark.parametrize(
    "value",
    [EVERYTHING_EXCLUDED, "::/0,0.0.0.0/0", "10.0.0.0/8, ::/0 ,0.0.0.0/0", "0.0.0.0/0,::/0,"],
)
def test_a_pod_that_excludes_every_configured_range_needs_no_identity(
    policy: Policy, field: str, identity: int, value: str
) -> None:
    decision = decide(custom_pod(annotations={EXCLUDE_RANGES: value}), policy)
    assert decision.verdict is Verdict.ALREADY_EXCLUDED
    assert decision.patch == ()


@IDENTITIES
@pytest.mark.parametrize("existing", list(ExistingAnnotation), ids=lambda e: e.value)
def test_a_pod_that_excludes_less_than_configured_needs_an_identity(
    policy: Policy, field: str, identity: int, existing: ExistingAnnotation
) -> None:
    partial = Policy(remedy=policy.remedy, existing=existing)
    a_pod = custom_pod(annotations={EXCLUDE_RANGES: "0.0.0.0/0"})
    assert verdict(a_pod, partial) is Verdict.NEEDS_REMEDY


@IDENTITIES
@pytest.mark.parametrize(
    "annotations",
    [{}, {EXCLUDE_RANGES: ""}, {EXCLUDE_RANGES: EVERYTHING_EXCLUDED, EXCLUDE_PORTS: "443"}],
    ids=["none", "empty", "both"],
)
def test_without_configured_ranges_no_annotation_stands_for_an_identity(
    policy: Policy, field: str, identity: int, annotations: dict[str, str]
) -> None:
    no_ranges = Policy(remedy=policy.remedy, ranges=(), ports=("443",))
    assert verdict(custom_pod(annotations=annotations), no_ranges) is Verdict.NEEDS_REMEDY


@IDENTITIES
def test_missing_ports_do_not_matter_to_an_identity_remedy(
    policy: Policy, field: str, identity: int
) -> None:
    with_ports = Policy(remedy=policy.remedy, ports=("443",))
    a_pod = custom_pod(annotations={EXCLUDE_RANGES: EVERYTHING_EXCLUDED})
    assert verdict(a_pod, with_ports) is Verdict.ALREADY_EXCLUDED


# --- What a Pod may look like --------------------------------------------------------------------


def test_a_pod_that_has_no_name_yet_is_decided_about() -> None:
    raw = {
        "metadata": {"generateName": "migrate-", "annotations": {STATUS: "{}"}},
        "spec": {"initContainers": [init()], "containers": [proxy(), APP]},
    }
    a_pod = Pod.from_dict(raw)
    assert a_pod.metadata.name == ""
    assert verdict(a_pod) is Verdict.NEEDS_REMEDY


def test_an_empty_object_is_a_pod_that_is_not_injected() -> None:
    assert verdict(Pod.from_dict({})) is Verdict.NOT_INJECTED


def test_an_absent_security_context_is_told_from_an_empty_one() -> None:
    absent, empty = Pod.from_dict(
        {"spec": {"initContainers": [{"name": "a"}, {"name": "b", "securityContext": {}}]}}
    ).init_containers
    assert absent.security_context is None
    assert empty.security_context is not None


@pytest.mark.parametrize("a_verdict", list(Verdict), ids=lambda v: v.value)
def test_every_verdict_has_a_reason_of_one_sentence_without_a_full_stop(
    a_verdict: Verdict,
) -> None:
    earlier = list(Verdict)[: list(Verdict).index(a_verdict)]
    decision = decide(*_less(*earlier))
    assert decision.reason
    assert "\n" not in decision.reason
    assert not decision.reason.endswith(".")
