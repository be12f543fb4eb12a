"""The frame and the words of the causes of Delta, from the JSON that `sesn causes` writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from harness.report.findings import sentence
from harness.report.select import Selection
from sesn.tools.causes import CauseSplit

COLUMNS = ["cause", "change", "before", "after", "share", "note"]
TOTALS = ["observed", "remainder", "floor", "downscale"]
FACTS = ("machine", "threads", "torch", "device")


def causes_rows(split: CauseSplit, document: Mapping[str, Any]) -> Any:
    """The steps, each with the totals, as measured rows of the experiment "causes"."""
    totals = {"observed": split.observed, "remainder": split.remainder, "floor": split.floor}
    totals["downscale"] = 1 / split.factor
    facts = {name: document.get(name, "") for name in FACTS}
    settings = {"images": document["images"], "target": document["settings"]["target"]}
    return pd.DataFrame([{**asdict(step), **totals, **facts, **settings} for step in split.steps])


def causes_selection(rows: Any) -> Selection:
    """What the artefact may show: the one document."""
    if not len(rows):
        return Selection("causes", rows, rows, rows)
    first = rows.iloc[0]
    facts = {name: str(first[name]) for name in (*FACTS, "images", "target")}
    return Selection("causes", rows, rows[:0], rows[:0], facts)


def causes_frame(selections: Mapping[str, Selection]) -> Any:
    """The steps and the totals."""
    return selections["causes"].rows.reindex(columns=[*COLUMNS, *TOTALS])


def causes_says(frame: Any) -> list[str]:
    """The largest cause."""
    if not len(frame):
        return []
    shares = frame.groupby("cause", sort=False)["share"].sum()
    why = "; more than all of it, since other steps raise it" if shares.max() > 1 else ""
    largest = {"largest": shares.idxmax(), "part": shares.max(), "why": why}
    return [sentence("causes-largest", **frame[TOTALS].iloc[0], **largest)]
