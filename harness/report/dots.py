"""Test errors and epoch times as dots, those of the paper beside them where the two can be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.report import times
from harness.report.errors import SETTINGS, mnist_frame, setting_name
from harness.report.panels import SETTING, dots
from harness.report.select import Selection, where
from harness.report.summaries import LEAST_RUNS
from sesn.tools.drawing import Drawing, styled

DOT = ["source", "value", "low", "high", "n"]


def errors_frame(selections: Mapping[str, Selection]) -> Any:
    """One line per dot: mean ± standard deviation of the paper and of at least three runs here; fewer one by one.

    A setting without runs has no lines, and a shortened training is not compared with the paper's.
    """
    chosen, lines = selections["mnist-scale"], []
    trained = mnist_frame(selections)
    tested = chosen.metric("test_error")
    for line in trained.to_dict("records"):
        place = {name: line[name] for name in ("method", *SETTING)}
        if not chosen.unlike and len(where(tested, **{name: line[name] for name in SETTING})):
            lines.append(place | _dot("paper", line["paper"], line["paper_deviation"], line["paper_n"]))
        if line["n"] >= LEAST_RUNS:
            lines.append(place | _dot("here", line["here"], line["deviation"], line["n"]))
        else:
            lines += [place | _dot("here", value, math.nan, 1) for value in where(tested, **place)["value"]]
    return pd.DataFrame(lines, columns=["method", *SETTING, *DOT]).dropna(subset=["value"])


def _dot(source: str, mean: float, deviation: float, n: int) -> dict[str, Any]:
    return {"source": source, "value": mean, "low": mean - deviation, "high": mean + deviation, "n": n}


@styled
def draw_errors(points: Any) -> Drawing:
    """A panel for each setting."""
    titles = {tuple(setting.values()): setting_name(**setting) for setting in SETTINGS}
    return dots(points, SETTING, titles, "test error, %")


def times_frame(selections: Mapping[str, Selection]) -> Any:
    """One line per dot: the time of an epoch in those of the CNN, with its interval; the paper's has its rounding's."""
    every, lines = times.frame(selections), []
    names = {"here": "ratio", "paper": "paper_ratio"}
    if selections[times.KEY].unlike:
        del names["paper"]
    for source, name in names.items():
        ends = {"value": every[name], "low": every[f"{name}_low"], "high": every[f"{name}_high"]}
        steps = every["steps"] if source == "here" else 1
        lines.append(every[["method", "resolution"]].assign(source=source, n=steps, **ends))
    return pd.concat(lines)[["method", "resolution", *DOT]].dropna(subset=["value"]).reset_index(drop=True)


@styled
def draw_times(points: Any) -> Drawing:
    """A panel for each resolution."""
    titles = {(side,): f"{side}×{side}" for side in times.RESOLUTIONS}
    return dots(points, ["resolution"], titles, "time of an epoch, in epochs of the CNN", ticks=(1, 2, 5))
