"""The suites of one pytest run: a table of how each went, and no skip that CI doesn't see.

A suite is a folder of `testpaths` (pyproject.toml). A test whose machine lacks something says so
with `pytest.skip(reason)`, and the reason stands in the table. Where the environment variable CI
is set the machine must have all of it, and a skip is a failure. Tests that were not selected, as
`make test` leaves out the nightly ones, are counted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from pathlib import PurePosixPath

import pytest

_OUTCOMES = {
    "passed": ("passed", "xpassed"),
    "failed": ("failed", "error"),
    "skipped": ("skipped", "xfailed"),
}
_Report = pytest.TestReport | pytest.CollectReport
_REPORTS = (pytest.TestReport, pytest.CollectReport)


_DESELECTED = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Count from nothing."""
    config.stash[_DESELECTED] = Counter()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count what is left out, by suite."""
    for item in items:
        if suite := _suite(item.nodeid, item.config):
            item.config.stash[_DESELECTED][suite] += 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a skipped test of a suite fail in CI."""
    report = yield
    _forbid_skip(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let a skipped module of a suite fail in CI."""
    report = yield
    _forbid_skip(report, collector.config)
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show what ran of each suite, and why the rest did not."""
    reports = {
        outcome: _by_suite(terminalreporter, config, categories)
        for outcome, categories in _OUTCOMES.items()
    }
    timed = _by_suite(terminalreporter, config, terminalreporter.stats)
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    shown = [suite for suite in _suites(config) if whole or timed.get(suite)]
    if not timed:
        return
    width = max(len(name) for name in ("suite", *shown))
    terminalreporter.section("suites")
    terminalreporter.line(f"{'suite'.ljust(width)}  passed  failed  skipped   time")
    for suite in shown:
        if not timed.get(suite):
            terminalreporter.line(f"{suite.ljust(width)}  no test was selected")
            _tell_deselected(terminalreporter, config, suite, width)
            continue
        counts = {outcome: len(found.get(suite, ())) for outcome, found in reports.items()}
        cells = (str(counts[name]).rjust(len(name)) for name in _OUTCOMES)
        time = _time(sum(getattr(report, "duration", 0) for report in timed[suite]))
        terminalreporter.line("  ".join([suite.ljust(width), *cells, time.rjust(5)]))
        reasons = Counter(_reason(report) for report in reports["skipped"].get(suite, ()))
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{' ' * width}  {count} skipped: {reason}")
        _tell_deselected(terminalreporter, config, suite, width)


def _tell_deselected(
    reporter: pytest.TerminalReporter, config: pytest.Config, suite: str, width: int
) -> None:
    if count := config.stash[_DESELECTED][suite]:
        options = {"-m": config.getoption("markexpr"), "-k": config.getoption("keyword")}
        why = ", ".join(f"{option} {given!r}" for option, given in options.items() if given)
        reporter.line(f"{' ' * width}  {count} not selected: {why or 'by name'}")


def _forbid_skip(report: _Report, config: pytest.Config) -> None:
    expected = not report.skipped or hasattr(report, "wasxfail")
    if expected or not os.environ.get("CI") or _suite(report.nodeid, config) is None:
        return
    reason = _reason(report)
    report.outcome = "failed"
    report.longrepr = f"CI must run every test, and this one was skipped: {reason}"


def _suites(config: pytest.Config) -> Sequence[str]:
    """The suites in the order in which they run."""
    return [PurePosixPath(path).name for path in config.getini("testpaths")]


def _suite(node: str, config: pytest.Config) -> str | None:
    """The suite of a test, or of a module, by its node id."""
    path = PurePosixPath(node.partition("::")[0])
    for folder in map(PurePosixPath, config.getini("testpaths")):
        if path.is_relative_to(folder):
            return folder.name
    return None


def _by_suite(
    reporter: pytest.TerminalReporter, config: pytest.Config, categories: Iterable[str]
) -> dict[str, list[_Report]]:
    found: dict[str, list[_Report]] = {}
    for category in categories:
        for report in reporter.stats.get(category, ()):
            if not isinstance(report, _REPORTS):  # what was deselected, say
                continue
            suite = _suite(report.nodeid, config)
            if suite is not None:
                found.setdefault(suite, []).append(report)
    return found


def _reason(report: _Report) -> str:
    """Why a test was skipped, or why it was expected to fail."""
    if reason := getattr(report, "wasxfail", ""):
        return f"expected to fail: {reason}"
    if isinstance(report.longrepr, tuple):  # file, line, reason
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)


def _time(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02}"
