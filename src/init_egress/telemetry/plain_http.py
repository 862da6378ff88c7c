"""Metrics and health over plain HTTP, for Prometheus and the kubelet."""

from __future__ import annotations

import socket
import sys
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

Health = Callable[[str], tuple[int, str]]
"""Takes LIVE or READY; returns the status and the text to answer."""


class PlainServer(ThreadingHTTPServer):
    """Serves registries and health. Its threads end with the process."""

    daemon_threads = True

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
        super().__init__(address, _PlainHandler)

    def server_bind(self) -> None:
        """Bind for IPv4 as well, if the address is the IPv6 wildcard."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what failed, unless the client only went away. The server goes on."""
        error = sys.exc_info()[1]
        if error and not isinstance(error, OSError):
            log_exception("request failed", error)


class _PlainHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120

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
