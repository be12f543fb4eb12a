"""Along training: learning curves, Delta by epoch, and Delta against the test error over methods."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.report.findings import sentence
from harness.report.panels import SETTING, look, method_legend, panels
from harness.report.select import Selection, where
from harness.report.summaries import LEAST_RUNS, counting_interval, medians, summarised
from sesn.methods import METHODS
from sesn.tools.drawing import Drawing, Hover, log_axis, styled

EXPERIMENT = "mnist-scale"
CURVES = {"validation_error": "validation error, %", "train_loss": "training loss"}
#: The factor of the two that is drawn; the other is in the rows.
DOWNSCALE = 2.0
PARTS = {"trunk": "Δ of the last map", "logits": "Δ of the scores"}
BY_SIZE = {"test_error_by_size": "test error, %"}
AXES = {"epoch": "epochs", "digit_size": "size of the digit"}


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


def sizes_frame(selections: Mapping[str, Selection]) -> Any:
    """The test error by digit size: its mean, and the standard deviation of three or more realisations.

    Of fewer, the interval that the choice of test digits explains.
    """
    (metric,), keys = BY_SIZE, ["method", *SETTING, "digit_size"]
    rows = selections[EXPERIMENT].metric(metric)
    if not len(rows):
        return pd.DataFrame(columns=["metric", *keys])
    digits = rows.groupby(keys, observed=True)["digits"].sum().rename("digits").reset_index()
    points = _spread(summarised(rows, keys).merge(digits, on=keys).assign(metric=metric))
    counted = [counting_interval(line.mean, int(line.digits)) for line in points.itertuples()]
    few = points["draws"].lt(LEAST_RUNS)
    for place, end in enumerate(("low", "high")):
        points[end] = points[end].mask(few, [ends[place] for ends in counted])
    return points[["metric", *keys, "mean", "low", "high", "draws", "digits"]]


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
    """Validation error and loss by epoch."""
    return _lines(_spread(points), "metric", CURVES, "epoch")


@styled
def draw_delta(points: Any) -> Drawing:
    """Delta of the last map and of the scores by epoch."""
    return _lines(points.assign(mean=points["median"]), "of", PARTS, "epoch")


@styled
def draw_sizes(points: Any) -> Drawing:
    """The test error by the size of the digits."""
    return _lines(points, "metric", BY_SIZE, "digit_size")


def _spread(points: Any) -> Any:
    """The mean less and more the standard deviation, where a logarithmic axis has it."""
    spread = points["standard_deviation"].fillna(0)
    return points.assign(low=(points["mean"] - spread).clip(lower=0.2 * points["mean"]), high=points["mean"] + spread)


def _lines(points: Any, kind: str, names: dict[str, str], x: str) -> Drawing:
    """A line for each method with a band from `low` to `high`."""
    hovers: list[Hover] = []
    figure, found = panels(points, kind, names)
    for name, axes, part in found:
        for method, line in part.sort_values(x).groupby("method", sort=False):
            colour, marker = look(method)
            few = max(1, len(line) // 8)
            axes.plot(line[x], line["mean"], color=colour, marker=marker, ms=3.4, lw=1.1, markevery=few)
            axes.fill_between(line[x], line["low"], line["high"], color=colour, alpha=0.1, lw=0)
            for point in line.to_dict("records"):
                values = {"label": METHODS[method].label, "axis": AXES[x], "x": point[x], "what": names[name]}
                text = sentence("line-point", y=point["mean"], **values, **point)
                hovers.append(Hover(axes, point[x], point["mean"], text))
        log_axis(axes, "y", (1, 2, 5))
        axes.set_xlabel(AXES[x])
        if x == "epoch":
            axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    method_legend(figure, points)
    return Drawing(figure, tuple(hovers))


@styled
def draw_accuracy(points: Any) -> Drawing:
    """One panel for each setting and part: Delta across, test error up."""
    hovers: list[Hover] = []
    figure, found = panels(points, "of", PARTS)
    for name, axes, part in found:
        for point in part.to_dict("records"):
            colour, marker = look(point["method"])
            across = [[point["delta"] - point["delta_low"]], [point["delta_high"] - point["delta"]]]
            spread = point["deviation"] if math.isfinite(point["deviation"]) else 0
            style = {"fmt": marker, "color": colour, "ms": 5, "lw": 0.8, "capsize": 1.5}
            axes.errorbar(point["delta"], point["error"], xerr=across, yerr=spread, **style)
            text = sentence("accuracy-point", label=METHODS[point["method"]].label, **point)
            hovers.append(Hover(axes, point["delta"], point["error"], text))
        log_axis(axes, "x", (1, 2, 5))
        axes.set(xlabel=PARTS[name], ylabel="test error, %" if axes.get_ylabel() else "")
    method_legend(figure, points, lines=False)
    return Drawing(figure, tuple(hovers))


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
