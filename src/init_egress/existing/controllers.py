"""What makes Pods anew: which controllers do, what keeps them from it, and how they are restarted.

A Pod may only be deleted if somebody makes it anew. For the kinds of Kubernetes itself, and for a
few that Kubeflow's users meet every day, their controllers' source says so; any other kind is left
to the operator, who knows it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from init_egress.existing.survey import OwnerReference, StoredMeta, StoredPod
from init_egress.kube.client import NotFound
from init_egress.kube.paging import ApiClient
from init_egress.rule.pod import ObjectMeta

RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
"""The annotation of a Pod template by which `kubectl rollout restart` makes a new revision
(https://github.com/kubernetes/kubectl/blob/master/pkg/polymorphichelpers/objectrestarter.go)."""

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a Pod that a kubelet runs from a file and only shows to the API server."""

_INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
_DISRUPTION = "DisruptionTarget"
_KILLED = frozenset({137, 143})
_KEPT = 1000


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    """A JSON object whose unknown fields are passed over."""


class PodTemplate(_Object, frozen=True):
    """The metadata of a Pod template."""

    metadata: ObjectMeta = ObjectMeta()


class RollingUpdate(_Object, frozen=True):
    """Of a StatefulSet: the first ordinal that takes part in an update."""

    partition: int = 0


class UpdateStrategy(_Object, frozen=True):
    """How a StatefulSet or a DaemonSet replaces its Pods."""

    type: str = ""
    rolling_update: RollingUpdate | None = None


class OnExitCodes(_Object, frozen=True):
    """Part of a Job's podFailurePolicy."""

    operator: str = ""
    values: tuple[int, ...] = ()


class OnPodCondition(_Object, frozen=True):
    """Part of a Job's podFailurePolicy."""

    type: str
    status: str = "True"


class PodFailurePolicyRule(_Object, frozen=True):
    """One rule of a Job's podFailurePolicy."""

    action: str
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: tuple[OnPodCondition, ...] | None = None


class PodFailurePolicy(_Object, frozen=True):
    """A Job's podFailurePolicy."""

    rules: tuple[PodFailurePolicyRule, ...] = ()


class RunPolicy(_Object, frozen=True):
    """Of Kubeflow's training jobs."""

    suspend: bool | None = None


class ControllerSpec(_Object, frozen=True):
    """The fields of several kinds that are looked at."""

    paused: bool = False
    suspend: bool | None = None
    run_policy: RunPolicy = RunPolicy()
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    update_strategy: UpdateStrategy = UpdateStrategy()
    template: PodTemplate = PodTemplate()


class StatusCondition(_Object, frozen=True):
    """A condition of a controller."""

    type: str
    status: str = ""


class Uncounted(_Object, frozen=True):
    """Pods of a Job that have ended and aren't in its count yet."""

    failed: tuple[str, ...] | None = None


class ControllerStatus(_Object, frozen=True):
    """The fields of several kinds that are looked at."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    failed: int = 0
    uncounted_terminated_pods: Uncounted | None = None
    conditions: tuple[StatusCondition, ...] | None = None


class Controller(_Object, frozen=True):
    """An object whose controller makes Pods."""

    metadata: StoredMeta
    spec: ControllerSpec = ControllerSpec()
    status: ControllerStatus = ControllerStatus()


@dataclass(frozen=True)
class _Kind:
    """A kind whose controller makes a missing Pod anew.

    Attributes:
        plural: its name in paths.
        metadata_only: whether nothing but its metadata is looked at.
        ends: the conditions under which it makes no Pods any more.
    """

    plural: str
    metadata_only: bool = False
    ends: tuple[str, ...] = ()


# The training operator creates a Pod for each index that has none, and so does the MPI operator:
# https://github.com/kubeflow/training-operator/blob/v1.9.0/pkg/controller.v1/common/pod.go
# (ReconcilePods), https://github.com/kubeflow/mpi-operator/blob/master/pkg/controller/mpi_job_controller.go
_TRAINING_JOBS = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob")

_KINDS: Mapping[tuple[str, str], _Kind] = MappingProxyType(
    {
        ("", "ReplicationController"): _Kind("replicationcontrollers", metadata_only=True),
        ("apps", "ReplicaSet"): _Kind("replicasets", metadata_only=True),
        ("apps", "StatefulSet"): _Kind("statefulsets"),
        ("apps", "DaemonSet"): _Kind("daemonsets"),
        ("apps", "Deployment"): _Kind("deployments"),
        ("batch", "Job"): _Kind(
            "jobs", ends=("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")
        ),
        # https://github.com/ray-project/kuberay/blob/master/ray-operator/controllers/ray/raycluster_controller.go
        # (reconcilePods); its workers have an init container, wait-gcs-ready.
        ("ray.io", "RayCluster"): _Kind("rayclusters"),
        **{
            ("kubeflow.org", kind): _Kind(f"{kind.lower()}s", ends=("Succeeded", "Failed"))
            for kind in _TRAINING_JOBS
        },
    }
)

_RESTARTABLE = (("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "DaemonSet"))


def group(reference: OwnerReference) -> str:
    """The API group of an owner; empty for Kubernetes' core."""
    return reference.api_version.rpartition("/")[0]


def _key(reference: OwnerReference) -> tuple[str, str]:
    return group(reference), reference.kind


def title(reference: OwnerReference) -> str:
    """An owner as messages call it, such as `StatefulSet/web`."""
    return f"{reference.kind}/{reference.name}"


def is_known(reference: OwnerReference) -> bool:
    """Whether this kind's controller is known to make a missing Pod anew."""
    return _key(reference) in _KINDS


def is_restartable(reference: OwnerReference) -> bool:
    """Whether `kubectl rollout restart` knows this kind."""
    return _key(reference) in _RESTARTABLE


def is_replica_set(reference: OwnerReference) -> bool:
    """Whether an owner is a ReplicaSet, which may have a Deployment above it."""
    return _key(reference) == ("apps", "ReplicaSet")


def cannot_restart(pod: StoredPod, reference: OwnerReference | None) -> str:
    """Why a Pod's owner isn't restarted."""
    if reference and _key(reference) == ("batch", "Job"):
        return f"{title(reference)} runs to its end as it is"
    name = title(reference) if reference else "the Pod"
    return f"kubectl rollout restart knows no {name}; if it makes Pods anew: {delete_command(pod)}"


def path(reference: OwnerReference, namespace: str) -> str:
    """Where the API server has an owner of a known kind."""
    root = "api" if group(reference) == "" else "apis"
    plural = _KINDS[_key(reference)].plural
    return f"/{root}/{reference.api_version}/namespaces/{namespace}/{plural}/{reference.name}"


class Controllers:
    """Reads owners of Pods; each once, as long as its Pods stand together in the list.

    Raises:
        ClusterError: the cluster can't be asked.
    """

    def __init__(self, bulk: ApiClient) -> None:
        self._bulk = bulk
        self._lock = threading.Lock()
        self._read: OrderedDict[str, Controller | None] = OrderedDict()

    def read(self, reference: OwnerReference, namespace: str) -> Controller | None:
        """The owner as it is; None if it is gone, or another has its name."""
        with self._lock:
            if reference.uid in self._read:
                return self._read[reference.uid]
        # Two threads may both read it; that is cheaper than to make them wait for each other.
        found = self._ask(reference, namespace)
        with self._lock:
            self._read[reference.uid] = found
            if len(self._read) > _KEPT:
                self._read.popitem(last=False)
        return found

    def _ask(self, reference: OwnerReference, namespace: str) -> Controller | None:
        kind = _KINDS[_key(reference)]
        try:
            found = self._bulk.get(
                path(reference, namespace),
                Controller,
                f"{reference.kind} {namespace}/{reference.name}",
                metadata_only=kind.metadata_only,
            )
        except NotFound:
            return None
        return found if found.metadata.uid == reference.uid else None


def why_not_recreated(
    pod: StoredPod, reference: OwnerReference, controller: Controller | None, spent: int = 0
) -> str:
    """Why nobody would make a Pod anew if it were evicted; empty if somebody would.

    Args:
        pod: the Pod.
        reference: its controller; of a known kind.
        controller: the same as it is now; None if it is gone.
        spent: how many Pods of it were evicted since it was read.
    """
    name = title(reference)
    if controller is None:
        return f"{name} is gone, so nobody would make it anew"
    if controller.metadata.deletion_timestamp:
        return f"{name} is being deleted"
    ends = _KINDS[_key(reference)].ends
    for condition in controller.status.conditions or ():
        if condition.type in ends and condition.status == "True":
            return f"{name} has ended ({condition.type})"
    if controller.spec.suspend or controller.spec.run_policy.suspend:
        return f"{name} is suspended and makes no Pods"
    return _job_hindrance(pod, name, controller, spent) if reference.kind == "Job" else ""


def _job_hindrance(pod: StoredPod, name: str, job: Controller, spent: int) -> str:
    """Why an eviction would end a Job instead of giving it a new Pod.

    A Pod that is deleted before it ended counts as failed, unless podFailurePolicy ignores what
    the Eviction API writes on it, the condition DisruptionTarget
    (https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/job/job_controller.go,
    isPodFailed, and pod_failure_policy.go, matchPodFailurePolicy).
    """
    action = _on_eviction(pod, job.spec.pod_failure_policy)
    if action == "Ignore":
        return ""
    if action in ("FailJob", "FailIndex"):
        return f"{name} has a podFailurePolicy that may answer an eviction with {action}"
    if job.spec.backoff_limit_per_index is not None:
        failures, limit = _index_failures(pod), job.spec.backoff_limit_per_index
        if failures >= limit:
            return f"an eviction would exceed backoffLimitPerIndex of {name} ({limit})"
        return ""
    uncounted = job.status.uncounted_terminated_pods or Uncounted()
    failed = job.status.failed + len(uncounted.failed or ()) + spent
    limit = 6 if job.spec.backoff_limit is None else job.spec.backoff_limit
    if failed + 1 > limit:
        return f"an eviction would exceed backoffLimit of {name} ({failed} of {limit} failures)"
    return ""


def _on_eviction(pod: StoredPod, policy: PodFailurePolicy | None) -> str:
    """What a Job's podFailurePolicy does about an evicted Pod; empty if nothing special."""
    codes = _KILLED | _exit_codes(pod)
    for entry in policy.rules if policy else ():
        matches = entry.on_exit_codes and _may_match(entry.on_exit_codes, codes)
        if matches and entry.action in ("FailJob", "FailIndex"):
            return entry.action
        for condition in entry.on_pod_conditions or ():
            if condition.type == _DISRUPTION and condition.status == "True":
                return entry.action
    return ""


def _may_match(wanted: OnExitCodes, codes: frozenset[int]) -> bool:
    if wanted.operator == "In":
        return bool(codes & set(wanted.values))
    return bool(codes - set(wanted.values))


def _exit_codes(pod: StoredPod) -> frozenset[int]:
    """The codes, other than 0, with which the Pod's init containers have ended."""
    states = [
        state.terminated
        for status in pod.status.init_container_statuses or ()
        for state in (status.state, status.last_state)
    ]
    return frozenset(ended.exit_code for ended in states if ended and ended.exit_code)


def _index_failures(pod: StoredPod) -> int:
    value = pod.annotations.get(_INDEX_FAILURES, "")
    return int(value) if value.isdecimal() else 0


def why_not_restarted(
    pod: StoredPod, reference: OwnerReference, owner: Controller | None, *, ours: bool = False
) -> str:
    """Why a restart of its owner would not make a Pod anew; empty if it would.

    Args:
        pod: the Pod.
        reference: its owner, of a kind that can be restarted.
        owner: the same as it is now; None if it is gone.
        ours: whether a restart that is under way is this run's own.
    """
    name, namespace = title(reference), pod.metadata.namespace
    kubectl = f"{reference.kind.lower()}/{reference.name} -n {namespace}"
    if owner is None:
        return f"{name} is gone"
    if owner.metadata.deletion_timestamp:
        return f"{name} is being deleted"
    if owner.spec.paused:  # in kubectl's words
        return (
            f"{name}: can't restart paused deployment (run rollout resume first):"
            f" kubectl rollout resume {kubectl}"
        )
    strategy = owner.spec.update_strategy
    if strategy.type == "OnDelete":
        return (
            f"{name} replaces Pods only when they are deleted (updateStrategy OnDelete):"
            f" {delete_command(pod)}"
        )
    partition = strategy.rolling_update.partition if strategy.rolling_update else 0
    if reference.kind == "StatefulSet" and _ordinal(pod) < partition:
        return (
            f"{name} leaves ordinals below its partition {partition} as they are:"
            f" {delete_command(pod)}"
        )
    if revision := _knative_revision(owner):
        return (
            f"{name} belongs to Knative's {title(revision)}, which before Knative 1.21 undoes a"
            f" restart: {delete_command(pod)}"
        )
    if not ours and _is_replacing(pod, reference, owner):
        return (
            f"{name} was restarted after the Pod was made, and its roll-out is under way:"
            f" kubectl rollout status {kubectl}"
        )
    return ""


def delete_command(pod: StoredPod) -> str:
    """The command that deletes a Pod."""
    return f"kubectl delete pod {pod.metadata.name} -n {pod.metadata.namespace}"


def _ordinal(pod: StoredPod) -> int:
    number = pod.metadata.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _knative_revision(owner: Controller) -> OwnerReference | None:
    # It writes its Deployment's template over, with the annotation of a restart:
    # https://github.com/knative/serving/issues/14705
    reference = owner.metadata.controller
    if reference and _key(reference) == ("serving.knative.dev", "Revision"):
        return reference
    return None


def _is_replacing(pod: StoredPod, reference: OwnerReference, owner: Controller) -> bool:
    """Whether the Pod is one that a restart has still to replace."""
    restarted = (owner.spec.template.metadata.annotations or {}).get(RESTARTED_AT)
    created = pod.metadata.creation_timestamp
    if restarted is None or created is None:
        return False
    try:
        at = msgspec.convert(restarted, type(created))
    except msgspec.ValidationError:
        return False
    # Without a time zone it isn't kubectl's.
    return at.tzinfo is not None and created <= at and _is_rolling(reference, owner)


def _is_rolling(reference: OwnerReference, owner: Controller) -> bool:
    """Whether there are, or may be, Pods of an older template; as `kubectl rollout status`."""
    status = owner.status
    if status.observed_generation < owner.metadata.generation:
        return True
    if reference.kind == "Deployment":
        return status.replicas > status.updated_replicas
    if reference.kind == "DaemonSet":
        return status.updated_number_scheduled < status.desired_number_scheduled
    return status.current_revision != status.update_revision
