"""How near to exact wide windows come: a goal for each setting, what the sweeps measured, and what is in the way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from harness.report.delta import NAMES
from harness.report.findings import Statement, between, listed, number
from harness.report.select import Selection
from harness.report.summaries import SUMMARY, summarised
from harness.report.tables import Entry, Table, absent


class Goal(NamedTuple):
    """The mean Delta over images and weight draws that a network with wide windows should not exceed.

    `layers` at one step of the grid, or one layer at every downscale up to `downscale`. The border counts.
    """

    nonlinearity: str
    layers: int
    downscale: float
    limit: float

    @property
    def name(self) -> str:
        """Words for a table."""
        kind = NAMES[self.nonlinearity]
        depth = f"{self.layers} layers" if self.layers > 1 else "one layer"
        if self.downscale > 2:
            return f"{depth} of 13 scales, {kind}, up to {self.downscale:.3g}×"
        return f"{depth}, {kind}, {self.downscale:.3g}×"


STEP = math.sqrt(2)
GOALS = (
    Goal("linear", 1, STEP, 1e-5),
    Goal("linear", 1, 4.0, 1e-4),
    Goal("linear", 50, STEP, 5e-5),
    Goal("relu", 50, STEP, 2e-2),
    Goal("bandlimited", 50, STEP, 5e-3),
)
COLUMNS = ["goal", "nonlinearity", "layers", "downscale", "limit", *SUMMARY, "inside", "linear", "floor", "met"]
#: A cause explains a Delta if what is left without it is at most this part.
EXPLAINED = 0.5


def goals_frame(selections: Mapping[str, Selection]) -> Any:
    """One line per goal that was measured: Delta, Delta without the border, of linear layers, and the probe's floor."""
    lines = [line for goal in GOALS if (line := _line(goal, selections)) is not None]
    return pd.DataFrame(lines, columns=COLUMNS)


def _line(goal: Goal, selections: Mapping[str, Selection]) -> dict[str, Any] | None:
    found = _points(goal, goal.nonlinearity, selections)
    if not len(found):
        return None
    # A Delta that is no number sorts as the largest.
    worst = found.sort_values("mean").iloc[-1]
    linear = _points(goal, "linear", selections)["mean"].max() if goal.nonlinearity != "linear" else math.nan
    facts = {"goal": goal.name, "nonlinearity": goal.nonlinearity, "layers": goal.layers, "limit": goal.limit}
    facts |= {"downscale": goal.downscale, **{name: worst[name] for name in SUMMARY}, "linear": linear}
    facts |= {"inside": _inside(goal, selections), "floor": _floor(goal, selections)}
    return facts | {"met": bool(worst["mean"] <= goal.limit)}


def _points(goal: Goal, nonlinearity: str, selections: Mapping[str, Selection]) -> Any:
    """Delta with the border, summarised at every place that the goal is about."""
    rows = _rows(goal, selections, "delta" if _is_depth(goal) else "delta_uncropped", nonlinearity)
    return summarised(rows, ["place"])


def _is_depth(goal: Goal) -> bool:
    return goal.layers > 1 or goal.downscale < 2


def _rows(goal: Goal, selections: Mapping[str, Selection], metric: str, nonlinearity: str) -> Any:
    rows = selections["delta-depth" if _is_depth(goal) else "delta-downscale"].metric(metric)
    if not len(rows):
        return rows.assign(place=())
    rows = rows[rows["window"].eq("wide") & rows["nonlinearity"].eq(nonlinearity)]
    if _is_depth(goal):
        return rows[rows["depth"].eq(goal.layers)].assign(place=float(goal.layers))
    rows = rows.assign(place=rows["downscale"].astype(float))
    return rows[rows["side"].eq(96) & rows["place"].le(goal.downscale * 1.001)]


def _inside(goal: Goal, selections: Mapping[str, Selection]) -> float:
    """The largest mean Delta of the same network where the border does not count; deep ones see it from everywhere."""
    rows = _rows(goal, selections, "delta_cropped" if _is_depth(goal) else "delta", goal.nonlinearity)
    return float(summarised(rows, ["place"])["mean"].max())


def _floor(goal: Goal, selections: Mapping[str, Selection]) -> float:
    """The largest median floor of the probe, which never counts the border."""
    rows = _rows(goal, selections, "floor", goal.nonlinearity)
    return float(rows.groupby("place")["value"].median().max())


def cause(line: Mapping[str, Any]) -> str:
    """What is in the way of a goal that was missed, by what is left without it."""
    if line["inside"] <= EXPLAINED * line["mean"]:
        return f"the border: away from it {number(line['inside'])}"
    if line["linear"] <= EXPLAINED * line["mean"]:
        return f"the nonlinearity: linear layers have {number(line['linear'])}"
    known = {"inside": "the border", "linear": "the nonlinearity"}
    ruled_out = [words for name, words in known.items() if not math.isnan(line[name])]
    return f"not {listed(ruled_out)}" if ruled_out else "not separated here"


def goals_table(frame: Any) -> Table:
    """The goal, what was measured, and what is in the way."""
    heading = ("Network", "goal", "mean Δ", "± sd", "median Δ", "95 % interval", "met", "floor of the probe")
    lines = []
    for line in frame.to_dict("records"):
        numbers = [Entry(number(line[name]), line[name]) for name in ("limit", "mean", "standard_deviation", "median")]
        interval = Entry(between(line["low"], line["high"]), line["low"])
        verdict = Entry("yes" if line["met"] else "no", bold=not line["met"])
        floor = line["floor"]
        level = absent("not measured") if math.isnan(floor) else Entry(number(floor), floor)
        way = absent("the goal is met") if line["met"] else Entry(cause(line))
        lines.append((Entry(line["goal"]), *numbers, interval, verdict, level, way))
    return Table((*heading, "in the way"), tuple(lines))


def goals_says(frame: Any) -> list[Statement]:
    """Which goals are met, and of each other one what is in the way."""
    met, missed = ([line for line in frame.to_dict("records") if line["met"] is good] for good in (True, False))
    text = f"With wide windows {len(met)} of the {len(frame)} goals for Δ that were measured are met"
    names = [f"{line['goal']} ({number(line['mean'])})" for line in met]
    found = [Statement("measured", f"{text}: {listed(names)}." if met else f"{text}.")]
    for line in missed:
        text = f"Missed: {line['goal']} has mean Δ {number(line['mean'])}, the goal is {number(line['limit'])}"
        found.append(Statement("measured", f"{text}; in the way: {cause(line)}."))
    return found
