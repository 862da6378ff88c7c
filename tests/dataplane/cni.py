"""The chain of CNI plugins that a container runtime would call for a Pod's sandbox.

The protocol is https://www.cni.dev/docs/spec/ (1.0.0): the configuration on standard input, the
rest in the environment, the result or an error as JSON on standard output.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.dataplane.namespaces import NetworkNamespace
from tests.testbed.control_plane import ControlPlane, Manifest

_VERSION = "1.0.0"
INTERFACE = "eth0"
# Where Debian and where Kubernetes' own packages put the reference plugins.
FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
REFERENCE_PLUGINS = ("bridge", "host-local")


class CniError(RuntimeError):
    """A plugin refused; no container of the Pod would be started."""


class Rules(Enum):
    """What istio-cni programs the redirection with."""

    IPTABLES = "iptables"
    NFTABLES = "nftables"


class Stack(Enum):
    """The addresses that a Pod has."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"
    DUAL = "dual stack"

    @property
    def families(self) -> tuple[str, ...]:
        """The address families: IPv4, IPv6 or both."""
        return ("IPv4", "IPv6") if self is Stack.DUAL else (self.value,)


@dataclass(frozen=True)
class Subnet:
    """A Pod network of one family, and the route that leads out of it."""

    prefix: str
    default: str


_SUBNETS = {
    (Stack.IPV4, "IPv4"): Subnet("10.244.4.0/24", "0.0.0.0/0"),
    (Stack.IPV6, "IPv6"): Subnet("fd00:244:6::/64", "::/0"),
    (Stack.DUAL, "IPv4"): Subnet("10.244.46.0/24", "0.0.0.0/0"),
    (Stack.DUAL, "IPv6"): Subnet("fd00:244:46::/64", "::/0"),
}
BRIDGES = {Stack.IPV4: "pods-ipv4", Stack.IPV6: "pods-ipv6", Stack.DUAL: "pods-dual"}


class Chain:
    """`bridge`, then `istio-cni`, on networks of this process' namespace.

    Args:
        plane: where istio-cni finds the Pod.
        istio_cni: the plugin.
        folder: for the addresses that are given out, and the plugin's log.
    """

    def __init__(self, plane: ControlPlane, istio_cni: Path, folder: Path) -> None:
        self._istio_cni = istio_cni
        self._leases = folder / "leases"
        self._agent = folder / "agent"
        self._agent.mkdir()
        shutil.copyfile(plane.kubeconfig(), self._agent / "istio-cni-kubeconfig")

    def add(
        self, namespace: NetworkNamespace, pod: Manifest, stack: Stack, rules: Rules
    ) -> dict[str, str]:
        """Give a sandbox its network; returns the Pod's addresses by family.

        Raises:
            CniError: a plugin refused; the message is the plugin's.
        """
        environment = {
            "CNI_COMMAND": "ADD",
            "CNI_CONTAINERID": pod["metadata"]["uid"],
            "CNI_NETNS": str(namespace.path),
            "CNI_IFNAME": INTERFACE,
            "CNI_PATH": os.pathsep.join(map(str, FOLDERS)),
            "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE={pod['metadata']['namespace']};"
            f"K8S_POD_NAME={pod['metadata']['name']}",
        }
        network = {"cniVersion": _VERSION, "name": BRIDGES[stack]}
        result = _call(_reference_plugin("bridge"), network | self._bridge(stack), environment)
        # The network is that of the result that istio-cni passes on.
        chained = network | self._redirection(rules) | {"prevResult": result}
        result = _call(self._istio_cni, chained, environment)
        addresses = [entry["address"].partition("/")[0] for entry in result["ips"]]
        return {("IPv6" if ":" in address else "IPv4"): address for address in addresses}

    def _bridge(self, stack: Stack) -> Manifest:
        subnets = [_SUBNETS[stack, family] for family in stack.families]
        ipam = {
            "type": "host-local",
            "dataDir": str(self._leases),
            "ranges": [[{"subnet": subnet.prefix}] for subnet in subnets],
            "routes": [{"dst": subnet.default} for subnet in subnets],
        }
        return {"type": "bridge", "bridge": BRIDGES[stack], "isGateway": True, "ipam": ipam}

    def _redirection(self, rules: Rules) -> Manifest:
        """As Istio's chart for the plugin has it (manifests/charts/istio-cni, ConfigMap)."""
        return {
            "type": "istio-cni",
            "plugin_log_level": "info",
            "cni_agent_run_dir": str(self._agent),
            "exclude_namespaces": ["kube-system"],
            "native_nftables": rules is Rules.NFTABLES,
        }


def _reference_plugin(name: str) -> Path:
    return next(folder / name for folder in FOLDERS if (folder / name).exists())


def missing() -> list[str]:
    """The reference plugins that are not installed."""
    return [
        name
        for name in REFERENCE_PLUGINS
        if not any((folder / name).exists() for folder in FOLDERS)
    ]


def _call(plugin: Path, configuration: Manifest, environment: Mapping[str, str]) -> Manifest:
    done = subprocess.run(
        [plugin],
        input=json.dumps(configuration),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return json.loads(done.stdout)
    try:
        message = json.loads(done.stdout)["msg"]
    except (ValueError, KeyError):
        message = done.stderr or done.stdout
    raise CniError(f"{plugin.name}: {message}")
