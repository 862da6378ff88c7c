"""Objects as the API server sends them: the fields that are read, for each kind once.

All other fields are skipped while an object is decoded, so a page of a list costs little.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from init_egress.rule import names
from init_egress.rule.pod import Namespace, ObjectMeta, Pod


class Object(msgspec.Struct, frozen=True, rename="camel"):
    """A JSON object; fields that are not named are skipped."""


# --- Metadata ------------------------------------------------------------------------------------


class OwnerReference(Object, frozen=True):
    """An owner of an object; at most one of them is its controller.

    Whoever may write the object writes this too: only the API version, kind, name and uid of an
    owner that was read are the owner's own.
    """

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False

    @property
    def group(self) -> str:
        """The owner's API group; empty for Kubernetes' core."""
        return self.api_version.rpartition("/")[0]

    @property
    def is_valid(self) -> bool:
        """Whether Kubernetes takes all its parts as such, so that it can be asked for."""
        group, slash, version = self.api_version.rpartition("/")
        return (
            names.is_dns_label(version)
            and (not slash or names.is_dns_subdomain(group))
            and names.is_kind(self.kind)
            and names.is_dns_subdomain(self.name)
        )


class ManagedFields(Object, frozen=True):
    """Who set which fields, and when."""

    manager: str = ""
    time: datetime | None = None
    fields_v1: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw())


class ListedMeta(ObjectMeta, frozen=True):
    """The metadata that the API server checks or sets itself, so that they can always be read."""

    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: datetime | None = None


class OwnedMeta(ListedMeta, frozen=True):
    """The same, and by whom the object is owned."""

    generation: int = 0
    owner_references: tuple[OwnerReference, ...] | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that recreates the object when it is gone; None if it has none."""
        for reference in self.owner_references or ():
            if reference.controller:
                return reference
        return None


class StoredMeta(OwnedMeta, frozen=True):
    """The same, and when it was made and written to; with `managedFields`, which are long."""

    creation_timestamp: datetime | None = None
    managed_fields: tuple[ManagedFields, ...] | None = None


class Listed(Object, frozen=True):
    """An object of which only its name, uid and labels are read."""

    metadata: ListedMeta

    def as_namespace(self) -> Namespace:
        """A Namespace as the rule reads it."""
        return Namespace(self.metadata.name, self.metadata.labels or {})


class Owned(Object, frozen=True):
    """An object of which only its name, uid, labels and owners are read."""

    metadata: OwnedMeta


class StoredNamespace(Object, frozen=True):
    """A Namespace as it is stored."""

    metadata: StoredMeta

    def as_namespace(self) -> Namespace:
        """The Namespace as the rule reads it."""
        return Namespace(self.metadata.name, self.metadata.labels or {})


class ConfigMap(Object, frozen=True):
    """A ConfigMap."""

    metadata: ListedMeta
    data: dict[str, str] | None = None


# --- Pods ----------------------------------------------------------------------------------------


class Waiting(Object, frozen=True):
    """A container that waits."""

    reason: str = ""
    message: str = ""


class Running(Object, frozen=True):
    """A container that runs."""

    started_at: datetime | None = None


class Terminated(Object, frozen=True):
    """A container that has ended."""

    exit_code: int = 0
    reason: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Object, frozen=True):
    """One of three."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Object, frozen=True):
    """What became of a container."""

    name: str
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class Condition(Object, frozen=True):
    """A condition of a Pod or a controller."""

    type: str
    status: str = ""
    last_transition_time: datetime | None = None


class PodStatus(Object, frozen=True):
    """What became of a Pod."""

    phase: str = ""
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class StoredPod(Pod, frozen=True):
    """A Pod as it is stored."""

    metadata: StoredMeta = StoredMeta()
    status: PodStatus = PodStatus()

    @property
    def place(self) -> str:
        """Its namespace and name, as `namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def is_finished(self) -> bool:
        """Whether all its containers have ended for good, well or badly."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_going(self) -> bool:
        """Whether it is being deleted."""
        return self.metadata.deletion_timestamp is not None


# --- Controllers ---------------------------------------------------------------------------------


class PodTemplate(Object, frozen=True):
    """The metadata of a Pod template."""

    metadata: ObjectMeta = ObjectMeta()


class RollingUpdate(Object, frozen=True):
    """Of a StatefulSet: the first ordinal that takes part in an update.

    A Deployment's and a DaemonSet's hold numbers or percentages, which are not read.
    """

    partition: int = 0


class UpdateStrategy(Object, frozen=True):
    """How a StatefulSet or a DaemonSet replaces its Pods."""

    type: str = ""
    rolling_update: RollingUpdate | None = None


class OnExitCodes(Object, frozen=True):
    """Part of a Job's podFailurePolicy."""

    operator: str = ""
    values: tuple[int, ...] = ()


class OnPodCondition(Object, frozen=True):
    """Part of a Job's podFailurePolicy."""

    type: str
    status: str = "True"


class PodFailurePolicyRule(Object, frozen=True):
    """One rule of a Job's podFailurePolicy."""

    action: str
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: tuple[OnPodCondition, ...] | None = None


class PodFailurePolicy(Object, frozen=True):
    """A Job's podFailurePolicy."""

    rules: tuple[PodFailurePolicyRule, ...] = ()


class RunPolicy(Object, frozen=True):
    """Of Kubeflow's training jobs."""

    suspend: bool | None = None


class ControllerSpec(Object, frozen=True):
    """The fields of several kinds that are read."""

    replicas: int | None = None
    paused: bool = False
    suspend: bool | None = None
    run_policy: RunPolicy = RunPolicy()
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    update_strategy: UpdateStrategy = UpdateStrategy()
    template: PodTemplate | None = None


class Uncounted(Object, frozen=True):
    """Pods of a Job that have ended and aren't in its count yet."""

    failed: tuple[str, ...] | None = None


class ControllerStatus(Object, frozen=True):
    """The fields of several kinds that are read."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    failed: int = 0
    uncounted_terminated_pods: Uncounted | None = None
    conditions: tuple[Condition, ...] | None = None


class Controller(Object, frozen=True):
    """An object whose controller makes Pods: a Deployment, a Job, and so on."""

    metadata: OwnedMeta
    spec: ControllerSpec = ControllerSpec()
    status: ControllerStatus = ControllerStatus()


class WholePodTemplate(PodTemplate, frozen=True):
    """A Pod template with its spec as it is written."""

    spec: dict[str, object] = {}


class VolumeClaimTemplate(Object, frozen=True):
    """Of a StatefulSet."""

    metadata: ObjectMeta


class TemplatedSpec(Object, frozen=True):
    """What Pods are made of."""

    # A ReplicationController need not have one.
    template: WholePodTemplate | None = None
    volume_claim_templates: tuple[VolumeClaimTemplate, ...] | None = None


class TemplatedController(Object, frozen=True):
    """A controller, read for its whole template, which may be large."""

    metadata: OwnedMeta
    spec: TemplatedSpec = TemplatedSpec()
    status: ControllerStatus = ControllerStatus()
