"""What recreates Pods: which controllers do, what keeps them from it, and how they are restarted.

A Pod may only be deleted if somebody recreates it. For the kinds of Kubernetes itself, and for a
few that Kubeflow's users meet every day, their controllers' source says so; any other kind is left
to the operator, who knows it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import msgspec

from init_egress.kube import kinds
from init_egress.kube.client import ApiClient
from init_egress.kube.errors import InvalidName, NotFound
from init_egress.kube.kinds import Resource
from init_egress.kube.objects import (
    Controller,
    OnExitCodes,
    OwnerReference,
    PodFailurePolicy,
    StoredPod,
    Uncounted,
)
from init_egress.kube.paths import shown

RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
"""The annotation of a Pod template by which `kubectl rollout restart` makes a new revision
(https://github.com/kubernetes/kubectl/blob/master/pkg/polymorphichelpers/objectrestarter.go)."""

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a Pod that a kubelet runs from a file and only shows to the API server."""

_INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
_DISRUPTION = "DisruptionTarget"
_KILLED = frozenset({137, 143})
_KEPT = 1000


@dataclass(frozen=True)
class _Conduct:
    """How a kind's controller recreates a missing Pod.

    Attributes:
        metadata_only: whether nothing but its metadata is looked at.
        ends: the conditions under which it makes no Pods any more.
    """

    metadata_only: bool = False
    ends: tuple[str, ...] = ()


_ALWAYS = _Conduct()
_CONDUCT: Mapping[Resource, _Conduct] = MappingProxyType(
    {
        kinds.REPLICATION_CONTROLLER: _Conduct(metadata_only=True),
        kinds.REPLICA_SET: _Conduct(metadata_only=True),
        kinds.JOB: _Conduct(ends=("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")),
        # The training operator creates a Pod for each index that has none, and so does the MPI
        # operator: https://github.com/kubeflow/training-operator/blob/v1.9.0/pkg/controller.v1/common/pod.go
        # (ReconcilePods), https://github.com/kubeflow/mpi-operator/blob/master/pkg/controller/mpi_job_controller.go
        **dict.fromkeys(kinds.TRAINING_JOBS, _Conduct(ends=("Succeeded", "Failed"))),
        # A RayCluster's workers have an init container, wait-gcs-ready:
        # https://github.com/ray-project/kuberay/blob/master/ray-operator/controllers/ray/raycluster_controller.go
        # (reconcilePods)
        kinds.RAY_CLUSTER: _ALWAYS,
    }
)

_RESTARTABLE = ("Deployment", "StatefulSet", "DaemonSet")


def _kind(reference: OwnerReference) -> Resource | None:
    """An owner's kind, if its controller is known and the reference can be followed."""
    if not reference.is_valid:
        return None
    found = kinds.CONTROLLERS.get((reference.group, reference.kind))
    version = reference.api_version.rpartition("/")[2]
    return replace(found, version=version) if found else None


def _conduct(reference: OwnerReference) -> _Conduct:
    return _CONDUCT.get(kinds.CONTROLLERS[reference.group, reference.kind], _ALWAYS)


def title(reference: OwnerReference) -> str:
    """An owner as messages call it, such as `StatefulSet/web`."""
    if reference.is_valid:
        return f"{reference.kind}/{reference.name}"
    return f"{shown(reference.kind)}/{shown(reference.name)} (not a valid reference)"


def is_known(reference: OwnerReference) -> bool:
    """Whether this kind's controller is known to recreate a missing Pod."""
    return _kind(reference) is not None


def is_restartable(reference: OwnerReference) -> bool:
    """Whether `kubectl rollout restart` supports this kind."""
    return reference.is_valid and reference.group == "apps" and reference.kind in _RESTARTABLE


def is_replica_set(reference: OwnerReference) -> bool:
    """Whether an owner is a ReplicaSet, which may have a Deployment above it."""
    return reference.is_valid and (reference.group, reference.kind) == ("apps", "ReplicaSet")


def cannot_restart(pod: StoredPod, reference: OwnerReference | None) -> str:
    """Why a Pod's owner isn't restarted."""
    if reference and (reference.group, reference.kind) == ("batch", "Job"):
        return f"{title(reference)} runs to its end as it is"
    name = title(reference) if reference else "the Pod"
    return f"kubectl rollout restart knows no {name}; if it recreates Pods: {delete_command(pod)}"


def resource(reference: OwnerReference) -> Resource:
    """The kind of an owner that is known.

    Raises:
        InvalidName: the owner isn't known, or Kubernetes would not take its name.
    """
    found = _kind(reference)
    if found is None:
        raise InvalidName(f"{title(reference)} is not known")
    return found


class Controllers:
    """Reads owners of Pods; each once, as long as its Pods stand together in the list.

    Raises:
        ClusterError: the cluster can't be asked.
    """

    def __init__(self, bulk: ApiClient) -> None:
        self._bulk = bulk
        self._lock = threading.Lock()
        self._read: OrderedDict[tuple[str, OwnerReference], Controller | None] = OrderedDict()

    def read(self, reference: OwnerReference, namespace: str) -> Controller | None:
        """The owner as it is; None if it is gone, or another has its name."""
        key = (namespace, reference)
        with self._lock:
            if key in self._read:
                return self._read[key]
        # Two threads may both read it; that is cheaper than to make them wait for each other.
        found = self._ask(reference, namespace)
        with self._lock:
            self._read[key] = found
            if len(self._read) > _KEPT:
                self._read.popitem(last=False)
        return found

    def _ask(self, reference: OwnerReference, namespace: str) -> Controller | None:
        try:
            return self._bulk.read(
                resource(reference),
                reference.name,
                namespace,
                Controller,
                uid=reference.uid,
                metadata_only=_conduct(reference).metadata_only,
            )
        except NotFound:
            return None


def why_not_recreated(
    pod: StoredPod, reference: OwnerReference, controller: Controller | None, spent: int = 0
) -> str:
    """Why no controller would recreate a Pod if it were evicted; empty if somebody would.

    Args:
        pod: the Pod.
        reference: its controller; of a known kind.
        controller: the same as it is now; None if it is gone.
        spent: how many Pods of it were evicted since it was read.
    """
    name = title(reference)
    if controller is None:
        return f"{name} is gone, so no controller would recreate it"
    if controller.metadata.deletion_timestamp:
        return f"{name} is being deleted"
    ends = _conduct(reference).ends
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
    """Why a restart of its owner would not recreate a Pod; empty if it would.

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
    if reference and (reference.group, reference.kind) == ("serving.knative.dev", "Revision"):
        return reference
    return None


def _is_replacing(pod: StoredPod, reference: OwnerReference, owner: Controller) -> bool:
    """Whether the Pod is one that a restart has still to replace."""
    template = owner.spec.template
    restarted = (template.metadata.annotations or {}).get(RESTARTED_AT) if template else None
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
