"""The account of what was done to existing Pods: counts, a summary, and a document."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from init_egress.existing import controllers
from init_egress.existing.mutation_plan import NO_EFFECT_YET
from init_egress.existing.survey import JudgedPod
from init_egress.existing.unreadable import UnreadableObjects
from init_egress.kube.scope import Scope
from init_egress.results import LimitedResults, count


class MutationResult(str, Enum):
    """What came of it."""

    FAILED = "failed"
    EVICTED = "evicted"
    RESTARTED = "restarted"
    LEFT = "left"
    GONE = "gone"
    PATCHED = "patched"


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
        self._results: LimitedResults[PodResult] = LimitedResults(self.limit)

    def add(self, outcome: PodResult) -> None:
        """Take one Pod's account down."""
        self.results[outcome.result] += 1
        self.stuck += outcome.is_stuck_still
        self._results.add(outcome, outcome.rank)

    @property
    def pods(self) -> list[PodResult]:
        """The accounts that fit, those that matter most first."""
        return self._results.items()

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
        return f"{count(self.seen.total(), 'Pod')} seen: {', '.join(parts)}"

    def summary(self) -> str:
        """What was done, in a few sentences."""
        said = [f"{self.scope}: {self.tally()}"]
        if self.dry_run:
            said = [f"Dry run, nothing was changed; {said[0]}"]
        if self.broken_off:
            said.append(f"The list broke off, run it again: {self.broken_off}")
        if self.results[MutationResult.PATCHED]:
            said.append(f"What was patched has {NO_EFFECT_YET}")
        if self.unreadable.count:
            said.append(self.unreadable.summary)
        if self.stuck:
            said.append(f"Stuck still: {self.stuck}; the document says what to do")
        return ". ".join(said)

    def action_results(self) -> dict[str, str]:
        """The results of the action: a summary, the counts, and the document for a script."""
        counts = {name: str(number) for name, number in self.counts().items()}
        return {"summary": self.summary(), **counts, "document": self.document()}

    def document(self) -> str:
        """Everything, as JSON; cut to the limit."""
        whole: dict[str, object] = {
            "scope": str(self.scope),
            "dry-run": self.dry_run,
            **self.counts(),
            "verdicts": dict(self.seen),
            "left-out": self._results.left_out,
        }
        if self._results.left_out:
            whole["hint"] = "to see the rest, narrow it: namespace=… selector=…"
        if self.unreadable.count:
            whole["unreadable-pods"] = self.unreadable.named
        if self.broken_off:
            whole["broken-off"] = self.broken_off
        return msgspec.json.encode({**whole, "pods": self.pods}).decode()


def result_of(seen: JudgedPod, result: MutationResult, reason: str, owner: str = "") -> PodResult:
    """The account of a Pod that something was done to, or was left for a reason."""
    reference, stuck = seen.pod.metadata.controller, seen.stuck
    return PodResult(
        seen.pod.place,
        result,
        reason,
        owner or (controllers.title(reference) if reference else ""),
        f"{stuck.container} ({stuck.reason}, {stuck.restarts} restarts)" if stuck else "",
    )


def settled(seen: JudgedPod) -> PodResult:
    """The account of a Pod to which nothing is to be done any more."""
    if seen.pod.is_going or seen.pod.is_finished:
        return PodResult(seen.pod.place, MutationResult.GONE, "gone meanwhile")
    return PodResult(
        seen.pod.place, MutationResult.LEFT, f"{seen.decision.verdict.value} meanwhile"
    )
