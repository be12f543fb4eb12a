"""Experiments from outside, listed plainly: each metric at the settings that vary, with mean, spread and number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.records import CORE, DIGESTS, EXPERIMENT_SOURCE
from harness.report.select import Selection
from harness.report.summaries import summarised
from harness.report.tables import Table, TableEntry
from sesn.methods import METHODS

KEY = "own-experiments"
COLUMNS = ["experiment", "budget", "method", "metric", "settings", "mean", "standard_deviation", "values"]
#: What the rows were measured with, for the caption.
FACTS = ("machine", "threads", "torch", "device")


def selection(rows: Any) -> Selection:
    """The rows of experiments from outside; of each those of the file that was run last."""
    if EXPERIMENT_SOURCE not in rows:
        return Selection(KEY, rows[:0], rows[:0], rows[:0])
    own = rows[rows[EXPERIMENT_SOURCE].notna()].sort_values("started", kind="stable")
    digests = own[EXPERIMENT_SOURCE].astype(object)
    outdated = digests.ne(digests.groupby(own["experiment"].astype(object)).transform("last"))
    left_out = [f"{count} rows of {key}, whose file has changed since" for key, count in _counts(own[outdated])]
    own = own[~outdated]
    good = own[own["status"].eq("ok")]
    facts = {name: " and ".join(sorted(map(str, good[name].unique()))) for name in FACTS}
    return Selection(KEY, good, own[~own["status"].eq("ok")], rows[:0], facts, tuple(left_out))


def _counts(rows: Any) -> list[tuple[str, int]]:
    return sorted(rows["experiment"].astype(str).value_counts().items())


def frame(selections: Mapping[str, Selection]) -> Any:
    """One line per experiment, budget, method, metric and place."""
    lines: list[dict[str, Any]] = []
    for _, rows in selections[KEY].rows.groupby(["experiment", "budget"], observed=True, sort=True):
        settings = [name for name in rows.columns if name not in (*CORE, *DIGESTS)]
        # A setting that some cells lack varies, too.
        varying = [name for name in settings if rows[name].nunique(dropna=False) > 1]
        by = ["experiment", "budget", "method", "metric", *varying]
        for line in summarised(rows, by).to_dict("records"):
            metric = rows[rows["metric"].eq(line["metric"])]
            told = [f"{name}={_plain(line[name])}" for name in varying if metric[name].notna().any()]
            lines.append({**line, "settings": ", ".join(told)})
    return pd.DataFrame(lines, columns=COLUMNS)


def _plain(value: Any) -> str:
    if pd.isna(value):
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def table(lines: Any) -> Table:
    """The same for reading."""
    heading = ("Experiment", "Budget", "Method", "Metric", "At", "Mean", "Standard deviation", "Values")
    rows = [
        (
            *(TableEntry(str(line[name])) for name in ("experiment", "budget")),
            TableEntry(METHODS[line["method"]].label if line["method"] else ""),
            *(TableEntry(str(line[name])) for name in ("metric", "settings")),
            *(TableEntry(f"{line[name]:.2g}", line[name]) for name in ("mean", "standard_deviation")),
            TableEntry(str(line["values"]), line["values"]),
        )
        for line in lines.to_dict("records")
    ]
    return Table(heading, tuple(rows))
