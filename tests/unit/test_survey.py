"""Existing Pods: where they are stuck, and whether their annotations came in time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from init_egress.existing.survey import annotated_too_late, judge, stuck
from init_egress.kube.objects import StoredPod
from init_egress.kube.scope import Scope
from init_egress.rule.istio import EXCLUDE_RANGES, STATUS
from init_egress.rule.pod import Namespace
from init_egress.rule.policy import Policy
from init_egress.rule.verdict import Verdict

MADE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
NOW = MADE + timedelta(hours=1)
FAILED: Any = {"terminated": {"exitCode": 1, "reason": "Error"}}
POLICY = Policy(ignored=("chown",))


def text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    *statuses: dict[str, Any],
    phase: str = "Pending",
    annotations: dict[str, str] | None = None,
    conditions: list[dict[str, Any]] | None = None,
    managed: list[dict[str, Any]] | None = None,
) -> StoredPod:
    """A Pod with the init containers fetch and chown, as the API server writes it."""
    stored = {
        "metadata": {
            "name": "web",
            "namespace": "team",
            "creationTimestamp": text(MADE),
            "annotations": {STATUS: "{}", **(annotations or {})},
            "managedFields": managed or [],
        },
        "spec": {
            "initContainers": [{"name": "fetch"}, {"name": "chown"}],
            "containers": [{"name": "app"}, {"name": "istio-proxy", "args": ["proxy", "sidecar"]}],
        },
        "status": {
            "phase": phase,
            "startTime": text(MADE),
            "conditions": conditions or [],
            "initContainerStatuses": list(statuses),
        },
    }
    return msgspec.json.decode(msgspec.json.encode(stored), type=StoredPod)


def status(
    name: str = "fetch", restarts: int = 0, last: dict[str, Any] | None = None, **state: Any
) -> dict[str, Any]:
    return {"name": name, "restartCount": restarts, "state": state, "lastState": last or {}}


@pytest.mark.parametrize(
    ("found", "reason", "restarts"),
    [
        (status(restarts=4, waiting={"reason": "CrashLoopBackOff"}), "CrashLoopBackOff", 4),
        (status(**FAILED), "Error", 0),
        (status(restarts=1, waiting={"reason": "PodInitializing"}, last=FAILED), "Error", 1),
        (status(restarts=2, running={"startedAt": text(NOW)}), "Running", 2),
        (status(running={"startedAt": text(MADE)}), "Running", 0),
        (status(waiting={"reason": "ImagePullBackOff"}), "ImagePullBackOff", 0),
    ],
    ids=["crash loop", "failed", "between two tries", "tries again", "waits", "no image"],
)
def test_a_pod_is_stuck_in(found: dict[str, Any], reason: str, restarts: int) -> None:
    seen = stuck(pod(found), ("fetch",), NOW)
    assert seen
    assert (seen.container, seen.reason, seen.restarts) == ("fetch", reason, restarts)


@pytest.mark.parametrize(
    "found",
    [
        status(waiting={"reason": "PodInitializing"}),
        status(running={"startedAt": text(NOW - timedelta(minutes=1))}),
        status(terminated={"exitCode": 0, "reason": "Completed"}),
        status(name="chown", waiting={"reason": "CrashLoopBackOff"}),
        status(),
    ],
    ids=["waits its turn", "runs", "done", "not one that is asked about", "nothing known"],
)
def test_a_pod_is_not_stuck_where_an_init_container(found: dict[str, Any]) -> None:
    assert stuck(pod(found), ("fetch",), NOW) is None


def test_a_pod_that_runs_is_not_stuck() -> None:
    failed = status(waiting={"reason": "CrashLoopBackOff"})
    assert stuck(pod(failed, phase="Running"), ("fetch",), NOW) is None


def test_only_what_has_run_can_lack_the_network() -> None:
    crash = stuck(pod(status(waiting={"reason": "CrashLoopBackOff"})), ("fetch",), NOW)
    image = stuck(pod(status(waiting={"reason": "ImagePullBackOff"})), ("fetch",), NOW)
    assert crash
    assert crash.for_want_of_network
    assert image
    assert not image.for_want_of_network


def test_it_is_stuck_since_it_is_known_not_to_be_initialized() -> None:
    later = MADE + timedelta(minutes=2)
    initialized = {"type": "Initialized", "status": "False", "lastTransitionTime": text(later)}
    failed = status(waiting={"reason": "CrashLoopBackOff"})
    seen = stuck(pod(failed, conditions=[initialized]), ("fetch",), NOW)
    without = stuck(pod(failed), ("fetch",), NOW)
    assert seen
    assert seen.since == later
    assert without
    assert without.since == MADE


def wrote(key: str, time: datetime) -> dict[str, Any]:
    fields = {"f:metadata": {"f:annotations": {f"f:{key}": {}}}}
    return {"manager": "x", "time": text(time), "fieldsV1": fields}


READY = {"type": "PodReadyToStartContainers", "status": "True"}


@pytest.mark.parametrize(
    ("managed", "conditions", "expected"),
    [
        ([wrote(EXCLUDE_RANGES, MADE)], [], False),
        ([wrote(EXCLUDE_RANGES, MADE + timedelta(seconds=1))], [], True),
        ([wrote("example.com/other", NOW)], [], False),
        (
            [wrote(EXCLUDE_RANGES, MADE + timedelta(minutes=1))],
            [{**READY, "lastTransitionTime": text(MADE + timedelta(minutes=2))}],
            False,
        ),
        (
            [wrote(EXCLUDE_RANGES, MADE + timedelta(minutes=2))],
            [{**READY, "lastTransitionTime": text(MADE + timedelta(minutes=1))}],
            True,
        ),
        ([], [], False),
    ],
    ids=["with the Pod", "later", "another", "network recreated", "network older", "nobody"],
)
def test_an_annotation_came_too_late(
    managed: list[dict[str, Any]], conditions: list[dict[str, Any]], expected: bool
) -> None:
    annotations = {EXCLUDE_RANGES: "0.0.0.0/0,::/0"}
    found = pod(annotations=annotations, managed=managed, conditions=conditions)
    assert annotated_too_late(found) is expected


def test_a_stuck_pod_is_seen_stuck_also_after_it_was_annotated() -> None:
    annotations = {EXCLUDE_RANGES: "0.0.0.0/0,::/0"}
    found = pod(
        status(waiting={"reason": "CrashLoopBackOff"}),
        annotations=annotations,
        managed=[wrote(EXCLUDE_RANGES, NOW)],
    )
    seen = judge(found, Namespace("team"), POLICY, NOW)
    assert seen.decision.verdict is Verdict.ALREADY_EXCLUDED
    assert seen.stuck
    assert seen.too_late


def test_an_ignored_container_is_no_place_to_be_stuck_in() -> None:
    found = pod(status(name="chown", waiting={"reason": "CrashLoopBackOff"}))
    assert judge(found, Namespace("team"), POLICY, NOW).stuck is None


def test_a_finished_pod_is_neither_stuck_nor_late() -> None:
    found = pod(status(**FAILED), phase="Failed", managed=[wrote(EXCLUDE_RANGES, NOW)])
    seen = judge(found, Namespace("team"), POLICY, NOW)
    assert seen.stuck is None
    assert not seen.too_late


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (Scope(), "all namespaces"),
        (Scope("team"), "namespace team"),
        (Scope("team", "a=b"), "namespace team, a=b"),
    ],
)
def test_a_scope_is_shown_in_words(scope: Scope, words: str) -> None:
    assert str(scope) == words


def test_a_scope_has_no_selector_that_is_none() -> None:
    with pytest.raises(ValueError, match="no label key"):
        Scope("team", "a b")
