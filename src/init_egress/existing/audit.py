"""The audit: what the rule says of every existing Pod, and what to do about each.

Counts come first. Of the Pods those are kept that matter most: stuck ones, then those that need
the remedy, then the rest.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

import msgspec

from init_egress.existing.advice import Commands, todo
from init_egress.existing.controllers import title
from init_egress.existing.owners import ControllerChain
from init_egress.existing.survey import JudgedPod, Stuck, judge_all
from init_egress.existing.unreadable import UnreadableObjects
from init_egress.kube.client import ApiClient
from init_egress.kube.objects import OwnerReference, StoredPod
from init_egress.kube.scope import Scope
from init_egress.results import LimitedResults, columns, count
from init_egress.rule import istio
from init_egress.rule.policy import Policy
from init_egress.rule.verdict import Verdict

PROGRESS_EVERY = 5_000
"""Pods after which it is said how far the audit has come."""

_NAMESPACES_SHOWN = 100
_ROOM_FOR_OWNER = 120
_RANGES_FLAG, _PORTS_FLAG = "-x", "-o"


class Excludes(msgspec.Struct, frozen=True):
    """What of a Pod's outbound traffic is not redirected.

    Attributes:
        ranges: as the CNI plugin, or istio-init, has been told.
        ports: likewise.
    """

    ranges: str
    ports: str

    def __str__(self) -> str:
        return " ".join(filter(None, [self.ranges, self.ports and f"ports {self.ports}"]))


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One Pod.

    Attributes:
        namespace: its namespace.
        pod: its name.
        verdict: the rule's.
        reason: why.
        todo: one line that says what to do.
        owner: the topmost controller, as `Kind/name`; empty if nobody recreates the Pod.
        through: the Pod's own controller, where that is another.
        cut_off: the init containers that have no network.
        stuck: the one of them that it can't get past.
        too_late: whether its exclude annotations came after its network was made.
        finished: whether all that it had to do is done.
        excludes: what is in effect.
    """

    namespace: str
    pod: str
    verdict: Verdict
    reason: str
    todo: str
    owner: str = ""
    through: str = ""
    cut_off: tuple[str, ...] = ()
    stuck: Stuck | None = None
    too_late: bool = False
    finished: bool = False
    excludes: Excludes | None = None


@dataclass(frozen=True)
class Audit:
    """What was found.

    Attributes:
        scope: which Pods were looked at.
        pods: how many there are.
        stuck: how many are stuck in an init container that is cut off.
        verdicts: how many Pods have each verdict.
        namespaces: the same by namespace.
        findings: the Pods kept, those that matter most first.
        left_out: how many more there are of those asked for.
        unreadable: Pods that could not be decoded; they are in no other count.
    """

    scope: Scope
    pods: int
    stuck: int
    verdicts: Mapping[Verdict, int]
    namespaces: Mapping[str, Mapping[Verdict, int]]
    findings: tuple[AuditEntry, ...]
    left_out: int = 0
    unreadable: UnreadableObjects = field(default_factory=UnreadableObjects)

    @property
    def summary(self) -> str:
        """All in one sentence."""
        counts = ", ".join(f"{n} {verdict.value}" for verdict, n in ordered(self.verdicts))
        stuck = f"; {self.stuck} stuck in an init container that is cut off" if self.stuck else ""
        unreadable = f"; {self.unreadable.summary}" if self.unreadable.count else ""
        return f"{count(self.pods, 'Pod')} in {self.scope}: {counts or 'none'}{stuck}{unreadable}"

    @property
    def narrow(self) -> str:
        """How to see those that were left out; empty if none were."""
        return _narrow(self.left_out)


def audit(
    bulk: ApiClient,
    policy: Policy,
    scope: Scope,
    commands: Commands,
    *,
    verdict: Verdict | None = None,
    limit: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Audit:
    """Judge all Pods of a scope; memory grows with the limit and the namespaces, not the Pods.

    Args:
        bulk: where.
        policy: what the operator configured.
        scope: which Pods.
        commands: those that what is to be done is said in.
        verdict: list only Pods that have it; all are counted.
        limit: bytes of JSON that the findings may take; None keeps all.
        progress: is told how far the audit has come.

    Raises:
        NotFound: there is no such namespace.
        ClusterError: the cluster can't be asked.
    """
    tally, unreadable = _Tally(), UnreadableObjects()
    kept: LimitedResults[tuple[AuditEntry, OwnerReference | None]] = LimitedResults(limit)
    for seen in judge_all(bulk, policy, scope, datetime.now(timezone.utc), unreadable.add):
        tally.add(seen)
        if tally.pods % PROGRESS_EVERY == 0:
            progress(f"{tally.pods} Pods read, {tally.stuck} of them stuck")
        if verdict in (None, seen.decision.verdict):
            finding = find(seen, policy, commands)
            controller = seen.pod.metadata.controller
            kept.add((finding, controller), _rank(finding), _ROOM_FOR_OWNER)
    return Audit(
        scope,
        tally.pods,
        tally.stuck,
        tally.verdicts,
        tally.namespaces,
        tuple(_with_owners(kept.items(), ControllerChain(bulk, scope))),
        kept.left_out,
        unreadable,
    )


@dataclass
class _Tally:
    pods: int = 0
    stuck: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    namespaces: dict[str, Counter[Verdict]] = field(default_factory=dict)

    def add(self, seen: JudgedPod) -> None:
        self.pods += 1
        self.stuck += seen.stuck is not None
        self.verdicts[seen.decision.verdict] += 1
        counts = self.namespaces.setdefault(seen.namespace.name, Counter())
        counts[seen.decision.verdict] += 1


def find(seen: JudgedPod, policy: Policy, commands: Commands) -> AuditEntry:
    """What is to be said of one Pod, but for who owns it.

    Args:
        seen: the Pod.
        policy: what the operator configured.
        commands: those that what is to be done is said in.
    """
    pod, decision = seen.pod, seen.decision
    return AuditEntry(
        namespace=seen.namespace.name,
        pod=pod.metadata.name,
        verdict=decision.verdict,
        reason=decision.reason,
        todo=todo(seen, policy, commands),
        cut_off=decision.cut_off,
        stuck=seen.stuck,
        too_late=seen.too_late,
        finished=pod.is_finished,
        excludes=excludes(pod),
    )


def excludes(pod: StoredPod) -> Excludes | None:
    """What of a Pod's outbound traffic is not redirected; None if all of it is, or none.

    Where istio-init redirects, its arguments count; else the annotations, which the CNI plugin
    reads. Mesh-wide excludes are in them: Istio writes them there when it injects a Pod
    (istio/istio: manifests/charts/istio-control/istio-discovery/files/injection-template.yaml).
    """
    if istio.STATUS not in pod.annotations:
        return None
    ranges = pod.annotations.get(istio.EXCLUDE_RANGES, "")
    ports = pod.annotations.get(istio.EXCLUDE_PORTS, "")
    for container in pod.init_containers:
        if container.name == istio.ISTIO_INIT:
            args = container.args or ()
            ranges, ports = _value(args, _RANGES_FLAG), _value(args, _PORTS_FLAG)
    return Excludes(ranges, ports) if ranges or ports else None


def _value(args: tuple[str, ...], flag: str) -> str:
    return args[args.index(flag) + 1] if flag in args[:-1] else ""


def _rank(finding: AuditEntry) -> int:
    if finding.stuck:
        return 0
    if finding.finished:
        return 5
    order = (Verdict.NEEDS_REMEDY, Verdict.BEYOND_REMEDY)
    if finding.verdict in order:
        return 1 + order.index(finding.verdict)
    return 3 if finding.too_late or finding.cut_off else 4


def _with_owners(
    kept: list[tuple[AuditEntry, OwnerReference | None]], owners: ControllerChain
) -> Iterator[AuditEntry]:
    owners.look_up((finding.namespace, owner) for finding, owner in kept if owner)
    for finding, controller in kept:
        chain = [title(owner) for owner in owners.chain(finding.namespace, controller)]
        if not chain:
            yield finding
            continue
        through = chain[0] if len(chain) > 1 else ""
        yield msgspec.structs.replace(finding, owner=chain[-1], through=through)


def ordered(verdicts: Mapping[Verdict, int]) -> list[tuple[Verdict, int]]:
    """Verdicts with their counts, those that ask for something first."""
    return [(verdict, verdicts[verdict]) for verdict in reversed(Verdict) if verdicts.get(verdict)]


def document(found: Audit, mesh: list[str]) -> dict[str, object]:
    """The audit for a machine: counts first.

    Args:
        found: what was found.
        mesh: what holds for the mesh, a sentence each.
    """
    namespaces = worst(found)
    document: dict[str, object] = {
        "summary": found.summary,
        "verdicts": {verdict.value: n for verdict, n in ordered(found.verdicts)},
        "stuck": found.stuck,
        "unreadable": found.unreadable.count,
        "namespaces": {
            name: {verdict.value: n for verdict, n in ordered(found.namespaces[name])}
            for name in namespaces[:_NAMESPACES_SHOWN]
        },
        "mesh": mesh,
        "pods": found.findings,
    }
    if len(namespaces) > _NAMESPACES_SHOWN:
        document["namespaces-left-out"] = len(namespaces) - _NAMESPACES_SHOWN
    if found.unreadable.count:
        document["unreadable-pods"] = found.unreadable.named
    if found.left_out:
        document |= {"left-out": found.left_out, "narrow": found.narrow}
    return document


def worst(found: Audit) -> list[str]:
    """The names of the namespaces, those with most Pods in need first."""

    def key(name: str) -> tuple[int, int, str]:
        counts = found.namespaces[name]
        needs, beyond = counts.get(Verdict.NEEDS_REMEDY, 0), counts.get(Verdict.BEYOND_REMEDY, 0)
        return -needs, -beyond, name

    return sorted(found.namespaces, key=key)


def table(found: Audit, mesh: list[str], limit: int | None = None) -> str:
    """The audit for people: counts first.

    Args:
        found: what was found.
        mesh: what holds for the mesh, a sentence each.
        limit: bytes that it may take; rows that don't fit are counted instead.
    """
    parts = [found.summary, "", *mesh, ""]
    counted = [[verdict.value, str(n)] for verdict, n in ordered(found.verdicts)]
    parts += [columns(["VERDICT", "PODS"], counted), ""]
    parts += [columns(_NAMESPACE_HEADER, _namespaces(found)), ""]
    header, *rows = columns(_HEADER, [_row(finding) for finding in found.findings]).splitlines()
    room = None if limit is None else limit - sum(len(part.encode()) + 1 for part in parts)
    shown = _fitting([header, *rows], room)
    if left_out := found.left_out + len(rows) + 1 - len(shown):
        shown.append(_narrow(left_out))
    return "\n".join([*parts, *shown])


def _fitting(lines: list[str], room: int | None) -> list[str]:
    """The first lines, as many as there is room for; always the header."""
    if room is None:
        return lines
    sizes = itertools.accumulate(len(line.encode()) + 1 for line in lines)
    return lines[: max(1, sum(size <= room for size in sizes))]


def _narrow(left_out: int) -> str:
    if not left_out:
        return ""
    return f"{count(left_out, 'Pod')} left out: narrow by namespace, selector or verdict"


_NAMESPACE_HEADER = ["NAMESPACE", "PODS", "NEED THE REMEDY", "BEYOND IT"]
_HEADER = ["NAMESPACE", "POD", "OWNER", "VERDICT", "CUT OFF", "STUCK", "EXCLUDES", "WHAT TO DO"]


def _namespaces(found: Audit) -> list[list[str]]:
    names = worst(found)[:_NAMESPACES_SHOWN]
    asked = (Verdict.NEEDS_REMEDY, Verdict.BEYOND_REMEDY)
    return [
        [
            name,
            str(sum(found.namespaces[name].values())),
            *(str(found.namespaces[name].get(verdict, 0)) for verdict in asked),
        ]
        for name in names
    ]


def _row(finding: AuditEntry) -> list[str]:
    return [
        finding.namespace,
        finding.pod,
        finding.owner,
        finding.verdict.value,
        ",".join(finding.cut_off),
        _how_stuck(finding.stuck),
        str(finding.excludes or ""),
        finding.todo,
    ]


def _how_stuck(stuck: Stuck | None) -> str:
    if stuck is None:
        return ""
    since = f" since {stuck.since:%Y-%m-%dT%H:%MZ}" if stuck.since else ""
    return f"{stuck.container}: {stuck.reason}, {stuck.restarts} restarts{since}"
