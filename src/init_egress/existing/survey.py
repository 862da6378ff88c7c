"""Existing Pods: what the API server has stored of them, where they are stuck, and all of them.

The rule judges a stored Pod by the same fields as a Pod that is being created
(`init_egress.rule.pod`); what is read here besides is what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from init_egress.kube.client import ApiClient
from init_egress.kube.errors import NotFound
from init_egress.kube.kinds import NAMESPACE, POD, Resource
from init_egress.kube.objects import ContainerStatus, Listed, StoredNamespace, StoredPod
from init_egress.kube.paging import Collection, UnreadableObject
from init_egress.kube.scope import Scope
from init_egress.rule.decision import Decision, decide_on
from init_egress.rule.inspection import Inspection
from init_egress.rule.pod import Namespace
from init_egress.rule.policy import Policy

PATIENCE = timedelta(minutes=5)
"""After this long an init container that runs counts as waiting for a network that never comes."""

_NAMESPACES, _PODS = Resource.of(NAMESPACE), Resource.of(POD)
_CRASHED = ("CrashLoopBackOff", "Error", "RunContainerError")
_WAITING_ITS_TURN = ("PodInitializing", "ContainerCreating", "")
_ANNOTATED = b'"f:traffic.sidecar.istio.io/excludeOutbound'

N = TypeVar("N", Listed, StoredNamespace)


class Stuck(msgspec.Struct, frozen=True):
    """The init container that a Pod can't get past.

    Attributes:
        container: its name.
        reason: why it waits, such as CrashLoopBackOff; Running if it has run for long.
        restarts: how often it was started again.
        since: since when the Pod is in it, as far as its status tells.
    """

    container: str
    reason: str
    restarts: int
    since: datetime | None

    @property
    def for_want_of_network(self) -> bool:
        """Whether the container has run and failed, or runs on and on; not if it can't start."""
        return self.reason in (*_CRASHED, "Running")


def stuck(pod: StoredPod, names: tuple[str, ...], now: datetime) -> Stuck | None:
    """The one of these init containers that a Pod is stuck in, if it is.

    Args:
        pod: the Pod.
        names: of the init containers that are asked about.
        now: the time, by which one that runs may have run for too long.
    """
    if pod.status.phase not in ("", "Pending"):
        return None
    for status in pod.status.init_container_statuses or ():
        if status.name not in names:
            continue
        if found := _stuck(pod, status, now):
            return found
    return None


def _stuck(pod: StoredPod, status: ContainerStatus, now: datetime) -> Stuck | None:
    state = status.state
    if state.running:
        since = state.running.started_at
        failed = status.restart_count > 0
        if not failed and (since is None or now - since < PATIENCE):
            return None
        return Stuck(
            status.name, "Running", status.restart_count, _since(pod) if failed else since
        )
    if state.terminated:
        if state.terminated.exit_code == 0:
            return None
        return Stuck(status.name, "Error", status.restart_count, _since(pod))
    reason = state.waiting.reason if state.waiting else ""
    if reason in _WAITING_ITS_TURN:
        if not status.last_state.terminated or not status.last_state.terminated.exit_code:
            return None
        reason = "Error"
    return Stuck(status.name, reason, status.restart_count, _since(pod))


def _since(pod: StoredPod) -> datetime | None:
    for condition in pod.status.conditions or ():
        if condition.type == "Initialized" and condition.status == "False":
            return condition.last_transition_time
    return pod.status.start_time or pod.metadata.creation_timestamp


def annotated_too_late(pod: StoredPod) -> bool:
    """Whether an exclude annotation was written after the Pod's network was made.

    The CNI plugin reads the annotations once, when it sets up the Pod's sandbox
    (https://github.com/istio/istio/blob/master/cni/pkg/plugin/plugin.go, doAddRun), so such an
    annotation does nothing until the Pod is made anew.
    """
    created = pod.metadata.creation_timestamp
    if created is None:
        return False
    written = [
        entry.time
        for entry in pod.metadata.managed_fields or ()
        if entry.time and _ANNOTATED in bytes(entry.fields_v1)
    ]
    if not written or min(written) <= created:
        return False
    sandbox = _network_since(pod)
    return sandbox is None or sandbox < min(written)


def _network_since(pod: StoredPod) -> datetime | None:
    """Since when the Pod has its network; None where it, or an older kubelet, doesn't say."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodReadyToStartContainers" and condition.status == "True":
            return condition.last_transition_time
    return None


@dataclass(frozen=True)
class JudgedPod:
    """An existing Pod, and what the rule says of it.

    Attributes:
        pod: the Pod.
        namespace: its namespace.
        decision: the rule's.
        stuck: the cut-off init container that it is stuck in.
        too_late: whether its exclude annotations came after its network was made.
    """

    pod: StoredPod
    namespace: Namespace
    decision: Decision
    stuck: Stuck | None
    too_late: bool


def judge(pod: StoredPod, namespace: Namespace, policy: Policy, now: datetime) -> JudgedPod:
    """Judge one existing Pod."""
    found = Inspection(pod, namespace, policy)
    decision = decide_on(found)
    if pod.is_finished:
        return JudgedPod(pod, namespace, decision, None, too_late=False)
    names = found.unexempt_names
    too_late = bool(names) and annotated_too_late(pod)
    return JudgedPod(pod, namespace, decision, stuck(pod, names, now) if names else None, too_late)


def judge_all(
    bulk: ApiClient,
    policy: Policy,
    scope: Scope,
    now: datetime,
    unreadable: Callable[[UnreadableObject], None],
) -> Iterator[JudgedPod]:
    """Judge all Pods of a scope, a page at a time; none is kept.

    Args:
        bulk: where.
        policy: what the operator configured.
        scope: which Pods.
        now: the time.
        unreadable: is given each Pod that can't be decoded; the others are judged all the same.

    Raises:
        NotFound: there is no such namespace.
        ClusterError: the cluster can't be asked.
    """
    namespaces = _namespaces(bulk, scope)
    for page in bulk.pages(Collection(_PODS, StoredPod, scope.namespace, scope.selector)):
        for item in page.unreadable:
            unreadable(item)
        for pod in page.items:
            namespace = _known(bulk, namespaces, pod.metadata.namespace)
            yield judge(pod, namespace, policy, now)


def read_namespace(bulk: ApiClient, name: str) -> Namespace:
    """Read one namespace.

    Raises:
        NotFound: it isn't there; the message says where to look.
    """
    return _read_namespace(bulk, name, Listed).as_namespace()


def read_stored_namespace(bulk: ApiClient, name: str) -> StoredNamespace:
    """Read one namespace with all that is stored of it.

    Raises:
        NotFound: it isn't there; the message says where to look.
    """
    return _read_namespace(bulk, name, StoredNamespace)


def _read_namespace(bulk: ApiClient, name: str, kind: type[N]) -> N:
    try:
        return bulk.read(_NAMESPACES, name, "", kind)
    except NotFound as error:
        raise NotFound(f"no namespace {name}; see: kubectl get namespaces", error.code) from error


def read_pod(bulk: ApiClient, namespace: str, name: str) -> StoredPod:
    """Read one Pod.

    Raises:
        NotFound: it isn't there; the message says where to look.
    """
    try:
        return bulk.read(_PODS, name, namespace, StoredPod)
    except NotFound as error:
        raise NotFound(
            f"no Pod {name} in namespace {namespace}; see: kubectl get pods -n {namespace}",
            error.code,
        ) from error


def _namespaces(bulk: ApiClient, scope: Scope) -> dict[str, Namespace]:
    if scope.namespace:
        return {scope.namespace: read_namespace(bulk, scope.namespace)}
    listed = Collection(_NAMESPACES, Listed, metadata_only=True)
    return {
        namespace.metadata.name: namespace.as_namespace()
        for page in bulk.pages(listed)
        for namespace in page.items
    }


def _known(bulk: ApiClient, namespaces: dict[str, Namespace], name: str) -> Namespace:
    """A namespace that may have come after they were listed, or have gone before its Pods."""
    if name not in namespaces:
        try:
            namespaces[name] = read_namespace(bulk, name)
        except NotFound:
            namespaces[name] = Namespace(name)
    return namespaces[name]
