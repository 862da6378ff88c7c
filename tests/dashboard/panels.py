"""Panels of a dashboard as Grafana reads them: what they ask, and how they show the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from init_egress.observability.relations import DASHBOARDS

FILE = DASHBOARDS / "istio-init-egress.json"


@dataclass(frozen=True)
class Query:
    """One query of a panel.

    Attributes:
        expression: PromQL, without variables.
        legend: how its series are called; names in braces stand for labels.
    """

    expression: str
    legend: str

    def name(self, labels: Mapping[str, str]) -> str:
        """The name of one series."""
        return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), self.legend)


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        kind: Grafana's type.
        title: what stands above it.
        place: x, y, width and height in Grafana's grid of 24 columns.
        queries: what it asks.
        defaults: the defaults of its fields: unit, decimals, thresholds.
        overrides: properties of single series, by the pattern of their names.
    """

    kind: str
    title: str
    place: tuple[int, int, int, int]
    queries: tuple[Query, ...]
    defaults: Mapping[str, Any]
    overrides: Mapping[str, Mapping[str, Any]]

    def property(self, series: str, name: str) -> Any:
        """A property of a series that differs from the panel's; None if none does."""
        for pattern, properties in self.overrides.items():
            if name in properties and re.fullmatch(pattern, series):
                return properties[name]
        return None


def read(interval: str, path: Path = FILE) -> list[Panel]:
    """The panels of a dashboard, all applications chosen.

    Args:
        interval: what `$__rate_interval` is, such as `1m`.
        path: the dashboard.
    """
    return [_panel(raw, interval) for raw in json.loads(path.read_text())["panels"]]


def _panel(raw: Mapping[str, Any], interval: str) -> Panel:
    place = raw["gridPos"]
    fields = raw["fieldConfig"]
    return Panel(
        kind=raw["type"],
        title=raw["title"],
        place=(place["x"], place["y"], place["w"], place["h"]),
        queries=tuple(
            Query(_without_variables(target["expr"], interval), target["legendFormat"])
            for target in raw["targets"]
        ),
        defaults=fields["defaults"],
        overrides={
            _pattern(override["matcher"]): {p["id"]: p["value"] for p in override["properties"]}
            for override in fields["overrides"]
        },
    )


def _without_variables(expression: str, interval: str) -> str:
    return re.sub(r"\$juju_\w+", ".*", expression.replace("$__rate_interval", interval))


def _pattern(matcher: Mapping[str, str]) -> str:
    return matcher["options"] if matcher["id"] == "byRegexp" else re.escape(matcher["options"])
