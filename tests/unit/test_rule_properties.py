"""What holds of the rule for every Pod and every policy, searched for by hypothesis."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import jsonpatch
import msgspec
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from init_egress.rule.decision import Decision, decide
from init_egress.rule.istio import (
    EXCLUDE_PORTS,
    EXCLUDE_RANGES,
    GO_SPACE,
    INCLUDE_RANGES,
    ISTIO_CONTAINERS,
    STATUS,
)
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.policy import ExistingAnnotation, Policy, RemedyKind
from init_egress.rule.verdict import Verdict
from tests.strategies import (
    OWN,
    TEAM,
    Json,
    by_annotation,
    by_identity,
    cut_off,
    namespaces,
    pods,
    policies,
    under_cni,
    unrestricted,
)

searching = settings(
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

# --- Deciding and applying -----------------------------------------------------------------------


def asked(raw: Json, policy: Policy, namespace: Namespace = TEAM) -> Decision:
    return decide(Pod.from_dict(raw), namespace, policy)


def applied(raw: Json, decision: Decision) -> Json:
    """The Pod after the decision's patch, by an independent implementation of RFC 6902."""
    operations = json.dumps([msgspec.structs.asdict(operation) for operation in decision.patch])
    return jsonpatch.JsonPatch.from_string(operations).apply(raw)


def remedied(raw: Json, policy: Policy) -> tuple[Decision, Json]:
    """Of a Pod that needs the remedy: the decision about it, and the Pod after it."""
    decision = asked(raw, policy)
    assume(decision.verdict is Verdict.NEEDS_REMEDY)
    return decision, applied(raw, decision)


def elements(value: str) -> list[str]:
    return [e for part in value.split(",") if (e := part.strip(GO_SPACE))]


def without(raw: Json, *keys: str) -> Json:
    """The Pod without these annotations."""
    rest = copy.deepcopy(raw)
    for key in keys:
        rest["metadata"]["annotations"].pop(key, None)
    return rest


def field_of(policy: Policy) -> str:
    return "runAsUser" if policy.remedy is RemedyKind.PROXY_USER else "runAsGroup"


@searching
@given(pods, policies, namespaces)
def test_the_patch_applies_and_leaves_a_pod(
    raw: Json, policy: Policy, namespace: Namespace
) -> None:
    before = copy.deepcopy(raw)
    after = applied(raw, asked(raw, policy, namespace))
    assert raw == before
    Pod.from_dict(after)
    assert all(isinstance(v, str) for v in after["metadata"]["annotations"].values())


@searching
@given(pods, policies, namespaces)
def test_the_patch_is_empty_unless_the_pod_needs_the_remedy(
    raw: Json, policy: Policy, namespace: Namespace
) -> None:
    decision = asked(raw, policy, namespace)
    assert bool(decision.patch) == (decision.verdict is Verdict.NEEDS_REMEDY)
    assert (applied(raw, decision) != raw) == bool(decision.patch)


@searching
@given(cut_off | pods, unrestricted)
def test_applied_twice_nothing_changes(raw: Json, policy: Policy) -> None:
    again = asked(applied(raw, asked(raw, policy)), policy)
    assert again.verdict is not Verdict.NEEDS_REMEDY
    assert again.patch == ()


@searching
@given(under_cni, by_annotation)
def test_after_annotations_the_pod_is_excluded(raw: Json, policy: Policy) -> None:
    _, after = remedied(raw, policy)
    assert asked(after, policy).verdict is Verdict.ALREADY_EXCLUDED


@searching
@given(cut_off, by_identity)
def test_after_an_identity_the_pod_is_exempt_or_what_names_its_own_stays_cut_off(
    raw: Json, policy: Policy
) -> None:
    decision, after = remedied(raw, policy)
    again = asked(after, policy)
    if len(decision.patch) == len(decision.cut_off):
        assert again.verdict is Verdict.ALREADY_EXEMPT
        return
    assert again.verdict is Verdict.BEYOND_REMEDY
    by_name = {container["name"]: container for container in raw["spec"]["initContainers"]}
    assert set(again.cut_off) < set(decision.cut_off)
    assert all(field_of(policy) in by_name[name]["securityContext"] for name in again.cut_off)


@searching
@given(under_cni, by_annotation)
def test_annotations_change_nothing_but_the_two_annotations(raw: Json, policy: Policy) -> None:
    _, after = remedied(raw, policy)
    both = ((EXCLUDE_RANGES, policy.ranges), (EXCLUDE_PORTS, policy.ports))
    ours = [key for key, configured in both if configured]
    assert without(after, *ours) == without(raw, *ours)


@searching
@given(cut_off, by_identity)
def test_an_identity_is_given_only_to_containers_that_are_cut_off_and_had_none(
    raw: Json, policy: Policy
) -> None:
    decision, after = remedied(raw, policy)
    field = field_of(policy)
    changed = []
    for was, now in zip(
        raw["spec"]["initContainers"], after["spec"]["initContainers"], strict=True
    ):
        if was == now:
            continue
        changed.append(now["name"])
        assert field not in was.get("securityContext", {})
        del now["securityContext"][field]
        if "securityContext" not in was:
            assert now.pop("securityContext") == {}
    assert after == raw
    assert set(changed) <= set(decision.cut_off)
    assert not set(changed) & {*ISTIO_CONTAINERS, *policy.ignored}


@searching
@given(cut_off, by_identity)
def test_the_identity_given_is_the_proxys(raw: Json, policy: Policy) -> None:
    decision, _ = remedied(raw, policy)
    field, spec = field_of(policy), raw["spec"]
    everyone = spec["initContainers"] + spec["containers"]
    proxy = next(c for c in everyone if c["name"] == "istio-proxy")
    expected = proxy.get("securityContext", {}).get(field) or 1337
    given_ids = [o.value[field] if isinstance(o.value, dict) else o.value for o in decision.patch]
    assert set(given_ids) == {expected}


@searching
@given(under_cni, by_annotation)
def test_a_merge_drops_no_element_and_adds_none_twice(raw: Json, policy: Policy) -> None:
    merging = replace(policy, existing=ExistingAnnotation.MERGE)
    _, after = remedied(raw, merging)
    for key, configured in ((EXCLUDE_RANGES, policy.ranges), (EXCLUDE_PORTS, policy.ports)):
        was = elements(raw["metadata"]["annotations"].get(key, ""))
        now = elements(after["metadata"]["annotations"].get(key, ""))
        assert now == was + [element for element in configured if element not in was]


@searching
@given(under_cni, by_annotation)
def test_keep_leaves_whatever_is_there(raw: Json, policy: Policy) -> None:
    _, after = remedied(raw, replace(policy, existing=ExistingAnnotation.KEEP))
    assert raw["metadata"]["annotations"].items() <= after["metadata"]["annotations"].items()


@searching
@given(
    under_cni,
    by_annotation,
    st.sampled_from([ExistingAnnotation.MERGE, ExistingAnnotation.REPLACE]),
)
def test_ranges_that_are_written_hold_no_space_and_no_stray_comma(
    raw: Json, policy: Policy, existing: ExistingAnnotation
) -> None:
    assume(policy.ranges)
    _, after = remedied(raw, replace(policy, existing=existing))
    value = after["metadata"]["annotations"][EXCLUDE_RANGES]
    assert value.split(",") == elements(value)


@searching
@given(pods, policies, namespaces)
def test_what_is_cut_off_is_the_users_and_in_order(
    raw: Json, policy: Policy, namespace: Namespace
) -> None:
    decision = asked(raw, policy, namespace)
    order = [container["name"] for container in raw["spec"]["initContainers"]]
    assert list(decision.cut_off) == [name for name in order if name in decision.cut_off]
    assert not {*decision.cut_off} & {*ISTIO_CONTAINERS, *policy.ignored}


@searching
@given(cut_off | pods, unrestricted, st.text(max_size=5))
def test_fields_that_the_rule_does_not_read_change_nothing(
    raw: Json, policy: Policy, text: str
) -> None:
    other = copy.deepcopy(raw)
    for container in other["spec"]["initContainers"]:
        container.pop("restartPolicy", None)
        container.pop("fieldOfTheFuture", None)
        container["image"] = text
    other["metadata"]["annotations"]["example.com/other"] = text
    other["metadata"]["name"] = text
    other["status"] = {"phase": text}
    assert asked(other, policy) == asked(raw, policy)


_any_containers = st.none() | st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from([*ISTIO_CONTAINERS, *OWN, ""])},
        optional={
            "args": st.sampled_from([None, [], ["", ""], ["proxy", ""]]),
            "env": st.sampled_from([None, [], [{"name": ""}], [{"name": "A", "valueFrom": {}}]]),
            "securityContext": st.sampled_from([None, {"runAsUser": None}, {"runAsUser": -1}]),
        },
    ),
    max_size=4,
)
_any_texts = st.none() | st.dictionaries(
    st.sampled_from([STATUS, EXCLUDE_RANGES, EXCLUDE_PORTS, INCLUDE_RANGES, "~/"]), st.text()
)
_any_pods = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.builds(
            lambda annotations, labels: {"annotations": annotations, "labels": labels},
            _any_texts,
            _any_texts,
        ),
        "spec": st.builds(
            lambda first, then: {"initContainers": first, "containers": then},
            _any_containers,
            _any_containers,
        ),
    },
)


@searching
@given(_any_pods, unrestricted)
def test_decide_never_raises_even_for_pods_that_no_api_server_would_store(
    raw: Json, policy: Policy
) -> None:
    decision = asked(raw, policy)
    assert decision.reason
    applied(raw, decision)


def test_the_search_reaches_every_verdict() -> None:
    # The properties say nothing about a verdict that no generated Pod gets.
    reached: set[Verdict] = set()

    @settings(searching, max_examples=400, derandomize=True, phases=[Phase.generate])
    @given(pods, policies, namespaces)
    def search(raw: Json, policy: Policy, namespace: Namespace) -> None:
        reached.add(asked(raw, policy, namespace).verdict)

    search()
    assert reached == set(Verdict)
