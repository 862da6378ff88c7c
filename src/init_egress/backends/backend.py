"""A backend: what carries the rule out on a cluster.

Each backend is an object in a file of its own; `registry.BACKENDS` has them all. What one can and
cannot do is in its `Capabilities`, which the choice of a backend, the documents and the tests
read. Nothing else may ask which backend it deals with.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import ClassVar

from init_egress.backends.effect import Verification
from init_egress.backends.webhook_deployment import WorkloadInputs
from init_egress.config import BackendChoice, PolicyKind, Settings
from init_egress.kube.application import Application
from init_egress.kube.cluster import Cluster
from init_egress.kube.kinds import GlobalKind
from init_egress.kube.manifest import Manifest
from init_egress.mesh.istiod import Mesh
from init_egress.rule.policy import RemedyKind


class BackendKind(str, Enum):
    """The backends; Kyverno counts once for each of its kinds of policy."""

    NATIVE = "native"
    CLUSTER_POLICY = "kyverno-clusterpolicy"
    MUTATING_POLICY = "kyverno-mutatingpolicy"
    WEBHOOK = "webhook"


class Unavailable(Exception):
    """What the configuration asks for can't be had; the message says what helps."""


@dataclass(frozen=True)
class Capabilities:
    """What a backend can carry out.

    Attributes:
        remedies: the remedies that it can apply.
        own_options: the options of charmcraft.yaml that matter to this backend only.
        sees_later_webhooks: whether it acts on init containers that a webhook adds which the API
            server calls after it.
        runs_workload: whether it runs Pods of its own: they need an image and a certificate, and
            have metrics and logs.
        proves_before_fail: whether failure-policy=fail waits until the remedy is seen to arrive,
            since the API server has to reach something of the charm's.
    """

    remedies: frozenset[RemedyKind] = frozenset(RemedyKind)
    own_options: frozenset[str] = frozenset()
    sees_later_webhooks: bool = True
    runs_workload: bool = False
    proves_before_fail: bool = False


@dataclass(frozen=True)
class Timeouts:
    """How long a reconcile waits, in seconds; after that the next event tries again.

    Attributes:
        proof: for new objects to take effect; a ClusterPolicy was seen to need 2 to 6.
        ready: for a policy's own status to say that it is ready.
        rollout: for the replicas of a workload.
    """

    proof: float = 20.0
    ready: float = 20.0
    rollout: float = 60.0


@dataclass(frozen=True)
class PlanInputs:
    """What a plan is made of.

    Attributes:
        settings: the charm's configuration.
        application: the application that the objects belong to.
        mesh: the mesh as its namespace shows it.
        workload: what a workload is made of; None if there is no image.
        now: the time, with its zone; certificates are renewed by it.
    """

    settings: Settings
    application: Application
    mesh: Mesh
    workload: WorkloadInputs | None
    now: datetime


@dataclass(frozen=True)
class Objects:
    """What a backend wants on the cluster.

    Attributes:
        manifests: the objects, exactly as they are to be in the end.
        remarks: what an operator should know of them.
    """

    manifests: list[Manifest]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Installed:
    """How far the objects are in place once they are applied.

    Attributes:
        complete: whether it makes sense to try their effect.
        detail: how far they are, in a few words; empty if there is nothing to say.
    """

    complete: bool = True
    detail: str = ""


class Backend(ABC):
    """What carries the rule out on a cluster.

    Attributes:
        kind: which backend it is; its value is in results, metrics and documents.
        title: how a status names it.
        choice: the value of the option `backend` that asks for it.
        policy_kind: the value of `kyverno-policy-kind` that asks for it; None if that option does
            not matter.
        resource: the kind of the object that carries the rule out.
        requires: what the cluster must serve, as messages name it.
        remedy_for_absence: what an operator can install where the cluster does not serve it;
            empty if nothing.
        capabilities: what it can carry out.
    """

    kind: ClassVar[BackendKind]
    title: ClassVar[str]
    choice: ClassVar[BackendChoice]
    policy_kind: ClassVar[PolicyKind | None] = None
    resource: ClassVar[GlobalKind]
    requires: ClassVar[str]
    remedy_for_absence: ClassVar[str] = ""
    capabilities: ClassVar[Capabilities]

    def object_name(self, application: Application) -> str:
        """The name of the object of kind `resource` that carries the rule out."""
        return application.object_name

    def probe_label(self, application: Application) -> str:
        """The value of the probe label on which only this application's backend acts."""
        whose = f"{self.kind.value}/{application.name}.{application.model}"
        return hashlib.sha256(whose.encode()).hexdigest()[:16]

    @abstractmethod
    def objects(self, cluster: Cluster, inputs: PlanInputs) -> Objects:
        """What belongs on the cluster; nothing is changed.

        Raises:
            Unavailable: something is missing that an operator can bring.
            ClusterError: the cluster can't be asked.
        """

    def install(
        self,
        cluster: Cluster,
        application: Application,
        manifests: list[Manifest],
        timeouts: Timeouts,
    ) -> Installed:
        """Apply the objects in an order in which no Pod is harmed, and wait for what they run.

        Raises:
            ClusterError: the cluster could not do it.
        """
        cluster.apply(manifests)
        return Installed()

    def why_not_ready(self, cluster: Cluster, application: Application, timeout: float) -> str:
        """Why the policy's own status does not say that it is ready; empty if it does.

        It is asked only where a dry run could not show an effect: Ready may outlive the effect.

        Args:
            cluster: where.
            application: whose policy.
            timeout: seconds to wait for it.

        Raises:
            ClusterError: the cluster can't be asked.
        """
        return ""

    def settle(
        self,
        cluster: Cluster,
        application: Application,
        manifests: list[Manifest],
        verification: Verification,
    ) -> tuple[str, ...]:
        """Finish what had to wait for the proof, or take back what the proof speaks against.

        Returns:
            What an operator should know of it.

        Raises:
            ClusterError: the cluster could not do it.
        """
        return ()

    def deprecation(self, cluster: Cluster) -> str:
        """What the authors of the policy's kind say of its deprecation; empty if nothing.

        Raises:
            ClusterError: the cluster can't be asked.
        """
        return ""
