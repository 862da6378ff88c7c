"""What is done to existing Pods, and why.

An annotation on a Pod that exists has no effect until the Pod is made anew, so what is stuck is
evicted where somebody makes it anew, and owners are restarted where that is asked for. The first
half of this file is pure: a Pod as it was seen in, what ought to be done out. The second half does
it, many Pods side by side, and gives an account of every one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Generic, TypeVar

import msgspec

from init_egress.backends import verification
from init_egress.existing import controllers, survey
from init_egress.existing.controllers import MIRROR, RESTARTED_AT, Controllers, delete_command
from init_egress.existing.survey import JudgedPod
from init_egress.existing.unreadable import UnreadableObjects
from init_egress.kube.client import ApiClient
from init_egress.kube.errors import ClusterError, NotFound, OutcomeUnknown, OverBudget, Refused
from init_egress.kube.kinds import POD, Resource
from init_egress.kube.objects import OwnerReference, StoredPod
from init_egress.kube.parallel import map_concurrent
from init_egress.kube.scope import Scope
from init_egress.results import LimitedResults
from init_egress.rule.patch import annotation_path
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.policy import Policy
from init_egress.rule.verdict import Verdict

PERIOD = 5.0
"""Seconds between two lines of progress."""

_PODS = Resource.of(POD)
_TRIES = 5
_CHANGED = (409, 422)  # another version or uid than it was; a test of a JSON patch that failed
_UNTIL_MADE_ANEW = "no effect until the Pod is made anew"

K = TypeVar("K")
V = TypeVar("V")

WouldRecur = Callable[[Namespace, Pod], str]
"""Why a Pod like this one, made anew in the namespace, might be cut off again; empty if not."""


class Restart(str, Enum):
    """Which Pods are made anew."""

    NONE = "none"
    STUCK = "stuck"
    ALL = "all"


class Action(str, Enum):
    """What is done to a Pod."""

    PATCH = "patch"
    EVICT = "evict"
    RESTART = "restart"
    LEAVE = "leave"


class MutationResult(str, Enum):
    """What came of it."""

    FAILED = "failed"
    EVICTED = "evicted"
    RESTARTED = "restarted"
    LEFT = "left"
    GONE = "gone"
    PATCHED = "patched"


@dataclass(frozen=True)
class PlannedAction:
    """What is done to a Pod.

    Attributes:
        deed: what.
        reason: why, or what the operator can do about it; without a full stop.
    """

    deed: Action
    reason: str


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
        restart: which Pods are made anew.
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
    if why := _alone(seen.pod):
        return annotate_only(seen, why)
    return PlannedAction(Action.EVICT if stuck else Action.RESTART, seen.decision.reason)


def annotate_only(seen: JudgedPod, why: str) -> PlannedAction:
    """What is done to a Pod that is not made anew: it is annotated where it lacks that.

    Args:
        seen: the Pod.
        why: why it isn't made anew, or how it could be; may be empty.
    """
    patch = seen.decision.patch
    if patch and all(operation.path.startswith("/metadata/") for operation in patch):
        return PlannedAction(Action.PATCH, _joined(_UNTIL_MADE_ANEW, why))
    if patch:
        return PlannedAction(
            Action.LEAVE, _joined("only a Pod made anew can be given the remedy", why)
        )
    return PlannedAction(Action.LEAVE, _joined(f"annotated too late: {_UNTIL_MADE_ANEW}", why))


def _alone(pod: StoredPod) -> str:
    """Why nobody makes a Pod anew, and what to do; empty if it has a controller."""
    if MIRROR in pod.annotations:
        return "its node's kubelet runs it from a file; change that file"
    if pod.metadata.controller is None:
        meta = pod.metadata
        return (
            f"no controller makes it anew: kubectl get pod {meta.name} -n {meta.namespace} -o yaml"
            " | kubectl replace --force -f -"
        )
    return ""


def _unknown(pod: StoredPod, reference: OwnerReference) -> str:
    """What to do about a Pod whose controller isn't known to make it anew."""
    name, namespace = reference.name, pod.metadata.namespace
    if not reference.is_valid:
        return f"its controller is not known: {controllers.title(reference)}"
    if (reference.group, reference.kind) == ("argoproj.io", "Workflow"):
        # It depends on Argo's version and on the template whether it makes a deleted Pod anew:
        # https://github.com/argoproj/argo-workflows/issues/6481 and
        # https://github.com/argoproj/argo-workflows/pull/2721
        return (
            "Argo need not make a deleted Pod anew:"
            f" argo stop {name} -n {namespace} && argo retry {name} -n {namespace}"
        )
    return (
        f"whether {controllers.title(reference)} makes it anew is not known;"
        f" if it does: {delete_command(pod)}"
    )


def _joined(first: str, second: str) -> str:
    return f"{first}; {second}" if second else first


class PodResult(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """The account of one Pod.

    Attributes:
        pod: as `namespace/name`.
        result: what came of it.
        reason: why, or what the operator can do about it.
        owner: its controller, as `Kind/name`, or the owner that was restarted.
        stuck_in: the init container that it was stuck in, and how.
    """

    pod: str
    result: MutationResult
    reason: str
    owner: str = ""
    stuck_in: str = ""

    @property
    def rank(self) -> int:
        """What an operator wants to see first: 0."""
        if self.result is MutationResult.PATCHED and not self.stuck_in:
            return 3
        ranks = {MutationResult.FAILED: 0, MutationResult.EVICTED: 1, MutationResult.RESTARTED: 1}
        return ranks.get(self.result, 2)

    @property
    def is_stuck_still(self) -> bool:
        """Whether the Pod is stuck, and nothing was done that gets it going."""
        still = (MutationResult.FAILED, MutationResult.LEFT, MutationResult.PATCHED)
        return bool(self.stuck_in) and self.result in still


@dataclass
class MutationReport:
    """What was done.

    Attributes:
        scope: which Pods were asked about.
        dry_run: whether nothing was written.
        limit: bytes of the document.
        seen: how many Pods were looked at, by verdict.
        results: how many Pods had which result.
        owners: how many owners were restarted.
        stuck: how many Pods are stuck still.
        broken_off: why the list of Pods could not be read to its end; empty if it was.
        unreadable: Pods that could not be decoded; nothing was done to them.
    """

    scope: Scope
    dry_run: bool
    limit: int | None = None
    seen: Counter[str] = field(default_factory=Counter)
    results: Counter[MutationResult] = field(default_factory=Counter)
    owners: int = 0
    stuck: int = 0
    broken_off: str = ""
    unreadable: UnreadableObjects = field(default_factory=UnreadableObjects)

    def __post_init__(self) -> None:
        self._outcomes: LimitedResults[PodResult] = LimitedResults(self.limit)

    def add(self, outcome: PodResult) -> None:
        """Take one Pod's account down."""
        self.results[outcome.result] += 1
        self.stuck += outcome.is_stuck_still
        self._outcomes.add(outcome, outcome.rank)

    @property
    def outcomes(self) -> list[PodResult]:
        """The accounts that fit, those that matter most first."""
        return self._outcomes.items()

    def counts(self) -> dict[str, int]:
        """The numbers, by the names that a script reads."""
        return {
            "pods-seen": self.seen.total(),
            **{result.value: self.results[result] for result in MutationResult},
            "owners-restarted": self.owners,
            "stuck-still": self.stuck,
            "unreadable": self.unreadable.count,
        }

    def tally(self) -> str:
        """The numbers, for people."""
        shown = (
            MutationResult.EVICTED,
            MutationResult.RESTARTED,
            MutationResult.PATCHED,
            MutationResult.LEFT,
            MutationResult.FAILED,
        )
        parts = [f"{self.results[result]} {result.value}" for result in shown]
        return f"{self.seen.total()} Pods seen: {', '.join(parts)}"

    def summary(self) -> str:
        """What was done, in a few sentences."""
        said = [f"{self.scope}: {self.tally()}"]
        if self.dry_run:
            said = [f"Dry run, nothing was changed; {said[0]}"]
        if self.broken_off:
            said.append(f"The list broke off, run it again: {self.broken_off}")
        if self.results[MutationResult.PATCHED]:
            said.append(f"What was patched has {_UNTIL_MADE_ANEW}")
        if self.unreadable.count:
            said.append(self.unreadable.summary)
        if self.stuck:
            said.append(f"Stuck still: {self.stuck}; the document says what to do")
        return ". ".join(said)

    def document(self) -> str:
        """Everything, as JSON; cut to the limit."""
        whole: dict[str, object] = {
            "scope": str(self.scope),
            "dry-run": self.dry_run,
            **self.counts(),
            "verdicts": dict(self.seen),
            "left-out": self._outcomes.left_out,
        }
        if self._outcomes.left_out:
            whole["hint"] = "to see the rest, narrow it: namespace=… selector=…"
        if self.unreadable.count:
            whole["unreadable-pods"] = self.unreadable.named
        if self.broken_off:
            whole["broken-off"] = self.broken_off
        return msgspec.json.encode({**whole, "pods": self.outcomes}).decode()


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
        restart: which Pods are made anew.
        doubt: why a Pod made anew might be cut off again.
        report: where the account is given.
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
        doubt: WouldRecur,
        report: MutationReport,
        progress: Callable[[str], None],
        now: Callable[[], datetime] = _now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bulk = bulk
        self._policy = policy
        self._scope = scope
        self._restart = restart
        self._ask_doubt = doubt
        self._report = report
        self._now = now
        self._progress = progress
        self._clock = clock
        self._told_at = clock()
        self._controllers = Controllers(bulk)
        self._doubts: _Once[tuple[object, ...], str] = _Once()
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
                if self._restart is Restart.ALL and plan(pod, self._restart).deed is Action.EVICT:
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
        return self._attend(seen) if is_considered(seen) else _settled(seen)

    def _attend(self, seen: JudgedPod) -> PodResult:
        """Do what ought to be done; if the Pod has changed, decide about it again."""
        refusal = ""
        for _ in range(_TRIES):
            try:
                return self._act(seen)
            except NotFound:
                return _outcome(seen, MutationResult.GONE, "gone meanwhile")
            except Refused as error:
                if error.code not in _CHANGED:
                    return _outcome(seen, MutationResult.FAILED, str(error))
                refusal = str(error)
            except ClusterError as error:
                return _outcome(seen, MutationResult.FAILED, str(error))
            try:
                again = self._again(seen)
            except NotFound:
                return _outcome(seen, MutationResult.GONE, "gone meanwhile")
            except ClusterError as error:
                return _outcome(seen, MutationResult.FAILED, str(error))
            if not is_considered(again):
                return _settled(again)
            seen = again
        return _outcome(seen, MutationResult.FAILED, f"after {_TRIES} tries: {refusal}")

    def _again(self, seen: JudgedPod) -> JudgedPod:
        """The Pod as it is now.

        Raises:
            NotFound: it is gone, even if another has its name.
        """
        meta = seen.pod.metadata
        pod = self._bulk.read(_PODS, meta.name, meta.namespace, StoredPod, uid=meta.uid)
        return survey.judge(pod, seen.namespace, self._policy, self._now())

    def _act(self, seen: JudgedPod) -> PodResult:
        step = plan(seen, self._restart)
        if step.deed is Action.EVICT:
            return self._evict(seen)
        if step.deed is Action.RESTART:
            return self._restart_owner(seen)
        return self._stay(seen, step)

    def _stay(self, seen: JudgedPod, step: PlannedAction) -> PodResult:
        if step.deed is Action.LEAVE:
            return _outcome(seen, MutationResult.LEFT, step.reason)
        meta = seen.pod.metadata
        self._bulk.patch(_PODS, meta.name, meta.namespace, guarded(seen))
        return _outcome(seen, MutationResult.PATCHED, step.reason)

    def _evict(self, seen: JudgedPod) -> PodResult:
        meta, reference = seen.pod.metadata, seen.pod.metadata.controller
        if reference is None or not controllers.is_known(reference):
            why = _unknown(seen.pod, reference) if reference else _alone(seen.pod)
            return self._stay(seen, annotate_only(seen, why))
        if why := self._doubt(seen) or self._reserve(seen.pod, reference):
            return self._stay(seen, annotate_only(seen, why))
        try:
            self._bulk.evict(meta.namespace, meta.name, meta.uid, meta.resource_version)
        except OverBudget as error:
            self._release(reference)
            return self._stay(seen, annotate_only(seen, f"run again later: {error}"))
        except OutcomeUnknown:  # it may have cost the owner a failure, so it stays counted
            raise
        except ClusterError:
            self._release(reference)
            raise
        return _outcome(
            seen,
            MutationResult.EVICTED,
            f"{controllers.title(reference)} makes it anew with the remedy",
        )

    def _reserve(self, pod: StoredPod, reference: OwnerReference) -> str:
        """Why a Pod's controller would not make it anew; if it would, its eviction is counted."""
        controller = self._controllers.read(reference, pod.metadata.namespace)
        with self._lock:
            spent = self._evictions[reference.uid]
            why = controllers.why_not_recreated(pod, reference, controller, spent)
            if not why:
                self._evictions[reference.uid] += 1
        return why

    def _release(self, reference: OwnerReference) -> None:
        with self._lock:
            self._evictions[reference.uid] -= 1

    def _doubt(self, seen: JudgedPod) -> str:
        """Why a replacement might be cut off again; asked once in a namespace."""
        key = (seen.namespace.name, verification.injection(seen.pod))
        return self._doubts(key, lambda: self._ask_doubt(seen.namespace, seen.pod))

    def _restart_owner(self, seen: JudgedPod) -> PodResult:
        namespace = seen.pod.metadata.namespace
        owner, why = self._owner(seen.pod)
        if owner is None:
            return self._stay(seen, annotate_only(seen, why))
        if why := self._doubt(seen):
            return self._stay(seen, annotate_only(seen, why))
        try:
            self._restarts(owner.uid, lambda: self._restart_now(owner, namespace))
        except NotFound:
            return self._stay(seen, annotate_only(seen, f"{controllers.title(owner)} is gone"))
        return _outcome(
            seen, MutationResult.RESTARTED, "made anew by the roll-out", controllers.title(owner)
        )

    def _owner(self, pod: StoredPod) -> tuple[OwnerReference | None, str]:
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

    def _restart_now(self, owner: OwnerReference, namespace: str) -> None:
        at = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        change = {
            # Another that has its name by now is left alone.
            "metadata": {"uid": owner.uid},
            "spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: at}}}},
        }
        self._bulk.merge(controllers.resource(owner), owner.name, namespace, change)
        with self._lock:
            self._report.owners += 1


def guarded(seen: JudgedPod) -> list[object]:
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


def _outcome(seen: JudgedPod, result: MutationResult, reason: str, owner: str = "") -> PodResult:
    reference, stuck = seen.pod.metadata.controller, seen.stuck
    return PodResult(
        seen.pod.place,
        result,
        reason,
        owner or (controllers.title(reference) if reference else ""),
        f"{stuck.container} ({stuck.reason}, {stuck.restarts} restarts)" if stuck else "",
    )


def _settled(seen: JudgedPod) -> PodResult:
    if seen.pod.is_going or seen.pod.is_finished:
        return PodResult(seen.pod.place, MutationResult.GONE, "gone meanwhile")
    return PodResult(
        seen.pod.place, MutationResult.LEFT, f"{seen.decision.verdict.value} meanwhile"
    )
