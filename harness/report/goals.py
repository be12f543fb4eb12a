"""How near to exact wide windows come: a goal for each setting, what the sweeps measured, and what is in the way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from harness.report.delta import NAMES, PERIODIC
from harness.report.findings import between, listed, sentence
from harness.report.select import Selection, where
from harness.report.summaries import SUMMARY, medians, summarised
from harness.report.tables import Table, TableEntry, absent, numeric


class Goal(NamedTuple):
    """The mean Delta over images and weight draws that a network with wide windows should not exceed.

    `layers` at one step of the grid, or one layer at every downscale up to `downscale`. The border counts, where maps
    have one.
    """

    nonlinearity: str
    layers: int
    downscale: float
    limit: float
    window: str = "wide"

    @property
    def is_depth(self) -> bool:
        """Whether networks at one step of the grid are meant, and not one layer at many factors."""
        return self.layers > 1 or self.downscale < 2

    @property
    def name(self) -> str:
        """How a table names the goal."""
        kind = NAMES[self.nonlinearity]
        depth = f"{self.layers} layers" if self.layers > 1 else "one layer"
        if self.downscale > 2:
            return f"{depth} of 13 scales, {kind}, up to {self.downscale:.3g}×"
        maps = ", periodic maps" if self.window == PERIODIC else ""
        return f"{depth}, {kind}, {self.downscale:.3g}×{maps}"


STEP = math.sqrt(2)
GOALS = (
    Goal("linear", 1, STEP, 1e-5),
    Goal("linear", 1, 4.0, 1e-4),
    Goal("linear", 50, STEP, 5e-5),
    Goal("relu", 50, STEP, 2e-2),
    Goal("bandlimited", 50, STEP, 5e-3),
    Goal("nested", 50, STEP, 1e-8, PERIODIC),
)
COLUMNS = ["goal", *Goal._fields, *SUMMARY, "inside", "linear", "floor", "met"]
#: A cause explains a Delta if what is left without it is at most this part.
EXPLAINED = 0.5


def frame(selections: Mapping[str, Selection]) -> Any:
    """One line per goal that was measured: Delta, Delta without the border, of linear layers, and the probe's floor."""
    lines = [line for goal in GOALS if (line := _line(goal, selections)) is not None]
    return pd.DataFrame(lines, columns=COLUMNS)


def _line(goal: Goal, selections: Mapping[str, Selection]) -> dict[str, Any] | None:
    # The metrics with the border and without it; deep networks see it from everywhere.
    border, inside = ("delta", "delta_cropped") if goal.is_depth else ("delta_uncropped", "delta")

    def means(metric: str, nonlinearity: str = goal.nonlinearity) -> Any:
        return summarised(_rows(goal, selections, metric, nonlinearity), ["place"]).sort_values("mean")

    found = means(border)
    if not len(found):
        return None
    # A Delta that is no number sorts as the largest.
    worst = found.iloc[-1]
    floors = _rows(goal, selections, "floor", goal.nonlinearity)
    return {
        **{"goal": goal.name, **goal._asdict(), **{name: worst[name] for name in SUMMARY}},
        "linear": means(border, "linear")["mean"].max() if goal.nonlinearity != "linear" else math.nan,
        "inside": float(means(inside)["mean"].max()),
        "floor": float(medians(floors, "place").max()),
        "met": bool(worst["mean"] <= goal.limit),
    }


def _rows(goal: Goal, selections: Mapping[str, Selection], metric: str, nonlinearity: str) -> Any:
    """The rows of a metric at every place that the goal is about."""
    rows = selections["delta-depth" if goal.is_depth else "delta-downscale"].metric(metric)
    rows = where(rows, window=goal.window, nonlinearity=nonlinearity)
    if not len(rows):
        return rows.assign(place=())
    if goal.is_depth:
        return where(rows, depth=goal.layers).assign(place=float(goal.layers))
    rows = where(rows.assign(place=rows["downscale"].astype(float)), side=96)
    return rows[rows["place"].le(goal.downscale * 1.001)]


def cause(line: Mapping[str, Any]) -> str:
    """What is in the way of a goal that was missed, by what is left without it."""
    known = {"inside": "the border", "linear": "the nonlinearity"}
    for name in known:
        if line[name] <= EXPLAINED * line["mean"]:
            return sentence(f"goal-{name}", **line)
    ruled_out = [words for name, words in known.items() if not math.isnan(line[name])]
    return f"not {listed(ruled_out)}" if ruled_out else "not separated here"


def table(frame: Any) -> Table:
    """The goal, what was measured, and what is in the way."""
    heading = ("Network", "goal", "mean Δ", "± sd", "median Δ", "95 % interval", "met", "floor of the probe")
    lines = []
    for line in frame.to_dict("records"):
        names = ("limit", "mean", "standard_deviation", "median")
        numbers = [TableEntry(f"{line[name]:.2g}", line[name]) for name in names]
        interval = TableEntry(between(line["low"], line["high"]), line["low"])
        verdict = TableEntry("yes" if line["met"] else "no", bold=not line["met"])
        way = absent("the goal is met") if line["met"] else TableEntry(cause(line))
        floor = numeric(line["floor"], "{:.2g}", "not measured")
        lines.append((TableEntry(line["goal"]), *numbers, interval, verdict, floor, way))
    return Table((*heading, "in the way"), tuple(lines))
