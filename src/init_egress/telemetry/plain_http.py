"""Metrics and health over plain HTTP, for Prometheus and the kubelet."""

from __future__ import annotations

import contextlib
import io
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from init_egress.telemetry.logs import log_exception

LIVE = "/livez"
READY = "/readyz"
METRICS = "/metrics"
SERVICE_METRICS = "/metrics/service"
"""The metrics that are the same on every replica, for a scrape through the Service."""
METRIC_PREFIX = "istio_init_egress_"
"""How the names of all metrics begin."""
TEXT = "text/plain; charset=utf-8"

CONNECTION_LIMIT = 16
"""Prometheus and the kubelet need one each."""
_HEADER_LIMIT_BYTES = 16 * 1024
_TIMEOUT_SECONDS = 10.0

Health = Callable[[str], tuple[int, str]]
"""Takes LIVE or READY; returns the status and the text to answer."""


class PlainServer(ThreadingHTTPServer):
    """Serves registries and health. Its threads end with the process.

    A connection takes a thread. At CONNECTION_LIMIT the oldest is closed for a new one, so that
    clients which send no request, or only part of one, keep neither threads nor others out.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], registries: Mapping[str, CollectorRegistry], health: Health
    ) -> None:
        """Bind the port.

        Args:
            address: host and port to listen on.
            registries: the metrics to serve, by path.
            health: answers LIVE and READY.

        Raises:
            OSError: the port cannot be bound.
        """
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.registries = registries
        self.health = health
        self._slots = threading.BoundedSemaphore(CONNECTION_LIMIT)
        self._connections_lock = threading.Lock()
        self._connections: dict[socket.socket, None] = {}
        super().__init__(address, _PlainHandler)

    def server_bind(self) -> None:
        """Bind for IPv4 as well, if the address is the IPv6 wildcard."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, once there is one for it."""
        if not self._slots.acquire(blocking=False):
            self._close_oldest()
            self._slots.acquire()
        with self._connections_lock:
            self._connections[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and give its thread free."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._connections_lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def _close_oldest(self) -> None:
        with self._connections_lock:
            oldest = next(iter(self._connections), None)
            if oldest is not None:
                with contextlib.suppress(OSError):  # the client has closed it
                    oldest.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what failed, unless the client only went away. The server goes on."""
        error = sys.exc_info()[1]
        if error and not isinstance(error, OSError):
            log_exception("request failed", error)


class _RequestReader(io.BufferedReader):
    """Bounds the lines of a request; http.server allows 100 of 64 KiB each."""

    _size = 0

    def begin_request(self) -> None:
        self._size = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        self._size += len(line)
        if self._size > _HEADER_LIMIT_BYTES:
            raise ConnectionError(f"the request's header is over {_HEADER_LIMIT_BYTES} bytes")
        return line


class _PlainHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT_SECONDS
    rbufsize = 0  # _RequestReader has a buffer
    wbufsize = -1  # an answer in one write is not held back by Nagle's algorithm

    def setup(self) -> None:
        super().setup()
        self._reader = _RequestReader(self.connection.makefile("rb", buffering=0))
        self.rfile = self._reader

    def handle_one_request(self) -> None:
        self._reader.begin_request()
        super().handle_one_request()

    def do_GET(self) -> None:
        plain = self.server
        assert isinstance(plain, PlainServer)  # noqa: S101 - it makes its own handlers
        path = self.path.partition("?")[0]
        if registry := plain.registries.get(path):
            encode, kind = choose_encoder(self.headers.get("accept", ""))
            self._send(200, kind, encode(registry))
        elif path in (LIVE, READY):
            status, text = plain.health(path)
            self._send(status, TEXT, text.encode())
        else:
            text = f"not found; the paths are {', '.join(plain.registries)}, {LIVE} and {READY}\n"
            self._send(404, TEXT, text.encode())

    do_HEAD = do_GET  # noqa: N815 - the names are http.server's

    def _refuse(self) -> None:
        self.close_connection = True
        self._send(405, TEXT, b"method not allowed; use GET\n")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse  # noqa: N815

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if status == 405:
            self.send_header("allow", "GET")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's
        """Log nothing: probes and scrapes come every few seconds."""
