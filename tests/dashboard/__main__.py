"""Draw the dashboard from real metrics: `python -m tests.dashboard`.

The testbed's cluster runs the charm's webhook and exporter while Pods are created; a real
Prometheus scrapes them as the relation says; and each panel's queries are asked of it. Grafana
itself can't be built from a Go module, so the panels are drawn here, from the same file: their
place, title, unit, legend, colours and thresholds.
"""

from __future__ import annotations

import argparse
import importlib.util
import signal
import sys
import time
from pathlib import Path

from tests.dashboard import draw, panels, scene
from tests.testbed import build

_LOOKS = 4
_IMAGE = Path(__file__).resolve().parents[2] / "docs" / "images" / "dashboard.png"


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.dashboard", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120, help="of creating Pods (%(default)s)")
    parser.add_argument("--output", type=Path, default=_IMAGE, help="(default: %(default)s)")
    options = parser.parse_args()
    if not importlib.util.find_spec("matplotlib"):
        sys.exit("matplotlib is missing: install benchmarks/requirements.txt")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for module in scene.MODULES:
            build.prepare(module)
        _run(options.seconds, options.output)
    except KeyboardInterrupt:
        return 130
    except (build.BuildError, RuntimeError, TimeoutError) as error:
        print(f"dashboard: {error}", file=sys.stderr)
        return 1
    return 0


def _run(seconds: int, output: Path) -> None:
    _say("starting a cluster, the charm and Prometheus")
    with scene.scene() as running:
        begun = time.time()
        _say(f"creating Pods for {seconds} s")
        with running.creating_pods():
            for _ in range(_LOOKS):
                time.sleep(seconds / _LOOKS)
                running.unit.run("update_status")
        _say("asking each panel's queries")
        answers = [
            draw.Answered(panel, draw.ask(running, panel, begun, time.time()))
            for panel in panels.read(interval=f"{10 * scene.SCRAPE_SECONDS}s")
        ]
    output.parent.mkdir(parents=True, exist_ok=True)
    draw.draw(answers, output)
    _say(f"wrote {output}")


def _say(what: str) -> None:
    print(f"dashboard: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
