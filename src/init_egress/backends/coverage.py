"""Where the remedy arrives: every namespace of the mesh, asked by a dry run.

A policy in force need not reach everywhere: a quota, Pod Security or another policy may let no
Pod into a namespace, and what is left over from a former backend may still act.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from init_egress.backends.backend import Backend
from init_egress.backends.effect import Effect
from init_egress.backends.registry import BACKENDS
from init_egress.backends.verification import Prover
from init_egress.kube.parallel import map_concurrent
from init_egress.results import LimitedResults
from init_egress.rule.pod import Namespace
from init_egress.rule.verdict import Verdict

PROGRESS_EVERY = 50
"""Namespaces after which it is said how far it has come."""

SETTLING_SECONDS = 3.0
"""How long objects just written have to take effect, from the start, for all namespaces."""

_CONCURRENCY = 4
# What an operator must see comes first.
_ORDER = (Effect.MISSING, Effect.REJECTED, Effect.UNVERIFIED, Effect.ARRIVES)


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One namespace.

    Attributes:
        namespace: its name.
        effect: what the dry run showed.
        detail: the same in words, the API server's where it said no.
        backend: by which backend the remedy arrives; empty if by none.
        milliseconds: how long the creation took, with all of admission.
        verdict: the rule's on the Pod without the charm.
        native_sidecars: whether Pods have native sidecars there unless they opt out.
    """

    namespace: str
    effect: Effect
    detail: str
    backend: str = ""
    milliseconds: int = 0
    verdict: Verdict | None = None
    native_sidecars: bool = False


@dataclass(frozen=True)
class Coverage:
    """What was found.

    Attributes:
        backend: what is to act.
        counts: in how many namespaces each effect was seen.
        slowest: milliseconds of the slowest creation of a Pod to which the remedy came.
        rows: the namespaces kept, those without the remedy first.
        left_out: how many were not kept.
    """

    backend: Backend
    counts: Mapping[Effect, int]
    slowest: int
    rows: tuple[Row, ...]
    left_out: int = 0

    @property
    def namespaces(self) -> int:
        """How many were asked."""
        return sum(self.counts.values())

    @property
    def summary(self) -> str:
        """All in one sentence."""
        if not self.namespaces:
            return "no namespace of the mesh yet"
        counted = ", ".join(
            f"{_TITLES[effect]} in {self.counts[effect]}"
            for effect in _ORDER
            if self.counts.get(effect)
        )
        slowest = f"; slowest: {self.slowest} ms" if self.slowest else ""
        asked = f"{self.namespaces} namespace{'' if self.namespaces == 1 else 's'}"
        return f"{self.backend.title}, {asked}: {counted}{slowest}"

    def results(self) -> dict[str, str | int]:
        """The results of the action: counts, a sentence, and the document for a machine."""
        counts = {_KEYS[effect]: self.counts.get(effect, 0) for effect in _ORDER}
        document = {
            "summary": self.summary,
            "backend": self.backend.kind.value,
            **counts,
            "left-out": self.left_out,
            "namespaces": self.rows,
        }
        return {
            "summary": self.summary,
            "backend": self.backend.kind.value,
            "namespaces": self.namespaces,
            **counts,
            "slowest-milliseconds": self.slowest,
            "left-out": self.left_out,
            "document": msgspec.json.encode(document).decode(),
        }


_TITLES = {
    Effect.ARRIVES: "the remedy arrives",
    Effect.MISSING: "it is missing",
    Effect.REJECTED: "admission takes no Pod",
    Effect.UNVERIFIED: "there is nothing to verify",
}
_KEYS = {
    Effect.ARRIVES: "arrives",
    Effect.MISSING: "missing",
    Effect.REJECTED: "rejected",
    Effect.UNVERIFIED: "not-verified",
}


def cover(
    prover: Prover,
    namespaces: Sequence[Namespace],
    *,
    limit: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Coverage:
    """Ask in each of these namespaces whether the remedy arrives, some at the same time.

    Args:
        prover: asks; its timeout is replaced by what is left of `SETTLING_SECONDS`.
        namespaces: of the mesh or not; what a Pod would be there is said in any case.
        limit: bytes of JSON that the rows may take; None keeps all.
        progress: is told how far it has come.

    Raises:
        ClusterError: the cluster can't be asked.
    """
    counts: Counter[Effect] = Counter()
    slowest = 0
    kept: LimitedResults[Row] = LimitedResults(limit)
    end = time.monotonic() + SETTLING_SECONDS

    def ask(namespace: Namespace) -> Row:
        return _ask(replace(prover, timeout=max(0.0, end - time.monotonic())), namespace)

    for namespace, row in map_concurrent(namespaces, ask, _CONCURRENCY):
        counts[row.effect] += 1
        slowest = max(slowest, row.milliseconds if row.effect is Effect.ARRIVES else 0)
        kept.add(row, _ORDER.index(row.effect))
        if (done := counts.total()) % PROGRESS_EVERY == 0:
            progress(f"{done} of {len(namespaces)} namespaces asked, last {namespace.name}")
    rows = sorted(kept.items(), key=lambda row: (_ORDER.index(row.effect), row.namespace))
    return Coverage(prover.backend, counts, slowest, tuple(rows), kept.left_out)


def _ask(prover: Prover, namespace: Namespace) -> Row:
    backend = prover.backend
    found = prover.examine(namespace)
    detail, by = found.detail, ""
    if found.effect is Effect.ARRIVES:
        detail, by = f"arrives by {backend.title}", backend.kind.value
    if found.effect is Effect.MISSING:
        detail = f"{backend.title} does not act on a Pod here"
        if other := _left_over(prover, namespace):
            by = other.kind.value
            detail += f", but {other.title} does, left over from a former backend"
    return Row(
        namespace=namespace.name,
        effect=found.effect,
        detail=detail,
        backend=by,
        milliseconds=found.milliseconds,
        verdict=found.verdict,
        native_sidecars=found.native_sidecars,
    )


def _left_over(prover: Prover, namespace: Namespace) -> Backend | None:
    """Another backend of the application that acts there; None if none does."""
    for other in BACKENDS.values():
        if other is prover.backend:
            continue
        found = replace(prover, backend=other, timeout=0.0).examine(namespace)
        if found.effect is Effect.ARRIVES:
            return other
    return None
