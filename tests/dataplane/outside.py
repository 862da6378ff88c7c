"""The world that Pods send their packets to: servers behind a router, at two places."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.dataplane.namespaces import NetworkNamespace, Target, run

WORD = "outside"
# Prefixes for documentation (RFC 5737, RFC 3849), so nobody's by mistake.
NEAR_RANGES = "198.51.100.0/24,2001:db8:a::/48"
ADDRESSES = {
    ("near", "IPv4"): "198.51.100.10",
    ("near", "IPv6"): "2001:db8:a::10",
    ("far", "IPv4"): "203.0.113.10",
    ("far", "IPv6"): "2001:db8:b::10",
}
_LINK = "outside"
_HERE = """
link set outside up
address add 192.0.2.1/30 dev outside
address add 2001:db8:ffff::1/126 dev outside nodad
route add 198.51.100.10 via 192.0.2.2
route add 203.0.113.10 via 192.0.2.2
route add 2001:db8:a::10 via 2001:db8:ffff::2
route add 2001:db8:b::10 via 2001:db8:ffff::2
"""
_THERE = """
link set outside up
address add 192.0.2.2/30 dev outside
address add 2001:db8:ffff::2/126 dev outside nodad
address add 198.51.100.10/32 dev outside
address add 203.0.113.10/32 dev outside
address add 2001:db8:a::10/128 dev outside nodad
address add 2001:db8:b::10/128 dev outside nodad
route add 0.0.0.0/0 via 192.0.2.1
route add ::/0 via 2001:db8:ffff::1
"""


@dataclass(frozen=True)
class Destination:
    """Something to reach: a port at one of the two places, whatever the address family."""

    place: str
    protocol: str
    port: int

    def target(self, family: str) -> Target:
        """It, at its address of one family."""
        return Target(self.protocol, ADDRESSES[self.place, family], self.port)

    def __str__(self) -> str:
        return f"{self.place}:{self.port}/{self.protocol}"


@contextlib.contextmanager
def outside(folder: Path, destinations: Sequence[Destination]) -> Iterator[NetworkNamespace]:
    """The servers' namespace; meanwhile the namespace of this process routes to it."""
    with NetworkNamespace("outside", folder) as namespace, _link_to(namespace):
        targets = [d.target(family) for d in destinations for family in ("IPv4", "IPv6")]
        with namespace.serve("servers-outside", WORD, targets):
            yield namespace


@contextlib.contextmanager
def _link_to(namespace: NetworkNamespace) -> Iterator[None]:
    for version in ("ipv4", "ipv6"):
        Path(f"/proc/sys/net/{version}/conf/all/forwarding").write_text("1")
    ends = f"{_LINK} type veth peer name {_LINK} netns {namespace.pid}"
    run("ip", "link", "add", *ends.split())
    try:
        run("ip", "-batch", "-", text=_HERE)
        namespace.run("ip", "-batch", "-", text=_THERE)
        yield
    finally:
        run("ip", "link", "delete", _LINK)
