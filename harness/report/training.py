"""Along training: learning curves, Delta by epoch, and Delta against the test error over methods."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.report.errors import setting_name
from harness.report.findings import sentence
from harness.report.select import Selection, where
from harness.report.summaries import medians, summarised
from sesn.methods import METHODS
from sesn.tools.drawing import Drawing, Hover, log_axis, styled

EXPERIMENT = "mnist-scale"
SETTING = ["resolution", "augmented"]
CURVES = {"validation_error": "validation error, %", "train_loss": "training loss"}
#: The factor of the two that is drawn; the other is in the rows.
DOWNSCALE = 2.0
PARTS = {"trunk": "Δ of the last map", "logits": "Δ of the scores"}
#: One marker for each scalar or vector form, so that no series depends on colour alone.
MARKERS = "osD^vP<>X*"


def curves_frame(selections: Mapping[str, Selection]) -> Any:
    """Mean and spread over realisations of the validation error and the loss, by epoch."""
    rows = selections[EXPERIMENT].rows
    rows = rows[rows["metric"].isin(list(CURVES))].assign(epoch=lambda part: part["repeat"].astype(int) + 1)
    # Each epoch is one number per realisation.
    return summarised(rows.assign(repeat=0), ["metric", "method", *SETTING, "epoch"])


def delta_frame(selections: Mapping[str, Selection]) -> Any:
    """Delta by epoch over images and realisations, of the scores and of the last map."""
    keys = ["of", "method", *SETTING, "epoch"]
    rows = _delta_rows(selections[EXPERIMENT])
    return summarised(_in_all_realisations(rows, keys) if len(rows) else rows, keys)


def _in_all_realisations(rows: Any, keys: list[str]) -> Any:
    """Leave out an epoch that only some realisations measured, at which the curve would jump."""
    there, every = (rows.groupby(by, observed=True)["cell"].transform("nunique") for by in (keys, keys[:-1]))
    return rows[there.eq(every)]


def _delta_rows(chosen: Selection) -> Any:
    rows = chosen.metric("delta")
    if not {"of", "epoch", "downscale"} <= set(rows.columns):
        return rows[:0]
    rows = rows[rows["of"].isin(list(PARTS)) & (rows["downscale"].astype(float) - DOWNSCALE).abs().lt(1e-6)]
    return rows.assign(epoch=rows["epoch"].astype(int))


def accuracy_frame(selections: Mapping[str, Selection]) -> Any:
    """Per method and setting: Delta of the weights that were tested, and the test error."""
    chosen, keys = selections[EXPERIMENT], ["of", "method", *SETTING]
    rows, errors = _tested(chosen), chosen.metric("test_error")
    columns = [*keys, "delta", "delta_low", "delta_high", "error", "deviation", "realisations"]
    if not len(rows) or not len(errors):
        return pd.DataFrame(columns=columns)
    names = {"median": "delta", "low": "delta_low", "high": "delta_high"}
    delta = summarised(rows, keys).rename(columns=names)[[*keys, *names.values()]]
    renamed = {"mean": "error", "standard_deviation": "deviation", "values": "realisations"}
    error = summarised(errors, keys[1:]).rename(columns=renamed)[[*keys[1:], *renamed.values()]]
    return delta.merge(error, on=keys[1:])[columns]


def _tested(chosen: Selection) -> Any:
    """The Delta rows of each cell's best epoch, or of its last where none is named."""
    rows = _delta_rows(chosen)
    if not len(rows):
        return rows
    best = chosen.metric("best_epoch").set_index("cell")["value"]
    last = rows.groupby("cell", observed=True)["epoch"].max()
    wanted = rows["cell"].map(best).fillna(rows["cell"].map(last))
    return rows[rows["epoch"].eq(wanted)]


# --- drawing


@styled
def draw_curves(points: Any) -> Drawing:
    """Validation error above, loss below, one column per setting."""
    spread = points["standard_deviation"].fillna(0)
    low, high = (points["mean"] - spread).clip(lower=0.2 * points["mean"]), points["mean"] + spread
    return _by_epoch(points.assign(low=low, high=high), "metric", CURVES, "mean")


@styled
def draw_delta(points: Any) -> Drawing:
    """Delta of the last map is above, and that of the scores below."""
    return _by_epoch(points, "of", PARTS, "median")


def _by_epoch(points: Any, kind: str, names: dict[str, str], middle: str) -> Drawing:
    """A line for each method with a band from `low` to `high`."""
    hovers: list[Hover] = []
    figure, panels = _panels(points, kind, names)
    for name, axes, part in panels:
        for method, line in part.sort_values("epoch").groupby("method", sort=False):
            colour, marker = _look(method)
            few = max(1, len(line) // 8)
            axes.plot(line["epoch"], line[middle], color=colour, marker=marker, ms=3.4, lw=1.1, markevery=few)
            axes.fill_between(line["epoch"], line["low"], line["high"], color=colour, alpha=0.12, lw=0)
            for point in line.to_dict("records"):
                text = sentence("epoch-point", label=METHODS[method].label, what=names[name], y=point[middle], **point)
                hovers.append(Hover(axes, point["epoch"], point[middle], text))
        log_axis(axes, "y", (1, 2, 5))
        axes.set_xlabel("epochs")
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    _method_legend(figure, points)
    return Drawing(figure, tuple(hovers))


@styled
def draw_accuracy(points: Any) -> Drawing:
    """One panel for each setting and part: Delta across, test error up."""
    hovers: list[Hover] = []
    figure, panels = _panels(points, "of", PARTS)
    for name, axes, part in panels:
        for point in part.to_dict("records"):
            colour, marker = _look(point["method"])
            across = [[point["delta"] - point["delta_low"]], [point["delta_high"] - point["delta"]]]
            spread = point["deviation"] if math.isfinite(point["deviation"]) else 0
            look = {"fmt": marker, "color": colour, "ms": 5, "lw": 0.8, "capsize": 1.5}
            axes.errorbar(point["delta"], point["error"], xerr=across, yerr=spread, **look)
            text = sentence("accuracy-point", label=METHODS[point["method"]].label, **point)
            hovers.append(Hover(axes, point["delta"], point["error"], text))
        log_axis(axes, "x", (1, 2, 5))
        axes.set_xlabel(PARTS[name])
        axes.set_ylabel("test error, %" if axes.get_subplotspec().is_first_col() else "")
    _method_legend(figure, points, lines=False)
    return Drawing(figure, tuple(hovers))


def _panels(points: Any, kind: str, names: dict[str, str]) -> tuple[Figure, list[tuple[str, Any, Any]]]:
    """A row for each of the names and a column for each setting that has points: the name, its axes, its points."""
    settings = points[SETTING].drop_duplicates().sort_values(SETTING).to_dict("records")
    shown = [name for name in names if name in set(points[kind])]
    width = max(3.5, min(7.2, 1.2 + 2.4 * len(settings)))
    figure = Figure(figsize=(width, 1.2 + 2.1 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), len(settings), squeeze=False, sharey="row", sharex="row")
    for row, name in zip(grid, shown, strict=True):
        row[0].set_ylabel(names[name])
    for axes, setting in zip(grid[0], settings, strict=True):
        axes.set_title(setting_name(**setting), fontsize=8)
    return figure, [
        (name, axes, where(points, **{kind: name}, **setting))
        for row, name in zip(grid, shown, strict=True)
        for axes, setting in zip(row, settings, strict=True)
    ]


def _look(method: str) -> tuple[str, str]:
    return METHODS[method].colour, MARKERS[list(METHODS).index(method) % len(MARKERS)]


def _method_legend(figure: Figure, points: Any, lines: bool = True) -> None:
    shown = [key for key in METHODS if key in set(points["method"])]
    width, looks = 1.1 if lines else 0, [_look(key) for key in shown]
    handles = [Line2D([], [], color=colour, marker=marker, ms=4, lw=width) for colour, marker in looks]
    names = [METHODS[key].label for key in shown]
    columns = max(2, int(figure.get_figwidth() / 1.25))
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=7)


# --- what they say


def says_delta(points: Any) -> list[str]:
    """Say by how much training changes Delta."""
    found = []
    for part, name in PARTS.items():
        changes = []
        for method, group in where(points, of=part).groupby("method", sort=False):
            levels = medians(group, "epoch", "median")
            if levels.iloc[0] > 0:
                changes.append((levels.iloc[-1] / levels.iloc[0], METHODS[method].label))
        if changes:
            ends = [f"{change:.2g} ({label})" for change, label in (min(changes), max(changes))]
            words = " to ".join(ends[: len(changes)])
            found.append(sentence("training-changes", part=name, downscale=DOWNSCALE, changes=words))
    return found
