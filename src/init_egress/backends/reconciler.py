"""Bring the cluster to what the configuration says, and say what was reached.

The order is the point: what works stays until its successor is seen to work. New objects are
applied and proved by a dry run before old ones are deleted; nothing is deleted for a configuration
that can't be carried out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from init_egress.backends import choice, verification
from init_egress.backends.backend import (
    Backend,
    Installed,
    PlanInputs,
    Timeouts,
    Unavailable,
)
from init_egress.backends.effect import Effect, Verification
from init_egress.backends.render import to_yaml
from init_egress.backends.verification import Prover
from init_egress.backends.webhook_deployment import WorkloadInputs
from init_egress.config import Settings
from init_egress.kube.application import Application
from init_egress.kube.cluster import Cluster
from init_egress.kube.kinds import (
    NAMESPACE,
    is_namespaced,
    kind_of,
)
from init_egress.kube.manifest import Manifest, labels_of, mapping, name_of, namespace_of, title_of
from init_egress.mesh import istiod
from init_egress.mesh.istiod import Mesh
from init_egress.rule.remedies import REMEDIES

TIMEOUTS = Timeouts()


def now() -> datetime:
    """The time, by which certificates are renewed."""
    return datetime.now(timezone.utc)


class NameTaken(Unavailable):
    """An object of the name that is needed exists, and is not the application's."""


@dataclass(frozen=True)
class Plan:
    """What is to be on the cluster.

    Attributes:
        backend: the backend that was chosen.
        settings: what the operator configured.
        mesh: the mesh as its namespace shows it.
        objects: the manifests, exactly as they are to be in the end.
        remarks: what an operator should know of it.
    """

    backend: Backend
    settings: Settings
    mesh: Mesh
    objects: list[Manifest]
    remarks: tuple[str, ...] = ()

    def to_yaml(self) -> str:
        """The objects as they can be shown to anyone: Secrets without their data."""
        return to_yaml(_without_secret_data(manifest) for manifest in self.objects)


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

    @property
    def in_effect(self) -> bool:
        """Whether nothing shows that the remedy fails to arrive."""
        return self.verification.effect is not Effect.MISSING

    @property
    def message(self) -> str:
        """What an operator should know, as a status says it."""
        plan, verified = self.plan, self.verification
        policy = plan.settings.policy
        if not self.in_effect:
            missing = (
                f"{plan.backend.title}: applied, but not in effect yet ({verified.detail});"
                " what was in force before stays"
            )
            return "; ".join([missing, *self.remarks])
        parts = [f"{plan.backend.title}: {REMEDIES[policy.remedy].status(policy)}"]
        if verified.effect is Effect.ARRIVES:
            parts.append(f"verified in {verified.detail}")
        else:
            parts.append(f"not verified: {verified.detail}")
        if verified.native_sidecars:
            parts.append("native sidecars: only Pods that opt out of them need it")
        return "; ".join([*parts, *plan.mesh.remarks(), *plan.settings.notes, *self.remarks])


@dataclass(frozen=True)
class Reconciler:
    """Carries out one configuration.

    Attributes:
        cluster: where.
        settings: the charm's configuration.
        application: the application that the objects belong to.
        mesh_namespace: where istiod's ConfigMaps are.
        workload: what a backend's workload is made of; None if there is no image.
        timeouts: how long to wait for what was applied.
    """

    cluster: Cluster
    settings: Settings
    application: Application
    mesh_namespace: str
    workload: WorkloadInputs | None = None
    timeouts: Timeouts = field(default_factory=lambda: TIMEOUTS)

    def reconcile(self) -> ReconcileReport:
        """Apply what belongs on the cluster, prove its effect, delete what no longer belongs.

        Raises:
            Unavailable: what is asked for can't be had; nothing was changed.
            ClusterError: the cluster could not do it; what worked before works still.
        """
        plan = self.plan()
        self.check_names(plan)
        installed = self.install(plan)
        if not installed.complete:
            return ReconcileReport(
                plan, Verification(Effect.MISSING, installed.detail), plan.remarks
            )
        verified = self.prove(plan)
        settled = plan.backend.settle(self.cluster, self.application, plan.objects, verified)
        if verified.replaces_predecessor:
            self.cluster.prune(self.application, keep=plan.objects)
        found = (installed.detail, plan.backend.deprecation(self.cluster))
        remarks = (*plan.remarks, *settled, *(remark for remark in found if remark))
        return ReconcileReport(plan, verified, remarks)

    def plan(self) -> Plan:
        """Work out what belongs on the cluster; nothing is changed.

        Raises:
            Unavailable: what the configuration asks for can't be had.
            ClusterError: the cluster can't be asked.
        """
        backend = choice.choose(self.settings, self.cluster.serves, self.application.name)
        config_maps = self.cluster.config_maps(self.mesh_namespace)
        mesh = istiod.read(self.mesh_namespace, config_maps)
        wanted = backend.objects(
            self.cluster,
            PlanInputs(self.settings, self.application, mesh, self.workload, now()),
        )
        model = self.cluster.get(NAMESPACE, self.application.model)
        objects = [_owned_by(model, manifest) for manifest in wanted.manifests]
        return Plan(backend, self.settings, mesh, objects, wanted.remarks)

    def check_names(self, plan: Plan) -> None:
        """Make sure that no object of somebody else's would be overwritten.

        Raises:
            NameTaken: an object of one of the names is not labelled as the application's.
            ClusterError: the cluster can't be asked.
        """
        ours = self.application.labels.items()
        for manifest in plan.objects:
            kind, namespace = kind_of(manifest), namespace_of(manifest)
            stored = self.cluster.get(kind, name_of(manifest), namespace)
            if stored is None or ours <= labels_of(stored).items():
                continue
            where = f" in namespace {namespace}" if namespace else ""
            labels = ",".join(f"{key}={value}" for key, value in ours)
            raise NameTaken(
                f"{title_of(manifest)}{where} exists without the labels {labels}, so it belongs"
                " to someone else; delete or rename it"
            )

    def install(self, plan: Plan) -> Installed:
        """Apply the objects and wait for what they run.

        Raises:
            ClusterError: the cluster could not do it.
        """
        return plan.backend.install(self.cluster, self.application, plan.objects, self.timeouts)

    def prove(self, plan: Plan) -> Verification:
        """Show whether the remedy arrives.

        Raises:
            ClusterError: the cluster can't be asked.
        """
        policy = self.settings.policy
        candidates = verification.mesh_namespaces(self.cluster.namespaces(), policy, plan.mesh)
        prover = Prover(self.cluster, policy, self.application, plan.backend, self.timeouts.proof)
        found = prover.verify(candidates)
        if found.effect in (Effect.ARRIVES, Effect.MISSING):
            return found
        why = plan.backend.why_not_ready(self.cluster, self.application, self.timeouts.ready)
        if why:
            return replace(found, effect=Effect.MISSING, detail=why, nothing_to_lose=False)
        return found


def _owned_by(model: Manifest | None, manifest: Manifest) -> Manifest:
    """The manifest, if its kind is cluster-scoped, as a dependent of the model's Namespace.

    A destroyed model takes its Namespace with it, and the garbage collector then deletes what the
    charm had no chance to. The owner of a cluster-scoped object must be cluster-scoped itself
    (https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/).
    """
    if model is None or is_namespaced(kind_of(manifest)):
        return manifest
    reference = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "name": name_of(model),
        "uid": mapping(model.get("metadata")).get("uid"),
    }
    metadata = {**mapping(manifest["metadata"]), "ownerReferences": [reference]}
    return {**manifest, "metadata": metadata}


def _without_secret_data(manifest: Manifest) -> Manifest:
    if manifest["kind"] != "Secret":
        return manifest
    return {**manifest, "data": dict.fromkeys(mapping(manifest["data"]), "(not shown)")}
