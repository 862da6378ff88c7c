"""What the exporter shows of what the charm saw."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from init_egress.backends.effect import Effect
from init_egress.exporter.server import SnapshotCollector
from init_egress.exporter.snapshot import AuditCounts, BackendEffect, Snapshot, decode
from init_egress.telemetry.plain_http import LIVE, READY

SEEN = Snapshot(
    "native", BackendEffect.ARRIVES, 1000.5, AuditCounts(900.0, {"needs-remedy": 3}, 2)
)


def shown(path: Path) -> Mapping[str, float]:
    """Series to value, as they are scraped."""
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(path))
    lines = generate_latest(registry).decode().splitlines()
    samples = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name.removeprefix("istio_init_egress_"): float(value) for name, _, value in samples}


def test_all_that_the_charm_saw_is_shown(tmp_path: Path) -> None:
    (tmp_path / "snapshot.json").write_text(SEEN.encode())
    assert shown(tmp_path / "snapshot.json") == {
        'backend_effect{backend="native",effect="arrives"}': 1,
        'backend_effect{backend="native",effect="missing"}': 0,
        'backend_effect{backend="native",effect="rejected"}': 0,
        'backend_effect{backend="native",effect="unverified"}': 0,
        'backend_effect{backend="native",effect="failed"}': 0,
        "charm_last_reconcile_timestamp_seconds": 1000.5,
        "audit_timestamp_seconds": 900,
        "audit_stuck_pods": 2,
        'audit_pods{verdict="needs-remedy"}': 3,
    }


def test_what_was_not_audited_is_absent_not_zero(tmp_path: Path) -> None:
    (tmp_path / "snapshot.json").write_text(
        Snapshot("native", BackendEffect.MISSING, 1.0).encode()
    )
    found = shown(tmp_path / "snapshot.json")
    assert not [name for name in found if name.startswith("audit")]
    assert found['backend_effect{backend="native",effect="missing"}'] == 1


@pytest.mark.parametrize("text", [None, "", "{}", '{"backend": "native", "effect": "no"}'])
def test_what_cannot_be_read_is_absent_and_the_exporter_is_not_ready(
    tmp_path: Path, text: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "snapshot.json"
    if text is not None:
        path.write_text(text)
    report = SnapshotCollector(path)
    assert shown(path) == {}
    assert report.health(READY)[0] == 503
    assert report.health(READY)[0] == 503
    assert report.health(LIVE)[0] == 200
    path.write_text(SEEN.encode())
    assert report.health(READY)[0] == 200
    # One line for each reader, not for each time.
    assert capfd.readouterr().err.count("cannot read the snapshot") == 2


def test_the_file_holds_what_was_put_in() -> None:
    assert decode(SEEN.encode()) == SEEN


def test_every_effect_that_can_be_verified_can_be_shown() -> None:
    shown = {effect.value for effect in BackendEffect}
    assert {effect.value for effect in Effect} == shown - {"failed"}
