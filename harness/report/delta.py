"""Figure 2: Delta against depth, downscale factor and interscale extent; the frame it draws and what it says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.report.findings import Statement, claim, listed, number
from harness.report.select import Selection
from harness.report.summaries import SUMMARY, summarised
from sesn.tools.drawing import Drawing, Hover, styled


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
STATED, MARK = "stated by the paper", "#CC79A7"
LONGER = "valid of $5+K_S-1$"
SOLID, DASHED, DOTTED = ("-", "o"), ((0, (4, 2)), "s"), ((0, (1, 1.4)), "^")
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
        {"all of 5 scales": SOLID, "valid of 5 scales": DASHED, LONGER: DOTTED},
    ),
)
#: Okabe and Ito's palette: told apart by colour-blind readers.
COLOURS = {"linear": "#0072B2", "relu": "#D55E00", "bandlimited": "#009E73"}
NAMES = {"linear": "linear", "relu": "ReLU", "bandlimited": "band-limited ReLU"}
WINDOWS = {"published": "published windows", "wide": "wide windows (4.5 σ)"}
#: What the paper calls "not much higher" is at most this many times as high.
NOT_MUCH_HIGHER = 1.25
#: Delta is small up to here: a tenth of the output's size. Where it is larger already at moderate factors, the knee is
#: where it doubles.
SMALL, MODERATE = 0.01, 4
#: The axis begins this many times below the smallest median.
BELOW = 30
#: More bars than this stand in each other's way.
MOST_BARS = 9
#: Scales of the network in the paper's panel; the others have as many more as the extent spoils.
FIVE = 5
SERIES = ["experiment", "window", "nonlinearity", "series", "x"]


def figure_frame(selections: Mapping[str, Selection]) -> Any:
    """One line per point: mean, standard deviation, median and interval of Delta, and the median floor there.

    What the paper states stands in lines of the series STATED: at x, the mean if it gives one.
    """
    parts = [points for panel in PANELS if len(points := _panel_points(panel, selections[panel.experiment]))]
    columns = [*SERIES, *SUMMARY, "floor"]
    if not parts:
        return pd.DataFrame(columns=columns)
    parts += [facts for panel in PANELS if len(facts := _stated(panel, selections[panel.experiment].paper))]
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
    rows = chosen.rows[chosen.rows["metric"].isin(["delta", "delta_all"]) & chosen.rows["window"].isin(list(WINDOWS))]
    rows = rows.assign(series=_series(panel, rows), x=rows[panel.x].astype(float))
    # A network without a valid scale channel has no Delta: NaN says so, and has no place in the figure.
    rows = rows[rows["series"].isin(list(panel.styles)) & rows["value"].notna()]
    return _with_floor(panel, summarised(rows, SERIES[1:]), chosen.metric("floor")).assign(experiment=panel.experiment)


def _with_floor(panel: Panel, points: Any, floors: Any) -> Any:
    """The median over all rows of the same window and place; images of another size have another floor."""
    if not len(floors) or floors[panel.x].isna().any():
        return points.assign(floor=math.nan)
    keys = ["window", "x", "series"] if panel.floors else ["window", "x"]
    placed = floors.assign(window=floors["window"].astype(object), x=floors[panel.x].astype(float))
    placed = placed.assign(series=_series(panel, floors))
    level = placed.groupby(keys)["value"].median().rename("floor").reset_index()
    return points.merge(level, on=keys, how="left")


def _series(panel: Panel, rows: Any) -> Any:
    """Which curve each row belongs to; one that is not drawn has no style."""
    everything = rows["metric"].eq("delta_all").to_numpy()
    if panel.x == "depth":
        return np.where(everything, "all scales", "valid scales")
    if panel.x == "downscale":
        return np.where(everything, "", rows["side"].astype(int).astype(str) + " pixels")
    five = rows["scales"].eq(FIVE).to_numpy()
    return np.where(
        five, np.where(everything, "all of 5 scales", "valid of 5 scales"), np.where(everything, "", LONGER)
    )


@styled
def draw(points: Any) -> Drawing:
    """A row for each kind of windows, three panels each, with what the paper states."""
    hovers: list[Hover] = []
    windows = [window for window in WINDOWS if window in set(points["window"])]
    figure = Figure(figsize=(7.2, 0.9 + 2.3 * len(windows)), layout="constrained")
    grid = figure.subplots(len(windows), len(PANELS), sharex="col", sharey=True, squeeze=False)
    for row, window in zip(grid, windows, strict=True):
        for axes, panel in zip(row, PANELS, strict=True):
            part = points[points["experiment"].eq(panel.experiment) & points["window"].eq(window)]
            _draw_panel(axes, panel, part, hovers)
            _mark_facts(axes, points[points["experiment"].eq(panel.experiment) & points["series"].eq(STATED)])
        row[0].set_ylabel(f"{WINDOWS[window]}\nequivariance error Δ")
    # The floor may lie far below (a factor of two after Fourier enlarging): it must not squeeze the curves.
    grid[0][0].set_ylim(bottom=points["median"].min() / BELOW)
    for axes, panel in zip(grid[-1], PANELS, strict=True):
        axes.set_xlabel(panel.label)
    for axes, panel in zip(grid[0], PANELS, strict=True):
        _legend_of(axes, panel, set(points["series"][points["experiment"].eq(panel.experiment)]))
    _legend(figure, points)
    return Drawing(figure, tuple(hovers))


def _legend_of(axes: Any, panel: Panel, series: set[str]) -> None:
    shown = {name: style for name, style in panel.styles.items() if name in series}
    handles = [Line2D([], [], color="0.3", ls=ls, marker=marker, ms=3) for ls, marker in shown.values()]
    if len(shown) > 1:
        axes.legend(handles, shown, frameon=False, fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _legend(figure: Figure, points: Any) -> None:
    shown = [name for name in COLOURS if name in set(points["nonlinearity"])]
    handles = [Line2D([], [], color=COLOURS[name], lw=2) for name in shown]
    handles += [Line2D([], [], color="0.45", ls=":"), Line2D([], [], color=MARK, lw=1.2)]
    names = [*(NAMES[name] for name in shown), "floor of the probe", STATED]
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=7)


def _draw_panel(axes: Any, panel: Panel, points: Any, hovers: list[Hover]) -> None:
    axes.set_yscale("log")
    if panel.logarithmic:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    for (nonlinearity, series), part in points.groupby(["nonlinearity", "series"], sort=False):
        _draw_series(axes, COLOURS.get(nonlinearity, "0.3"), panel.styles[series], part.sort_values("x"))
        hovers.extend(_hovers(axes, panel, part))
    for _, part in points.groupby("series") if panel.floors else [("", points)]:
        floor = part.groupby("x")["floor"].median().dropna()
        axes.plot(floor.index, floor.to_numpy(), color="0.45", ls=":", lw=1.2)


def _draw_series(axes: Any, colour: str, style: tuple[Any, str], part: Any) -> None:
    line, marker = style
    axes.plot(part["x"], part["median"], color=colour, ls=line, lw=1.1)
    axes.fill_between(part["x"], part["low"], part["high"], color=colour, alpha=0.18, lw=0)
    every = math.ceil(len(part) / MOST_BARS)
    bars = part[part["x"].isin([1.0])] if every > 1 else part[:0]
    bars = pd.concat([bars, part.iloc[every - 1 :: every]]).drop_duplicates("x")
    spread = bars["standard_deviation"].fillna(0).to_numpy()
    mean = bars["mean"].to_numpy()
    # Below a mean smaller than its deviation, the bar would reach zero, which a logarithmic axis does not have.
    below = [min(s, 0.9 * m) for s, m in zip(spread, mean, strict=True)]
    axes.errorbar(
        bars["x"],
        mean,
        yerr=[below, spread],
        fmt=marker,
        ms=2.6,
        lw=0.7,
        capsize=1.5,
        color=colour,
        mfc=colour if line == "-" else "white",
    )


def _mark_facts(axes: Any, facts: Any) -> None:
    for fact in facts.to_dict("records"):
        if pd.notna(fact["mean"]):
            axes.axhline(fact["mean"], color=MARK, lw=1.2, zorder=0)
            # In the corner: no curve comes there, while many meet at the line.
            text = f"line: {fact['mean']:.0%}, stated for {fact['x']:g} layers"
            axes.annotate(text, (0.98, 0.02), (0, 0), "axes fraction", ha="right", **_SMALL)
        else:
            axes.axvline(fact["x"], color=MARK, lw=1.2, zorder=0)
            axes.annotate(f"{fact['x']:g}×", (fact["x"], 0.02), (2, 0), axes.get_xaxis_transform(), **_SMALL)


_SMALL: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "color": "#8A3E6B"}


def _hovers(axes: Any, panel: Panel, part: Any) -> Iterator[Hover]:
    for point in part.to_dict("records"):
        words = f"{NAMES.get(point['nonlinearity'], point['nonlinearity'])}, {point['series'].replace('$', '')}"
        text = (
            f"{words}; {panel.x} {point['x']:g}: median {point['median']:.2e} "
            f"[{point['low']:.1e}, {point['high']:.1e}], mean {point['mean']:.2e} ± {point['standard_deviation']:.1e}, "
            f"n = {int(point['draws'])} × {int(point['values'] // max(1, point['draws']))}"
        )
        yield Hover(axes, point["x"], point["median"], text)


# --- what it says


def says(points: Any) -> list[Statement]:
    """The paper's three statements, each against the points, and which settings bear out all of them."""
    three = [*_depth_findings(points), *_downscale_findings(points), *_interscale_findings(points)]
    return [*three, *_knee_findings(points), *_settings_findings(points)]


def _of(points: Any, experiment: str, **wanted: Any) -> Any:
    found = points[points["experiment"].eq(experiment)]
    for name, value in wanted.items():
        found = found[found[name].eq(value)]
    return found.sort_values("x")


def _fact(points: Any, experiment: str) -> tuple[float, float]:
    facts = _of(points, experiment, series=STATED)
    return (float(facts["x"].iloc[0]), float(facts["mean"].iloc[0])) if len(facts) else (math.nan, math.nan)


def _not_much_higher(deepest: Any, level: float) -> bool:
    return bool(deepest["mean"].iloc[0] <= NOT_MUCH_HIGHER * level)


def _around(curve: Any, knee: float) -> tuple[Any, Any]:
    """The points up to the factor that the paper names, and those beyond it."""
    return curve[curve["x"] <= 1.01 * knee], curve[curve["x"] > 1.01 * knee]


def _rises(first: Any, last: Any) -> bool:
    """Whether the intervals of two medians do not meet."""
    return bool(last["low"] > first["high"])


def _depth_findings(points: Any) -> Iterator[Statement]:
    depth, level = _fact(points, "delta-depth")
    found = _of(points, "delta-depth", series="valid scales", x=depth)
    for (window, nonlinearity), part in found.groupby(["window", "nonlinearity"], sort=False):
        if nonlinearity == "linear":
            continue
        mean, spread = float(part["mean"].iloc[0]), float(part["standard_deviation"].iloc[0])
        words = (
            f"With {WINDOWS.get(window, window)} and {NAMES.get(nonlinearity, nonlinearity)}, Δ after {depth:g} layers"
        )
        text = f"{words} is {number(mean)} ± {number(spread)} (the paper: not much higher than {level:.0%})."
        yield claim(_not_much_higher(part, level), text)
    deepest = _of(points, "delta-depth", series="valid scales")["x"].max()
    if not len(found) and deepest > 0:
        yield Statement(
            "missing", f"Δ was measured up to {deepest:g} layers; the paper's statement is about {depth:g}."
        )


def _downscale_findings(points: Any) -> Iterator[Statement]:
    knee, _ = _fact(points, "delta-downscale")
    for window, name in WINDOWS.items():
        found = _of(points, "delta-downscale", window=window, nonlinearity="linear")
        for series, part in found.groupby("series", sort=False):
            before, after = _around(part, knee)
            if not len(before) or not len(after):
                continue
            at_knee, last = before.iloc[-1], after.iloc[-1]
            text = (
                f"One layer with {name} on {series}: median Δ is {number(before['median'].iloc[0])} at "
                f"{before['x'].iloc[0]:.3g}×, {number(at_knee['median'])} at {at_knee['x']:.3g}× and "
                f"{number(last['median'])} at {last['x']:.3g}× (the paper: it increases beyond {knee:g}×)."
            )
            yield claim(_rises(at_knee, last), text)


def _knee_findings(points: Any) -> Iterator[Statement]:
    """Up to which factor Delta stays small, and how many pixels are left there."""
    for window, name in WINDOWS.items():
        knees = {}
        for series, part in _of(points, "delta-downscale", window=window, nonlinearity="linear").groupby("series"):
            level = max(SMALL, 2 * float(part[part["x"].le(MODERATE)]["median"].max()))
            below = part[part["median"].le(level).cummin()]
            if len(below) and len(below) < len(part):
                knees[int(series.split()[0])] = float(below["x"].iloc[-1])
        if knees:
            words = [f"up to {last:.3g}× on {side} pixels ({round(side / last)} left)" for side, last in knees.items()]
            bound = f"{SMALL:.0%}, or twice the largest up to {MODERATE}×,"
            text = f"One layer with {name} keeps a median Δ of at most {bound} {listed(words)}"
            yield Statement("measured", f"{text}{_what_the_knee_follows(knees)}.")


def _what_the_knee_follows(knees: Mapping[int, float]) -> str:
    """Whether the factors at the knee, or the pixels that are left there, differ less between sizes of image."""
    if len(knees) < 2:
        return ""
    factors, pixels = list(knees.values()), [side / last for side, last in knees.items()]
    apart = [max(values) / min(values) for values in (factors, pixels)]
    follows = "the factor" if apart[0] < apart[1] else "the pixels that are left" if apart[1] < apart[0] else "both"
    words = f"the factors differ {number(apart[0])} times, the pixels left {number(apart[1])} times"
    return f": {words}, so it follows {follows}"


def _settings_findings(points: Any) -> Iterator[Statement]:
    """Which windows and nonlinearities bear out all of the paper's statements, and where the others fail."""
    depth, level = _fact(points, "delta-depth")
    good, bad = [], []
    for window, name in WINDOWS.items():
        for nonlinearity, kind in NAMES.items():
            failing = _failing(points, window, nonlinearity, depth, level)
            if failing is not None:
                setting = f"{name}, {kind}"
                good.extend([] if failing else [setting])
                bad.extend([f"{setting} (not {listed(failing)})"] if failing else [])
    if good or bad:
        text = f"All three curves are as the paper states them with: {'; '.join(good) or 'no setting'}."
        yield Statement("measured", text + (f" Otherwise: {'; '.join(bad)}." if bad else ""))


def _failing(points: Any, window: str, nonlinearity: str, depth: float, level: float) -> list[str] | None:
    """The statements that one setting does not bear out; None where a panel is missing."""
    setting = {"window": window, "nonlinearity": nonlinearity}
    deep = _of(points, "delta-depth", **setting, series="valid scales", x=depth)
    shrunk = _of(points, "delta-downscale", **setting, series="96 pixels")
    mixed = _of(points, "delta-interscale", **setting, series="all of 5 scales")
    knee, _ = _fact(points, "delta-downscale")
    before, after = _around(shrunk, knee)
    if not len(deep) or not len(before) or not len(after) or len(mixed) < 2:
        return None
    holds = {
        f"{depth:g} layers": _not_much_higher(deep, level),
        f"the rise beyond {knee:g}×": _rises(before.iloc[-1], after.iloc[-1]),
        "the rise with the extent": _rises(mixed.iloc[0], mixed.iloc[-1]),
    }
    return [name for name, good in holds.items() if not good]


def _interscale_findings(points: Any) -> Iterator[Statement]:
    for window, name in WINDOWS.items():
        found = _of(points, "delta-interscale", window=window, nonlinearity="linear")
        whole = found[found["series"].eq("all of 5 scales")]
        if len(whole) < 2:
            continue
        first, last = whole.iloc[0], whole.iloc[-1]
        text = (
            f"With {name}, interscale interaction raises Δ over all scales from {number(first['median'])} at "
            f"extent {first['x']:g} to {number(last['median'])} at {last['x']:g}"
        )
        longer = found[found["series"].eq(LONGER)]
        if len(longer):
            end = longer.iloc[-1]
            text += f"; on scale channels that lost nothing it is {number(end['median'])} there: the rest is truncation"
        yield claim(_rises(first, last), text + ".")
