"""The alert rules are about metrics that there are."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from init_egress import telemetry

RULES = Path(__file__).resolve().parents[2] / "src" / "prometheus_alert_rules"


def test_every_alert_is_about_a_metric_of_the_workload() -> None:
    source = Path(telemetry.__file__).read_text()
    for path in RULES.glob("*.rules"):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                names = re.findall(r"istio_init_egress_(\w+)", rule["expr"])
                assert names
                assert all(f'{{PREFIX}}{name}"' in source for name in names)
                assert {"summary", "description"} <= rule["annotations"].keys()
