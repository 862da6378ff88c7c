"""A network that only the testbed sees.

The API server refuses to call a webhook's Service on a loopback address, and two testbeds must not
disturb each other. So the process that starts the servers moves into a network namespace of its
own, with an address that is not loopback on its loopback interface. The namespace goes when the
last process in it ends.
"""

import ctypes
import itertools
import os
import random
import shutil
import socket
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

ADDRESS = "10.250.0.1"
INSIDE = "ISTIO_INIT_EGRESS_TESTBED_NETWORK"
_CLONE_NEWUSER = 0x10000000  # linux/sched.h
_CLONE_NEWNET = 0x40000000
# Below the kernel's range for outgoing connections, which could take a port between its choice
# and its use (net.ipv4.ip_local_port_range).
_PORTS = range(20000, 32000)
# None is given out twice: it may be asked for long before it is listened on (istiod takes five).
_next_ports = itertools.cycle(random.sample(_PORTS, len(_PORTS)))


@dataclass(frozen=True)
class Network:
    """Where the servers listen; without an address, Services can't be routed to them."""

    address: str | None

    @property
    def host(self) -> str:
        """The address at which the API server is reached."""
        return self.address or "127.0.0.1"

    @property
    def bind(self) -> str:
        """The address on which servers listen."""
        return "0.0.0.0" if self.address else "127.0.0.1"


def enter_private_network() -> Network:
    """Move this process into a network of its own, or stay on the host's loopback.

    Where namespaces can't be made (no root, and no user namespaces), the result has no address.
    What the process starts afterwards has no way to the outside. Calling it again is harmless.
    """
    if os.environ.get(INSIDE) == ADDRESS and _is_ours(ADDRESS):
        return Network(ADDRESS)
    if not (shutil.which("ip") and _unshare()):
        return Network(None)
    for command in ("link set lo up", f"address add {ADDRESS}/32 dev lo"):
        subprocess.run(["ip", *command.split()], check=True)
    os.environ[INSIDE] = ADDRESS
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]  # no proxy can be reached from here
    return Network(ADDRESS)


def free_port() -> int:
    """A port on which nothing listens, and which nobody else in this process was given."""
    for port in itertools.islice(_next_ports, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError("no free port")


def _is_ours(address: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


def _unshare() -> bool:
    """Enter a new network namespace; without root, inside a new user namespace as its root."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        return libc.unshare(_CLONE_NEWNET) == 0
    if threading.active_count() > 1:  # user_namespaces(7): only a process with one thread may
        return False
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    return True
