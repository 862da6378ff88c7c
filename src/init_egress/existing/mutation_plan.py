"""What ought to be done to an existing Pod: pure, a judged Pod in, a planned action out.

An annotation on a Pod that exists has no effect until the Pod is recreated, so what is stuck is
evicted where a controller recreates it, and owners are restarted where that is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from init_egress.existing import controllers
from init_egress.existing.controllers import MIRROR, delete_command
from init_egress.existing.survey import JudgedPod
from init_egress.kube.objects import OwnerReference, StoredPod
from init_egress.rule.patch import annotation_path
from init_egress.rule.verdict import Verdict

NO_EFFECT_YET = "no effect until the Pod is recreated"


class Restart(str, Enum):
    """Which Pods are recreated."""

    NONE = "none"
    STUCK = "stuck"
    ALL = "all"


class Action(str, Enum):
    """What is done to a Pod."""

    PATCH = "patch"
    EVICT = "evict"
    RESTART = "restart"
    LEAVE = "leave"


@dataclass(frozen=True)
class PlannedAction:
    """What is done to a Pod.

    Attributes:
        action: what.
        reason: why, or what the operator can do about it; without a full stop.
        owner: the owner that is restarted, where that is the action.
    """

    action: Action
    reason: str
    owner: OwnerReference | None = None


def is_considered(seen: JudgedPod) -> bool:
    """Whether a Pod is one that is cut off, or was when its network was made."""
    if seen.pod.is_finished or seen.pod.is_going:
        return False
    verdict = seen.decision.verdict
    if verdict in (Verdict.NEEDS_REMEDY, Verdict.BEYOND_REMEDY):
        return True
    return verdict is Verdict.ALREADY_EXCLUDED and seen.too_late


def is_stuck(seen: JudgedPod) -> bool:
    """Whether a Pod is stuck in an init container that has no network."""
    return seen.stuck is not None and seen.stuck.for_want_of_network


def plan(seen: JudgedPod, restart: Restart) -> PlannedAction:
    """What ought to be done to a Pod that is considered, if its owner allows it.

    Args:
        seen: the Pod.
        restart: which Pods are recreated.
    """
    if seen.decision.verdict is Verdict.BEYOND_REMEDY:
        return PlannedAction(Action.LEAVE, seen.decision.reason)
    stuck = is_stuck(seen)
    if restart is Restart.NONE:
        return annotate_only(seen, "restart=none was asked for" if stuck else "")
    if not stuck and restart is not Restart.ALL:
        return annotate_only(
            seen, "restart=all restarts its owner" if seen.pod.metadata.controller else ""
        )
    if why := why_no_controller(seen.pod):
        return annotate_only(seen, why)
    return PlannedAction(Action.EVICT if stuck else Action.RESTART, seen.decision.reason)


def annotate_only(seen: JudgedPod, why: str) -> PlannedAction:
    """What is done to a Pod that is not recreated: it is annotated where it lacks that.

    Args:
        seen: the Pod.
        why: why it isn't recreated, or how it could be; may be empty.
    """
    patch = seen.decision.patch
    if patch and all(operation.path.startswith("/metadata/") for operation in patch):
        return PlannedAction(Action.PATCH, _joined(NO_EFFECT_YET, why))
    if patch:
        return PlannedAction(Action.LEAVE, _joined("only a new Pod can get the remedy", why))
    return PlannedAction(Action.LEAVE, _joined(f"annotated too late: {NO_EFFECT_YET}", why))


def why_no_controller(pod: StoredPod) -> str:
    """Why no controller recreates a Pod, and what to do; empty if one does."""
    if MIRROR in pod.annotations:
        return "the kubelet of its node runs it from a file; change that file"
    if pod.metadata.controller is None:
        meta = pod.metadata
        return (
            f"no controller recreates it: kubectl get pod {meta.name} -n {meta.namespace} -o yaml"
            " | kubectl replace --force -f -"
        )
    return ""


def controller_not_known(pod: StoredPod, reference: OwnerReference) -> str:
    """What to do about a Pod whose controller may not recreate it."""
    name, namespace = reference.name, pod.metadata.namespace
    if not reference.is_valid:
        return f"its controller is not known: {controllers.title(reference)}"
    if (reference.group, reference.kind) == ("argoproj.io", "Workflow"):
        # It depends on Argo's version and on the template whether it recreates a deleted Pod:
        # https://github.com/argoproj/argo-workflows/issues/6481 and
        # https://github.com/argoproj/argo-workflows/pull/2721
        return (
            "Argo may not recreate a deleted Pod:"
            f" argo stop {name} -n {namespace} && argo retry {name} -n {namespace}"
        )
    return f"{controllers.title(reference)} may not recreate it; if it does: {delete_command(pod)}"


def _joined(first: str, second: str) -> str:
    return f"{first}; {second}" if second else first


def guarded_patch(seen: JudgedPod) -> list[object]:
    """The Pod's patch, which fails with 422 if the Pod isn't as it was seen.

    A `test` against null holds where there is nothing
    (https://github.com/evanphx/json-patch/blob/v4.13.0/patch.go, test).
    """
    meta = seen.pod.metadata
    tests: list[object] = [{"op": "test", "path": "/metadata/uid", "value": meta.uid}]
    former = {annotation_path(key): value for key, value in seen.pod.annotations.items()}
    for operation in seen.decision.patch:
        tests.append({"op": "test", "path": operation.path, "value": former.get(operation.path)})
    return [*tests, *seen.decision.patch]
