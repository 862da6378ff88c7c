"""The webhook's metrics.

A count is one addition, since every review is counted. prometheus_client builds the families only
when Prometheus scrapes them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from init_egress.telemetry.plain_http import METRIC_PREFIX
from init_egress.webhook.connections import EXCESS, UNFINISHED
from init_egress.webhook.review import VERDICTS

LATENCY_BOUNDS_SECONDS = (
    *(0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001),
    *(0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
"""The API server gives up after 10 seconds unless the webhook configuration sets a timeout."""


class Metrics(Collector):
    """Counts reviews, and exports the counts and what the webhook runs with.

    Each count is written by one thread; the thread that answers a scrape reads them.
    """

    def __init__(
        self,
        build: Mapping[str, str],
        settings: Mapping[str, str],
        log_lines: Callable[[], Mapping[str, int]] | None = None,
    ) -> None:
        """Start at zero.

        Args:
            build: the labels of the build's info metric.
            settings: the labels of the settings' info metric.
            log_lines: reads the number of forwarded lines by result, if lines are forwarded.
        """
        self.certificate_expiry = 0.0
        self._log_lines = log_lines
        self._build = dict(build)
        self._settings = dict(settings)
        self._reviews = Counter({(v, dry_run): 0 for v in VERDICTS for dry_run in (False, True)})
        self._refused = Counter({400: 0, 413: 0, 500: 0, 503: 0})
        self._closed = Counter({UNFINISHED: 0, EXCESS: 0})
        self._buckets = [0] * (len(LATENCY_BOUNDS_SECONDS) + 1)
        self._seconds = 0.0

    def registry(self) -> CollectorRegistry:
        """All these metrics, and the process's own."""
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        return registry

    def service_registry(self) -> CollectorRegistry:
        """Only the metrics that are the same on every replica."""
        registry = CollectorRegistry()
        registry.register(_ServiceCollector(self))
        return registry

    def count_review(self, verdict: str, dry_run: bool, seconds: float) -> None:
        """Count one review that was answered."""
        self._reviews[verdict, dry_run] += 1
        self._buckets[bisect_left(LATENCY_BOUNDS_SECONDS, seconds)] += 1
        self._seconds += seconds

    def count_refusal(self, status: int) -> None:
        """Count one request that was refused with an HTTP status."""
        self._refused[status] += 1

    def count_closed(self, reason: str) -> None:
        """Count one connection that was shut down; only the thread that does it calls this."""
        self._closed[reason] += 1

    def collect(self) -> Iterator[Metric]:
        """All families, for prometheus_client."""
        yield self._reviews_by_verdict()
        yield self._latency()
        refused = CounterMetricFamily(
            f"{METRIC_PREFIX}refused_requests",
            "Requests refused: not an AdmissionReview (400), too large (413), failed (500), or "
            "dropped for others (503)",
            labels=["code"],
        )
        for status, count in dict(self._refused).items():
            refused.add_metric([str(status)], count)
        yield refused
        closed = CounterMetricFamily(
            f"{METRIC_PREFIX}closed_connections",
            "Connections shut down: a request unfinished after 10 s, or in excess of the limit",
            labels=["reason"],
        )
        for reason, count in dict(self._closed).items():
            closed.add_metric([reason], count)
        yield closed
        yield GaugeMetricFamily(
            f"{METRIC_PREFIX}certificate_expiry_timestamp_seconds",
            "When the serving certificate expires",
            value=self.certificate_expiry,
        )
        if self._log_lines is not None:
            yield _lines_by_result(self._log_lines())
        yield from self.collect_service()

    def collect_service(self) -> Iterator[Metric]:
        """The families that are the same on every replica."""
        yield InfoMetricFamily(
            f"{METRIC_PREFIX}settings", "The settings in force", value=self._settings
        )
        yield InfoMetricFamily(f"{METRIC_PREFIX}build", "The versions that run", value=self._build)

    def _reviews_by_verdict(self) -> Metric:
        family = CounterMetricFamily(
            f"{METRIC_PREFIX}reviews",
            "Reviews answered; needs-remedy with dry_run=false counts the Pods that were changed",
            labels=["verdict", "dry_run"],
        )
        for (verdict, dry_run), count in dict(self._reviews).items():
            family.add_metric([verdict, str(dry_run).lower()], count)
        return family

    def _latency(self) -> Metric:
        bounds = [*(str(bound) for bound in LATENCY_BOUNDS_SECONDS), "+Inf"]
        return HistogramMetricFamily(
            f"{METRIC_PREFIX}review_duration_seconds",
            "From the headers of a review to its answer",
            buckets=list(zip(bounds, accumulate(self._buckets), strict=True)),
            sum_value=self._seconds,
        )


def _lines_by_result(counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(
        f"{METRIC_PREFIX}log_lines", "Log lines sent to Loki, or dropped", labels=["result"]
    )
    for result, count in counts.items():
        family.add_metric([result], count)
    return family


class _ServiceCollector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.collect_service()
