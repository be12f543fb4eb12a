"""The table of epoch times: seconds, the ratio to the CNN here and in the paper, and multiply-adds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.report.select import Selection, lines_of, where
from harness.report.summaries import rounding, summarised
from harness.report.tables import Table, TableEntry, named, numeric, rules
from sesn.methods import REFERENCE

KEY = "epoch-time"
RESOLUTIONS = (28, 56)
COLUMNS = [
    *("method", "resolution", "epoch_time", "epoch_low", "epoch_high", "steps", "ratio", "ratio_low", "ratio_high"),
    *("paper_time", "paper_ratio", "paper_ratio_low", "paper_ratio_high"),
    *("multiply_adds", "peak_memory", "reason"),
]


def current(rows: Any) -> Any:
    """The rows of the MNIST-scale network, without those that a later cell of the method has measured again.

    Older cells timed many methods at once, and name them in `methods`; later ones are of one method each.
    """
    if "network" in rows:
        rows = rows[rows["network"].isna()]
    if "methods" not in rows:
        return rows
    timed = rows["experiment"].eq(KEY) & rows["status"].eq("ok")
    place = ["method", "resolution", "version", "budget", "machine", "device"]
    places = pd.MultiIndex.from_frame(rows[place].astype(object))
    again = places.isin(places[timed & rows["methods"].isna()])
    return rows[~(timed & rows["methods"].notna() & again)]


def frame(selections: Mapping[str, Selection]) -> Any:
    """One line per method and resolution."""
    chosen = selections[KEY]
    names = ("epoch_time", "time_ratio", "multiply_adds", "peak_memory")
    rows = chosen.rows[chosen.rows["metric"].isin(names)]
    lines = summarised(rows, ("metric", "method", "resolution")).to_dict("records")
    found = {(line["metric"], line["method"], int(line["resolution"])): line for line in lines}
    made = [_line(chosen, found, row.key, side) for side in RESOLUTIONS for row in lines_of("mnist", chosen)]
    return pd.DataFrame(made, columns=COLUMNS)


def _line(chosen: Selection, found: dict[Any, Any], method: str, side: int) -> dict[str, Any]:
    def seen(metric: str, name: str = "median") -> Any:
        return found.get((metric, method, side), {}).get(name, math.nan)

    paper, low, high, seconds = _paper_ratio(chosen.paper, method, side)
    timed = ("epoch_time", method, side) in found
    return {
        **{"method": method, "resolution": side, "epoch_time": seen("epoch_time")},
        **{"epoch_low": seen("epoch_time", "low"), "epoch_high": seen("epoch_time", "high")},
        **{"steps": int(seen("epoch_time", "values")) if timed else 0, "ratio": seen("time_ratio")},
        **{"ratio_low": seen("time_ratio", "low"), "ratio_high": seen("time_ratio", "high")},
        **{"paper_time": seconds, "paper_ratio": paper, "paper_ratio_low": low, "paper_ratio_high": high},
        **{"multiply_adds": seen("multiply_adds"), "peak_memory": seen("peak_memory")},
        "reason": "" if timed else chosen.reason("", resolution=side),
    }


def _paper_ratio(paper: Any, method: str, side: int) -> tuple[float, float, float, float]:
    """The ratio of published times, its ends by rounding, and the time itself."""
    printed = where(paper, metric="epoch_time", resolution=side)
    times = dict(zip(printed["method"], printed["value"].astype(float), strict=True))
    if method not in times or REFERENCE not in times:
        return (math.nan,) * 4
    own, base = times[method], times[REFERENCE]
    if method == REFERENCE:
        return 1.0, 1.0, 1.0, own
    near = rounding(own), rounding(base)
    return own / base, (own - near[0]) / (base + near[1]), (own + near[0]) / (base - near[1]), own


def table(lines: Any) -> Table:
    """Each resolution has the times and ratios of the paper and here, and the work."""
    heading = ["Method"]
    for side in RESOLUTIONS:
        name = f"{side}×{side}"
        heading += [f"{name} paper, s", f"{name} here, s", "ratio paper", "ratio here", "multiply-adds"]
    rows = []
    for method, part in lines.groupby("method", sort=False):
        entries = [entry for cell in part.to_dict("records") for entry in _entries(cell)]
        rows.append((named(method), *entries))
    return Table(tuple(heading), tuple(rows), rules(lines))


def _entries(cell: Any) -> list[TableEntry]:
    unpublished, reason = "the paper has no time", cell["reason"] or "not measured"
    return [
        numeric(cell["paper_time"], "{:.1f}", unpublished),
        numeric(cell["epoch_time"], "{:.1f}", reason),
        numeric(cell["paper_ratio"], "{:.2f}", unpublished),
        numeric(cell["ratio"], "{:.2f}", reason),
        numeric(cell["multiply_adds"], _short(cell["multiply_adds"]), reason),
    ]


def _short(count: float) -> str:
    if not math.isfinite(count):
        return ""
    power = min(4, max(0, int(math.log10(max(count, 1))) // 3))
    return f"{count / 1000**power:.3g}{('', ' K', ' M', ' G', ' T')[power]}"
