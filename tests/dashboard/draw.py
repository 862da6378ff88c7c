"""Draws panels in Grafana's manner, from Prometheus' answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.dashboard.panels import Panel
from tests.dashboard.scene import Scene

_PALETTE = ("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0")
_COLOURS = {
    "green": "#73bf69",
    "semi-dark-green": "#56a64b",
    "red": "#f2495c",
    "semi-dark-red": "#e02f44",
    "dark-red": "#c4162a",
    "orange": "#ff9830",
    "yellow": "#fade2a",
    "blue": "#5794f2",
    "light-blue": "#8ab8ff",
    "purple": "#b877d9",
    "text": "#ccccdc",
}
_BACKGROUND, _PANEL, _TEXT, _FAINT, _GRID = "#111217", "#181b1f", "#ccccdc", "#8e8e99", "#2c2f36"
_COLUMNS, _ROW_INCHES, _WIDTH_INCHES = 24, 0.4, 16.0
_STEP = 1
_LONGEST_NAME = 26


@dataclass(frozen=True)
class Series:
    """One series of an answer: times in seconds since the start, and values."""

    name: str
    times: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Answered:
    """A panel and what its queries gave."""

    panel: Panel
    series: Sequence[Series]


def ask(scene: Scene, panel: Panel, begun: float, ended: float) -> list[Series]:
    """Ask a panel's queries, over the whole time for a graph and at its end for the others."""
    found: list[Series] = []
    for query in panel.queries:
        if panel.kind == "timeseries":
            span = {"start": str(begun), "end": str(ended), "step": str(_STEP)}
            results = scene.ask("query_range", query=query.expression, **span)
        else:
            results = scene.ask("query", query=query.expression, time=str(ended))
        for result in results:
            samples = result.get("values") or [result["value"]]
            times, values = zip(*((at - begun, float(text)) for at, text in samples), strict=True)
            found.append(Series(_short(query.name(result["metric"])), times, values))
    return sorted(found, key=lambda series: series.name)


def _short(name: str) -> str:
    """A name with the end of a Pod's name only, as far as it fits into a legend."""
    return name if len(name) <= _LONGEST_NAME else f"{name.split()[0][:8]} …{name[-12:]}"


def draw(answers: Sequence[Answered], output: Path) -> None:
    """Draw a dashboard into a PNG."""
    # Only those who draw need it, so neither the tests' environment nor its types have it.
    import_module("matplotlib").use("Agg")
    pyplot = import_module("matplotlib.pyplot")
    rows = max(y + height for _, y, _, height in (a.panel.place for a in answers))
    size = _WIDTH_INCHES, rows * _ROW_INCHES
    style = {"text.color": _TEXT, "font.size": 9, "font.family": "DejaVu Sans"}
    with pyplot.rc_context(style):
        figure = pyplot.figure(figsize=size, facecolor=_BACKGROUND)
        for answered in answers:
            _draw_panel(figure, answered, rows)
        figure.savefig(output, dpi=90, facecolor=_BACKGROUND)
        pyplot.close(figure)


def _draw_panel(figure: Any, answered: Answered, rows: int) -> None:
    panel = answered.panel
    x, y, width, height = panel.place
    left, bottom = x / _COLUMNS, 1 - (y + height) / rows
    across, up = width / _COLUMNS, height / rows
    gap_x, gap_y = 0.004, 0.004 * _WIDTH_INCHES / (rows * _ROW_INCHES)
    back = figure.add_axes((left + gap_x / 2, bottom + gap_y / 2, across - gap_x, up - gap_y))
    back.set_facecolor(_PANEL)
    back.set_xticks([])
    back.set_yticks([])
    for spine in back.spines.values():
        spine.set_color(_GRID)
    title = 1 - 0.16 / (height * _ROW_INCHES)
    back.text(
        *(0.1 / (width * _WIDTH_INCHES / _COLUMNS), title), panel.title, va="center", weight="bold"
    )
    if not answered.series:
        back.text(0.5, 0.45, "No data", ha="center", va="center", color=_FAINT, size=12)
    elif panel.kind == "timeseries":
        legend = 0.18 * math.ceil(len(answered.series) / max(1, width // 3))
        inner = (
            left + 0.045,
            bottom + (0.42 + legend) / (rows * _ROW_INCHES),
            across - 0.06 - (0.03 if _on_the_right(answered) else 0),
            up - (0.84 + legend) / (rows * _ROW_INCHES),
        )
        _draw_graph(figure.add_axes(inner), answered)
    elif panel.kind == "bargauge":
        inner = (left + across * 0.2, bottom + up * 0.06, across * 0.72, up * 0.80)
        _draw_bars(figure.add_axes(inner), answered)
    else:
        _draw_number(back, answered)


def _draw_number(axes: Any, answered: Answered) -> None:
    panel = answered.panel
    number = answered.series[0].values[-1]
    text = _formatted(number, panel.defaults)
    if answered.series[0].name and panel.title == "Backend":
        text = answered.series[0].name
    size = 20 if len(text) < 12 else 15
    colour = _threshold_colour(number, panel.defaults)
    if panel.kind == "gauge":
        axes.barh([0.22], [0.8], 0.09, left=0.1, color=_GRID)
        axes.barh([0.22], [0.8 * number], 0.09, left=0.1, color=colour)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
    place = 0.5 if panel.kind == "gauge" else 0.4
    axes.text(0.5, place, text, ha="center", va="center", size=size, color=colour, weight="bold")


def _draw_bars(axes: Any, answered: Answered) -> None:
    series = sorted(answered.series, key=lambda found: found.values[-1])
    colours = [_colour(answered.panel, s.name, number) for number, s in enumerate(series)]
    values = [s.values[-1] for s in series]
    axes.barh([s.name for s in series], values, color=colours, height=0.6)
    axes.set_ylim(-0.6, max(5, len(series)) - 0.4)
    for place, value in enumerate(values):
        text = _formatted(value, answered.panel.defaults)
        axes.text(value, place, f" {text}", va="center", color=_TEXT)
    _plain(axes)
    axes.set_xticks([])
    axes.set_xlim(0, max(values) * 1.12)


def _draw_graph(axes: Any, answered: Answered) -> None:
    panel, series = answered.panel, answered.series
    right = _on_the_right(answered)
    left = [s for s in series if s not in right]
    if panel.defaults["custom"]["stacking"]["mode"] == "normal":
        _stack(axes, panel, left)
    else:
        _lines(axes, panel, left, 0)
    _scale(axes, panel.defaults, left)
    handles = axes.get_legend_handles_labels()
    if right:
        second = axes.twinx()
        _lines(second, panel, right, len(left))
        unit = panel.property(right[0].name, "unit")
        _scale(second, {**panel.defaults, "unit": unit}, right)
        more = second.get_legend_handles_labels()
        handles = handles[0] + more[0], handles[1] + more[1]
    columns = max(1, panel.place[2] // 3)
    axes.legend(
        *handles,
        loc="upper left",
        bbox_to_anchor=(-0.04, -0.12),
        ncol=columns,
        frameon=False,
        labelcolor=_TEXT,
        fontsize=8,
        handlelength=1.2,
        columnspacing=1.2,
    )


def _on_the_right(answered: Answered) -> list[Series]:
    """The series that have an axis of their own."""
    place = "custom.axisPlacement"
    return [s for s in answered.series if answered.panel.property(s.name, place) == "right"]


def _lines(axes: Any, panel: Panel, series: Sequence[Series], first: int) -> None:
    for number, one in enumerate(series, first):
        colour = _colour(panel, one.name, number)
        axes.plot(one.times, one.values, label=one.name, color=colour, linewidth=1.2)
        axes.fill_between(one.times, one.values, color=colour, alpha=0.06)


def _stack(axes: Any, panel: Panel, series: Sequence[Series]) -> None:
    times = sorted({at for one in series for at in one.times})
    known = [dict(zip(one.times, one.values, strict=True)) for one in series]
    values = [[found.get(at, 0.0) for at in times] for found in known]
    names = [one.name for one in series]
    colours = [_colour(panel, name, number) for number, name in enumerate(names)]
    axes.stackplot(times, values, labels=names, colors=colours, alpha=0.55)


def _scale(axes: Any, defaults: Mapping[str, Any], series: Sequence[Series]) -> None:
    formatter = import_module("matplotlib.ticker").FuncFormatter
    _plain(axes)
    axes.grid(color=_GRID, linewidth=0.6)
    axes.yaxis.set_major_formatter(formatter(lambda value, _: _formatted(value, defaults)))
    axes.xaxis.set_major_formatter(formatter(lambda value, _: f"{value:.0f} s"))
    if "min" in defaults:
        axes.set_ylim(bottom=defaults["min"])
    if not any(value for one in series for value in one.values if value == value):
        axes.set_ylim(0, 1)
    axes.margins(x=0)


def _plain(axes: Any) -> None:
    axes.set_facecolor(_PANEL)
    axes.tick_params(colors=_FAINT, length=0, labelsize=8)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _colour(panel: Panel, name: str, number: int) -> str:
    override = panel.property(name, "color")
    if override:
        return _named(override["fixedColor"])
    return _PALETTE[number % len(_PALETTE)]


def _threshold_colour(value: float, defaults: Mapping[str, Any]) -> str:
    colour = "text"
    for step in defaults["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            colour = step["color"]
    return _named(colour)


def _named(colour: str) -> str:
    return _COLOURS.get(colour, colour)


def _formatted(value: float, defaults: Mapping[str, Any]) -> str:
    """A value in its unit, as Grafana writes it."""
    unit = defaults.get("unit", "short")
    if math.isnan(value):
        return "-"
    if unit == "percentunit":
        return f"{value * 100:.0f}%"
    if unit == "s":
        return _seconds(value)
    if unit == "bytes":
        return f"{value / 2**20:.0f} MiB"
    text = f"{value:.{defaults['decimals']}f}" if "decimals" in defaults else f"{value:g}"
    return f"{text} req/s" if unit == "reqps" else text


def _seconds(value: float) -> str:
    for size, name in ((86400, "days"), (3600, "hours"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if abs(value) >= size:
            return f"{value / size:.3g} {name}"
    return f"{value * 1e6:.3g} µs" if value else "0 s"
