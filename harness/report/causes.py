"""The frame and the words of the causes of Delta, from the JSON that `sesn causes` writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from harness.report.findings import sentence
from harness.report.select import Selection
from sesn.tools.split import CauseSplit

COLUMNS = ["cause", "change", "before", "after", "share", "note"]
TOTALS = ["observed", "remainder", "floor", "downscale"]
FACTS = ("machine", "threads", "torch", "device")


def causes_rows(split: CauseSplit, document: Mapping[str, Any]) -> Any:
    """The steps, each with the totals, as measured rows of the experiment "causes"."""
    totals = {"observed": split.observed, "remainder": split.remainder, "floor": split.floor}
    totals["downscale"] = 1 / split.factor
    facts = {name: document.get(name, "") for name in FACTS}
    settings = {"images": document["images"], "target": document["settings"]["target"]}
    shares = split.step_shares or [float("nan")] * len(split.steps)
    steps = [{**asdict(step), "share": share} for step, share in zip(split.steps, shares, strict=False)]
    return pd.DataFrame([{**step, **totals, **facts, **settings} for step in steps])


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
    """The largest cause, where there are shares."""
    if frame["share"].isna().all():
        return []
    shares = frame.groupby("cause", sort=False)["share"].sum()
    largest = {"largest": shares.idxmax(), "part": shares.max()}
    return [sentence("causes-largest", **frame[TOTALS].iloc[0], **largest)]
