"""Measure how the webhook answers a well-behaved client while others flood it, on loopback.

    python -m benchmarks.floods [--seconds 15] [--output FOLDER]

The server has core 0, the flood and the client share core 1. The client sends a review, waits for
the answer, pauses, and sends the next; every tenth time it makes a new connection. A flood holds a
number of connections and replaces those that the server closes.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import select
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks import servers
from benchmarks.reviews import review
from benchmarks.servers import ROOT, Server

HOST = "127.0.0.1"
HOLD_SECONDS_LIMIT = 120
"""A flood ends by itself after this long."""
_BODY_BYTES = 8 * 1024 * 1024
_PAUSE_SECONDS = 0.005
_TIMEOUT_SECONDS = 10.0
_CLOSED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
_HEAD = b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


_TLS = _context()


# --- Floods --------------------------------------------------------------------------------------


def huge_review(containers: int) -> bytes:
    """The review of a Pod with this many init containers."""
    document = json.loads(review(4_000))
    spec = document["request"]["object"]["spec"]
    spec["initContainers"] += [{"name": f"c{n}", "image": "x"} for n in range(containers)]
    return json.dumps(document, separators=(",", ":")).encode()


def _plain(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), _TIMEOUT_SECONDS)


def _tls(port: int) -> socket.socket:
    return _TLS.wrap_socket(_plain(port))


def _sent(connection: socket.socket, data: bytes) -> socket.socket:
    connection.sendall(data)
    return connection


def _idle(port: int, _: int) -> socket.socket:
    return _tls(port)


def _half_tls(port: int, _: int) -> socket.socket:
    # A record that announces a ClientHello of 512 bytes and holds none of it.
    return _sent(_plain(port), b"\x16\x03\x01\x02\x00\x01\x00")


def _half_header(port: int, _: int) -> socket.socket:
    return _sent(_tls(port), _HEAD)


def half_body(port: int, _: int = 0) -> socket.socket:
    """Send the header of a review of 8 MiB, and all of the body but its last byte."""
    head = _HEAD + b"content-length: %d\r\n\r\n" % _BODY_BYTES
    return _sent(_tls(port), head + b" " * (_BODY_BYTES - 1))


def _half_metrics(_: int, metrics_port: int) -> socket.socket:
    return _sent(_plain(metrics_port), b"GET /metrics HTTP/1.1\r\nhost: x\r\n")


_HUGE = huge_review(6_000)


def _huge_pod(port: int, _: int) -> socket.socket:
    """Send a review and close without waiting, so that the next one follows at once."""
    connection = _tls(port)
    _sent(connection, _HEAD + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(_HUGE))
    return _sent(connection, _HUGE)


@dataclass(frozen=True)
class Flood:
    """One kind of flood.

    Attributes:
        name: what it is called in the table.
        connections: how many it holds.
        connect: makes one, given the port of reviews and that of metrics.
    """

    name: str
    connections: int
    connect: Callable[[int, int], socket.socket]


FLOODS = {
    flood.name: flood
    for flood in (
        Flood("idle connections", 1024, _idle),
        Flood("half TLS handshakes", 1024, _half_tls),
        Flood("half headers", 1024, _half_header),
        Flood("bodies of 8 MiB without the last byte", 25, half_body),
        Flood("Pods of 6,000 init containers", 4, _huge_pod),
        Flood("unfinished requests for metrics", 400, _half_metrics),
    )
}


def hold(flood: Flood, port: int, metrics_port: int) -> None:
    """Hold the connections of a flood until the end; print a line once it holds them all."""
    end = time.monotonic() + HOLD_SECONDS_LIMIT
    held: dict[int, socket.socket] = {}
    poll = select.poll()
    told = False
    while time.monotonic() < end:
        for descriptor, _ in poll.poll(0 if len(held) < flood.connections else 20):
            poll.unregister(descriptor)
            held.pop(descriptor).close()
        for _ in range(min(16, flood.connections - len(held))):
            with suppress(OSError):
                connection = flood.connect(port, metrics_port)
                held[connection.fileno()] = connection
                poll.register(connection, _CLOSED)
        if len(held) >= flood.connections and not told:
            told = True
            print("held", flush=True)


@contextmanager
def flooding(flood: Flood, port: int, metrics_port: int) -> Iterator[None]:
    """A flood in a process of its own; it has started when this is entered."""
    process = subprocess.Popen(  # noqa: S603
        [
            *(sys.executable, "-m", "benchmarks.floods", "--hold", flood.name),
            *("--port", str(port), "--metrics-port", str(metrics_port)),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert process.stdout  # noqa: S101 - it is a pipe
    try:
        # A server that closes connections may never let all be held.
        select.select([process.stdout], [], [], 5)
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# --- A well-behaved client -----------------------------------------------------------------------


@dataclass(frozen=True)
class Answers:
    """What a well-behaved client saw.

    Attributes:
        seconds: how long each review took that was answered, with the connection if it was new.
        failures: why the others were not answered.
    """

    seconds: tuple[float, ...]
    failures: tuple[str, ...]

    def percentile(self, percent: int) -> float:
        """A percentile of the time that a review took, in seconds."""
        return statistics.quantiles(self.seconds, n=100, method="inclusive")[percent - 1]


def ask(port: int, seconds: float) -> Answers:
    """Send reviews for this long, one after the other."""
    body = review(8_000)
    taken: list[float] = []
    failures: list[str] = []
    connection = _connection(port)
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number += 1
        if number % 10 == 0:
            connection.close()
        started = time.perf_counter()
        try:
            connection.request("POST", "/mutate", body)
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                raise OSError(f"status {response.status}")
        except (OSError, http.client.HTTPException) as error:
            failures.append(str(error) or type(error).__name__)
            connection.close()
        else:
            taken.append(time.perf_counter() - started)
        time.sleep(_PAUSE_SECONDS)
    connection.close()
    return Answers(tuple(taken), tuple(failures))


def _connection(port: int) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection(HOST, port, timeout=_TIMEOUT_SECONDS, context=_TLS)


# --- The table -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: the flood.
        answers: what the client saw.
        memory: the most memory that the server used, in MiB.
        threads: the server's threads at the end.
        files: its open files at the end.
    """

    name: str
    answers: Answers
    memory: float
    threads: int
    files: int


def measure(seconds: float, tell: Callable[[str], None]) -> list[Row]:
    """Measure without a flood and under each, each with a server of its own."""
    rows: list[Row] = []
    for flood in (None, *FLOODS.values()):
        name = flood.name if flood else "no flood"
        tell(name)
        with tempfile.TemporaryDirectory() as folder:
            servers.write_certificate(Path(folder))
            with servers.webhook(Path(folder)) as server:
                rows.append(_row(name, flood, server, seconds))
    return rows


def _row(name: str, flood: Flood | None, server: Server, seconds: float) -> Row:
    if flood:
        with flooding(flood, server.port, server.metrics_port):
            return _seen(name, server, ask(server.port, seconds))
    return _seen(name, server, ask(server.port, seconds))


def _seen(name: str, server: Server, answers: Answers) -> Row:
    process = Path(f"/proc/{server.pid}")
    threads, files = (len(list((process / what).iterdir())) for what in ("task", "fd"))
    return Row(name, answers, server.memory("VmHWM"), threads, files)


def report(rows: Sequence[Row]) -> str:
    """The figures as Markdown."""
    lines = [
        "| flood | reviews | not answered | p50 ms | p99 ms | slowest ms | peak MiB | threads "
        "| open files |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        found = row.answers
        times = (found.percentile(50), found.percentile(99), max(found.seconds))
        cells = [
            *(row.name, f"{len(found.seconds):,}", str(len(found.failures))),
            *(f"{1e3 * value:.1f}" for value in times),
            *(f"{row.memory:.0f}", str(row.threads), f"{row.files:,}"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table and write it; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floods")
    parser.add_argument("--seconds", type=float, default=15, help="of each flood")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--hold", choices=FLOODS, help="only flood a server, which runs already")
    parser.add_argument("--port", type=int, help="the server's, for --hold")
    parser.add_argument("--metrics-port", type=int, help="the server's, for --hold")
    options = parser.parse_args(arguments)
    if options.hold:
        with suppress(KeyboardInterrupt):
            hold(FLOODS[options.hold], options.port, options.metrics_port)
        return 0
    os.sched_setaffinity(0, {1})  # the server's is core 0; a flood inherits this one
    text = report(measure(options.seconds, lambda name: print(name, file=sys.stderr, flush=True)))
    print(text)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "floods.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
