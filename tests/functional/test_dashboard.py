"""The dashboard's queries are PromQL that Prometheus takes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import yaml

from init_egress.observability.relations import DASHBOARDS


def test_every_query_of_a_panel_parses(promtool: Path, tmp_path: Path) -> None:
    panels = [
        panel
        for path in sorted(DASHBOARDS.iterdir())
        for panel in json.loads(path.read_text())["panels"]
    ]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    # As Grafana fills them in, all applications chosen.
    plain = [re.sub(r"\$juju_\w+", ".*", q.replace("$__rate_interval", "1m")) for q in queries]
    rules = [{"record": f"query_{n}", "expr": query} for n, query in enumerate(plain)]
    (tmp_path / "dashboard.rules").write_text(
        yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})
    )

    done = subprocess.run(
        [promtool, "check", "rules", tmp_path / "dashboard.rules"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert panels
    assert all(panel["targets"] for panel in panels)
    assert not any("$" in query for query in plain)
    assert done.returncode == 0, done.stdout + done.stderr
