"""Where the remedy arrives: every namespace of the mesh, asked by a dry run.

A policy in force need not reach everywhere: a quota, Pod Security or another policy may let no
Pod into a namespace, and what is left over from a former backend may still act.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from init_egress.backends.manifests import Application, BackendKind
from init_egress.backends.verification import Effect, Verification, examine
from init_egress.kube.cluster import Cluster
from init_egress.kube.errors import Unreachable
from init_egress.kube.parallel import map_concurrent
from init_egress.results import LimitedResults
from init_egress.rule.pod import Namespace
from init_egress.rule.policy import Policy
from init_egress.rule.verdict import Verdict

PROGRESS_EVERY = 50
"""Namespaces after which it is said how far it has come."""

PATIENCE = 3.0
"""Seconds that objects just written have to take effect, from the start, for all namespaces."""

_WIDTH = 4
_INTERNAL_ERROR = 500
# What an operator must see comes first.
_ORDER = (Effect.MISSING, Effect.REJECTED, Effect.UNVERIFIED, Effect.ARRIVES)


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One namespace.

    Attributes:
        namespace: its name.
        effect: what the dry run showed.
        detail: the same in words, the API server's where it said no.
        backend: by which form the remedy arrives; empty if by none.
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
        form: what is to act.
        counts: in how many namespaces each effect was seen.
        slowest: milliseconds of the slowest creation of a Pod to which the remedy came.
        rows: the namespaces kept, those without the remedy first.
        left_out: how many were not kept.
    """

    form: BackendKind
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
        return f"{self.form.description}, {asked}: {counted}{slowest}"

    def results(self) -> dict[str, str | int]:
        """The results of the action: counts, a sentence, and the document for a machine."""
        counts = {_KEYS[effect]: self.counts.get(effect, 0) for effect in _ORDER}
        document = {
            "summary": self.summary,
            "backend": self.form.value,
            **counts,
            "left-out": self.left_out,
            "namespaces": self.rows,
        }
        return {
            "summary": self.summary,
            "backend": self.form.value,
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
    cluster: Cluster,
    namespaces: Sequence[Namespace],
    policy: Policy,
    owner: Application,
    form: BackendKind,
    *,
    limit: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Coverage:
    """Ask in each of these namespaces whether the remedy arrives, some side by side.

    Args:
        cluster: where.
        namespaces: of the mesh or not; what a Pod would be there is told in any case.
        policy: what the operator configured.
        owner: whose objects.
        form: which of them is to act.
        limit: bytes of JSON that the rows may take; None keeps all.
        progress: is told how far it has come.

    Raises:
        ClusterError: the cluster can't be asked.
    """
    counts: Counter[Effect] = Counter()
    slowest = 0
    kept: LimitedResults[Row] = LimitedResults(limit)
    end = time.monotonic() + PATIENCE

    def ask(namespace: Namespace) -> Row:
        patience = max(0.0, end - time.monotonic())
        return _ask(cluster, namespace, policy, owner, form, patience)

    for namespace, row in map_concurrent(namespaces, ask, _WIDTH):
        counts[row.effect] += 1
        slowest = max(slowest, row.milliseconds if row.effect is Effect.ARRIVES else 0)
        kept.add(row, _ORDER.index(row.effect))
        if (done := counts.total()) % PROGRESS_EVERY == 0:
            progress(f"{done} of {len(namespaces)} namespaces asked, last {namespace.name}")
    rows = sorted(kept.items(), key=lambda row: (_ORDER.index(row.effect), row.namespace))
    return Coverage(form, counts, slowest, tuple(rows), kept.left_out)


def _ask(
    cluster: Cluster,
    namespace: Namespace,
    policy: Policy,
    owner: Application,
    form: BackendKind,
    patience: float,
) -> Row:
    found = _examined(cluster, namespace, policy, owner.probe(form), patience)
    detail, by = found.detail, ""
    if found.effect is Effect.ARRIVES:
        detail, by = f"arrives by {form.description}", form.value
    if found.effect is Effect.MISSING:
        detail = f"{form.description} does not act on a Pod here"
        if other := _left_over(cluster, namespace, policy, owner, form):
            by = other.value
            detail += f", but {other.description} does, left over from a former backend"
    return Row(
        namespace=namespace.name,
        effect=found.effect,
        detail=detail,
        backend=by,
        milliseconds=found.milliseconds,
        verdict=found.verdict,
        native_sidecars=found.native_sidecars,
    )


def _left_over(
    cluster: Cluster, namespace: Namespace, policy: Policy, owner: Application, form: BackendKind
) -> BackendKind | None:
    """Another form of ours that acts there; None if none does."""
    for other in BackendKind:
        if other is form:
            continue
        found = _examined(cluster, namespace, policy, owner.probe(other), 0)
        if found.effect is Effect.ARRIVES:
            return other
    return None


def _examined(
    cluster: Cluster, namespace: Namespace, policy: Policy, label: str, patience: float
) -> Verification:
    try:
        return examine(cluster, namespace, policy, label, patience)
    except Unreachable as error:
        # A webhook that fails, and fails closed, is an internal error: no Pod comes in there.
        if error.code != _INTERNAL_ERROR:
            raise
        return Verification(Effect.REJECTED, str(error))
