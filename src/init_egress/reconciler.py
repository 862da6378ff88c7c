"""Bring the cluster to what the configuration says, and say what was reached.

The order is the point: what works stays until its successor is seen to work. New objects are
applied and proved by a dry run before old ones are deleted; nothing is deleted for a configuration
that can't be carried out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone

from init_egress import backends, manifests, mesh, verification, workload
from init_egress.backends import Unavailable
from init_egress.cluster import DEPLOYMENT, WEBHOOK_CONFIGURATION, Cluster
from init_egress.manifests import Form, Manifest, Owner, Workload
from init_egress.mesh import Mesh
from init_egress.patience import until
from init_egress.settings import FailurePolicy, Settings
from init_egress.verification import Effect, Verification
from init_egress.workload import Rollout, Sources

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

    form: Form
    mesh: Mesh
    objects: list[Manifest]
    workload: Workload | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
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
    owner: Owner,
    mesh_namespace: str,
    sources: Sources | None = None,
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
    form = backends.choose(settings, cluster.serves, owner.application)
    seen = mesh.read(mesh_namespace, cluster.config_maps(mesh_namespace))
    if form is Form.WEBHOOK:
        return _webhook_plan(cluster, settings, owner, seen, sources)
    objects = manifests.render(form, settings, owner, everywhere=seen.everywhere)
    return Plan(form, seen, objects)


def _webhook_plan(
    cluster: Cluster, settings: Settings, owner: Owner, seen: Mesh, sources: Sources | None
) -> Plan:
    if sources is None:
        raise Unavailable(
            "backend=webhook needs its image; run: juju attach-resource"
            f" {owner.application} webhook-image=<image>"
        )
    time = now()
    remarks: list[str] = []
    rollout = workload.read_rollout(cluster.get(DEPLOYMENT, owner.workload_name, owner.model))
    if settings.failure_policy is FailurePolicy.FAIL and rollout.is_idle(time):
        # Better Pods without the remedy than no Pods, until a replica answers again.
        settings = replace(settings, failure_policy=FailurePolicy.IGNORE)
        remarks.append("failure-policy=fail is suspended while no replica answers")
    filled = workload.prepare(cluster, settings, owner, sources, time)
    if filled.trust.identity.is_near_its_end(time):
        remarks.append(f"certificate ends on {filled.trust.identity.expires:%Y-%m-%d}")
    objects = manifests.render(
        Form.WEBHOOK, settings, owner, names_pods=seen.names_pods, workload=filled
    )
    return Plan(Form.WEBHOOK, seen, objects, filled, tuple(remarks))


def reconcile(
    cluster: Cluster,
    settings: Settings,
    owner: Owner,
    mesh_namespace: str,
    sources: Sources | None = None,
) -> Report:
    """Apply what belongs on the cluster, prove its effect, then delete what no longer belongs.

    The arguments are those of `plan`.

    Raises:
        Unavailable: what is asked for can't be had; nothing was changed.
        ClusterError: the cluster could not do it; what worked before works still.
    """
    planned = plan(cluster, settings, owner, mesh_namespace, sources)
    if planned.form is Form.WEBHOOK:
        return _reconcile_webhook(cluster, settings, owner, planned)
    cluster.apply(planned.objects)
    verified = _verified(cluster, settings, owner, planned)
    if verified.effect is not Effect.MISSING:
        cluster.prune(owner, keep=planned.objects)
    deprecation = cluster.deprecation(backends.KINDS[planned.form])
    return Report(planned, verified, (deprecation,) if deprecation else ())


def _reconcile_webhook(
    cluster: Cluster, settings: Settings, owner: Owner, planned: Plan
) -> Report:
    configuration = [o for o in planned.objects if o["kind"] == WEBHOOK_CONFIGURATION.__name__]
    others = [o for o in planned.objects if o not in configuration]
    if cluster.get(WEBHOOK_CONFIGURATION, backends.policy_name(planned.form, owner)):
        # A new authority must be trusted before a replica serves a certificate of it.
        cluster.apply(configuration)
    cluster.apply(others)
    rollout = _rolled_out(cluster, owner)
    remarks = (*planned.remarks, str(rollout))
    if not rollout.ready:
        return Report(planned, Verification(Effect.MISSING, str(rollout)), planned.remarks)
    cluster.apply(configuration)
    if not rollout.complete:
        return Report(planned, Verification(Effect.MISSING, str(rollout)), planned.remarks)
    verified = _verified(cluster, settings, owner, planned)
    if verified.effect is not Effect.MISSING:
        cluster.prune(owner, keep=planned.objects)
    return Report(planned, verified, remarks)


def _rolled_out(cluster: Cluster, owner: Owner) -> Rollout:
    """The webhook's roll-out, when it is complete or patience ends."""

    def read() -> Rollout:
        return workload.read_rollout(cluster.get(DEPLOYMENT, owner.workload_name, owner.model))

    return until(read, lambda rollout: rollout.complete, ROLLOUT_PATIENCE)


def _verified(cluster: Cluster, settings: Settings, owner: Owner, planned: Plan) -> Verification:
    policy = settings.policy
    candidates = verification.mesh_namespaces(cluster.namespaces(), policy, planned.mesh)
    found = verification.verify(cluster, candidates, policy, owner, planned.form, PATIENCE)
    if found.effect is not Effect.UNVERIFIED or _becomes_ready(cluster, owner, planned.form):
        return found
    return Verification(Effect.MISSING, "Kyverno does not report the policy Ready")


def _becomes_ready(cluster: Cluster, owner: Owner, form: Form) -> bool:
    """Whether the policy's own status, where its kind has one, says Ready before patience ends."""
    if form in (Form.NATIVE, Form.WEBHOOK):
        return True

    def read() -> bool:
        return _is_ready(cluster.get(backends.KINDS[form], owner.name), form)

    return until(read, lambda ready: ready, PATIENCE)


def _is_ready(policy: Manifest | None, form: Form) -> bool:
    status = (policy or {}).get("status")
    if not isinstance(status, dict):
        return False
    if form is Form.MUTATING_POLICY:
        return (status.get("conditionStatus") or {}).get("ready") is True
    conditions = status.get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
