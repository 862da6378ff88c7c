"""The charm's promise: for each remedy, what becomes of what a Pod's containers send."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tests.dataplane.cni import Rules, Stack
from tests.dataplane.outside import NEAR_RANGES, WORD, Destination
from tests.dataplane.pods import SIDECAR
from tests.testbed.istio import Mesh

# A word, or the want of one (client.py), in the words of the table; any other is a fault.
MEANING = {WORD: "reached", "refused": "cut off", "silent": "no answer", SIDECAR: SIDECAR}

# The charm's options; None is before the charm.
REMEDIES: Mapping[str, Mapping[str, str] | None] = {
    "none": None,
    "wide": {"remedy": "exclude-ip-ranges"},
    "wide-ipv4": {
        "remedy": "exclude-ip-ranges",
        "exclude-outbound-ip-ranges": "0.0.0.0/0",
    },
    "narrow": {"remedy": "exclude-ip-ranges", "exclude-outbound-ip-ranges": NEAR_RANGES},
    "narrow-ports": {
        "remedy": "exclude-ip-ranges",
        "exclude-outbound-ip-ranges": NEAR_RANGES,
        "exclude-outbound-ports": "53,5432",
    },
    "proxy-user": {"remedy": "proxy-user"},
    "proxy-group": {"remedy": "proxy-group"},
}
# By whether Istio captures DNS.
MESHES = {
    False: Mesh(),
    True: Mesh(values={"meshConfig.defaultConfig.proxyMetadata.ISTIO_META_DNS_CAPTURE": "true"}),
}
INBOUND = "inbound"
# Values of excludeOutboundIPRanges that Istio takes for none.
REFUSED = {
    "a space": "198.51.100.0/24, 2001:db8:a::/48",
    "an asterisk": "*",
    "a bare address": "198.51.100.10",
}

# `near` is in the narrow ranges and `far` is not; `capture` is Istio's DNS capture. Where a
# captured datagram is refused, nobody hears of it: istio-cni puts it into a conntrack zone of its
# own, and the ICMP message that comes back into none.
_TABLE = """
remedy       | capture | container | family | near:80/tcp | far:80/tcp | far:5432/tcp | far:123/udp | near:53/udp | near:53/tcp | far:53/udp | far:53/tcp | inbound
none         | off     | fetch     | any    | cut off     | cut off    | cut off      | reached     | reached     | cut off     | reached    | cut off    | cut off
none         | off     | app       | any    | sidecar     | sidecar    | sidecar      | reached     | reached     | sidecar     | reached    | sidecar    | sidecar
wide         | off     | fetch     | any    | reached     | reached    | reached      | reached     | reached     | reached     | reached    | reached    | cut off
wide         | off     | app       | any    | reached     | reached    | reached      | reached     | reached     | reached     | reached    | reached    | sidecar
wide-ipv4    | off     | fetch     | IPv4   | reached     | reached    | reached      | reached     | reached     | reached     | reached    | reached    | cut off
wide-ipv4    | off     | app       | IPv4   | reached     | reached    | reached      | reached     | reached     | reached     | reached    | reached    | sidecar
wide-ipv4    | off     | fetch     | IPv6   | cut off     | cut off    | cut off      | reached     | reached     | cut off     | reached    | cut off    | cut off
wide-ipv4    | off     | app       | IPv6   | sidecar     | sidecar    | sidecar      | reached     | reached     | sidecar     | reached    | sidecar    | sidecar
narrow       | off     | fetch     | any    | reached     | cut off    | cut off      | reached     | reached     | reached     | reached    | cut off    | cut off
narrow       | off     | app       | any    | reached     | sidecar    | sidecar      | reached     | reached     | reached     | reached    | sidecar    | sidecar
narrow-ports | off     | fetch     | any    | reached     | cut off    | reached      | reached     | reached     | reached     | reached    | reached    | cut off
narrow-ports | off     | app       | any    | reached     | sidecar    | reached      | reached     | reached     | reached     | reached    | reached    | sidecar
proxy-user   | off     | fetch     | any    | reached     | reached    | reached      | reached     | reached     | reached     | reached    | reached    | cut off
proxy-user   | off     | app       | any    | sidecar     | sidecar    | sidecar      | reached     | reached     | sidecar     | reached    | sidecar    | sidecar
proxy-group  | off     | fetch     | any    | reached     | reached    | reached      | reached     | reached     | reached     | reached    | reached    | cut off
proxy-group  | off     | app       | any    | sidecar     | sidecar    | sidecar      | reached     | reached     | sidecar     | reached    | sidecar    | sidecar
none         | on      | fetch     | any    | cut off     | cut off    | cut off      | reached     | no answer   | cut off     | no answer  | cut off    | cut off
none         | on      | app       | any    | sidecar     | sidecar    | sidecar      | reached     | sidecar     | sidecar     | sidecar    | sidecar    | sidecar
wide         | on      | fetch     | any    | reached     | reached    | reached      | reached     | no answer   | cut off     | no answer  | cut off    | cut off
wide         | on      | app       | any    | reached     | reached    | reached      | reached     | sidecar     | sidecar     | sidecar    | sidecar    | sidecar
wide-ipv4    | on      | fetch     | IPv4   | reached     | reached    | reached      | reached     | no answer   | cut off     | no answer  | cut off    | cut off
wide-ipv4    | on      | app       | IPv4   | reached     | reached    | reached      | reached     | sidecar     | sidecar     | sidecar    | sidecar    | sidecar
wide-ipv4    | on      | fetch     | IPv6   | cut off     | cut off    | cut off      | reached     | no answer   | cut off     | no answer  | cut off    | cut off
wide-ipv4    | on      | app       | IPv6   | sidecar     | sidecar    | sidecar      | reached     | sidecar     | sidecar     | sidecar    | sidecar    | sidecar
narrow       | on      | fetch     | any    | reached     | cut off    | cut off      | reached     | no answer   | cut off     | no answer  | cut off    | cut off
narrow       | on      | app       | any    | reached     | sidecar    | sidecar      | reached     | sidecar     | sidecar     | sidecar    | sidecar    | sidecar
narrow-ports | on      | fetch     | any    | reached     | cut off    | reached      | reached     | reached     | reached     | reached    | reached    | cut off
narrow-ports | on      | app       | any    | reached     | sidecar    | reached      | reached     | reached     | reached     | reached    | reached    | sidecar
proxy-user   | on      | fetch     | any    | reached     | reached    | reached      | reached     | reached     | reached     | reached    | reached    | cut off
proxy-user   | on      | app       | any    | sidecar     | sidecar    | sidecar      | reached     | sidecar     | sidecar     | sidecar    | sidecar    | sidecar
proxy-group  | on      | fetch     | any    | reached     | reached    | reached      | reached     | reached     | reached     | reached    | reached    | cut off
proxy-group  | on      | app       | any    | sidecar     | sidecar    | sidecar      | reached     | sidecar     | sidecar     | sidecar    | sidecar    | sidecar
"""  # noqa: E501


class Packet(NamedTuple):
    """What a Pod's container sends to one destination, or what comes in while it runs."""

    container: str
    family: str
    column: str


def _read(table: str) -> dict[tuple[str, bool], dict[Packet, str]]:
    """What becomes of each packet, by remedy and DNS capture."""
    header, *lines = (
        [cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()
    )
    promised: dict[tuple[str, bool], dict[Packet, str]] = {}
    for remedy, capture, container, families, *cells in lines:
        packets = promised.setdefault((remedy, capture == "on"), {})
        for family in ("IPv4", "IPv6") if families == "any" else (families,):
            for column, cell in zip(header[4:], cells, strict=True):
                packets[Packet(container, family, column)] = cell
    return promised


_PROMISED = _read(_TABLE)
COLUMNS = tuple(dict.fromkeys(packet.column for packet in next(iter(_PROMISED.values()))))


def _destination(column: str) -> Destination:
    place, _, rest = column.partition(":")
    port, _, protocol = rest.partition("/")
    return Destination(place, protocol, int(port))


DESTINATIONS = tuple(_destination(column) for column in COLUMNS if column != INBOUND)


@dataclass(frozen=True)
class Case:
    """A Pod of the promise: under one remedy, on one kind of mesh and network."""

    remedy: str
    capture: bool
    stack: Stack
    rules: Rules

    def __str__(self) -> str:
        capture = "capture" if self.capture else "no-capture"
        stack = self.stack.value.replace(" ", "-")
        return f"{self.remedy}-{capture}-{stack}-{self.rules.value}"

    def promised(self) -> dict[Packet, str]:
        """What must become of each packet."""
        packets = _PROMISED[self.remedy, self.capture]
        return {p: became for p, became in packets.items() if p.family in self.stack.families}


CASES = [
    Case(remedy, capture, stack, rules)
    for capture, remedy, stack, rules in itertools.product(MESHES, REMEDIES, Stack, Rules)
]
