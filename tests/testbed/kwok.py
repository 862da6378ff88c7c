"""KWOK: nodes on which nothing runs, and whose Pods fare as `stages/` says.

A Pod gets there by its `spec.nodeName`, since the testbed has no scheduler: the one of a Pod
template does for Deployments, StatefulSets, DaemonSets and Jobs, whose controllers are real.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from lightkube import Client
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node

from tests.testbed import build
from tests.testbed.control_plane import ControlPlane, load_manifests
from tests.testbed.process import Process, wait_until

_STAGES = Path(__file__).parent / "stages"
_LABELS = {"type": "kwok"}
_ADDRESSES = IPv4Network("10.128.0.0/9")  # nothing answers there; enough for 8 million Pods
_LEASE = 40  # seconds, as a kubelet's
# A configuration of one's own has none of the defaults. Pods are written 16 at a time, not 4.
_OPTIONS = {
    "podPlayStageParallelism": 16,
    "nodePlayStageParallelism": 4,
    "nodeLeaseParallelism": 4,
    "podsOnNodeSyncParallelism": 1,
    "enablePodsOnNodeSyncListPager": True,
}


@dataclass(frozen=True)
class Kwok:
    """A KWOK that plays nodes."""

    nodes: tuple[str, ...]
    process: Process

    @property
    def node(self) -> str:
        """The name of one of its nodes."""
        return self.nodes[0]


@contextmanager
def kwok(plane: ControlPlane, nodes: int = 3) -> Iterator[Kwok]:
    """Run KWOK with this many nodes, which are Ready when this returns; they go with it."""
    names = tuple(f"kwok-{number}" for number in range(nodes))
    with plane.client() as client:
        for name in names:
            client.create(Node(metadata=ObjectMeta(name=name, labels=dict(_LABELS))))
        try:
            with Process(
                "kwok", _command(plane), plane.folder, environment=_own(plane)
            ) as process:
                wait_until(
                    lambda: all(_is_ready(client, name) for name in names),
                    "KWOK's nodes are ready",
                    processes=[process],
                )
                yield Kwok(names, process)
        finally:
            for name in names:
                client.delete(Node, name)


def _command(plane: ControlPlane) -> list[str]:
    """What runs KWOK with our stages, and with none of its own."""
    configuration = plane.folder / "kwok.yaml"
    configuration.write_text("\n---\n".join(map(json.dumps, _configuration())))
    return [
        str(build.product(build.KWOK, "kwok")),
        f"--kubeconfig={plane.kubeconfig()}",
        f"--config={configuration}",
        "--manage-nodes-with-label-selector=" + ",".join("=".join(x) for x in _LABELS.items()),
        f"--node-lease-duration-seconds={_LEASE}",
        f"--node-ip={plane.network.host}",
        f"--cidr={_ADDRESSES}",
        "--v=WARN",  # else a line for each Pod
    ]


def _configuration() -> list[object]:
    stages = [
        stage
        for path in sorted(_STAGES.glob("*.yaml"))
        for stage in load_manifests(path.read_text())
    ]
    options = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": _OPTIONS,
    }
    return [options, *stages]


def _own(plane: ControlPlane) -> dict[str, str]:
    """Keeps it from reading what is configured for somebody at home."""
    return {"KWOK_WORKDIR": str(plane.folder / "kwok")}


def _is_ready(client: Client, name: str) -> bool:
    status = client.get(Node, name).status
    return any(
        condition.type == "Ready" and condition.status == "True"
        for condition in (status and status.conditions) or []
    )
