"""Existing Pods: what the API server has stored of them, where they are stuck, and all of them.

The rule judges a stored Pod by the same fields as a Pod that is being created
(`init_egress.rule.pod`); what is read here besides is what became of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from init_egress.kube.client import NotFound
from init_egress.kube.paging import ApiClient, Collection
from init_egress.rule import selector
from init_egress.rule.decision import Decision, decide_on
from init_egress.rule.inspection import Inspection
from init_egress.rule.pod import Namespace, ObjectMeta, Pod
from init_egress.rule.policy import Policy

PATIENCE = timedelta(minutes=5)
"""After this long an init container that runs counts as waiting for a network that never comes."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_CRASHED = ("CrashLoopBackOff", "Error", "RunContainerError")
_WAITING_ITS_TURN = ("PodInitializing", "ContainerCreating", "")
_ANNOTATED = b'"f:traffic.sidecar.istio.io/excludeOutbound'


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    """A JSON object whose unknown fields are passed over."""


class OwnerReference(_Object, frozen=True):
    """An owner of an object; at most one of them is its controller."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class ManagedFields(_Object, frozen=True):
    """Who set which fields, and when."""

    time: datetime | None = None
    fields_v1: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw())


class StoredMeta(ObjectMeta, frozen=True):
    """The metadata of a stored object."""

    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    managed_fields: tuple[ManagedFields, ...] | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that makes it anew when it is gone; None if nobody does."""
        for reference in self.owner_references or ():
            if reference.controller:
                return reference
        return None


class Waiting(_Object, frozen=True):
    """A container that waits."""

    reason: str = ""
    message: str = ""


class Running(_Object, frozen=True):
    """A container that runs."""

    started_at: datetime | None = None


class Terminated(_Object, frozen=True):
    """A container that has ended."""

    exit_code: int = 0
    reason: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(_Object, frozen=True):
    """One of three."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Object, frozen=True):
    """What became of a container."""

    name: str
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class Condition(_Object, frozen=True):
    """One of a Pod's conditions."""

    type: str
    status: str = ""
    last_transition_time: datetime | None = None


class PodStatus(_Object, frozen=True):
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
        """Whether all that it had to do is done, well or badly."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_going(self) -> bool:
        """Whether it is being deleted."""
        return self.metadata.deletion_timestamp is not None


class StoredNamespace(_Object, frozen=True):
    """A Namespace as it is stored."""

    metadata: StoredMeta

    def as_read_by_rule(self) -> Namespace:
        """Its name and labels."""
        return Namespace(self.metadata.name, self.metadata.labels or {})


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


def check_name(text: str, kind: str) -> None:
    """Check that a text can be an object's name, and so a part of a path.

    Args:
        text: what was given for a name.
        kind: the object's, such as `Pod`.

    Raises:
        ValueError: it can't; the message says where names are to be seen.
    """
    if not _NAME.fullmatch(text):
        raise ValueError(
            f"{text!r} is no name of a {kind}; see: kubectl get {kind.lower()}s"
            f"{'' if kind == 'Namespace' else ' -A'}"
        )


@dataclass(frozen=True)
class Scope:
    """Which Pods are asked about.

    Attributes:
        namespace: their namespace; empty for all.
        selector: their labels, as `kubectl get -l` takes them; empty for all.
    """

    namespace: str = ""
    selector: str = ""

    def __post_init__(self) -> None:
        if self.namespace:
            check_name(self.namespace, "Namespace")
        selector.parse(self.selector)  # raises ValueError, which says what is wrong with it

    def path(self, group: str, plural: str) -> str:
        """Where the API server lists a kind within the scope.

        Args:
            group: `api/v1` or `apis/<group>/<version>`.
            plural: the kind's name in paths.
        """
        if not self.namespace:
            return f"/{group}/{plural}"
        return f"/{group}/namespaces/{self.namespace}/{plural}"

    def __str__(self) -> str:
        where = f"namespace {self.namespace}" if self.namespace else "all namespaces"
        return f"{where}, {self.selector}" if self.selector else where


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


def judge_all(bulk: ApiClient, policy: Policy, scope: Scope, now: datetime) -> Iterator[JudgedPod]:
    """Judge all Pods of a scope, a page at a time; none is kept.

    Args:
        bulk: where.
        policy: what the operator configured.
        scope: which Pods.
        now: the time.

    Raises:
        NotFound: there is no such namespace.
        ClusterError: the cluster can't be asked.
    """
    namespaces = _namespaces(bulk, scope)
    pods = Collection(
        scope.path("api/v1", "pods"), StoredPod, lambda pod: pod.place, "Pods", scope.selector
    )
    for page in bulk.pages(pods):
        for pod in page:
            namespace = _known(bulk, namespaces, pod.metadata.namespace)
            yield judge(pod, namespace, policy, now)


def read_namespace(bulk: ApiClient, name: str) -> Namespace:
    """Read one namespace.

    Raises:
        NotFound: it isn't there.
    """
    return read_stored_namespace(bulk, name).as_read_by_rule()


def read_stored_namespace(bulk: ApiClient, name: str) -> StoredNamespace:
    """Read one namespace with all that is stored of it.

    Raises:
        NotFound: it isn't there; the message says where to look.
    """
    try:
        return bulk.get(f"/api/v1/namespaces/{name}", StoredNamespace, f"namespace {name}")
    except NotFound as error:
        raise NotFound(f"no namespace {name}; see: kubectl get namespaces", error.code) from error


def read_pod(bulk: ApiClient, namespace: str, name: str) -> StoredPod:
    """Read one Pod.

    Raises:
        NotFound: it isn't there; the message says where to look.
    """
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    try:
        return bulk.get(path, StoredPod, f"Pod {namespace}/{name}")
    except NotFound as error:
        raise NotFound(
            f"no Pod {name} in namespace {namespace}; see: kubectl get pods -n {namespace}",
            error.code,
        ) from error


def _namespaces(bulk: ApiClient, scope: Scope) -> dict[str, Namespace]:
    if scope.namespace:
        return {scope.namespace: read_namespace(bulk, scope.namespace)}
    listed = Collection(
        "/api/v1/namespaces",
        StoredNamespace,
        lambda namespace: namespace.metadata.name,
        "Namespaces",
        metadata_only=True,
    )
    return {
        namespace.metadata.name: namespace.as_read_by_rule()
        for page in bulk.pages(listed)
        for namespace in page
    }


def _known(bulk: ApiClient, namespaces: dict[str, Namespace], name: str) -> Namespace:
    """A namespace that may have come after they were listed, or have gone before its Pods."""
    if name not in namespaces:
        try:
            namespaces[name] = read_namespace(bulk, name)
        except NotFound:
            namespaces[name] = Namespace(name)
    return namespaces[name]
