"""What the admission webhook tells about itself: log lines as JSON, metrics and health.

Both stand on the way of every review, so both are kept cheap: a line is one encoding and one
write, a count is one addition. prometheus_client is asked only when someone reads the metrics.
"""

from __future__ import annotations

import logging
import socket
import sys
import traceback
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from init_egress.webhook.review import VERDICTS

LIVE = "/livez"
READY = "/readyz"
METRICS = "/metrics"
SERVICE_METRICS = "/metrics/service"
"""What is the same from each replica, for a scrape that any of them may answer."""
TEXT = "text/plain; charset=utf-8"

PREFIX = "istio_init_egress_"
LATENCY_BOUNDS = (
    *(0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001),
    *(0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
"""Seconds. The API server gives up after 10 unless it is configured otherwise."""

_encoder = msgspec.json.Encoder(enc_hook=str)


def now() -> datetime:
    """The time for a line."""
    return datetime.now(timezone.utc)


_also: list[Callable[[bytes], None]] = []


def write_also_to(sink: Callable[[bytes], None]) -> None:
    """Hand every line from now on to a sink too, which must neither wait nor raise."""
    _also.append(sink)


def write(line: object) -> None:
    """Write one line of JSON to standard error; if nobody takes it, it is lost."""
    encoded = _encoder.encode(line)
    stream = sys.stderr.buffer
    try:
        stream.write(encoded + b"\n")
        stream.flush()
    except OSError:
        pass
    for sink in _also:
        sink(encoded)


def log(level: str, message: str, **fields: object) -> None:
    """Write one line of JSON to standard error.

    Args:
        level: info, warning or error.
        message: what happened, the same words each time.
        fields: what it happened to.
    """
    write({"time": now(), "level": level, "message": message, **fields})


def log_exception(message: str, error: BaseException, **fields: object) -> None:
    """Write one line of JSON about an exception, with its traceback."""
    log("error", message, **fields, error=str(error), traceback=traceback_of(error))


def traceback_of(error: BaseException) -> str:
    """The traceback as Python prints it."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


class LogHandler(logging.Handler):
    """Writes what libraries log the same way."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a failure to do so is logging's to report."""
        try:
            fields = {"logger": record.name}
            if record.exc_info and record.exc_info[1]:
                fields["traceback"] = traceback_of(record.exc_info[1])
            log(record.levelname.lower(), record.getMessage(), **fields)
        except Exception:
            self.handleError(record)


class Metrics(Collector):
    """Counts reviews, and shows them and what the webhook runs with.

    Every count is written by the event loop alone and read by the thread that shows it.
    """

    def __init__(
        self,
        build: Mapping[str, str],
        settings: Mapping[str, str],
        log_lines: Callable[[], Mapping[str, int]] | None = None,
    ) -> None:
        self.certificate_expiry = 0.0
        self._log_lines = log_lines
        self._build = dict(build)
        self._settings = dict(settings)
        self._reviews = Counter({(v, dry_run): 0 for v in VERDICTS for dry_run in (False, True)})
        self._refused = Counter({400: 0, 413: 0, 500: 0})
        self._buckets = [0] * (len(LATENCY_BOUNDS) + 1)
        self._seconds = 0.0

    def registry(self) -> CollectorRegistry:
        """These metrics and the process's own."""
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        return registry

    def service_registry(self) -> CollectorRegistry:
        """What is the same from each replica."""
        registry = CollectorRegistry()
        registry.register(_Same(self))
        return registry

    def review(self, verdict: str, dry_run: bool, seconds: float) -> None:
        """Count one review that was answered."""
        self._reviews[verdict, dry_run] += 1
        self._buckets[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self._seconds += seconds

    def refused(self, status: int) -> None:
        """Count one request that got no review for an answer."""
        self._refused[status] += 1

    def collect(self) -> Iterator[Metric]:
        """All families, for prometheus_client."""
        yield self._reviews_by_verdict()
        yield self._latency()
        refused = CounterMetricFamily(
            f"{PREFIX}refused_requests",
            "Requests that were no AdmissionReview (400), too large (413) or failed (500)",
            labels=["code"],
        )
        for status, count in dict(self._refused).items():
            refused.add_metric([str(status)], count)
        yield refused
        yield GaugeMetricFamily(
            f"{PREFIX}certificate_expiry_timestamp_seconds",
            "When the serving certificate expires",
            value=self.certificate_expiry,
        )
        if self._log_lines is not None:
            yield self._lines(self._log_lines())
        yield from self.same()

    def same(self) -> Iterator[Metric]:
        """The families that are the same from each replica."""
        yield InfoMetricFamily(f"{PREFIX}settings", "What is decided with", value=self._settings)
        yield InfoMetricFamily(f"{PREFIX}build", "What is running", value=self._build)

    def _lines(self, counts: Mapping[str, int]) -> Metric:
        family = CounterMetricFamily(
            f"{PREFIX}log_lines", "Log lines sent to Loki, or dropped", labels=["result"]
        )
        for result, count in counts.items():
            family.add_metric([result], count)
        return family

    def _reviews_by_verdict(self) -> Metric:
        family = CounterMetricFamily(
            f"{PREFIX}reviews",
            "Reviews answered; needs-remedy with dry_run=false are Pods that were changed",
            labels=["verdict", "dry_run"],
        )
        for (verdict, dry_run), count in dict(self._reviews).items():
            family.add_metric([verdict, str(dry_run).lower()], count)
        return family

    def _latency(self) -> Metric:
        bounds = [*(str(bound) for bound in LATENCY_BOUNDS), "+Inf"]
        return HistogramMetricFamily(
            f"{PREFIX}review_duration_seconds",
            "From the headers of a review to its answer",
            buckets=list(zip(bounds, accumulate(self._buckets), strict=True)),
            sum_value=self._seconds,
        )


class _Same(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.same()


Health = Callable[[str], tuple[int, str]]
"""The status and the text for LIVE and READY."""


class PlainServer(ThreadingHTTPServer):
    """Metrics and health, in a thread of its own; it ends with the process."""

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], registries: Mapping[str, CollectorRegistry], health: Health
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.registries = registries
        self.health = health
        super().__init__(address, _PlainHandler)

    def server_bind(self) -> None:
        """Bind for IPv4 as well, where the address is IPv6's for any."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours; nor does anything else end the server."""
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
            text = f"here are only {', '.join(plain.registries)}, {LIVE} and {READY}\n"
            self._send(404, TEXT, text.encode())

    do_HEAD = do_GET  # noqa: N815 - the names are http.server's

    def _refuse(self) -> None:
        self.close_connection = True
        self._send(405, TEXT, b"only GET is answered here\n")

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
        """Probes and scrapes are no news."""
