"""Where an existing Pod is stuck, and whether its annotations came too late."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from init_egress.kube.objects import ContainerStatus, StoredPod

PATIENCE = timedelta(minutes=5)
"""After this long an init container that runs counts as waiting for a network that never comes."""

_CRASHED = ("CrashLoopBackOff", "Error", "RunContainerError")
_WAITING_ITS_TURN = ("PodInitializing", "ContainerCreating", "")
_ANNOTATED = b'"f:traffic.sidecar.istio.io/excludeOutbound'


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
    annotation does nothing until the Pod is recreated.
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
