"""Why a Pod is another than one that is created now: each reason, and when it is none."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from init_egress.existing.differences import InForce, Recreated, differences
from init_egress.existing.pod_template import TemplatePod
from init_egress.existing.survey import judge
from init_egress.kube.objects import StoredPod
from init_egress.rule.decision import decide
from init_egress.rule.istio import EXCLUDE_RANGES, SKIP_LABEL, STATUS
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.policy import Policy

MADE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
BEFORE, AFTER = MADE - timedelta(minutes=1), MADE + timedelta(minutes=1)
TEAM = Namespace("team")
POLICY = Policy()
EXCLUDED = {EXCLUDE_RANGES: "0.0.0.0/0,::/0"}
SKIPPED = {SKIP_LABEL: "true"}
LATE = [
    {
        "manager": "kubectl",
        "time": f"{AFTER:%Y-%m-%dT%H:%M:%SZ}",
        "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{EXCLUDE_RANGES}": {}}}},
    }
]
FOLLOWING = InForce("ClusterPolicy ours", AFTER, AFTER)
CHANGED_SINCE = InForce("ClusterPolicy ours", BEFORE, AFTER)
THERE_BEFORE = InForce("ClusterPolicy ours", BEFORE, BEFORE)

Json = dict[str, Any]


def raw(
    *init_containers: str,
    injected: bool = True,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    managed: list[Json] | None = None,
) -> Json:
    status = {STATUS: "{}"} if injected else {}
    return {
        "metadata": {
            "name": "web",
            "namespace": "team",
            "creationTimestamp": f"{MADE:%Y-%m-%dT%H:%M:%SZ}",
            "annotations": {**status, **(annotations or {})},
            "labels": labels or {},
            "managedFields": managed or [],
        },
        "spec": {
            "initContainers": [{"name": name} for name in init_containers or ("fetch",)],
            "containers": [{"name": "app"}, *([{"name": "istio-proxy"}] if injected else [])],
        },
    }


def draft(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    revision: str = "",
) -> TemplatePod:
    metadata = {"labels": labels or {}, "annotations": annotations or {}}
    return TemplatePod("the template of Job web", {"metadata": metadata}, revision)


def why(
    then: Json,
    without: Json,
    arrived: Json,
    drafted: TemplatePod | None = None,
    labelled: datetime | None = None,
    in_force: InForce | None = FOLLOWING,
) -> str:
    stored = msgspec.json.decode(msgspec.json.encode(then), type=StoredPod)
    now = Pod.from_dict(without)
    again = Recreated(
        drafted or draft(),
        now,
        decide(now, TEAM, POLICY),
        decide(Pod.from_dict(arrived), TEAM, POLICY),
    )
    return "; ".join(differences(judge(stored, TEAM, POLICY, AFTER), again, labelled, in_force))


NEEDING, REMEDIED = raw(), raw(annotations=EXCLUDED)


@pytest.mark.parametrize(
    ("then", "without", "arrived"),
    [(NEEDING, NEEDING, NEEDING), (REMEDIED, NEEDING, REMEDIED), (raw("chown"), raw(), raw())],
)
def test_pods_of_one_verdict_do_not_differ(then: Json, without: Json, arrived: Json) -> None:
    assert why(then, without, arrived) == ""


@pytest.mark.parametrize(
    ("in_force", "reason"),
    [
        (
            FOLLOWING,
            "the Pod was created at 2026-01-02 03:04:05Z, before ClusterPolicy ours was,"
            " at 2026-01-02 03:05:05Z",
        ),
        (
            CHANGED_SINCE,
            "the Pod was created at 2026-01-02 03:04:05Z, before ClusterPolicy ours was last"
            " changed, at 2026-01-02 03:05:05Z",
        ),
        (
            THERE_BEFORE,
            "ClusterPolicy ours was there when the Pod was created at 2026-01-02 03:04:05Z, but"
            " was not in effect yet, or failed and let it pass (failure-policy=ignore), or what"
            " it wrote was taken away",
        ),
    ],
)
def test_what_was_in_force_then_is_told_by_the_times(in_force: InForce, reason: str) -> None:
    assert why(NEEDING, NEEDING, REMEDIED, in_force=in_force) == reason


def test_a_remedy_that_came_then_and_not_now_is_told() -> None:
    assert why(REMEDIED, NEEDING, NEEDING) == "no policy of the charm acts on it now"


def test_annotations_that_came_too_late_make_a_difference_where_the_verdict_is_one() -> None:
    late = raw(annotations=EXCLUDED, managed=LATE)

    assert "written after its network was made" in why(late, NEEDING, REMEDIED)


@pytest.mark.parametrize(
    ("labelled", "reason"),
    [
        (
            AFTER,
            "namespace team was labelled for the mesh at 2026-01-02 03:05:05Z, after the Pod was"
            " created at 2026-01-02 03:04:05Z",
        ),
        (BEFORE, "Istio injects it now and did not then"),
        (None, "Istio injects it now and did not then"),
    ],
)
def test_a_pod_from_before_the_mesh_says_whether_the_namespace_was_labelled_since(
    labelled: datetime | None, reason: str
) -> None:
    assert why(raw(injected=False), NEEDING, REMEDIED, labelled=labelled) == reason


def test_a_pod_that_left_the_mesh_is_told() -> None:
    outside = raw(injected=False)

    assert why(NEEDING, outside, outside) == "Istio injected it then and does not now"


def test_a_template_of_another_revision_is_told() -> None:
    then = raw(labels={"controller-revision-hash": "one"})
    now = raw(labels=SKIPPED)

    reasons = why(then, now, now, draft(SKIPPED, revision="two"))

    assert "the template of Job web has changed since the Pod was created" in reasons
    assert f"has label {SKIP_LABEL}=true, which the Pod lacks" in reasons


def test_init_containers_that_have_changed_are_told() -> None:
    now = raw("istio-validation", "wait", annotations=EXCLUDED)

    assert "its init containers are now wait; when it was created, fetch" in why(NEEDING, now, now)


def test_a_label_that_the_template_does_not_give_is_told() -> None:
    reasons = why(raw(labels=SKIPPED), NEEDING, REMEDIED)

    assert f"the Pod has label {SKIP_LABEL}=true, which the template of Job web lacks" in reasons


@pytest.mark.parametrize(
    ("template", "told"),
    [("10.0.0.0/8", False), ("0.0.0.0/0, ::/0", False), ("172.16.0.0/12", True)],
)
def test_ranges_of_the_template_that_the_pod_holds_among_others_are_no_difference(
    template: str, told: bool
) -> None:
    then = raw(annotations={EXCLUDE_RANGES: "10.0.0.0/8,0.0.0.0/0,::/0"})
    drafted = draft(annotations={EXCLUDE_RANGES: template})

    assert ("which the Pod lacks" in why(then, NEEDING, NEEDING, drafted)) is told


def test_what_nothing_else_explains_is_laid_to_the_mesh() -> None:
    native = raw("istio-proxy", "fetch")

    assert why(NEEDING, native, native) == (
        "the mesh, or another webhook, makes it otherwise now:"
        " fetch start after the native sidecar istio-proxy"
    )
