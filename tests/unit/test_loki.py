"""Log lines on their way to Loki: a receiver that takes them, is gone, refuses, or hangs."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from init_egress.telemetry import loki
from init_egress.telemetry.loki import Destination, Forwarder
from tests.functional.test_webhook_server import certificate
from tests.receiver import Receiver, lines_of, receiving

DEADLINE = 20.0
LABELS = {"juju_model": "kubeflow", "juju_application": "egress"}


@contextmanager
def forwarding(
    *urls: str, authorities: str = "", **options: Any
) -> Iterator[tuple[Forwarder, list[str]]]:
    """A forwarder, and what it complains of."""
    complaints: list[str] = []
    forwarder = Forwarder(
        Destination(urls, LABELS, authorities),
        lambda level, message: complaints.append(f"{level}: {message}"),
        period=0.01,
        **options,
    )
    try:
        yield forwarder, complaints
    finally:
        forwarder.stop(DEADLINE)


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.005)


def push(port: int) -> str:
    return f"http://127.0.0.1:{port}/push"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_lines_arrive_in_order_with_labels_and_the_time_they_were_written() -> None:
    receiver = Receiver()
    with receiving(receiver) as port:
        begun = time.time_ns()
        url = f"http://127.0.0.1:{port}/loki/api/v1/push?tenant=a"
        with forwarding(url) as (forwarder, complaints):
            for number in range(2500):
                forwarder(f'{{"line": {number}}}'.encode())
            wait_for(lambda: len(receiver.lines) == 2500)
    assert receiver.lines == [f'{{"line": {number}}}' for number in range(2500)]
    assert set(receiver.paths) == {"/loki/api/v1/push?tenant=a"}
    streams = [stream for body in receiver.bodies for stream in body["streams"]]
    assert all(stream["stream"] == LABELS for stream in streams)
    stamps = [int(stamp) for stream in streams for stamp, _ in stream["values"]]
    assert stamps == sorted(stamps)
    assert begun <= stamps[0] <= stamps[-1] <= time.time_ns()
    assert forwarder.counts() == {"sent": 2500, "dropped": 0}
    assert complaints == []


def test_every_loki_gets_every_line_and_one_that_is_gone_hinders_no_other() -> None:
    first, second = Receiver(), Receiver()
    with receiving(first) as one, receiving(second) as two:
        urls = [push(port) for port in (one, free_port(), two)]
        with forwarding(*urls) as (forwarder, _):
            forwarder(b"a")
            wait_for(lambda: first.lines and second.lines)
    assert first.lines == second.lines == ["a"]


def test_what_cannot_be_sent_is_sent_when_loki_is_back() -> None:
    receiver, port = Receiver(), free_port()
    with forwarding(push(port)) as (forwarder, complaints):
        forwarder(b"a")
        wait_for(lambda: complaints)
        forwarder(b"b")
        with receiving(receiver, port):
            wait_for(lambda: receiver.lines == ["a", "b"])
            wait_for(lambda: len(complaints) == 2)
    assert complaints[0].startswith(f"warning: log lines can't be sent to 127.0.0.1:{port}: ")
    assert complaints[1] == f"info: log lines are sent to 127.0.0.1:{port} again"
    assert forwarder.counts() == {"sent": 2, "dropped": 0}


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_loki_that_is_busy_is_asked_again_with_the_same_lines(status: int) -> None:
    receiver = Receiver()
    receiver.statuses = [status, status]
    with receiving(receiver) as port, forwarding(push(port)) as (forwarder, complaints):
        forwarder(b"a")
        wait_for(lambda: receiver.lines)
    assert receiver.lines == ["a"]
    assert forwarder.counts() == {"sent": 1, "dropped": 0}
    assert complaints[0].endswith(f"it answered {status}")


@pytest.mark.parametrize("status", [400, 401, 404, 302])
def test_what_loki_refuses_for_good_is_dropped_and_counted(status: int) -> None:
    receiver = Receiver()
    receiver.statuses = [status]
    with receiving(receiver) as port, forwarding(push(port)) as (forwarder, complaints):
        forwarder(b"a")
        wait_for(lambda: forwarder.counts()["dropped"])
        forwarder(b"b")
        wait_for(lambda: receiver.lines)
    assert receiver.lines == ["b"]
    assert forwarder.counts() == {"sent": 1, "dropped": 1}
    to = f"127.0.0.1:{port}"
    assert complaints == [
        f"warning: log lines can't be sent to {to}: refused with {status}, and dropped",
        f"info: log lines are sent to {to} again",
    ]


def test_what_goes_on_failing_is_complained_of_once_for_complaints_are_lines_too() -> None:
    receiver = Receiver()
    receiver.statuses = [400, 503, 400]
    with receiving(receiver) as port, forwarding(push(port)) as (forwarder, complaints):
        for line in (b"a", b"b"):
            forwarder(line)
            wait_for(lambda: not receiver.statuses or forwarder.counts()["dropped"])
        wait_for(lambda: not receiver.statuses)
    assert len(complaints) == 1


def test_while_loki_hangs_nobody_waits_and_what_is_too_much_is_dropped() -> None:
    receiver = Receiver()
    receiver.may_answer.clear()
    with receiving(receiver) as port, forwarding(push(port), limit=10) as (forwarder, _):
        forwarder(b"first")
        assert receiver.asked.wait(DEADLINE)
        for number in range(15):
            forwarder(str(number).encode())
        assert forwarder.counts() == {"sent": 0, "dropped": 5}
        receiver.may_answer.set()
        wait_for(lambda: forwarder.counts()["sent"] == 11)
    assert receiver.lines == ["first", *(str(number) for number in range(10))]


def test_a_large_backlog_is_sent_in_pieces_that_loki_takes() -> None:
    receiver, port = Receiver(), free_port()
    with forwarding(push(port)) as (forwarder, complaints):
        for _ in range(50):
            forwarder(b"x" * 100_000)
        wait_for(lambda: complaints)
        with receiving(receiver, port):
            wait_for(lambda: len(receiver.lines) == 50)
    # Loki takes 4 MiB at once: https://grafana.com/docs/loki/latest/configure/#server
    assert max(sum(map(len, lines_of(body))) for body in receiver.bodies) < 1_000_000


def test_what_waits_is_sent_before_the_end() -> None:
    receiver = Receiver()
    with receiving(receiver) as port:
        url = push(port)
        forwarder = Forwarder(Destination((url,), LABELS), lambda *_: None, period=3600)
        forwarder(b"last words")
        forwarder.stop(DEADLINE)
    assert receiver.lines == ["last words"]


def test_over_tls_only_an_authority_that_is_told_is_trusted(tmp_path: Path) -> None:
    certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    told = (tmp_path / "tls.crt").read_text()
    receiver = Receiver()
    with receiving(receiver, context=context) as port:
        url = f"https://localhost:{port}/push"
        with forwarding(url) as (forwarder, complaints):
            forwarder(b"a")
            wait_for(lambda: complaints)
            assert "CERTIFICATE_VERIFY_FAILED" in complaints[0]
        with forwarding(url, authorities=told) as (forwarder, _):
            forwarder(b"b")
            wait_for(lambda: receiver.lines)
    assert receiver.lines == ["b"]


def test_authorities_that_are_none_are_said_to_be() -> None:
    with pytest.raises(ValueError, match="authorities can't be read"):
        Forwarder(Destination(("http://loki/push",), {}, "no PEM"), lambda *_: None)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"urls": ["ftp://a/"], "labels": {}}', '{"urls": "a", "labels": {}}']
)
def test_a_file_that_says_no_destination_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        loki.decode(text)
