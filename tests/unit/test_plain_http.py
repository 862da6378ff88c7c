"""The port of metrics and health, under clients that send no whole request."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from prometheus_client import CollectorRegistry

from init_egress.telemetry.plain_http import CONNECTION_LIMIT, LIVE, METRICS, PlainServer

Address = tuple[str, int]


@pytest.fixture
def address() -> Iterator[Address]:
    server = PlainServer(("127.0.0.1", 0), {METRICS: CollectorRegistry()}, lambda _: (200, "ok\n"))
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[:2]  # pyright: ignore[reportReturnType]
        server.shutdown()
        thread.join()


def status(address: Address, path: str) -> int:
    connection = http.client.HTTPConnection(*address, timeout=10)
    with closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status


def send_for_ever(client: socket.socket, line: bytes) -> None:
    while True:
        client.sendall(line)


def test_unfinished_requests_take_a_bounded_number_of_threads_and_keep_nobody_out(
    address: Address,
) -> None:
    before = threading.active_count()
    with ExitStack() as stack:
        for _ in range(10 * CONNECTION_LIMIT):
            client = stack.enter_context(closing(socket.create_connection(address, 10)))
            client.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert status(address, METRICS) == 200
        assert status(address, LIVE) == 200
        assert threading.active_count() - before <= CONNECTION_LIMIT


def test_a_connection_that_is_kept_serves_many_requests(address: Address) -> None:
    connection = http.client.HTTPConnection(*address, timeout=10)
    with closing(connection):
        for _ in range(50):
            connection.request("GET", LIVE, headers={"x": "y" * 4000})
            assert connection.getresponse().read() == b"ok\n"


def test_a_request_with_a_long_header_is_not_kept_in_memory(address: Address) -> None:
    with closing(socket.create_connection(address, 10)) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            send_for_ever(client, b"x: " + b"y" * 8000 + b"\r\n")
        assert status(address, LIVE) == 200
