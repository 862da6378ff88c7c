"""Stands in for Loki, for it must fail on demand: what it is sent, and what it answers."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_DEADLINE = 20.0


class Receiver:
    """Stands in for Loki: keeps what it is sent, and answers what it is told to."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.statuses: list[int] = []
        """What is answered next; when there is none left, 204, as Loki does."""
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    @property
    def lines(self) -> list[str]:
        """The lines that were taken, in order."""
        return [line for body in self.bodies for line in lines_of(body)]

    def answer(self, path: str, body: bytes) -> int:
        self.paths.append(path)
        self.asked.set()
        self.may_answer.wait(_DEADLINE)
        status = self.statuses.pop(0) if self.statuses else 204
        if status == 204:
            self.bodies.append(json.loads(body))
        return status


def lines_of(body: dict[str, Any]) -> list[str]:
    return [line for stream in body["streams"] for _, line in stream["values"]]


@contextmanager
def receiving(
    receiver: Receiver, port: int = 0, context: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Run a receiver; gives its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(receiver.answer(self.path, body))
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        receiver.may_answer.set()
        server.shutdown()
        server.server_close()
