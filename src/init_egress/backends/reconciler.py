"""Bring the cluster to what the configuration says, and say what was reached.

The order is the point: what works stays until its successor is seen to work. New objects are
applied and proved by a dry run before old ones are deleted; nothing is deleted for a configuration
that can't be carried out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone

from init_egress.backends import choice, manifests, verification, webhook_deployment
from init_egress.backends.choice import Unavailable
from init_egress.backends.manifests import Application, BackendKind, Manifest, WebhookValues
from init_egress.backends.verification import Effect, Verification
from init_egress.backends.webhook_deployment import Rollout, WorkloadInputs
from init_egress.config import FailurePolicy, Settings
from init_egress.kube.cluster import Cluster
from init_egress.kube.kinds import DEPLOYMENT, WEBHOOK_CONFIGURATION
from init_egress.kube.wait import poll
from init_egress.mesh import istiod
from init_egress.mesh.istiod import Mesh

PATIENCE = 20.0
"""Seconds to wait for new objects to take effect; a ClusterPolicy was seen to need 2 to 6."""

ROLLOUT_PATIENCE = 60.0
"""Seconds to wait for the webhook's replicas; after that the next event looks again."""


@dataclass(frozen=True)
class Plan:
    """What is to be on the cluster.

    Attributes:
        form: the backend, or for Kyverno its kind of policy.
        mesh: the mesh as its namespace shows it.
        objects: the manifests, exactly as they are applied.
        workload: what the webhook's manifests were filled with, if it is the webhook.
        remarks: what an operator should know of it.
    """

    form: BackendKind
    mesh: Mesh
    objects: list[Manifest]
    workload: WebhookValues | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReconcileReport:
    """What was reached.

    Attributes:
        plan: what was applied.
        verification: what a dry run showed of its effect.
        remarks: what an operator should know of it.
    """

    plan: Plan
    verification: Verification
    remarks: tuple[str, ...] = ()


def now() -> datetime:
    """The time, by which certificates are renewed."""
    return datetime.now(timezone.utc)


def plan(
    cluster: Cluster,
    settings: Settings,
    owner: Application,
    mesh_namespace: str,
    sources: WorkloadInputs | None = None,
) -> Plan:
    """Work out what belongs on the cluster; nothing is changed.

    Args:
        cluster: where.
        settings: the charm's configuration.
        owner: the application whose objects they are.
        mesh_namespace: where istiod's ConfigMaps are.
        sources: what the webhook's workload is made of; None if there is no image.

    Raises:
        Unavailable: what the configuration asks for can't be had.
        ClusterError: the cluster can't be asked.
    """
    form = choice.choose(settings, cluster.serves, owner.application)
    seen = istiod.read(mesh_namespace, cluster.config_maps(mesh_namespace))
    if form is BackendKind.WEBHOOK:
        return _webhook_plan(cluster, settings, owner, seen, sources)
    objects = manifests.render(form, settings, owner, injects_by_default=seen.injects_by_default)
    return Plan(form, seen, objects)


def _webhook_plan(
    cluster: Cluster,
    settings: Settings,
    owner: Application,
    seen: Mesh,
    sources: WorkloadInputs | None,
) -> Plan:
    if sources is None:
        raise Unavailable(
            "backend=webhook needs its image; run: juju attach-resource"
            f" {owner.application} webhook-image=<image>"
        )
    time = now()
    remarks: list[str] = []
    rollout = webhook_deployment.read_rollout(
        cluster.get(DEPLOYMENT, owner.workload_name, owner.model)
    )
    if settings.failure_policy is FailurePolicy.FAIL and rollout.is_idle(time):
        # Better Pods without the remedy than no Pods, until a replica answers again.
        settings = replace(settings, failure_policy=FailurePolicy.IGNORE)
        remarks.append("failure-policy=fail is suspended while no replica answers")
    filled = webhook_deployment.prepare(cluster, settings, owner, sources, time)
    if filled.trust.identity.is_near_its_end(time):
        remarks.append(f"certificate ends on {filled.trust.identity.expires:%Y-%m-%d}")
    objects = manifests.render(
        BackendKind.WEBHOOK,
        settings,
        owner,
        labels_canonical_name=seen.labels_canonical_name,
        workload=filled,
    )
    return Plan(BackendKind.WEBHOOK, seen, objects, filled, tuple(remarks))


def reconcile(
    cluster: Cluster,
    settings: Settings,
    owner: Application,
    mesh_namespace: str,
    sources: WorkloadInputs | None = None,
) -> ReconcileReport:
    """Apply what belongs on the cluster, prove its effect, then delete what no longer belongs.

    The arguments are those of `plan`.

    Raises:
        Unavailable: what is asked for can't be had; nothing was changed.
        ClusterError: the cluster could not do it; what worked before works still.
    """
    planned = plan(cluster, settings, owner, mesh_namespace, sources)
    if planned.form is BackendKind.WEBHOOK:
        return _reconcile_webhook(cluster, settings, owner, planned)
    cluster.apply(planned.objects)
    verified = _verified(cluster, settings, owner, planned)
    if verified.effect is not Effect.MISSING:
        cluster.prune(owner, keep=planned.objects)
    deprecation = cluster.deprecation(choice.KINDS[planned.form])
    return ReconcileReport(planned, verified, (deprecation,) if deprecation else ())


def _reconcile_webhook(
    cluster: Cluster, settings: Settings, owner: Application, planned: Plan
) -> ReconcileReport:
    configuration = [o for o in planned.objects if o["kind"] == WEBHOOK_CONFIGURATION.__name__]
    others = [o for o in planned.objects if o not in configuration]
    if cluster.get(WEBHOOK_CONFIGURATION, choice.policy_name(planned.form, owner)):
        # A new authority must be trusted before a replica serves a certificate of it.
        cluster.apply(configuration)
    cluster.apply(others)
    rollout = _rolled_out(cluster, owner)
    remarks = (*planned.remarks, str(rollout))
    if not rollout.ready:
        return ReconcileReport(
            planned, Verification(Effect.MISSING, str(rollout)), planned.remarks
        )
    cluster.apply(configuration)
    if not rollout.complete:
        return ReconcileReport(
            planned, Verification(Effect.MISSING, str(rollout)), planned.remarks
        )
    verified = _verified(cluster, settings, owner, planned)
    if verified.effect is not Effect.MISSING:
        cluster.prune(owner, keep=planned.objects)
    return ReconcileReport(planned, verified, remarks)


def _rolled_out(cluster: Cluster, owner: Application) -> Rollout:
    """The webhook's roll-out, when it is complete or patience ends."""

    def read() -> Rollout:
        return webhook_deployment.read_rollout(
            cluster.get(DEPLOYMENT, owner.workload_name, owner.model)
        )

    return poll(read, lambda rollout: rollout.complete, ROLLOUT_PATIENCE)


def _verified(
    cluster: Cluster, settings: Settings, owner: Application, planned: Plan
) -> Verification:
    policy = settings.policy
    candidates = verification.mesh_namespaces(cluster.namespaces(), policy, planned.mesh)
    found = verification.verify(cluster, candidates, policy, owner, planned.form, PATIENCE)
    if found.effect is not Effect.UNVERIFIED or _becomes_ready(cluster, owner, planned.form):
        return found
    return Verification(Effect.MISSING, "Kyverno does not report the policy Ready")


def _becomes_ready(cluster: Cluster, owner: Application, form: BackendKind) -> bool:
    """Whether the policy's own status, where its kind has one, says Ready before patience ends."""
    if form in (BackendKind.NATIVE, BackendKind.WEBHOOK):
        return True

    def read() -> bool:
        return _is_ready(cluster.get(choice.KINDS[form], owner.name), form)

    return poll(read, lambda ready: ready, PATIENCE)


def _is_ready(policy: Manifest | None, form: BackendKind) -> bool:
    status = (policy or {}).get("status")
    if not isinstance(status, dict):
        return False
    if form is BackendKind.MUTATING_POLICY:
        return (status.get("conditionStatus") or {}).get("ready") is True
    conditions = status.get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
