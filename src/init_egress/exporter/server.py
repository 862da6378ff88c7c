"""The exporter: it shows what the charm last saw, for Prometheus, in the webhook's image.

It knows no API server and has no credentials. It reads a mounted file at each scrape, so it needs
no restart when the charm has looked again.

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
from init_egress.telemetry.logs import METRICS, PREFIX, READY, PlainServer, log


class SnapshotCollector(Collector):
    """The figures of a file, which are read anew each time they are asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._complaint = ""

    def read(self) -> Snapshot | None:
        """The figures; None, and one line in the log, if they can't be read."""
        try:
            found = snapshot.decode(self._path.read_bytes())
        except (OSError, ValueError) as error:
            if str(error) != self._complaint:
                log("error", "figures can't be read", reason=str(error))
            self._complaint = str(error)
            return None
        self._complaint = ""
        return found

    def health(self, path: str) -> tuple[int, str]:
        """The status and the text for /livez and /readyz."""
        unread = path == READY and self.read() is None
        return (503, "no figures\n") if unread else (200, "ok\n")

    def collect(self) -> Iterator[Metric]:
        """All families; none if the file can't be read, so that what is absent is missed."""
        found = self.read()
        if found is None:
            return
        yield _effect(found)
        yield GaugeMetricFamily(
            f"{PREFIX}charm_last_reconcile_timestamp_seconds",
            "When the charm last looked at the cluster",
            value=found.looked,
        )
        if found.audit is None:
            return
        yield GaugeMetricFamily(
            f"{PREFIX}audit_timestamp_seconds",
            "When the Pods of the mesh were last audited",
            value=found.audit.at,
        )
        yield GaugeMetricFamily(
            f"{PREFIX}audit_stuck_pods",
            "Pods that waited in an init container that is cut off, at the last audit",
            value=found.audit.stuck,
        )
        pods = GaugeMetricFamily(
            f"{PREFIX}audit_pods",
            "Pods by the rule's verdict, at the last audit",
            labels=["verdict"],
        )
        for verdict, count in sorted(found.audit.pods.items()):
            pods.add_metric([verdict], count)
        yield pods


def _effect(found: Snapshot) -> Metric:
    """One series for each possible effect, of which one is 1: a change is seen at once."""
    family = GaugeMetricFamily(
        f"{PREFIX}backend_effect",
        "1 for what the charm last knew of the backend's effect, else 0",
        labels=["backend", "effect"],
    )
    for effect in BackendEffect:
        family.add_metric([found.backend, effect.value], float(effect is found.effect))
    return family


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; what is wrong with it ends the process with its usage."""
    parser = argparse.ArgumentParser(
        prog="python -m init_egress.exporter",
        description="Shows what the charm last saw, for Prometheus.",
    )
    parser.add_argument(
        "--figures", type=Path, required=True, metavar="FILE", help="what the charm wrote, as JSON"
    )
    parser.add_argument("--address", default="0.0.0.0", help="listen here")  # noqa: S104
    parser.add_argument("--port", type=int, default=8080, help="(default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the exporter; the exit code."""
    options = parse(arguments)
    report = SnapshotCollector(options.figures)
    registry = CollectorRegistry()
    registry.register(report)
    # Without a handler of its own, the first process of a container ignores SIGTERM.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server = PlainServer((options.address, options.port), {METRICS: registry}, report.health)
    except OSError as error:
        log("error", "cannot serve", reason=str(error))
        return 1
    log("info", "listening", port=options.port)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0
