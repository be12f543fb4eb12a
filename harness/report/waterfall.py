"""The frame and the words of the error budget, from the JSON that `sesn budget` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.report.findings import Statement, number
from harness.report.select import Selection

COLUMNS = ["cause", "change", "before", "after", "share", "note"]
TOTALS = ["observed", "remainder", "floor", "downscale"]
FACTS = ("machine", "threads", "torch", "device")


def budget_rows(document: Mapping[str, Any]) -> Any:
    """The steps, each with the totals, as measured rows of the experiment "error-budget"."""
    budget = document["budget"]
    totals = {"observed": budget["observed"], "remainder": budget["remainder"], "floor": budget["floor"]}
    totals["downscale"] = 1 / budget["factor"]
    facts = {name: document.get(name, "") for name in FACTS}
    settings = {"images": document["images"], "target": document["settings"]["target"]}
    return pd.DataFrame([{**step, **totals, **facts, **settings} for step in budget["steps"]])


def budget_selection(rows: Any) -> Selection:
    """What the artefact may show: the one document."""
    if not len(rows):
        return Selection("error-budget", rows, rows, rows)
    first = rows.iloc[0]
    facts = {name: str(first[name]) for name in (*FACTS, "images", "target")}
    return Selection("error-budget", rows, rows[:0], rows[:0], facts)


def budget_frame(selections: Mapping[str, Selection]) -> Any:
    """The steps and the totals."""
    return selections["error-budget"].rows.reindex(columns=[*COLUMNS, *TOTALS])


def budget_says(frame: Any) -> list[Statement]:
    """The largest cause."""
    if not len(frame):
        return []
    shares = frame.groupby("cause", sort=False)["share"].sum()
    first = frame.iloc[0]
    why = "; more than all of it, since other steps raise it" if shares.max() > 1 else ""
    text = (
        f"Of two layers with the published STL-10 kernels, observed Δ {number(first['observed'])} at downscale "
        f"{first['downscale']:.3g}, the largest cause is the {shares.idxmax()} (share {shares.max():.0%}{why}); "
        f"{number(first['remainder'])} remains when every cause is off, beside a floor of {number(first['floor'])}."
    )
    return [Statement("measured", text)]
