"""A stand-in for a node: it runs Pods as plain processes, so that all else about them is real.

The controllers make and replace Pods as on any cluster, the API server calls a webhook through
its Service, and what answers is the real server. Each Pod has an address in the private network.
Nothing is scheduled: the node takes a Pod if it knows the entry point of its image.

It does less than a kubelet: one container per Pod, without init containers; probes by httpGet, and
more often than they say, none of liveness; fields as the only source of variables, Secrets and
ConfigMaps of volumes; no users, capabilities, resources, read-only files or tokens.
"""

import contextlib
import itertools
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from ipaddress import IPv4Address
from pathlib import Path
from time import monotonic
from types import TracebackType

import httpx2
from lightkube import Client
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Node, Pod
from lightkube.types import PatchType

from tests.testbed.container import CONTAINER, Container, now
from tests.testbed.control_plane import ControlPlane, Manifest
from tests.testbed.network import ADDRESS
from tests.testbed.pod_files import Volumes, root_with

NODE = "testbed"
_LEASES = "kube-node-lease"
_PERIOD = 0.2  # of looking for Pods and of probing them
_REFRESH = 1.0  # of volumes; a kubelet takes a minute
_HEARTBEAT = 10.0
# Pod.Binding can't be used: a Status is what it is answered with.
_BINDING = create_namespaced_resource("", "v1", "Binding", "bindings")
_READINESS = ("ContainersReady", "Ready")
_ADDRESSES = map(str, map(IPv4Address, itertools.count(int(IPv4Address("10.250.1.1")))))


class Workloads:
    """A node of the cluster for as long as the context lasts, of which there is one at a time.

    `entry_points` says what an image runs, as its ENTRYPOINT would; more can be added at any time.
    Absolute paths in it are this machine's.
    """

    def __init__(
        self, plane: ControlPlane, entry_points: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.entry_points = dict(entry_points or {})
        self._plane = plane
        self._resources = ExitStack()
        self._over = threading.Event()
        self._taken: dict[str, _Run] = {}  # by uid; those that are gone too

    def pods(self) -> list[Pod]:
        """The Pods on the node, as the API server has them."""
        return list(self._client.list(Pod, namespace="*", fields={"spec.nodeName": NODE}))

    def logs(self, pod: str) -> str:
        """What a Pod has written so far, or had when it was gone."""
        run = self._find(pod)
        return run.log.read_text(errors="replace") if run and run.log.exists() else ""

    def kill(self, pod: str) -> None:
        """Kill what a Pod runs, as if it had crashed."""
        run = self._find(pod)
        if run is None:
            raise LookupError(f"the node has no Pod {pod}")
        run.kill()

    def __enter__(self) -> "Workloads":
        """Join the cluster."""
        if self._plane.network.address is None:
            raise RuntimeError("Pods need addresses, which only a private network has")
        with ExitStack() as stack:
            self._client = stack.enter_context(self._plane.client())
            folder = tempfile.TemporaryDirectory(prefix="workloads-", dir=self._plane.folder)
            self._folder = Path(stack.enter_context(folder))
            self._client.create(Node(metadata=ObjectMeta(name=NODE)))
            stack.callback(self._leave)
            self._be_ready()
            thread = threading.Thread(target=self._work, name="workloads", daemon=True)
            thread.start()
            stack.callback(self._switch_off, thread)
            self._resources = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the cluster at once: no Pod is asked to end."""
        self._resources.close()

    def _find(self, pod: str) -> "_Run | None":
        found = [run for run in tuple(self._taken.values()) if run.name == pod]
        return found[-1] if found else None

    def _be_ready(self) -> None:
        conditions = [{"type": "Ready", "status": "True", "reason": "Testbed", "message": ""}]
        addresses = [{"type": "InternalIP", "address": ADDRESS}]
        status = {"conditions": conditions, "addresses": addresses}
        self._client.patch(Node.Status, NODE, {"status": status})

    def _leave(self) -> None:
        with contextlib.suppress(httpx2.HTTPError):
            for pod in (pod.to_dict() for pod in self.pods()):
                _remove(self._client, pod["metadata"]["name"], pod["metadata"]["namespace"])
        with contextlib.suppress(httpx2.HTTPError):
            self._client.delete(Lease, NODE, namespace=_LEASES)
        with contextlib.suppress(httpx2.HTTPError):
            self._client.delete(Node, NODE)

    def _switch_off(self, thread: threading.Thread) -> None:
        self._over.set()
        thread.join()
        for run in self._taken.values():
            run.vanished.set()
        for run in self._taken.values():
            run.thread.join()

    def _work(self) -> None:
        """Attend to the Pods that are there, and tell the cluster that the node lives."""
        renew_at = monotonic()
        while not self._over.wait(_PERIOD):
            with contextlib.suppress(httpx2.HTTPError):  # the next time, then
                self._look()
                if monotonic() >= renew_at:
                    self._renew_lease()
                    renew_at = monotonic() + _HEARTBEAT

    def _renew_lease(self) -> None:
        """Without it, the node's Pods would be taken for unready, and then be evicted."""
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": NODE},
            "spec": {
                "holderIdentity": NODE,
                "leaseDurationSeconds": 40,
                "renewTime": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        self._client.patch(Lease, NODE, lease, namespace=_LEASES, patch_type=PatchType.APPLY)

    def _look(self) -> None:
        """Take new Pods, and tell those that are to end."""
        pods = [pod.to_dict() for pod in self._client.list(Pod, namespace="*")]
        found = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid, pod in found.items():
            entry_point = self.entry_points.get(pod["spec"]["containers"][0]["image"])
            if entry_point and uid not in self._taken and _waits(pod):
                run = _Run(self._client, pod, entry_point, self._folder / uid)
                self._taken[uid] = run
        for uid, run in self._taken.items():
            if uid not in found:
                run.vanished.set()
            elif found[uid]["metadata"].get("deletionTimestamp"):
                run.delete(found[uid]["metadata"].get("deletionGracePeriodSeconds", 0))


class _Run:
    """A Pod on the node, from its binding to its end, in a thread of its own."""

    def __init__(
        self, client: Client, pod: Manifest, entry_point: Sequence[str], folder: Path
    ) -> None:
        self.name: str = pod["metadata"]["name"]
        self.vanished = threading.Event()
        self._namespace: str = pod["metadata"]["namespace"]
        self.log = folder / f"{CONTAINER}.log"
        self._client, self._pod = client, pod
        self._entry_point, self._folder = entry_point, folder
        self._volumes = Volumes(client, pod, folder / "volumes")
        self._container: Container | None = None
        self._deleted = threading.Event()
        self._grace = 0.0
        self._bound = False
        self._refresh_at = monotonic()
        self._reported: Manifest = {}
        self._ready = False
        self._began = self._since = now()
        self.thread = threading.Thread(target=self._live, name=self.name, daemon=True)
        self.thread.start()

    def delete(self, grace: float) -> None:
        """Have it end in order."""
        self._grace = grace
        self._deleted.set()

    def kill(self) -> None:
        """Kill its processes."""
        if self._container:
            self._container.kill()

    def _live(self) -> None:
        self._folder.mkdir()
        mounts = self._volumes.mounts(self._pod["spec"]["containers"][0])
        with _address() as address, root_with(mounts) as root:
            container = Container(self._pod, self._entry_point, address, self._folder, root)
            with contextlib.closing(container):
                self._container = container
                while not (self._deleted.is_set() or self.vanished.is_set()):
                    self._step(container, address)
                    self._deleted.wait(_PERIOD)
                if not self.vanished.is_set():
                    container.stop(self._grace, lambda: self._still_ending(container, address))
        # While it is there, its name is nobody else's.
        while not (self.vanished.is_set() or _remove(self._client, self.name, self._namespace)):
            self.vanished.wait(_PERIOD)

    def _step(self, container: Container, address: str) -> None:
        problem = ""
        try:
            self._prepare()
        except (httpx2.HTTPError, KeyError) as error:
            problem = f"volumes: {error!r}"
        if container.phase == "Running" or not problem:
            container.attend()
        self._report(container, address, problem)

    def _still_ending(self, container: Container, address: str) -> bool:
        self._report(container, address)
        return not self.vanished.wait(_PERIOD)

    def _prepare(self) -> None:
        """Bind the Pod, and bring its volumes up to date now and then."""
        if not self._bound:
            binding = {"metadata": {"name": self.name}, "target": {"kind": "Node", "name": NODE}}
            self._client.create(_BINDING.from_dict(binding), namespace=self._namespace)
            self._bound = True
        if monotonic() >= self._refresh_at:
            self._volumes.refresh()
            self._refresh_at = monotonic() + _REFRESH

    def _report(self, container: Container, address: str, problem: str = "") -> None:
        """Tell the API server what is new about the Pod."""
        if container.ready != self._ready:
            self._ready, self._since = container.ready, now()
        status = {
            "phase": container.phase,
            "message": problem,
            "hostIP": ADDRESS,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": self._began,
            "containerStatuses": [container.status()],
            "conditions": [
                *(_condition(kind, True, self._began) for kind in ("PodScheduled", "Initialized")),
                *(_condition(kind, self._ready, self._since) for kind in _READINESS),
            ],
        }
        if status != self._reported:
            patch = {"metadata": {"uid": self._pod["metadata"]["uid"]}, "status": status}
            with contextlib.suppress(httpx2.HTTPError):  # the next time, then
                self._client.patch(
                    Pod.Status,
                    self.name,
                    patch,
                    namespace=self._namespace,
                    patch_type=PatchType.MERGE,
                )
                self._reported = status


def _waits(pod: Manifest) -> bool:
    """Whether a Pod waits for a node, and can be run by this one."""
    metadata, spec = pod["metadata"], pod["spec"]
    simple = len(spec["containers"]) == 1 and not spec.get("initContainers")
    return simple and not (spec.get("nodeName") or metadata.get("deletionTimestamp"))


def _condition(kind: str, holds: bool, since: str) -> Manifest:
    return {"type": kind, "status": str(holds), "lastTransitionTime": since}


@contextmanager
def _address() -> Iterator[str]:
    """An address for one Pod; none is given twice."""
    address = next(_ADDRESSES)
    change = f"{address}/32 dev lo"
    subprocess.run(["ip", "address", "add", *change.split()], check=True)
    try:
        yield address
    finally:
        subprocess.run(["ip", "address", "delete", *change.split()], check=True)


def _remove(client: Client, name: str, namespace: str) -> bool:
    """Tell the API server that a Pod is gone; whether it has heard."""
    try:
        client.delete(Pod, name, namespace=namespace, grace_period=0)
    except httpx2.HTTPError:
        return False
    return True
