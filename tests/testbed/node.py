"""A real node: kubelet, containerd and runc, with Istio's CNI plugin chained behind a bridge.

The other stand-in for a node (tests/testbed/workloads.py) runs Pods as plain processes; here they
are what they are in production, and so is the network that Istio's plugin gives them. All that the
node keeps lies in the testbed's folder, its Pods are on a bridge in the testbed's private network,
and all of it is gone when the context ends. It can pull nothing: images are loaded into it.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from lightkube.resources.core_v1 import Node as NodeResource

from tests.testbed import build
from tests.testbed.control_plane import SERVICES, ControlPlane, Manifest
from tests.testbed.enclosure import Enclosure, control_group, enclosure, hierarchies
from tests.testbed.images import Image, script, write_archive, write_python_layer
from tests.testbed.network import ADDRESS, free_port
from tests.testbed.process import Process, wait_until

NAME = "node"
# The kubelet is asked for logs at its address, since nothing resolves the node's name.
API_SERVER_FLAGS = (
    "--kubelet-preferred-address-types=InternalIP",
    # kube-proxy leads it to Services, as on any cluster.
    "--enable-aggregator-routing=false",
)
_PODS = "10.251.0.0/24"
_BRIDGE = "pods0"
_TABLES = ("ip kube-proxy", "ip6 kube-proxy")
_PAUSE = "example.com/testbed/pause:1"
# The first process of a container gets no signal that it doesn't handle.
_PAUSE_SCRIPT = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
signal.pause()
"""
_TOOLS = ("containerd", "ctr", "runc", "iptables", "nft", "ip", "nsenter", "unshare")
_PLUGINS = ("bridge", "host-local", "loopback")
_PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))  # Debian's; everybody else's
_PATHS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
_PACKAGES = "containerd runc containernetworking-plugins iptables nftables iproute2"


def missing() -> str | None:
    """What this machine lacks for a node, or None if it can have one."""
    if os.geteuid() != 0 or _in_user_namespace():
        return "a node needs root: containerd makes mounts, network namespaces and control groups"
    if not all(os.access(hierarchy, os.W_OK) for hierarchy in hierarchies()):
        return "a node needs control groups that it may write to (/sys/fs/cgroup is read-only)"
    tools = [tool for tool in _TOOLS if not shutil.which(tool, path=_PATHS)]
    if absent := [*tools, *(plugin for plugin in _PLUGINS if not _plugin(plugin))]:
        return f"a node needs {', '.join(absent)} (Debian: apt install {_PACKAGES})"
    return None


@dataclass(frozen=True)
class Node:
    """A node that takes Pods."""

    folder: Path
    base: Path  # the layer with Python, for images that are to be loaded
    enclosure: Enclosure

    def load(self, *images: Image) -> None:
        """Have images, as if they had been pulled."""
        for image in images:
            path = self.folder / "image.tar"
            write_archive(image, path)
            self._ctr("images", "import", str(path))
            path.unlink()

    def kill(self, pod: Manifest, container: str) -> None:
        """Kill what a container runs, as if it had crashed."""
        statuses = pod["status"]["containerStatuses"]
        [found] = [status for status in statuses if status["name"] == container]
        name = found["containerID"].removeprefix("containerd://")
        self._ctr("tasks", "kill", "--signal", "SIGKILL", name)

    def _ctr(self, *words: str) -> None:
        self.enclosure.run("ctr", "--namespace", "k8s.io", *words)


@contextmanager
def node(plane: ControlPlane) -> Iterator[Node]:
    """Join a node to the cluster, with a scheduler; it takes Pods when this returns."""
    programs = {name: build.product(build.NODE, name) for name in build.NODE.binaries}
    folder = plane.folder / NAME
    with ExitStack() as stack:
        group = stack.enter_context(control_group(f"istio-init-egress-{os.getpid()}"))
        stack.enter_context(_network())
        place = stack.enter_context(enclosure(NAME, folder))

        def start(name: str, *command: str | Path) -> Process:
            words, environment = place.command(*command), {"PATH": _PATHS}
            process = Process(name, words, plane.folder, environment=environment)
            return stack.enter_context(process)

        _write_network(folder, plane)
        containerd = start("containerd", "containerd", f"--config={_containerd(folder)}")
        node = Node(folder, write_python_layer(folder / "python.tar"), place)
        wait_until(
            Path(folder, "run/containerd/containerd.sock").is_socket,
            "containerd answers",
            processes=[containerd],
        )
        node.load(script(_PAUSE, node.base, _PAUSE_SCRIPT))
        flags = {
            "kubelet": _kubelet_flags(folder, plane, group),
            "kube-proxy": _proxy_flags(folder, plane),
            "kube-scheduler": _scheduler_flags(plane),
        }
        started = [start(name, program, *flags[name]) for name, program in programs.items()]
        with plane.client() as client:
            wait_until(
                lambda: _is_ready(client.get(NodeResource, NAME)),
                "the node is ready",
                processes=[containerd, *started],
            )
            yield node
            client.delete(NodeResource, NAME)


def _containerd(folder: Path) -> Path:
    """Write containerd's configuration; all that it doesn't say is in the enclosure anyway."""
    service = "io.containerd.grpc.v1.cri"
    network = {"bin_dir": folder / "cni/bin", "conf_dir": folder / "cni/net.d"}
    path = folder / "containerd.toml"
    path.write_text(f"""version = 2
[plugins."{service}"]
  sandbox_image = "{_PAUSE}"
  # Without the right to lower an OOM score runc dies of it.
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins."{service}".cni]
  bin_dir = "{network["bin_dir"]}"
  conf_dir = "{network["conf_dir"]}"
""")
    return path


def _write_network(folder: Path, plane: ControlPlane) -> None:
    """Chain Istio's plugin behind a bridge, as istio-cni's installer does on a node."""
    programs, agent = folder / "cni/bin", folder / "cni/istio"
    for place in (programs, agent, folder / "cni/net.d"):
        place.mkdir(parents=True)
    for name in _PLUGINS:
        (programs / name).symlink_to(_plugin(name) or "")
    (programs / "istio-cni").symlink_to(build.product(build.ISTIO, "istio-cni"))
    shutil.copy(plane.kubeconfig(), agent / "istio-cni-kubeconfig")
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": _PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    chain = [
        {"type": "bridge", "bridge": _BRIDGE, "isGateway": True, "ipam": addresses},
        {
            "type": "istio-cni",
            "plugin_log_level": "info",
            "cni_agent_run_dir": str(agent),
            "exclude_namespaces": ["kube-system"],
        },
    ]
    network = {"cniVersion": "1.0.0", "name": "testbed", "plugins": chain}
    (folder / "cni/net.d/10-testbed.conflist").write_text(json.dumps(network))


def _kubelet_flags(folder: Path, plane: ControlPlane, group: str) -> list[str]:
    # Names are looked up nowhere, and quickly.
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    nothing = {f"{what}.available": "0%" for what in ("memory", "nodefs", "imagefs")}
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "port": free_port(),
        "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "resolvConf": str(folder / "resolv.conf"),
        # Whatever the machine has of control groups, swap and free space will do.
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": group,
        "failCgroupV1": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "failSwapOn": False,
        "evictionHard": nothing,
        # What was loaded can't be pulled again.
        "imageGCHighThresholdPercent": 100,
    }
    path = folder / "kubelet.yaml"
    path.write_text(yaml.safe_dump(settings))
    return [
        f"--config={path}",
        f"--kubeconfig={plane.kubeconfig()}",
        f"--hostname-override={NAME}",
        f"--node-ip={ADDRESS}",
    ]


def _proxy_flags(folder: Path, plane: ControlPlane) -> list[str]:
    settings = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(plane.kubeconfig())},
        "hostnameOverride": NAME,
        "mode": "nftables",
        # Without it a Pod's answer to its neighbour takes the bridge, past the translation.
        "nftables": {"masqueradeAll": True},
        "healthzBindAddress": f"127.0.0.1:{free_port()}",
        "metricsBindAddress": f"127.0.0.1:{free_port()}",
        # The limit is the whole machine's.
        "conntrack": {"maxPerCore": 0},
    }
    path = folder / "kube-proxy.yaml"
    path.write_text(yaml.safe_dump(settings))
    return [f"--config={path}"]


def _scheduler_flags(plane: ControlPlane) -> list[str]:
    return [
        f"--kubeconfig={plane.kubeconfig()}",
        "--authentication-skip-lookup=true",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
    ]


def _is_ready(node: NodeResource) -> bool:
    """Whether it is ready and takes Pods: the controllers take the taints off a moment later."""
    conditions = (node.status and node.status.conditions) or []
    tainted = node.spec and node.spec.taints
    return not tainted and any((c.type, c.status) == ("Ready", "True") for c in conditions)


@contextmanager
def _network() -> Iterator[None]:
    """Let Services' addresses be routed, so that kube-proxy can translate them.

    Afterwards nothing is left of what kube-proxy and the plugins made in the testbed's network.
    """
    _do(f"ip route add {SERVICES} dev lo src {ADDRESS}", check=True)
    try:
        yield
    finally:
        _do(f"ip route delete {SERVICES} dev lo")
        _do(f"ip link delete {_BRIDGE}")
        for table in _TABLES:
            _do(f"nft delete table {table}")


def _do(command: str, *, check: bool = False) -> None:
    subprocess.run(["env", f"PATH={_PATHS}", *command.split()], check=check, capture_output=True)


def _plugin(name: str) -> Path | None:
    return next((f / name for f in _PLUGIN_FOLDERS if (f / name).exists()), None)


def _in_user_namespace() -> bool:
    """Whether root is root here only: the map of users is not the whole one."""
    return Path("/proc/self/uid_map").read_text().split()[2] != str(2**32 - 1)
