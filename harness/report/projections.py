"""What projections over scale do to Delta of maps and scores, and to the error on MNIST-scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.report.select import Selection, first, where
from harness.report.summaries import medians
from harness.report.tables import Table, TableEntry, numeric

#: What each is in Python, in the order of the table.
NAMES = {
    "max": "ScaleProjection()",
    "soft": 'ScaleProjection(reduce="soft")',
    "mean": 'ScaleProjection(reduce="mean")',
    "soft-tapered": 'ScaleProjection(reduce="soft", taper=2)',
    "mean-tapered": 'ScaleProjection(reduce="mean", taper=2)',
    "max-upper": "ScaleProjection(leave_out=(1, 0))",
    "max-inner": "ScaleProjection(leave_out=(1, 1))",
    "max-partnered": "PartneredProjection(grid, side=side, steps=2)",
    "soft-partnered": 'PartneredProjection(grid, side=side, steps=2, reduce="soft")',
}
FIELD = "the field, not projected"
OUTPUTS, METRICS = ("map", "score"), {"delta": "Δ", "delta_relative": "relative Δ"}
COLUMNS = ["projection", "scales", "downscale", "of", "delta", "delta_relative", "test_error"]


def frame(selections: Mapping[str, Selection]) -> Any:
    """Medians over images and weight draws at each place, and the test error; of the field once for all projections."""
    rows, errors = selections["delta-projection"].rows, selections["mnist-projection"].metric("test_error")
    if not len(rows):
        return pd.DataFrame(columns=COLUMNS)
    rows = rows.assign(downscale=rows["downscale"].astype(float).round(2))
    # It is the same field under every projection.
    rows = rows[rows["of"].ne("field") | rows["projection"].eq("max")]
    found = medians(rows, ["projection", "scales", "downscale", "of", "metric"]).unstack("metric").reset_index()
    error = medians(errors, "projection") if len(errors) else {}
    return found.assign(test_error=found["projection"].map(dict(error)).astype(float)).reindex(columns=COLUMNS)


def table(frame: Any) -> Table:
    """The field, then each projection: map and score at every number of scales, at the smallest downscale."""
    step = where(frame, downscale=frame["downscale"].min())
    scales = sorted({int(count) for count in step["scales"]})
    heading = [f"{of} {word}, {n} scales" for n in scales for of in OUTPUTS for word in METRICS.values()]
    field, projected = where(step, of="field"), step[step["of"].ne("field")]
    lines = [_line(FIELD, field.assign(of="map"), scales, "a field is no score")] if len(field) else []
    for key, label in NAMES.items():
        sized = "it is for images of several sizes" if "partnered" in key else "not run"
        if len(part := where(projected, projection=key)):
            lines.append(_line(label, part, scales, sized))
    return Table(("Projection", *heading, "test error, %"), tuple(lines))


def _line(label: str, part: Any, scales: list[int], reason: str) -> tuple[TableEntry, ...]:
    entries = [
        numeric(first(where(part, scales=n, of=of), metric), "{:.1e}", reason)
        for n in scales
        for of in OUTPUTS
        for metric in METRICS
    ]
    error = first(part, "test_error") if label != FIELD else math.nan
    return TableEntry(label), *entries, numeric(error, "{:.2f}", reason)
