"""What rectifiers do to Delta by themselves, at sizes that they list and at others, and under translations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.report.select import Selection, first, where
from harness.report.summaries import medians
from harness.report.tables import Table, TableEntry, numeric

#: What each is in Python, in the order of the table.
NAMES = {
    "relu": "nn.ReLU()",
    "bandlimited": 'BandlimitedReLU("circular")',
    "nested": "NestedReLU([96, 68])",
    "nested, oversample 1": "NestedReLU([96, 68], oversample=1)",
    "all sizes": "NestedReLU(range(8, 97))",
    "all sizes, oversample 1": "NestedReLU(range(8, 97), oversample=1)",
}
LISTED = 68
MAPS = {0.0: "", 1.5: ", smooth maps"}
COLUMNS = ["rectifier", "width", "action", "pixels", "shift", "delta"]


def frame(selections: Mapping[str, Selection]) -> Any:
    """Medians over images at each place."""
    rows = selections["delta-rectifier"].metric("delta")
    if not len(rows):
        return pd.DataFrame(columns=COLUMNS)
    return medians(rows, COLUMNS[:-1]).rename("delta").reset_index()


def table(frame: Any) -> Table:
    """One line for each rectifier: Delta at the listed size, and the largest of all other places of a kind."""
    heading = [f"{what}{maps}" for maps in MAPS.values() for what in ("96 → 68", "other sizes", "1 pixel", "½ pixel")]
    lines = []
    for key, label in NAMES.items():
        if len(part := where(frame, rectifier=key)):
            lines.append(
                (TableEntry(label), *(entry for width in MAPS for entry in _entries(where(part, width=width))))
            )
    return Table(("Rectifier", *heading), tuple(lines))


def _entries(part: Any) -> list[TableEntry]:
    scaled, moved = where(part, action="scaling"), where(part, action="translation")
    found = [first(where(scaled, pixels=LISTED), "delta"), scaled[scaled["pixels"].ne(LISTED)]["delta"].max()]
    found += [where(moved, shift=shift)["delta"].max() for shift in (1.0, 0.5)]
    return [numeric(float(value), "{:.1e}", "not run") for value in found]
