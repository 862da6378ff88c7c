"""The dashboard's queries are PromQL that Prometheus takes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.dashboard.panels import Panel, Query, read

PANELS = read("1m")


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_every_query_of_a_panel_parses(panel: Panel, promtool: Path, tmp_path: Path) -> None:
    rules = [
        {"record": f"query_{number}", "expr": query.expression}
        for number, query in enumerate(panel.queries)
    ]
    assert rules
    assert not any("$" in rule["expr"] for rule in rules)
    document = {"groups": [{"name": "panel", "rules": rules}]}
    (tmp_path / "panel.rules").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [promtool, "check", "rules", tmp_path / "panel.rules"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_legend_names_a_series_by_its_labels() -> None:
    query = Query("up", "refused with {{code}}{{absent}}")
    assert query.name({"code": "400"}) == "refused with 400"
