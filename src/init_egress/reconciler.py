"""Bring the cluster to what the configuration says, and say what was reached.

The order is the point: what works stays until its successor is seen to work. New objects are
applied and proved by a dry run before old ones are deleted; nothing is deleted for a configuration
that can't be carried out.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from init_egress import backends, manifests, mesh, verification
from init_egress.cluster import Cluster
from init_egress.manifests import Form, Manifest, Owner
from init_egress.mesh import Mesh
from init_egress.settings import Settings
from init_egress.verification import Effect, Verification

PATIENCE = 20.0
"""Seconds to wait for new objects to take effect; a ClusterPolicy was seen to need 2 to 6."""


@dataclass(frozen=True)
class Plan:
    """What is to be on the cluster.

    Attributes:
        form: the backend, or for Kyverno its kind of policy.
        mesh: the mesh as its namespace shows it.
        objects: the manifests, exactly as they are applied.
    """

    form: Form
    mesh: Mesh
    objects: list[Manifest]


@dataclass(frozen=True)
class Report:
    """What was reached.

    Attributes:
        plan: what was applied.
        verification: what a dry run showed of its effect.
        deprecation: what the policy kind's authors say of its end; empty if nothing.
    """

    plan: Plan
    verification: Verification
    deprecation: str


def plan(cluster: Cluster, settings: Settings, owner: Owner, mesh_namespace: str) -> Plan:
    """Work out what belongs on the cluster; nothing is changed.

    Raises:
        Unavailable: the cluster doesn't serve what the configuration asks for.
        ClusterError: the cluster can't be asked.
    """
    form = backends.choose(settings, cluster.serves, owner.application)
    seen = mesh.read(mesh_namespace, cluster.config_maps(mesh_namespace))
    objects = manifests.render(form, settings, owner, everywhere=seen.everywhere)
    return Plan(form, seen, objects)


def reconcile(cluster: Cluster, settings: Settings, owner: Owner, mesh_namespace: str) -> Report:
    """Apply what belongs on the cluster, prove its effect, then delete what no longer belongs.

    Raises:
        Unavailable: the cluster doesn't serve what is asked for; nothing was changed.
        ClusterError: the cluster could not do it; what worked before works still.
    """
    planned = plan(cluster, settings, owner, mesh_namespace)
    cluster.apply(planned.objects)
    verified = _verified(cluster, settings, owner, planned)
    if verified.effect is not Effect.MISSING:
        cluster.prune(owner, keep=planned.objects)
    return Report(planned, verified, cluster.deprecation(backends.KINDS[planned.form]))


def _verified(cluster: Cluster, settings: Settings, owner: Owner, planned: Plan) -> Verification:
    policy = settings.policy
    candidates = verification.mesh_namespaces(cluster.namespaces(), policy, planned.mesh)
    found = verification.verify(cluster, candidates, policy, owner, planned.form, PATIENCE)
    if found.effect is not Effect.UNVERIFIED or _becomes_ready(cluster, owner, planned.form):
        return found
    return Verification(Effect.MISSING, "Kyverno does not report the policy Ready")


def _becomes_ready(cluster: Cluster, owner: Owner, form: Form) -> bool:
    """Whether the policy's own status, where its kind has one, says Ready before patience ends."""
    if form is Form.NATIVE:
        return True
    retrying = Retrying(
        retry=retry_if_result(lambda ready: not ready),
        stop=stop_after_delay(PATIENCE),
        wait=wait_fixed(0.5),
        retry_error_callback=lambda _: False,
    )
    return retrying(lambda: _is_ready(cluster.get(backends.KINDS[form], owner.name), form))


def _is_ready(policy: Manifest | None, form: Form) -> bool:
    status = (policy or {}).get("status")
    if not isinstance(status, dict):
        return False
    if form is Form.MUTATING_POLICY:
        return (status.get("conditionStatus") or {}).get("ready") is True
    conditions = status.get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
