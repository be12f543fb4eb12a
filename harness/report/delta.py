"""Figure 2: Delta against depth, downscale factor and interscale extent; the frames drawn and what they say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from harness.report.findings import sentence
from harness.report.panels import label_ends
from harness.report.select import Selection, where
from harness.report.summaries import SUMMARY, medians, summarised
from sesn.methods import METHODS
from sesn.tools.drawing import FULL, HALF, PALETTE, Drawing, Hover, styled


class Panel(NamedTuple):
    """One column of the figure: its coordinate, its series' styles, and its axis."""

    experiment: str
    x: str
    label: str
    styles: Mapping[str, tuple[Any, str]]
    logarithmic: bool = False
    #: whether each series has a floor of its own
    floors: bool = False


#: The series of what the paper states, and the colour of its marks.
STATED, MARK, PAPER_INK = "stated by the paper", "#CC79A7", "#8A3E6B"
LONGER = "valid of $5+K_S-1$"
SOLID, DASHED, DOTTED = ("-", "o"), ((0, (4, 2)), "s"), ((0, (1, 1.4)), "^")
#: How the windows differ where both are on one axis.
WINDOW_STYLES = {"wide": SOLID, "published": DASHED, "periodic": SOLID}
PANELS = (
    Panel("delta-depth", "depth", "layers", {"valid scales": SOLID, "all scales": DASHED}),
    Panel(
        "delta-downscale",
        "downscale",
        "downscale factor 1/s",
        {"96 pixels": SOLID, "384 pixels": DASHED},
        logarithmic=True,
        floors=True,
    ),
    Panel(
        "delta-interscale",
        "extent",
        "interscale extent $K_S$ (scales)",
        {"all of 5 scales": SOLID, "valid of 5 scales": DASHED, LONGER: DOTTED, "all scales of the method": SOLID},
    ),
)
#: The fourth colour is the one of what the paper states.
COLOURS = dict(zip(("linear", "relu", "bandlimited", "nested"), (*PALETTE[:3], PALETTE[4]), strict=True))
NAMES = {"linear": "linear", "relu": "ReLU", "bandlimited": "band-limited ReLU", "nested": "nested ReLU"}
WINDOWS = {"published": "published windows", "wide": "wide windows (4.5 σ)"}
#: The window of networks on periodic maps, which have a panel of their own, and the panels' titles.
PERIODIC = "periodic"
PADDED_TITLE, PERIODIC_TITLE = "zero padding, Lanczos probe", "periodic maps, Fourier probe"
#: The window of cells about a method: its own layers. Their curves have the method in place of a nonlinearity.
OWN, OWN_ROW, OWN_SCALES = "own", "layers of single methods", "all scales of the method"
#: The axis begins this many times below the smallest median.
BELOW = 30
#: Lines whose ends differ by at most this factor share their name.
ONE_NAME = 1.5
#: More bars than this stand in each other's way.
MOST_BARS = 9
#: Scales of the network in the paper's panel; the others have as many more as the extent spoils.
FIVE = 5
SERIES = ["experiment", "window", "nonlinearity", "series", "x"]


def frame(selections: Mapping[str, Selection]) -> Any:
    """One line per point: mean, standard deviation, median and interval of Delta, and the median floor there.

    What the paper states stands in lines of the series STATED: at x, the mean if it gives one.
    """
    shown = [panel for panel in PANELS if panel.experiment in selections]
    parts = [points for panel in shown if len(points := _panel_points(panel, selections[panel.experiment]))]
    columns = [*SERIES, *SUMMARY, "floor"]
    if not parts:
        return pd.DataFrame(columns=columns)
    parts += [facts for panel in shown if len(facts := _stated(panel, selections[panel.experiment].paper))]
    # As objects: the lines of the paper lack most columns.
    whole = pd.concat([part.reindex(columns=columns).astype(object) for part in parts])
    return whole.reset_index(drop=True).infer_objects()


def _stated(panel: Panel, paper: Any) -> Any:
    facts = paper[paper[panel.x].notna()] if panel.x in paper else paper[:0]
    lines = [(panel.experiment, STATED, fact[panel.x], fact["value"]) for fact in facts.to_dict("records")]
    return pd.DataFrame(lines, columns=["experiment", "series", "x", "mean"])


def _panel_points(panel: Panel, chosen: Selection) -> Any:
    if chosen.empty or panel.x not in chosen.rows:
        return pd.DataFrame()
    every = chosen.rows.assign(window=chosen.rows["window"].astype(object), x=chosen.rows[panel.x].astype(float))
    method = every["method"].astype(object)
    every = every.assign(series=_series(panel, every), nonlinearity=method.where(method.ne(""), every["nonlinearity"]))
    rows = every[every["metric"].isin(["delta", "delta_all"]) & every["window"].isin([*WINDOWS, PERIODIC, OWN])]
    # A network without a valid scale channel has no Delta: NaN says so, and has no place in the figure.
    points = summarised(rows[rows["series"].isin(list(panel.styles)) & rows["value"].notna()], SERIES[1:])
    floors = where(every, metric="floor")
    if not len(floors) or floors["x"].isna().any():
        return points.assign(floor=math.nan, experiment=panel.experiment)
    # The median over all rows of the same window and place; images of another size have another floor.
    keys = ["window", "x", *(["series"] if panel.floors else [])]
    level = medians(floors, keys).rename("floor").reset_index()
    return points.merge(level, on=keys, how="left").assign(experiment=panel.experiment)


def _series(panel: Panel, rows: Any) -> Any:
    """Which curve each row belongs to; one that is not drawn has no style."""
    everything = rows["metric"].eq("delta_all").to_numpy()
    if panel.x == "depth":
        return np.where(everything, "all scales", "valid scales")
    if panel.x == "downscale":
        return np.where(everything, "", rows["side"].astype(int).astype(str) + " pixels")
    five = np.where(everything, "all of 5 scales", "valid of 5 scales")
    found = np.where(rows["scales"].eq(FIVE), five, np.where(everything, "", LONGER)) if "scales" in rows else five
    return np.where(rows["window"].eq(OWN), np.where(everything, OWN_SCALES, ""), found)


@styled
def draw_depth(points: Any) -> Drawing:
    """Every line named at its end, with what the paper states; networks on periodic maps below the others."""
    hovers: list[Hover] = []
    # Where no scale is valid, there are only curves over all of them.
    curves = next(part for name in PANELS[0].styles if len(part := where(points, series=name)))
    facts, periodic = where(points, series=STATED), curves["window"].eq(PERIODIC)
    parts = {PADDED_TITLE: (curves[~periodic], facts), PERIODIC_TITLE: (curves[periodic], facts[:0])}
    shown = {title: part for title, part in parts.items() if len(part[0])}
    # One below the other: the figure stands beside the scorecard on the page's first screen.
    figure = Figure(figsize=(HALF, 1.0 + 2.4 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (title, part) in zip(grid, shown.items(), strict=True):
        _draw_depths(axes, *part, hovers)
        axes.set_title(title if len(shown) > 1 else "", fontsize=8)
        axes.set_ylabel("equivariance error Δ")
        axes.label_outer()
    return Drawing(figure, tuple(hovers))


def _draw_depths(axes: Any, curves: Any, facts: Any, hovers: list[Hover]) -> None:
    axes.set(xlabel=PANELS[0].label, yscale="log")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    floor = medians(curves, "x", "floor").dropna()
    axes.plot(floor.index, floor.to_numpy(), color="0.45", ls=":", lw=0.9)
    ends = [(float(floor.iloc[-1]), "floor of the meter", "0.4")] if len(floor) else []
    for window, part in curves.groupby("window", sort=False):
        ends += _draw_window(axes, window, part, hovers)
    for fact in facts.to_dict("records"):
        axes.axhline(fact["mean"], color=MARK, lw=0.9, zorder=0)
        axes.plot(fact["x"], fact["mean"], "*", color=MARK, ms=9, zorder=5)
        ends.append((fact["mean"], f"paper: {100 * fact['mean']:g} %", PAPER_INK))
    levels = [level for level in (*curves["median"], *floor, *facts["mean"]) if level > 0]
    axes.set_ylim(min(levels) / 3, 2 * max(levels))
    label_ends(axes, ends)


def _draw_window(axes: Any, window: str, part: Any, hovers: list[Hover]) -> list[tuple[float, str, str]]:
    """The lines of one kind of windows, and their names; lines that meet at the end have one name."""
    style, kind = WINDOW_STYLES.get(window, DOTTED), f"{window}, " if window in WINDOWS else ""
    ends = []
    for curve, line in part.sort_values("x").groupby("nonlinearity", sort=False):
        _draw_series(axes, _colour(curve), style, line, bars=False)
        hovers.extend(_hovers(axes, PANELS[0], line))
        name = kind + _name(curve).removesuffix(" ReLU")
        ends.append((float(line["median"].iloc[-1]), name, _colour(curve)))
    together = kind and max(ends)[0] <= ONE_NAME * min(ends)[0]
    return [(max(ends)[0], f"{window} windows", "0.15")] if together else ends


@styled
def draw(points: Any) -> Drawing:
    """A row for each kind of windows, a panel for the downscale and one for the extent, with what the paper states."""
    hovers: list[Hover] = []
    windows = [window for window in [*WINDOWS, OWN] if window in set(points["window"])]
    shown = [panel for panel in PANELS[1:] if panel.experiment in set(points["experiment"])]
    figure = Figure(figsize=(FULL, 0.9 + 2.1 * len(windows)), layout="constrained")
    grid = figure.subplots(len(windows), len(shown), sharex="col", sharey=True, squeeze=False)
    for row, window in zip(grid, windows, strict=True):
        for axes, panel in zip(row, shown, strict=True):
            _draw_panel(axes, panel, where(points, experiment=panel.experiment, window=window), hovers)
            for knee in where(points, experiment=panel.experiment, series=STATED)["x"] if window != OWN else ():
                axes.axvline(knee, color=MARK, lw=1.2, zorder=0)
                name = f"paper: rises beyond {knee:g}×"
                small = {"textcoords": "offset points", "fontsize": 7, "color": PAPER_INK}
                axes.annotate(name, (knee, 0.93), (-3, 0), axes.get_xaxis_transform(), ha="right", **small)
        row[0].set_ylabel(f"{WINDOWS.get(window, OWN_ROW)}\nequivariance error Δ")
    # The floor may lie far below (a factor of two after Fourier enlarging): it must not squeeze the curves.
    grid[0][0].set_ylim(bottom=points["median"].min() / BELOW)
    for top, bottom, panel in zip(grid[0], grid[-1], shown, strict=True):
        bottom.set_xlabel(panel.label)
        _legend_of(top, panel, set(where(points, experiment=panel.experiment)["series"]))
    _legend(figure, points)
    return Drawing(figure, tuple(hovers))


def _legend_of(axes: Any, panel: Panel, series: set[str]) -> None:
    shown = {name: style for name, style in panel.styles.items() if name in series}
    handles = [Line2D([], [], color="0.3", ls=ls, marker=marker, ms=3) for ls, marker in shown.values()]
    if len(shown) > 1:
        axes.legend(handles, shown, frameon=False, fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _legend(figure: Figure, points: Any) -> None:
    shown = [name for name in [*COLOURS, *METHODS] if name in set(points["nonlinearity"])]
    handles = [Line2D([], [], color=_colour(name), lw=2) for name in shown]
    handles.append(Line2D([], [], color="0.45", ls=":"))
    names = [*(_name(name) for name in shown), "floor of the meter"]
    figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 6), frameon=False, fontsize=7)


def _colour(curve: str) -> str:
    """Of a nonlinearity, or of a method."""
    return METHODS[curve].colour if curve in METHODS else COLOURS.get(curve, "0.3")


def _name(curve: str) -> str:
    return METHODS[curve].label if curve in METHODS else NAMES.get(curve, curve)


def _draw_panel(axes: Any, panel: Panel, points: Any, hovers: list[Hover]) -> None:
    axes.set_yscale("log")
    if panel.logarithmic:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for (nonlinearity, series), part in points.groupby(["nonlinearity", "series"], sort=False):
        _draw_series(axes, _colour(nonlinearity), panel.styles[series], part.sort_values("x"))
        hovers.extend(_hovers(axes, panel, part))
    for _, part in points.groupby("series") if panel.floors else [("", points)]:
        floor = medians(part, "x", "floor").dropna()
        axes.plot(floor.index, floor.to_numpy(), color="0.45", ls=":", lw=1.2)


def _draw_series(axes: Any, colour: str, style: tuple[Any, str], part: Any, bars: bool = True) -> None:
    line, marker = style
    fill = colour if line == "-" else "white"
    every = math.ceil(len(part) / MOST_BARS)
    dots: dict[str, Any] = {} if bars else {"marker": marker, "ms": 3.2, "mfc": fill, "markevery": every}
    axes.plot(part["x"], part["median"], color=colour, ls=line, lw=1.1, **dots)
    axes.fill_between(part["x"], part["low"], part["high"], color=colour, alpha=0.18, lw=0)
    if bars:
        _draw_bars(axes, colour, marker, fill, part[::every])


def _draw_bars(axes: Any, colour: str, marker: str, fill: str, part: Any) -> None:
    """Mean and standard deviation, as in the paper."""
    spread, mean = part["standard_deviation"].fillna(0).to_numpy(), part["mean"].to_numpy()
    # Below a mean smaller than its deviation, the bar would reach zero, which a logarithmic axis does not have.
    below = [min(s, 0.9 * m) for s, m in zip(spread, mean, strict=True)]
    look = {"fmt": marker, "ms": 2.6, "lw": 0.7, "capsize": 1.5, "color": colour}
    axes.errorbar(part["x"], mean, yerr=[below, spread], mfc=fill, **look)


def _hovers(axes: Any, panel: Panel, part: Any) -> Iterator[Hover]:
    for point in part.to_dict("records"):
        point |= {"kind": _name(point["nonlinearity"]), "axis": panel.x}
        point |= {"series": point["series"].replace("$", ""), "draws": int(point["draws"])}
        point["images"] = int(point["values"] // max(1, point["draws"]))
        yield Hover(axes, point["x"], point["median"], sentence("delta-point", **point))
