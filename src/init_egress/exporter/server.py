"""The exporter's process: it exports the result of the charm's last reconcile to Prometheus.

It runs from the webhook's image, has no credentials and calls no API server. It reads a mounted
file at each scrape, so it needs no restart after a reconcile.

Served without TLS: GET /metrics, GET /livez, GET /readyz
"""

from __future__ import annotations

import argparse
import contextlib
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from init_egress.exporter import snapshot
from init_egress.exporter.snapshot import BackendEffect, Snapshot
from init_egress.telemetry.logs import log
from init_egress.telemetry.plain_http import METRIC_PREFIX, METRICS, READY, PlainServer


class SnapshotCollector(Collector):
    """Exports a snapshot file, which it reads again at each scrape."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_error = ""

    def read(self) -> Snapshot | None:
        """The snapshot; None, and one line in the log, if the file cannot be read."""
        try:
            found = snapshot.decode(self._path.read_bytes())
        except (OSError, ValueError) as error:
            if str(error) != self._last_error:
                log("error", "cannot read the snapshot", reason=str(error))
            self._last_error = str(error)
            return None
        self._last_error = ""
        return found

    def health(self, path: str) -> tuple[int, str]:
        """The status and the text for /livez and /readyz."""
        unreadable = path == READY and self.read() is None
        return (503, "cannot read the snapshot\n") if unreadable else (200, "ok\n")

    def collect(self) -> Iterator[Metric]:
        """All families; none if the file cannot be read, so that alerts on absent series fire."""
        found = self.read()
        if found is None:
            return
        yield _effect(found)
        yield GaugeMetricFamily(
            f"{METRIC_PREFIX}charm_last_reconcile_timestamp_seconds",
            "When the charm last reconciled",
            value=found.reconciled_at,
        )
        if found.audit is None:
            return
        yield GaugeMetricFamily(
            f"{METRIC_PREFIX}audit_timestamp_seconds",
            "When the charm last audited the Pods of the mesh",
            value=found.audit.at,
        )
        yield GaugeMetricFamily(
            f"{METRIC_PREFIX}audit_stuck_pods",
            "Pods stuck in an init container without network, at the last audit",
            value=found.audit.stuck,
        )
        pods = GaugeMetricFamily(
            f"{METRIC_PREFIX}audit_pods",
            "Pods by verdict, at the last audit",
            labels=["verdict"],
        )
        for verdict, count in sorted(found.audit.pods.items()):
            pods.add_metric([verdict], count)
        yield pods


def _effect(found: Snapshot) -> Metric:
    """One series for each possible effect; the current one is 1, the others are 0."""
    family = GaugeMetricFamily(
        f"{METRIC_PREFIX}backend_effect",
        "1 for the backend's effect as the charm last verified it, else 0",
        labels=["backend", "effect"],
    )
    for effect in BackendEffect:
        family.add_metric([found.backend, effect.value], float(effect is found.effect))
    return family


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; an error in it ends the process with the usage."""
    parser = argparse.ArgumentParser(
        prog="python -m init_egress.exporter",
        description="Exports the result of the charm's last reconcile to Prometheus.",
    )
    parser.add_argument(
        "--snapshot",
        type=Path,
        required=True,
        metavar="FILE",
        help="written by the charm, as JSON",
    )
    parser.add_argument("--address", default="0.0.0.0", help="listen here")  # noqa: S104
    parser.add_argument("--port", type=int, default=8080, help="(default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the exporter; the exit code."""
    options = parse(arguments)
    collector = SnapshotCollector(options.snapshot)
    registry = CollectorRegistry()
    registry.register(collector)
    # PID 1 of a container ignores SIGTERM unless it installs a handler.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server = PlainServer(
            (options.address, options.port), {METRICS: registry}, collector.health
        )
    except OSError as error:
        log("error", "cannot serve", reason=str(error))
        return 1
    log("info", "listening", port=options.port)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0
