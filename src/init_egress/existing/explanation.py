"""One Pod explained: its verdict step by step, and what it would be if it were created now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import msgspec

from init_egress.backends.backend import Backend
from init_egress.backends.probe import NO_BACKEND, labelled
from init_egress.backends.verification import holds
from init_egress.existing import audit, survey
from init_egress.existing.advice import Juju
from init_egress.existing.audit import AuditEntry
from init_egress.existing.controllers import title
from init_egress.existing.differences import InForce, Recreated, differences
from init_egress.existing.owners import ControllerChain
from init_egress.existing.pod_template import TemplatePod, TemplateUnknown, pod_from_template
from init_egress.existing.survey import JudgedPod
from init_egress.kube.application import Application
from init_egress.kube.client import FIELD_MANAGER, ApiClient
from init_egress.kube.cluster import Cluster
from init_egress.kube.errors import ClusterError, NotFound
from init_egress.kube.kinds import Resource
from init_egress.kube.manifest import Manifest
from init_egress.kube.objects import ListedMeta, ManagedFields, Object, StoredNamespace
from init_egress.kube.scope import Scope
from init_egress.rule.decision import decide
from init_egress.rule.inspection import Inspection
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.policy import Policy
from init_egress.rule.trace import TraceStep, trace
from init_egress.rule.verdict import Verdict
from init_egress.rule.words import change

_INJECTION_LABELS = (b'"f:istio-injection"', b'"f:istio.io/rev"')


class IfCreatedNow(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """What would come of a Pod if it were created now.

    Attributes:
        source: where it is read how the Pod would be submitted.
        verdict: the rule's on the Pod as it would be stored; None if there would be none, or it
            can't be told.
        reason: why that verdict, or the API server's words, or why it can't be told.
        backend: by which backend it is changed; empty if by none.
        changes: what the charm changes of it.
    """

    source: str = ""
    verdict: Verdict | None = None
    reason: str = ""
    backend: str = ""
    changes: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """All in one line."""
        changes = f"; {self.backend} sets {', '.join(self.changes)}" if self.changes else ""
        return f"{self.verdict.value}: {self.reason}{changes}" if self.verdict else self.reason


@dataclass(frozen=True)
class Explanation:
    """What there is to say of one Pod.

    Attributes:
        finding: what the audit says of it.
        steps: the rule's questions up to the verdict.
        outcome: what would come of it if it were created now.
        differences: why the two differ; empty if they don't, or it can't be told.
    """

    finding: AuditEntry
    steps: tuple[TraceStep, ...]
    outcome: IfCreatedNow
    differences: tuple[str, ...]

    @property
    def why_different(self) -> str:
        """Why the Pod is another than one that is created now, in one line."""
        if self.outcome.verdict is None:
            return "there is nothing to compare it with"
        return "; ".join(self.differences) or "they do not differ"

    def results(self) -> dict[str, str]:
        """The results of the action: what a script asks for, a text to read, and the document."""
        return {
            "verdict": self.finding.verdict.value,
            "reason": self.finding.reason,
            "if-created-now": self.outcome.summary,
            "why-different": self.why_different,
            "explanation": "\n".join(self._lines()),
            "document": msgspec.json.encode(self._document()).decode(),
        }

    def _document(self) -> dict[str, object]:
        return {
            "pod": self.finding,
            "steps": self.steps,
            "if-created-now": self.outcome,
            "why-different": self.differences,
        }

    def _lines(self) -> Iterator[str]:
        found = self.finding
        yield f"Pod {found.namespace}/{found.pod} is {found.verdict.value}: {found.reason}."
        for number, step in enumerate(self.steps, 1):
            yield f"{number:2}. {step.verdict.value}: {'yes' if step.fits else 'no'}"
            yield from (f"      {fact}" for fact in step.read)
        yield f"Owner: {_owner(found)}"
        yield f"Cut off: {', '.join(found.cut_off) or 'none'}"
        yield f"Stuck: {_stuck(found)}"
        yield f"Not redirected: {_excludes(found)}"
        yield f"To do: {found.todo}"
        yield f"If it were created now: {self.outcome.summary}"
        if self.outcome.source:
            yield f"      as {self.outcome.source} has it"
        yield f"Why the two differ: {self.why_different}"


def explain(
    bulk: ApiClient,
    cluster: Cluster,
    policy: Policy,
    application: Application,
    backend: Backend,
    namespace: str,
    name: str,
    now: datetime,
) -> Explanation:
    """Explain the verdict of one Pod; nothing is changed.

    Args:
        bulk: the cluster, for reading.
        cluster: the cluster, for dry runs.
        policy: what the operator configured.
        application: the application whose backend acts.
        backend: the backend that is to act.
        namespace: the Pod's.
        name: the Pod's.
        now: the time.

    Raises:
        NotFound: it isn't there; the message says where to look.
        ClusterError: the cluster can't be asked.
    """
    stored_namespace = survey.read_stored_namespace(bulk, namespace)
    pod = survey.read_pod(bulk, namespace, name)
    place = stored_namespace.as_namespace()
    seen = survey.judge(pod, place, policy, now)
    in_force = _in_force(bulk, backend, application)
    outcome, recreated = _created_now(bulk, cluster, seen, policy, backend, in_force)
    labels_set = _labels_set(stored_namespace)
    return Explanation(
        finding=_finding(bulk, seen, policy, application),
        steps=trace(Inspection(seen.pod, seen.namespace, policy)),
        outcome=outcome,
        differences=tuple(differences(seen, recreated, labels_set, in_force)) if recreated else (),
    )


def _finding(
    bulk: ApiClient, seen: JudgedPod, policy: Policy, application: Application
) -> AuditEntry:
    found = audit.find(seen, policy, Juju(application.name))
    if seen.too_late:
        # By its annotations it is not, but they have no effect.
        found = msgspec.structs.replace(
            found, cut_off=Inspection(seen.pod, seen.namespace, policy).unexempt_names
        )
    owners = ControllerChain(bulk, Scope(found.namespace))
    chain = [
        title(reference)
        for reference in owners.chain(found.namespace, seen.pod.metadata.controller)
    ]
    if not chain:
        return found
    through = chain[0] if len(chain) > 1 else ""
    return msgspec.structs.replace(found, owner=chain[-1], through=through)


def _created_now(
    bulk: ApiClient,
    cluster: Cluster,
    seen: JudgedPod,
    policy: Policy,
    backend: Backend,
    in_force: InForce | None,
) -> tuple[IfCreatedNow, Recreated | None]:
    try:
        drafted = pod_from_template(bulk, seen.pod)
    except TemplateUnknown as untold:
        return IfCreatedNow(reason=f"it can't be told: {untold}"), None
    try:
        tried = _try(cluster, drafted, seen.namespace, policy)
    except ClusterError as error:
        if not error.means_rejected:
            raise
        return IfCreatedNow(source=drafted.source, reason=f"it would be rejected: {error}"), None
    recreated, stored = tried
    return _outcome(recreated, stored, backend, in_force), recreated


def _try(
    cluster: Cluster, drafted: TemplatePod, namespace: Namespace, policy: Policy
) -> tuple[Recreated, Manifest]:
    """Send a Pod through admission without the charm and as it is."""
    without = cluster.dry_run(namespace.name, labelled(drafted.pod, NO_BACKEND))
    stored = cluster.dry_run(namespace.name, drafted.pod)
    pod = Pod.from_dict(without)
    before = decide(pod, namespace, policy)
    after = decide(Pod.from_dict(stored), namespace, policy)
    return Recreated(drafted, pod, before, after), stored


def _outcome(
    recreated: Recreated, stored: Manifest, backend: Backend, in_force: InForce | None
) -> IfCreatedNow:
    changes = tuple(
        change(recreated.without, operation)
        for operation in recreated.before.patch
        if holds(stored, operation)
    )
    by = backend.title if in_force else "what is left over from a former backend"
    reason = recreated.after.reason
    if recreated.after.verdict is Verdict.NEEDS_REMEDY:
        lacking = "does not act on it" if in_force else "is not on the cluster"
        reason = f"{reason}; {backend.title} {lacking}"
    return IfCreatedNow(
        source=recreated.draft.source,
        verdict=recreated.after.verdict,
        reason=reason,
        backend=by if changes else "",
        changes=changes,
    )


# --- When things came to be as they are ----------------------------------------------------------


class _PolicyMeta(ListedMeta, frozen=True, kw_only=True):
    creation_timestamp: datetime
    managed_fields: tuple[ManagedFields, ...] | None = None


class _PolicyObject(Object, frozen=True):
    metadata: _PolicyMeta


def _in_force(bulk: ApiClient, backend: Backend, application: Application) -> InForce | None:
    """The object that carries the backend out; None if it isn't there."""
    resource = Resource.of(backend.resource)
    name = backend.object_name(application)
    try:
        meta = bulk.read(resource, name, "", _PolicyObject, metadata_only=True).metadata
    except NotFound:
        return None
    written = [
        entry.time
        for entry in meta.managed_fields or ()
        if entry.manager == FIELD_MANAGER and entry.time
    ]
    return InForce(
        f"{resource.kind} {name}",
        meta.creation_timestamp,
        max(written, default=meta.creation_timestamp),
    )


def _labels_set(namespace: StoredNamespace) -> datetime | None:
    """When whoever set the labels that Istio reads last wrote to the namespace."""
    return max(
        (
            entry.time
            for entry in namespace.metadata.managed_fields or ()
            if entry.time and any(label in bytes(entry.fields_v1) for label in _INJECTION_LABELS)
        ),
        default=None,
    )


# --- In words ------------------------------------------------------------------------------------


def _owner(found: AuditEntry) -> str:
    if not found.owner:
        return "none; no controller would recreate it"
    return f"{found.owner}, through {found.through}" if found.through else found.owner


def _stuck(found: AuditEntry) -> str:
    if found.stuck is None:
        return "no"
    since = f", since {found.stuck.since:%Y-%m-%d %H:%M:%S}Z" if found.stuck.since else ""
    restarts = f", {found.stuck.restarts} restarts"
    return f"in {found.stuck.container}: {found.stuck.reason}{restarts}{since}"


def _excludes(found: AuditEntry) -> str:
    if found.excludes is None:
        return "nothing is excluded"
    late = " (written too late to have an effect)" if found.too_late else ""
    ranges, ports = found.excludes.ranges or "none", found.excludes.ports or "none"
    return f"ranges {ranges}, ports {ports}{late}"
