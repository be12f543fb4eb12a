"""The table of epoch times: seconds, the ratio to the CNN here and in the paper, and multiply-adds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from harness.report.findings import Statement, claim, listed
from harness.report.select import Selection
from harness.report.summaries import rounding, summarised
from harness.report.tables import Entry, Table, absent
from sesn.methods import METHODS, REFERENCE, methods_on

#: Several times faster is at least this much.
SEVERAL = 2.0
RESOLUTIONS = (28, 56)
COLUMNS = [
    *("method", "resolution", "epoch_time", "epoch_low", "epoch_high", "steps", "ratio", "ratio_low", "ratio_high"),
    *("paper_time", "paper_ratio", "paper_ratio_low", "paper_ratio_high", "difference", "within"),
    *("multiply_adds", "peak_memory", "reason"),
]


def frame(selections: Mapping[str, Selection]) -> Any:
    """One line per method and resolution."""
    chosen = selections["epoch-time"]
    found = {name: _summaries(chosen, name) for name in ("epoch_time", "time_ratio", "multiply_adds", "peak_memory")}
    lines = [_line(chosen, found, row.key, side) for side in RESOLUTIONS for row in methods_on("mnist")]
    return pd.DataFrame(lines, columns=COLUMNS)


def _summaries(chosen: Selection, metric: str) -> dict[tuple[str, int], Any]:
    rows = chosen.metric(metric)
    if not len(rows):
        return {}
    lines = summarised(rows, ("method", "resolution")).to_dict("records")
    return {(line["method"], int(line["resolution"])): line for line in lines}


def _line(chosen: Selection, found: dict[str, dict[Any, Any]], method: str, side: int) -> dict[str, Any]:
    time, ratio = (found[name].get((method, side), {}) for name in ("epoch_time", "time_ratio"))
    paper, low, high, seconds = _paper_ratio(chosen.paper, method, side)
    line = {
        **{"method": method, "resolution": side, "epoch_time": time.get("median", math.nan)},
        **{"epoch_low": time.get("low", math.nan), "epoch_high": time.get("high", math.nan)},
        **{"steps": int(time.get("values", 0)), "ratio": ratio.get("median", math.nan)},
        **{"ratio_low": ratio.get("low", math.nan), "ratio_high": ratio.get("high", math.nan)},
        **{"paper_time": seconds, "paper_ratio": paper, "paper_ratio_low": low, "paper_ratio_high": high},
        **{
            name: found[name].get((method, side), {}).get("median", math.nan)
            for name in ("multiply_adds", "peak_memory")
        },
        "reason": "" if time else chosen.reason("", resolution=side),
    }
    known = math.isfinite(line["ratio"]) and math.isfinite(paper)
    overlap = line["ratio_low"] <= high and low <= line["ratio_high"]
    return {**line, "difference": line["ratio"] - paper, "within": ("in" if overlap else "out") if known else ""}


def _paper_ratio(paper: Any, method: str, side: int) -> tuple[float, float, float, float]:
    """The ratio of published times, its ends by rounding, and the time itself."""
    times = {
        row["method"]: float(row["value"])
        for row in paper[paper["metric"].eq("epoch_time")].to_dict("records")
        if int(row["resolution"]) == side
    }
    if method not in times or REFERENCE not in times:
        return (math.nan,) * 4
    own, base = times[method], times[REFERENCE]
    if method == REFERENCE:
        return 1.0, 1.0, 1.0, own
    near = rounding(own), rounding(base)
    return own / base, (own - near[0]) / (base + near[1]), (own + near[0]) / (base - near[1]), own


def table(lines: Any) -> Table:
    """Five columns a resolution, and the work."""
    heading = ["Method"]
    for side in RESOLUTIONS:
        name = f"{side}×{side}"
        heading += [f"{name} paper, s", f"{name} here, s", "ratio paper", "ratio here", "difference", "multiply-adds"]
    rows = []
    for method, part in lines.groupby("method", sort=False):
        entries = [Entry(METHODS[method].label)]
        for _, cell in part.iterrows():
            entries += _entries(cell)
        rows.append(tuple(entries))
    own = [place for place, row in enumerate(dict.fromkeys(lines["method"])) if METHODS[row].ours]
    return Table(tuple(heading), tuple(rows), tuple(own[:1]))


def _entries(cell: Any) -> list[Entry]:
    unpublished, reason = "the paper has no time", cell["reason"] or "not measured"
    difference = f"{cell['difference']:+.2f} {cell['within']}".strip()
    return [
        _number(cell["paper_time"], f"{cell['paper_time']:.1f}", unpublished),
        _number(cell["epoch_time"], f"{cell['epoch_time']:.1f}", reason),
        _number(cell["paper_ratio"], f"{cell['paper_ratio']:.2f}", unpublished),
        _number(cell["ratio"], f"{cell['ratio']:.2f}", reason),
        _number(cell["difference"], difference, reason if math.isnan(cell["ratio"]) else unpublished),
        _number(cell["multiply_adds"], _short(cell["multiply_adds"]), reason),
    ]


def _number(value: float, text: str, reason: str) -> Entry:
    return absent(reason) if math.isnan(value) else Entry(text, value)


def _short(count: float) -> str:
    if not math.isfinite(count):
        return ""
    power = min(4, max(0, int(math.log10(max(count, 1))) // 3))
    return f"{count / 1000**power:.3g}{('', ' K', ' M', ' G', ' T')[power]}"


def says(lines: Any) -> list[Statement]:
    """Is SESN several times faster than what rescales, and do the ratios agree?"""
    return [*_faster(lines), *_agreeing(lines)]


def _faster(lines: Any) -> Iterator[Statement]:
    for side, part in lines[lines["ratio"].notna()].groupby("resolution"):
        lines_of = {line["method"]: line for line in part.to_dict("records")}
        own = [line for key, line in lines_of.items() if METHODS[key].ours]
        slow = [line for key, line in lines_of.items() if METHODS[key].resamples and not METHODS[key].digest]
        if not own or not slow:
            continue
        fastest, slowest = min(slow, key=_ratio), max(own, key=_ratio)
        times = listed([_with_interval(line) for line in own])
        text = (
            f"At {side}×{side} a step takes, in steps of the CNN: {times}; the fastest method that rescales "
            f"is {_with_interval(fastest)} (the paper: SESN trains several times faster; taken here as at least "
            f"{SEVERAL:g} times)."
        )
        if fastest["ratio_low"] >= SEVERAL * slowest["ratio_high"]:
            yield claim(True, text)
        elif fastest["ratio_high"] < SEVERAL * slowest["ratio_low"]:
            yield claim(False, text)
        else:
            yield Statement("measured", text.removesuffix(".") + ": the intervals leave it open.")


def _ratio(line: Any) -> float:
    return float(line["ratio"])


def _with_interval(line: Any) -> str:
    return f"{METHODS[line['method']].label} {line['ratio']:.2f} ({line['ratio_low']:.2f} to {line['ratio_high']:.2f})"


def _agreeing(lines: Any) -> Iterator[Statement]:
    compared = lines[lines["within"].isin(["in", "out"]) & ~lines["method"].eq(REFERENCE)]
    if len(compared):
        inside = int(compared["within"].eq("in").sum())
        text = (
            f"{inside} of {len(compared)} ratios to the CNN's epoch time agree with the published ones within their "
            "intervals; the published times include reading pictures, on another device."
        )
        yield Statement("reproduced" if inside == len(compared) else "differs", text)
