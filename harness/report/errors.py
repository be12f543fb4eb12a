"""The tables of test errors: MNIST-scale and STL-10, the paper's beside those here.

A difference to the paper's is shown only where it means something: with the same epochs and data, and a spread on both
sides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.report.select import Selection, first, lines_of, where
from harness.report.summaries import LEAST_RUNS, NO_AGREEMENT, NO_SAMPLE, Sample, agreement, summarised
from harness.report.tables import Table, TableEntry, named, numeric, rules
from sesn.methods import METHODS, Method
from sesn.methods.method import LATER

#: The paper's four settings of MNIST-scale.
SETTINGS: tuple[dict[str, Any], ...] = tuple(
    {"resolution": side, "augmented": augmented} for side in (28, 56) for augmented in (False, True)
)
COLUMNS = [
    *("method", "paper", "paper_deviation", "paper_n", "here", "deviation", "n"),
    *("difference", "half_width", "within", "reason", "paper_reason"),
]


def setting_name(resolution: float, augmented: bool) -> str:
    """The paper's heading: 28×28, 28×28 +."""
    return f"{int(resolution)}×{int(resolution)}{' +' if augmented else ''}"


def mnist_frame(selections: Mapping[str, Selection]) -> Any:
    """One line per method and setting."""
    chosen = selections["mnist-scale"]
    here = _samples(chosen, "resolution", "augmented")
    lines = [
        _line(chosen, here, row, "mnist", setting) | setting
        for row in lines_of("mnist", chosen)
        for setting in SETTINGS
    ]
    return pd.DataFrame(lines, columns=[*COLUMNS, *SETTINGS[0]])


def stl10_frame(selections: Mapping[str, Selection]) -> Any:
    """One line per method: the full network, and the reduced one, which the paper does not have."""
    full, small = selections["stl10"], selections["stl10-reduced"]
    here, reduced = _samples(full), _samples(small)
    lines = []
    for row in lines_of("stl10", full, small):
        sample = reduced.get((row.key,), NO_SAMPLE)
        beside = {"reduced": sample.mean, "reduced_reason": "" if sample.n else small.reason(row.key)}
        lines.append(_line(full, here, row, "stl10", {}) | beside)
    return pd.DataFrame(lines, columns=[*COLUMNS, "reduced", "reduced_reason"])


def _samples(chosen: Selection, *by: str) -> dict[tuple[Any, ...], Sample]:
    """The test errors of each method, at each place."""
    names, rows = ("method", *by), chosen.metric("test_error")
    return {
        tuple(line[name] for name in names): Sample(line["mean"], line["standard_deviation"], int(line["values"]))
        for line in summarised(rows, names).to_dict("records")
    }


def _line(
    chosen: Selection, samples: Mapping[Any, Sample], row: Method, network: str, place: Mapping[str, Any]
) -> dict[str, Any]:
    paper, here = _published(chosen.paper, row.key, place), samples.get((row.key, *place.values()), NO_SAMPLE)
    found = agreement(paper, here)
    if chosen.unlike or found.within is None:
        found = NO_AGREEMENT
    unpublished = LATER if row.later else row.absences.get(f"{network}/error", "the paper has no number")
    return {
        **{"method": row.key, "paper": paper.mean, "paper_deviation": paper.standard_deviation, "paper_n": paper.n},
        **{"here": here.mean, "deviation": here.standard_deviation, "n": here.n},
        **{"difference": found.difference, "half_width": found.half_width, "within": found.word},
        "reason": "" if here.n else chosen.reason(row.key, **place),
        "paper_reason": "" if paper.n else unpublished,
    }


def _published(paper: Any, method: str, place: Mapping[str, Any]) -> Sample:
    found = where(paper, method=method, metric="test_error", **place)
    spread, runs = (first(found, name) for name in ("standard_deviation", "realisations"))
    return Sample(first(found, "value"), spread, int(runs)) if len(found) else NO_SAMPLE


# --- as tables


def mnist_table(frame: Any) -> Table:
    """The paper's error and the error here of each setting, and their difference where it was tested."""
    parts = {setting_name(**setting): where(frame, **setting) for setting in SETTINGS}
    columns = [(f"{name} ", part, *column) for name, part in parts.items() for column in _columns(part)]
    return _table(frame, "mnist", columns)


def stl10_table(frame: Any) -> Table:
    """The paper's error, the error here, and that of the reduced network; what was not run at all is left out."""
    reduced = ("reduced network here, %", "reduced", "", "reduced_reason")
    columns = [*_columns(frame), *([reduced] if frame["reduced"].notna().any() else [])]
    return _table(frame, "stl10", [("", frame, *column) for column in columns])


def _columns(part: Any) -> list[tuple[str, str, str, str]]:
    """Heading, value, spread and reason of each column that has something to show."""
    columns = [("paper, %", "paper", "paper_deviation", "paper_reason")]
    if part["n"].gt(0).any():
        columns.append(("here, %", "here", "deviation", "reason"))
    if part["within"].ne("").any():
        columns.append(("difference", "difference", "within", "reason"))
    return columns


def _table(frame: Any, network: str, columns: list[tuple[str, Any, str, str, str, str]]) -> Table:
    heading = ("Method", *(f"{setting}{name}" for setting, _, name, *_ in columns))
    lines = []
    for method in dict.fromkeys(frame["method"]):
        entries = [_entry(where(part, method=method).iloc[0], part, *column) for _, part, _, *column in columns]
        lines.append((named(method, METHODS[method].label_on(network)), *entries))
    return Table(heading, tuple(lines), rules(frame))


def _entry(line: Any, part: Any, value: str, spread: str, reason: str) -> TableEntry:
    why = line[reason] or line["paper_reason"] or "the run gave no number"
    if value == "difference":
        return numeric(line[value], f"{{:+.2f}} {line[spread]}", why if line["reason"] else "not judged")
    # The lowest of several is bold, later methods by themselves; one number alone is the lowest of nothing.
    later = METHODS[line["method"]].later
    group = part[value][[METHODS[key].later == later for key in part["method"]]]
    lowest = group.notna().sum() > 1 and line[value] == group.min()
    shown = spread and math.isfinite(line[spread]) and line["paper_n" if value == "paper" else "n"] >= LEAST_RUNS
    deviation = f" ± {line[spread]:.2f}" if shown else ""
    return numeric(line[value], "{:.2f}" + deviation, why, bold=bool(lowest))
