"""Bounds the connections to the HTTPS port, so that no client can keep others out.

granian bounds them in two ways that a flood turns against other clients: at its limit it accepts
no more, and one timeout holds both for headers and for a connection that idles between requests,
which the API server does for 90 s. It has no timeout for bodies. So a thread looks at each
connection as the kernel accounts for it, and shuts down those that take too long over a request
and, above a limit, those that have been silent for longest. granian itself ends TLS handshakes
after 10 s (DEFAULT_HANDSHAKE_TIMEOUT of https://github.com/tmccombs/tls-listener).
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from init_egress.telemetry.logs import log_exception

CONNECTION_LIMIT = 512
"""The API server opens one for each review that it waits for, by default at most some 200."""
REQUEST_SECONDS = 10.0
"""Time for a client to send a request. The API server waits 5 s for the answer."""
UNFINISHED, EXCESS = "unfinished", "excess"
"""Why a connection was shut down: a slow request, or too many connections."""

_SCAN_SECONDS = 0.5
_ESTABLISHED = 1
# struct tcp_info in include/uapi/linux/tcp.h: the state, tcpi_last_data_sent, tcpi_last_data_recv
# (both in ms before now), tcpi_bytes_acked and tcpi_bytes_received.
_TCP_INFO = struct.Struct("=B43xI4xI64xQQ")

Peer = tuple[str, int]


@dataclass(frozen=True)
class Traffic:
    """What the kernel knows of a connection.

    Attributes:
        sent_ago: seconds since the server sent data.
        received_ago: seconds since the client sent data.
        acknowledged: bytes that the client has received.
        received: bytes that the client has sent.
    """

    sent_ago: float
    received_ago: float
    acknowledged: int
    received: int

    @property
    def server_owes(self) -> bool:
        """Whether the client sent the last data, so that a request has begun."""
        return self.received_ago < self.sent_ago or self.acknowledged == 0


@dataclass(frozen=True)
class _Request:
    """A request that was seen to have begun.

    Attributes:
        since: when, in seconds of the monotonic clock.
        acknowledged: bytes that the client had received by then.
    """

    since: float
    acknowledged: int


class Judge:
    """Decides which connections to shut down, from what it sees at each scan."""

    def __init__(
        self, limit: int = CONNECTION_LIMIT, request_seconds: float = REQUEST_SECONDS
    ) -> None:
        self._limit = limit
        self._request_seconds = request_seconds
        self._requests: dict[Peer, _Request] = {}

    def condemned(self, seen: dict[Peer, Traffic], now: float) -> dict[Peer, str]:
        """The connections to shut down, and why.

        Args:
            seen: all connections.
            now: seconds of the monotonic clock.
        """
        self._requests = {
            peer: self._request(peer, traffic, now)
            for peer, traffic in seen.items()
            if traffic.server_owes
        }
        found = {
            peer: UNFINISHED
            for peer, request in self._requests.items()
            if now - request.since > self._request_seconds
        }
        rest = [peer for peer in seen if peer not in found]
        if len(rest) > self._limit:
            rest.sort(key=lambda peer: seen[peer].received_ago, reverse=True)
            found |= dict.fromkeys(rest[: len(rest) - self._limit], EXCESS)
        return found

    def _request(self, peer: Peer, traffic: Traffic, now: float) -> _Request:
        known = self._requests.get(peer)
        if known and known.acknowledged == traffic.acknowledged:
            return known
        return _Request(now, traffic.acknowledged)


class ConnectionGuard:
    """Scans the connections of this process to a port, and shuts down what the judge condemns."""

    def __init__(self, port: int, judge: Judge, count: Callable[[str], None]) -> None:
        """Prepare, but do not start.

        Args:
            port: the port of the server.
            judge: decides.
            count: takes UNFINISHED or EXCESS for each connection that is shut down.
        """
        self._port = port
        self._judge = judge
        self._count = count

    def start(self) -> None:
        """Scan from now on, in a thread that ends with the process."""
        threading.Thread(target=self._run, name="connections", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(_SCAN_SECONDS)
            try:
                self.scan()
            except Exception as error:
                log_exception("cannot scan connections", error)

    def scan(self) -> None:
        """Look at all connections once."""
        with contextlib.ExitStack() as stack:
            sockets: dict[Peer, socket.socket] = {}
            seen: dict[Peer, Traffic] = {}
            for connection in _sockets():
                stack.enter_context(connection)
                found = self._traffic(connection)
                if found:
                    peer, traffic = found
                    sockets[peer], seen[peer] = connection, traffic
            for peer, reason in self._judge.condemned(seen, time.monotonic()).items():
                with contextlib.suppress(OSError):  # it has just ended
                    sockets[peer].shutdown(socket.SHUT_RDWR)
                    self._count(reason)

    def _traffic(self, connection: socket.socket) -> tuple[Peer, Traffic] | None:
        """Peer and traffic of a connection to the port; None for any other socket."""
        try:
            if connection.getsockname()[1] != self._port:
                return None
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            state, sent, received, bytes_acked, bytes_received = _TCP_INFO.unpack(info)
            if state != _ESTABLISHED:
                return None
            peer = connection.getpeername()[:2]
        except (OSError, IndexError, struct.error):
            return None
        return peer, Traffic(sent / 1000, received / 1000, bytes_acked, bytes_received)


def _sockets() -> Iterator[socket.socket]:
    """Duplicates of this process's TCP sockets: they stay valid if the server closes its own."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            duplicate = os.dup(int(name))
        except OSError:
            continue  # closed meanwhile
        try:
            found = socket.socket(fileno=duplicate)
        except OSError:
            os.close(duplicate)
            continue
        if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
            yield found
        else:
            found.close()
