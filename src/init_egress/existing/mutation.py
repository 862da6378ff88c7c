"""Does to existing Pods what ought to be done, many side by side, and accounts for every one.

The way of a Pod: `mutation_plan.plan`, then what only the cluster can tell (its owner, a dry-run
proof), then the action, then `mutation_report`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Generic, TypeVar

from init_egress.backends import verification
from init_egress.existing import controllers, survey
from init_egress.existing.controllers import RESTARTED_AT, Controllers
from init_egress.existing.mutation_plan import (
    Action,
    PlannedAction,
    Restart,
    annotate_only,
    controller_not_known,
    guarded_patch,
    is_considered,
    plan,
    why_no_controller,
)
from init_egress.existing.mutation_report import (
    MutationReport,
    MutationResult,
    PodResult,
    result_of,
    settled,
)
from init_egress.existing.survey import JudgedPod
from init_egress.kube.client import ApiClient
from init_egress.kube.errors import ClusterError, NotFound, OutcomeUnknown, OverBudget, Refused
from init_egress.kube.kinds import POD, Resource
from init_egress.kube.objects import OwnerReference, StoredPod
from init_egress.kube.parallel import map_concurrent
from init_egress.kube.scope import Scope
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.policy import Policy

logger = logging.getLogger(__name__)

PERIOD = 5.0
"""Seconds between two lines of progress."""

_PODS = Resource.of(POD)
_TRIES = 5
_CHANGED = (409, 422)  # another version or uid than it was; a test of a JSON patch that failed

K = TypeVar("K")
V = TypeVar("V")

WouldRecur = Callable[[Namespace, Pod], str]
"""Why a Pod like this one, recreated in the namespace, might be cut off again; empty if not."""


class CeilingReached(Exception):
    """No more disruptions in this run."""


@dataclass
class Disruptions:
    """How many evictions and restarts of owners one run may still make.

    Attributes:
        limit: how many it may make in all.
    """

    limit: int
    _taken: int = 0

    def take(self) -> bool:
        """Take one; False if there is none left."""
        if self._taken >= self.limit:
            return False
        self._taken += 1
        return True

    def give_back(self) -> None:
        """Give back one that was not made after all."""
        self._taken -= 1

    @property
    def why_not(self) -> str:
        """Why there is none left."""
        return f"max-disruptions={self.limit} is reached; run again to go on"


class _Once(Generic[K, V]):
    """Answers that are worked out once for each key, whoever asks first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[K, Future[V]] = {}

    def __call__(self, key: K, work: Callable[[], V]) -> V:
        with self._lock:
            answer = self._answers.get(key)
            if first := answer is None:
                answer = self._answers[key] = Future()
        if first:
            try:
                answer.set_result(work())
            except Exception as error:
                answer.set_exception(error)
        return answer.result()

    def knows(self, key: K) -> bool:
        """Whether somebody has asked before."""
        with self._lock:
            return key in self._answers


@dataclass(frozen=True)
class _Stuck:
    """A stuck Pod whose turn comes when the owners have been restarted."""

    name: str
    namespace: Namespace


def _now() -> datetime:
    return datetime.now(timezone.utc)


class Mutation:
    """One run over the Pods of a scope.

    Args:
        bulk: where; made for a dry run, nothing is stored.
        policy: what the operator configured.
        scope: which Pods.
        restart: which Pods are recreated.
        would_recur: why a new Pod might be cut off again.
        report: where the account is given.
        disruptions: how many evictions and restarts the run may make.
        progress: told now and then how far it is.
        now: the time.
        clock: seconds, by which it is told.
    """

    def __init__(
        self,
        bulk: ApiClient,
        policy: Policy,
        scope: Scope,
        restart: Restart,
        would_recur: WouldRecur,
        report: MutationReport,
        disruptions: Disruptions,
        progress: Callable[[str], None],
        now: Callable[[], datetime] = _now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bulk = bulk
        self._policy = policy
        self._scope = scope
        self._restart_which = restart
        self._ask_would_recur = would_recur
        self._report = report
        self._disruptions = disruptions
        self._now = now
        self._progress = progress
        self._clock = clock
        self._told_at = clock()
        self._controllers = Controllers(bulk)
        self._recurrences: _Once[tuple[object, ...], str] = _Once()
        # Both grow with the owners that are acted on, not with the Pods.
        self._restarts: _Once[str, None] = _Once()
        self._evictions: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._later: list[_Stuck] = []

    def run(self) -> None:
        """Go through the Pods, then, once owners are restarted, through those that are stuck.

        Raises:
            NotFound: there is no such namespace.
            ClusterError: not one Pod could be read.
        """
        for _, outcome in map_concurrent(self._considered(), self._attend):
            self._note(outcome)
        for _, outcome in map_concurrent(self._later, self._attend_later):
            self._note(outcome)

    def _considered(self) -> Iterator[JudgedPod]:
        seen = self._report.seen
        try:
            judged = survey.judge_all(
                self._bulk, self._policy, self._scope, self._now(), self._report.unreadable.add
            )
            for pod in judged:
                seen[pod.decision.verdict.value] += 1
                self._report_progress()
                if not is_considered(pod):
                    continue
                # With OrderedReady, a StatefulSet's roll-out waits for a stuck Pod, which comes
                # back with the new template (https://github.com/kubernetes/kubernetes/issues/67250),
                # so owners are restarted first.
                if (
                    self._restart_which is Restart.ALL
                    and plan(pod, self._restart_which).action is Action.EVICT
                ):
                    self._later.append(_Stuck(pod.pod.metadata.name, pod.namespace))
                    continue
                yield pod
        except ClusterError as error:
            if not seen and not self._report.unreadable.count:
                raise
            self._report.broken_off = str(error)

    def _note(self, outcome: PodResult) -> None:
        self._report.add(outcome)
        self._report_progress()

    def _report_progress(self) -> None:
        time = self._clock()
        if time - self._told_at >= PERIOD:
            self._told_at = time
            self._progress(self._report.tally())

    def _attend_later(self, stuck: _Stuck) -> PodResult:
        place = f"{stuck.namespace.name}/{stuck.name}"
        try:
            pod = self._bulk.read(_PODS, stuck.name, stuck.namespace.name, StoredPod)
        except NotFound:
            return PodResult(place, MutationResult.GONE, "gone meanwhile")
        except ClusterError as error:
            return PodResult(place, MutationResult.FAILED, str(error))
        seen = survey.judge(pod, stuck.namespace, self._policy, self._now())
        return self._attend(seen) if is_considered(seen) else settled(seen)

    def _attend(self, seen: JudgedPod) -> PodResult:
        """Do what ought to be done to one Pod; whatever goes wrong with it stops no other."""
        try:
            return self._until_settled(seen)
        except NotFound:
            return result_of(seen, MutationResult.GONE, "gone meanwhile")
        except ClusterError as error:
            return result_of(seen, MutationResult.FAILED, str(error))
        except Exception as error:  # its text is a tenant's, and the others must not suffer for it
            logger.exception("attending to a Pod failed")
            reason = f"a fault of the charm, see its log: {type(error).__name__}"
            return result_of(seen, MutationResult.FAILED, reason)

    def _until_settled(self, seen: JudgedPod) -> PodResult:
        """Act; where the Pod has changed meanwhile, decide about it again."""
        refusal = ""
        for _ in range(_TRIES):
            try:
                return self._act(seen)
            except Refused as error:
                if error.code not in _CHANGED:
                    raise
                refusal = str(error)
            seen = self._again(seen)
            if not is_considered(seen):
                return settled(seen)
        return result_of(seen, MutationResult.FAILED, f"after {_TRIES} tries: {refusal}")

    def _again(self, seen: JudgedPod) -> JudgedPod:
        """The Pod as it is now.

        Raises:
            NotFound: it is gone, even if another has its name.
        """
        meta = seen.pod.metadata
        pod = self._bulk.read(_PODS, meta.name, meta.namespace, StoredPod, uid=meta.uid)
        return survey.judge(pod, seen.namespace, self._policy, self._now())

    def _act(self, seen: JudgedPod) -> PodResult:
        """Plan, ask the cluster what only it can tell, and carry out what is left of the plan."""
        return self._carry_out(seen, self._checked(seen, plan(seen, self._restart_which)))

    # What only the cluster can tell: the owner, and whether a new Pod would get the remedy.

    def _checked(self, seen: JudgedPod, step: PlannedAction) -> PlannedAction:
        if step.action is Action.EVICT:
            why = self._why_not_evicted(seen)
        elif step.action is Action.RESTART:
            owner, why = self._owner_to_restart(seen.pod)
            why = why or self._would_recur(seen)
            step = replace(step, owner=owner)
        else:
            return step
        return annotate_only(seen, why) if why else step

    def _why_not_evicted(self, seen: JudgedPod) -> str:
        reference = seen.pod.metadata.controller
        if reference is None:
            return why_no_controller(seen.pod)
        if not controllers.is_known(reference):
            return controller_not_known(seen.pod, reference)
        return self._would_recur(seen)

    def _would_recur(self, seen: JudgedPod) -> str:
        """Why a new Pod might be cut off again; asked once in a namespace."""
        key = (seen.namespace.name, verification.injection(seen.pod))
        return self._recurrences(key, lambda: self._ask_would_recur(seen.namespace, seen.pod))

    def _owner_to_restart(self, pod: StoredPod) -> tuple[OwnerReference | None, str]:
        """The owner that can be restarted for a Pod, or why none can."""
        reference, namespace = pod.metadata.controller, pod.metadata.namespace
        if reference and controllers.is_replica_set(reference):
            replica_set = self._controllers.read(reference, namespace)
            above = replica_set.metadata.controller if replica_set else None
            reference = above or reference
        if reference is None or not controllers.is_restartable(reference):
            return None, controllers.cannot_restart(pod, reference)
        # Read first: what another thread restarts meanwhile is known to be this run's.
        owner = self._controllers.read(reference, namespace)
        ours = self._restarts.knows(reference.uid)
        why = controllers.why_not_restarted(pod, reference, owner, ours=ours)
        return (None, why) if why else (reference, "")

    # What is done.

    def _carry_out(self, seen: JudgedPod, step: PlannedAction) -> PodResult:
        if step.action is Action.EVICT and seen.pod.metadata.controller:
            return self._evict(seen, seen.pod.metadata.controller)
        if step.action is Action.RESTART and step.owner:
            return self._restart_owner(seen, step.owner)
        if step.action is Action.LEAVE:
            return result_of(seen, MutationResult.LEFT, step.reason)
        meta = seen.pod.metadata
        self._bulk.patch(_PODS, meta.name, meta.namespace, guarded_patch(seen))
        return result_of(seen, MutationResult.PATCHED, step.reason)

    def _evict(self, seen: JudgedPod, controller: OwnerReference) -> PodResult:
        meta = seen.pod.metadata
        if why := self._reserve(seen.pod, controller):
            return self._carry_out(seen, annotate_only(seen, why))
        try:
            self._bulk.evict(meta.namespace, meta.name, meta.uid, meta.resource_version)
        except OverBudget as error:
            self._release(controller)
            return self._carry_out(seen, annotate_only(seen, f"run again later: {error}"))
        except OutcomeUnknown:  # it may have cost the owner a failure, so it stays counted
            raise
        except ClusterError:
            self._release(controller)
            raise
        reason = f"{controllers.title(controller)} recreates it with the remedy"
        return result_of(seen, MutationResult.EVICTED, reason)

    def _reserve(self, pod: StoredPod, reference: OwnerReference) -> str:
        """Count the eviction, or say why there is none: the controller, or the ceiling."""
        controller = self._controllers.read(reference, pod.metadata.namespace)
        with self._lock:
            spent = self._evictions[reference.uid]
            why = controllers.why_not_recreated(pod, reference, controller, spent)
            if not why and not self._disruptions.take():
                why = self._disruptions.why_not
            if not why:
                self._evictions[reference.uid] += 1
        return why

    def _release(self, reference: OwnerReference) -> None:
        with self._lock:
            self._evictions[reference.uid] -= 1
            self._disruptions.give_back()

    def _restart_owner(self, seen: JudgedPod, owner: OwnerReference) -> PodResult:
        namespace = seen.pod.metadata.namespace
        try:
            self._restarts(owner.uid, lambda: self._restart(owner, namespace))
        except NotFound:
            gone = f"{controllers.title(owner)} is gone"
            return self._carry_out(seen, annotate_only(seen, gone))
        except CeilingReached as reached:
            return self._carry_out(seen, annotate_only(seen, str(reached)))
        return result_of(
            seen,
            MutationResult.RESTARTED,
            "recreated by the roll-out",
            controllers.title(owner),
        )

    def _restart(self, owner: OwnerReference, namespace: str) -> None:
        with self._lock:
            if not self._disruptions.take():
                raise CeilingReached(self._disruptions.why_not)
        at = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        change = {
            # Another that has its name by now is left alone.
            "metadata": {"uid": owner.uid},
            "spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: at}}}},
        }
        try:
            self._bulk.merge(controllers.resource(owner), owner.name, namespace, change)
        except ClusterError:
            with self._lock:
                self._disruptions.give_back()
            raise
        with self._lock:
            self._report.owners += 1
