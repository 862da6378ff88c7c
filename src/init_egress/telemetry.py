"""What the admission webhook tells about itself: log lines as JSON, and Prometheus metrics.

Both stand on the way of every review, so both are kept cheap: a line is one encoding and one
write, a count is one addition. prometheus_client is asked only when someone reads the metrics.
"""

from __future__ import annotations

import logging
import sys
import traceback
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from itertools import accumulate

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from init_egress.review import VERDICTS

PREFIX = "istio_init_egress_"
LATENCY_BOUNDS = (
    *(0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001),
    *(0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
"""Seconds. The API server gives up after 10 unless it is configured otherwise."""

_encoder = msgspec.json.Encoder(enc_hook=str)


def log(level: str, message: str, fields: Mapping[str, object] | None = None) -> None:
    """Write one line of JSON to standard error.

    Args:
        level: info, warning or error.
        message: what happened, the same words each time.
        fields: what it happened to.
    """
    line = {"time": datetime.now(timezone.utc), "level": level, "message": message}
    stream = sys.stderr.buffer
    stream.write(_encoder.encode({**line, **fields} if fields else line) + b"\n")
    stream.flush()


def log_exception(message: str, error: BaseException, fields: Mapping[str, object]) -> None:
    """Write one line of JSON about an exception, with its traceback."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    log("error", message, {**fields, "error": str(error), "traceback": trace})


class LogHandler(logging.Handler):
    """Writes what libraries log the same way."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a failure to do so is logging's to report."""
        try:
            fields: dict[str, object] = {"logger": record.name}
            if record.exc_info and record.exc_info[1]:
                fields["traceback"] = "".join(traceback.format_exception(*record.exc_info))
            log(record.levelname.lower(), record.getMessage(), fields)
        except Exception:
            self.handleError(record)


class Metrics(Collector):
    """Counts reviews, and shows them and what the webhook runs with.

    Every count is written by the event loop alone and read by the thread that shows it.
    """

    def __init__(self, build: Mapping[str, str], settings: Mapping[str, str]) -> None:
        self.certificate_expiry = 0.0
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
        yield InfoMetricFamily(f"{PREFIX}settings", "What is decided with", value=self._settings)
        yield InfoMetricFamily(f"{PREFIX}build", "What is running", value=self._build)

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
