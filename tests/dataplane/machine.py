"""What a machine must have for these tests, and what it lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.dataplane import cni
from tests.dataplane.namespaces import Identity
from tests.testbed.network import Network

# Tool: Debian's package.
_TOOLS = {
    "ip": "iproute2",
    "iptables-restore": "iptables",
    "ip6tables-restore": "iptables",
    "nft": "nftables",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}


def lacking(network: Network) -> str:
    """What these tests need and this machine lacks, in one line; empty if it has it all."""
    reasons = [
        f"{tool} is missing (Debian: apt install {package})"
        for tool, package in _TOOLS.items()
        if not shutil.which(tool)
    ]
    if plugins := cni.missing():
        reasons.append(
            f"the CNI plugins {', '.join(plugins)} are in none of "
            f"{', '.join(map(str, cni.FOLDERS))} (Debian: apt install containernetworking-plugins)"
        )
    if network.address is None:
        reasons.append("no network namespace can be made here")
    elif not _can_become(Identity(1000, 1000)):
        reasons.append("only root can send packets as other users")
    if not Path("/proc/sys/net/ipv6").exists():
        reasons.append("the kernel has no IPv6")
    return "; ".join(reasons)


def _can_become(identity: Identity) -> bool:
    """Whether a process can run as another user; not so in a user namespace of one user."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return False
    options = [f"--reuid={identity.uid}", f"--regid={identity.gid}", "--clear-groups"]
    return subprocess.run(["setpriv", *options, "true"], check=False).returncode == 0
