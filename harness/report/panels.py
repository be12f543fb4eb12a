"""What several figures share: how a method looks, panels by setting, words at the ends of lines, and dots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.report.errors import setting_name
from harness.report.findings import sentence
from harness.report.select import where
from sesn.methods import METHODS
from sesn.tools.drawing import FULL, HALF, Drawing, Hover, log_axis

SETTING = ["resolution", "augmented"]
#: One marker for each scalar or vector form, so that no series depends on colour alone.
MARKERS = "osD^vP<>X*"
#: How the dots look; those here have the colour of their method. How far the two stand apart, in lines.
DOTS: dict[str, dict[str, Any]] = {
    "paper": {"ls": "", "marker": "D", "ms": 4, "color": "0.5", "mfc": "white"},
    "here": {"ls": "", "marker": "o", "ms": 4.2, "color": "black"},
}
APART = 0.17
#: Between words at the ends of lines, in points.
LEADING = 8.5


def look(method: str) -> tuple[str, str]:
    """The colour and the marker of a method, the same in every figure."""
    return METHODS[method].colour, MARKERS[list(METHODS).index(method) % len(MARKERS)]


def shown_methods(points: Any) -> list[str]:
    """Those that have points, in the order of METHODS."""
    return [key for key in METHODS if key in set(points["method"])]


def method_legend(figure: Figure, points: Any, lines: bool = True) -> None:
    """The methods below the panels."""
    shown = shown_methods(points)
    handles = [
        Line2D([], [], color=colour, marker=marker, ms=4, lw=1.1 if lines else 0) for colour, marker in map(look, shown)
    ]
    columns = max(2, int(figure.get_figwidth() / 1.25))
    names = [METHODS[key].label for key in shown]
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=7)


def panels(points: Any, kind: str, names: Mapping[str, str]) -> tuple[Figure, list[tuple[str, Any, Any]]]:
    """A row for each of the names and a column for each setting that has points: the name, its axes, its points.

    With one setting the names stand side by side.
    """
    settings = points[SETTING].drop_duplicates().sort_values(SETTING).to_dict("records")
    shown = [name for name in names if name in set(points[kind])]
    turned = len(settings) == 1
    rows, columns = (1, len(shown)) if turned else (len(shown), len(settings))
    figure = Figure(figsize=(FULL if columns > 1 else HALF, 0.9 + 2.0 * rows), layout="constrained")
    share: Any = False if turned else "row"
    grid = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share)
    found = []
    for line, name in zip(grid.T if turned else grid, shown, strict=True):
        line[0].set_ylabel(names[name])
        for axes, setting in zip(line, settings, strict=True):
            axes.set_title(setting_name(**setting) if axes.get_subplotspec().is_first_row() else "", fontsize=8)
            found.append((name, axes, where(points, **{kind: name}, **setting)))
    return figure, found


def label_ends(axes: Any, ends: Iterable[tuple[float, str, str]]) -> None:
    """Words beside the right ends of lines, as (height, words, colour), moved apart where they would overlap.

    The logarithmic axis must have its limits.
    """
    bottom, top = axes.get_ylim()
    low, high = math.log(bottom), math.log(top)
    below_each_other = axes.get_subplotspec().get_gridspec().nrows
    least = LEADING / (0.85 * 72 * axes.figure.get_figheight() / below_each_other)
    places: list[float] = []
    ordered = sorted(ends)
    for height, *_ in ordered:
        wanted = (math.log(max(height, bottom)) - low) / (high - low)
        places.append(max(wanted, places[-1] + least) if places else wanted)
    for place, (_, words, colour) in zip(places, ordered, strict=True):
        axes.text(1.03, place, words, color=colour, transform=axes.transAxes, va="center", fontsize=7)


def dots(points: Any, by: list[str], titles: Mapping[Any, str], label: str, ticks: tuple[float, ...] = ()) -> Drawing:
    """A panel for each place and a line for each method: the paper's value and those here, with what they span.

    Args:
        points: lines of `method`, the places, `source` (paper or here), `value`, `low` and `high`.
        by: the columns of the place.
        titles: of the panels, by the places' values.
        label: of the axis.
        ticks: of a logarithmic axis, as multiples of the powers of ten.
    """
    hovers: list[Hover] = []
    shown, sources = shown_methods(points), [name for name in DOTS if name in set(points["source"])]
    parts = {title: where(points, **dict(zip(by, place, strict=True))) for place, title in titles.items()}
    parts = {title: part for title, part in parts.items() if len(part)}
    figure = Figure(figsize=(FULL if len(parts) > 1 else HALF, 0.9 + 0.21 * len(shown)), layout="constrained")
    grid = figure.subplots(1, len(parts), sharey=True, squeeze=False)[0]
    for axes, (title, part) in zip(grid, parts.items(), strict=True):
        for point in part.to_dict("records"):
            row, source = METHODS[point["method"]], point["source"]
            colour = {"color": row.colour} if source == "here" else {}
            height = shown.index(row.key) + APART * (2 * sources.index(source) + 1 - len(sources))
            ends = [[abs(point["value"] - point[end])] for end in ("low", "high")]
            axes.errorbar(point["value"], height, xerr=ends, lw=0.9, capsize=1.5, **DOTS[source] | colour)
            hovers.append(
                Hover(axes, point["value"], height, sentence("dot-point", label=row.label, what=label, **point))
            )
        axes.set_title(title, fontsize=8)
        axes.grid(axis="y", color="0.92")
        axes.set_axisbelow(True)
        if ticks:
            log_axis(axes, "x", ticks)
    axes.set_yticks(range(len(shown)), [METHODS[key].label for key in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    figure.supxlabel(label, fontsize=8)
    if len(sources) > 1:
        handles = [Line2D([], [], **DOTS[name]) for name in sources]
        figure.legend(handles, sources, loc="outside upper right", ncols=2, frameon=False, fontsize=7)
    return Drawing(figure, tuple(hovers))
