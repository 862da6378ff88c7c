"""Alerts and dashboards are about metrics that are really exported, and say what helps."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from init_egress.exporter.server import SnapshotCollector
from init_egress.exporter.snapshot import AuditCounts, BackendEffect, Snapshot
from init_egress.observability.relations import DASHBOARDS, RULES
from init_egress.webhook.metrics import Metrics

ALERTS: list[dict[str, Any]] = [
    rule
    for path in sorted(RULES.iterdir())
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
PANELS: list[dict[str, Any]] = [
    panel
    for path in sorted(DASHBOARDS.iterdir())
    for panel in json.loads(path.read_text())["panels"]
]
VARIABLES: list[dict[str, Any]] = [
    variable
    for path in sorted(DASHBOARDS.iterdir())
    for variable in json.loads(path.read_text())["templating"]["list"]
]
_NAME = re.compile(r"\b(?:istio_init_egress_|process_)\w+|\bup\b(?=[{ ])")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all series that can be scraped."""
    path = tmp_path_factory.mktemp("snapshot") / "snapshot.json"
    seen = Snapshot("native", BackendEffect.ARRIVES, 1.0, AuditCounts(1.0, {"needs-remedy": 1}))
    path.write_text(seen.encode())
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(path))
    lines: dict[str, int] = {"sent": 0, "dropped": 0}
    webhook = Metrics({}, {}, lambda: lines).registry()
    text = (generate_latest(registry) + generate_latest(webhook)).decode()
    return {"up", *re.findall(r"^(\w+)[{ ]", text, re.MULTILINE)}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_is_about_what_is_exported_and_says_what_helps(
    alert: dict[str, Any], exported: set[str]
) -> None:
    names = set(_NAME.findall(alert["expr"]))
    assert names
    assert names <= exported
    assert alert["labels"]["severity"] in ("warning", "critical")
    assert alert["annotations"].keys() == {"summary", "description"}
    assert "juju " in alert["annotations"]["description"] or "kubectl " in str(alert)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_is_about_what_is_exported_and_is_explained(
    panel: dict[str, Any], exported: set[str]
) -> None:
    assert panel["description"]
    for target in panel["targets"]:
        names = set(_NAME.findall(target["expr"]))
        assert names
        assert names <= exported
        # One dashboard serves all applications; what it shows is chosen by these three.
        for variable in ("juju_model", "juju_model_uuid", "juju_application"):
            assert f'{variable}=~"${variable}"' in target["expr"]


def test_the_dashboards_take_the_datasource_from_the_variable_that_the_requirer_sets() -> None:
    named = {variable["name"]: variable for variable in VARIABLES}
    assert named.keys() == {"prometheusds", "juju_model", "juju_model_uuid", "juju_application"}
    assert named["prometheusds"]["type"] == "datasource"
    assert named["prometheusds"]["query"] == "prometheus"
    users = [*PANELS, *(t for panel in PANELS for t in panel["targets"])]
    users += [variable for name, variable in named.items() if name != "prometheusds"]
    assert {user["datasource"]["uid"] for user in users} == {"${prometheusds}"}


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
