"""Measure the webhook alone: requests a second, latency, processor time and memory.

    python -m benchmarks.server [--rounds 5] [--seconds 3] [--output FOLDER] [--quick]

Every server has core 0 to itself while it is measured, the load (wrk) has core 1. In each round
every server is measured at every size and number of connections, one directly after the other;
ratios are made within a round, and of all the rounds the median is shown.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks import servers
from benchmarks.reviews import review
from benchmarks.servers import ROOT, Server

SIZES = (2_000, 8_000, 60_000)
CONNECTIONS = (1, 16, 64)
RANGES = (1, 10, 100)
_HOME = (8_000, 16)
"""The size and the connections of the targets, and of the measurements with more ranges."""
WEBHOOK, EMPTY, GO, BY_HAND = "webhook", "empty handler", "Go", "Go, patch by hand"


class CannotMeasure(RuntimeError):
    """Something that the measurement needs isn't there; the message says what."""


@dataclass(frozen=True)
class Figures:
    """What one run of the load measured.

    Attributes:
        rate: requests a second.
        p50: median latency in ms.
        p99: 99th percentile of the latency in ms.
        cpu: the server's processor time for a request in microseconds.
    """

    rate: float
    p50: float
    p99: float
    cpu: float


@dataclass(frozen=True)
class Memory:
    """A server's memory in MiB: before any load, and the most it used."""

    idle: float
    peak: float


Key = tuple[str, int, int]
"""A server's name, and the size and connections, or the number of ranges and 0."""


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    sizes: Sequence[int] = SIZES
    connections: Sequence[int] = CONNECTIONS
    ranges: Sequence[int] = RANGES
    rounds: int = 5
    seconds: int = 3
    reference: bool = True


QUICK = Plan(sizes=(2_000,), connections=(1,), ranges=(1,), rounds=1, seconds=1, reference=False)


@dataclass(frozen=True)
class Results:
    """All figures, an element for each round, and the memory by server."""

    figures: dict[Key, list[Figures]]
    memory: dict[str, Memory]

    def median(self, key: Key, field: str) -> float:
        """The median of one figure over the rounds."""
        return statistics.median(getattr(figures, field) for figures in self.figures[key])

    def ratios(self, key: Key, other: Key) -> list[float]:
        """How many times the requests of another, in each round."""
        pairs = zip(self.figures[key], self.figures[other], strict=True)
        return [mine.rate / others.rate for mine, others in pairs]


def check_tools(*, reference: bool) -> None:
    """Fail if a tool is missing.

    Raises:
        CannotMeasure: it names the tool and where it comes from.
    """
    needed = {"wrk": "Debian's package wrk", "taskset": "Debian's package util-linux"}
    if reference:
        needed["go"] = "the Go toolchain, or --without-reference"
    for tool, source in needed.items():
        if not shutil.which(tool):
            raise CannotMeasure(f"{tool} is missing: install {source}")
    if not {0, 1} <= os.sched_getaffinity(0):
        raise CannotMeasure("two cores are needed, 0 for the server and 1 for the load")


def load(server: Server, body: Path, connections: int, seconds: int) -> Figures:
    """Load a server with one review, again and again.

    Raises:
        CannotMeasure: wrk failed, or an answer was no 200.
    """
    before = server.cpu_seconds()
    found = subprocess.run(  # noqa: S603
        [
            *("taskset", "-c", "1", "wrk", "--threads", "1", "--connections", str(connections)),
            *("--duration", f"{seconds}s", "--script", str(ROOT / "benchmarks" / "load.lua")),
            server.url,
        ],
        env={**os.environ, "BODY": str(body)},
        capture_output=True,
        text=True,
        check=False,
    )
    used = server.cpu_seconds() - before
    line = next((x for x in found.stdout.splitlines() if x.startswith("RESULT")), "")
    if not line:
        raise CannotMeasure(f"wrk failed: {found.stdout}{found.stderr}")
    requests, micros, p50, p99, errors = map(int, line.split()[1:])
    if errors or not requests:
        raise CannotMeasure(f"{server.name}: {errors} errors in {requests} requests")
    return Figures(requests / micros * 1e6, p50 / 1e3, p99 / 1e3, used / requests * 1e6)


def measure(plan: Plan, tell: Callable[[str], None]) -> Results:
    """Measure all that is planned.

    Raises:
        CannotMeasure: a tool is missing, or a server doesn't answer as it should.
    """
    check_tools(reference=plan.reference)
    program = servers.build_reference() if plan.reference else None
    results = Results({}, {})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers.write_certificate(folder)
        bodies = {size: folder / f"{size}.json" for size in {*plan.sizes, _HOME[0]}}
        for size, path in bodies.items():
            path.write_bytes(review(size))
        _measure_sizes(plan, folder, program, bodies, results, tell)
        _measure_ranges(plan, folder, program, bodies, results, tell)
    return results


def _measure_sizes(
    plan: Plan,
    folder: Path,
    program: Path | None,
    bodies: dict[int, Path],
    results: Results,
    tell: Callable[[str], None],
) -> None:
    with ExitStack() as stack:
        group = [stack.enter_context(start) for start in _group(folder, program)]
        idle = {server.name: server.memory("VmRSS") for server in group}
        for number in range(plan.rounds):
            for size in plan.sizes:
                for connections in plan.connections:
                    tell(f"round {number + 1}: {size} bytes, {connections} connections")
                    for server in group:
                        found = load(server, bodies[size], connections, plan.seconds)
                        key = server.name, size, connections
                        results.figures.setdefault(key, []).append(found)
        for server in group:
            results.memory[server.name] = Memory(idle[server.name], server.memory("VmHWM"))


def _group(folder: Path, program: Path | None) -> Iterator[AbstractContextManager[Server]]:
    yield servers.webhook(folder)
    yield servers.empty(folder)
    if program:
        yield servers.reference(folder, program)
        yield servers.reference(folder, program, by_hand=True)


def ranges(number: int) -> list[str]:
    """That many ranges to exclude."""
    return [f"10.{i // 256}.{i % 256}.0/24" for i in range(number)]


def _measure_ranges(
    plan: Plan,
    folder: Path,
    program: Path | None,
    bodies: dict[int, Path],
    results: Results,
    tell: Callable[[str], None],
) -> None:
    size, connections = _HOME
    for round_ in range(plan.rounds):
        for number in plan.ranges:
            tell(f"round {round_ + 1}: {number} ranges")
            with ExitStack() as stack:
                group = [stack.enter_context(servers.webhook(folder, ranges(number)))]
                if program:
                    start = servers.reference(folder, program, ranges(number))
                    group.append(stack.enter_context(start))
                for server in group:
                    found = load(server, bodies[size], connections, plan.seconds)
                    results.figures.setdefault((server.name, number, 0), []).append(found)


# --- Showing it ----------------------------------------------------------------------------------


def report(results: Results, plan: Plan) -> str:
    """The figures as Markdown."""
    parts = [_machine(plan), _by_size(results, plan), _by_ranges(results, plan), _memory(results)]
    return "\n\n".join(parts) + "\n"


def _machine(plan: Plan) -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    go = "none"
    if plan.reference:
        command = ["go", "version"]
        told = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        go = told.stdout.split()[2].removeprefix("go")
    load_average = os.getloadavg()[2]
    return (
        f"{model}, {os.cpu_count()} cores, Linux {platform.release().split('-')[0]}; "
        f"Python {platform.python_version()}, granian {version('granian')}, "
        f"uvloop {version('uvloop')}, msgspec {version('msgspec')}; Go {go}. "
        f"Median of {plan.rounds} rounds of {plan.seconds} s each. "
        f"Load average of the last 15 minutes, the measurement's own included: {load_average:.1f}."
    )


def _names(results: Results) -> list[str]:
    return [name for name in (WEBHOOK, EMPTY, GO, BY_HAND) if name in results.memory]


def _spread(ratios: Sequence[float]) -> str:
    middle = statistics.median(ratios)
    return f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _by_size(results: Results, plan: Plan) -> str:
    rows: list[list[str]] = []
    for size in plan.sizes:
        for connections in plan.connections:
            mine: Key = (WEBHOOK, size, connections)
            for name in _names(results):
                key = name, size, connections
                rows.append(
                    [
                        f"{size // 1000} kB, {connections}, {name}",
                        f"{results.median(key, 'rate'):,.0f}",
                        f"{results.median(key, 'p50'):.2f}",
                        f"{results.median(key, 'p99'):.2f}",
                        f"{results.median(key, 'cpu'):.0f}",
                        "" if name == WEBHOOK else _spread(results.ratios(mine, key)),
                    ]
                )
    head = ["Pod, connections, server", "requests/s", "p50 ms", "p99 ms", "CPU µs/request"]
    return _table([*head, "webhook / it (range)"], rows)


def _by_ranges(results: Results, plan: Plan) -> str:
    rows: list[list[str]] = []
    for number in plan.ranges:
        mine: Key = (WEBHOOK, number, 0)
        for name in [name for name in _names(results) if name in (WEBHOOK, GO)]:
            key = name, number, 0
            row = [
                f"{number} range{'s' if number > 1 else ''}, {name}",
                f"{results.median(key, 'rate'):,.0f}",
                f"{results.median(key, 'p99'):.2f}",
                f"{results.median(key, 'cpu'):.0f}",
                "" if name == WEBHOOK else _spread(results.ratios(mine, key)),
            ]
            rows.append(row)
    size, connections = _HOME
    head = [f"At {size // 1000} kB and {connections} connections", "requests/s", "p99 ms"]
    return _table([*head, "CPU µs/request", "webhook / it (range)"], rows)


def _memory(results: Results) -> str:
    rows = [
        [name, f"{memory.idle:.0f}", f"{memory.peak:.0f}"]
        for name, memory in results.memory.items()
    ]
    return _table(["Memory in MiB", "idle", "peak"], rows)


def plot(results: Results, plan: Plan, path: Path) -> None:
    """Draw requests a second by size and connections."""
    # Of benchmarks/requirements.txt, which only `make bench` installs.
    import matplotlib  # pyright: ignore[reportMissingImports]

    matplotlib.use("Agg")
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    figure, axes = pyplot.subplots(
        1, len(plan.connections), figsize=(12, 4), sharey=True, squeeze=False
    )
    names = _names(results)
    for axis, connections in zip(axes[0], plan.connections, strict=True):
        for offset, name in enumerate(names):
            rates = [results.median((name, size, connections), "rate") for size in plan.sizes]
            places = [i + (offset - 1.5) * 0.21 for i in range(len(plan.sizes))]
            bars = axis.bar(places, rates, 0.2, label=name)
            axis.bar_label(bars, [f"{rate:,.0f}" for rate in rates], fontsize=6)
        axis.set_title(f"{connections} connection{'s' if connections > 1 else ''}", fontsize=10)
        axis.set_xticks(range(len(plan.sizes)), [f"{size // 1000} kB" for size in plan.sizes])
        axis.set_yscale("log")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("requests a second, one core")
    axes[0][0].set_xlabel("size of the Pod")
    axes[0][-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables and write them and a plot; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.server")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of each run of the load")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--without-reference", action="store_true", help="leave out Go")
    parser.add_argument("--quick", action="store_true", help="try the measurement, without Go")
    options = parser.parse_args(arguments)
    plan = Plan(
        rounds=options.rounds,
        seconds=options.seconds,
        reference=not options.without_reference,
    )
    plan = QUICK if options.quick else plan
    if not options.quick and not importlib.util.find_spec("matplotlib"):
        sys.exit("matplotlib is missing: install benchmarks/requirements.txt")
    try:
        results = measure(plan, lambda text: print(text, file=sys.stderr, flush=True))
    except CannotMeasure as error:
        sys.exit(str(error))
    text = report(results, plan)
    print(text)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "server.md").write_text(text)
    if not options.quick:
        plot(results, plan, options.output / "server.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
