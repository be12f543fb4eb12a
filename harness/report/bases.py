"""What families of bases do to Delta, to the cost and to the error of one network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.report.select import Selection, first, where
from harness.report.summaries import medians
from harness.report.tables import Table, TableEntry, numeric
from sesn.methods import published_bases

#: The library's families in the order of the table, and whether their functions are products of one-dimensional ones.
OWN = {
    "hermite": ("Hermite, type B", True),
    "bspline": ("B-spline", True),
    "fourier-bessel": ("Fourier-Bessel", False),
    "log-radial": ("log-radial harmonics", False),
}
OUTPUTS = ("layer", "two layers")
COLUMNS = ["basis", "augmented", "of", "downscale", "delta", "multiply_adds", "test_error"]
PLACE = ["basis", "augmented"]


def frame(selections: Mapping[str, Selection]) -> Any:
    """Medians of Delta over images and weight draws at each place; cost and test error beside them."""
    chosen, errors = selections["delta-basis"], selections["mnist-basis"].metric("test_error")
    delta = chosen.metric("delta")
    if not len(delta):
        return pd.DataFrame(columns=COLUMNS)
    delta = delta.assign(downscale=delta["downscale"].astype(float).round(2))
    found = medians(delta, [*PLACE, "of", "downscale"]).rename("delta").reset_index()
    beside = {"multiply_adds": chosen.metric("multiply_adds"), "test_error": errors}
    for name, rows in beside.items():
        values = medians(rows, PLACE) if len(rows) else {}
        found[name] = [float(dict(values).get(tuple(place), float("nan"))) for place in found[PLACE].to_numpy()]
    return found.reindex(columns=COLUMNS)


def table(frame: Any) -> Table:
    """Each family without and with random scaling."""
    factors = sorted({float(factor) for factor in frame["downscale"]})
    heading = [f"Δ of {'a layer' if of == 'layer' else of}, {factor:g}×" for of in OUTPUTS for factor in factors]
    lines = []
    brought = {
        name: (f"{row.label} ({name})", network.bases[name](False).separable)
        for name, (row, network) in published_bases().items()
    }
    for key, (label, products) in (OWN | brought).items():
        for augmented in (False, True):
            part = where(frame, basis=key, augmented=augmented)
            if len(part):
                lines.append(_line(label + " +" * augmented, products, part, factors))
    return Table(("Basis", *heading, "multiply-adds, 10⁶", "products", "test error, %"), tuple(lines))


def _line(label: str, products: bool, part: Any, factors: list[float]) -> tuple[TableEntry, ...]:
    deltas = [
        numeric(first(where(part, of=of, downscale=factor), "delta"), "{:.1e}", "not run")
        for of in OUTPUTS
        for factor in factors
    ]
    cost = numeric(first(part, "multiply_adds") / 1e6, "{:,.0f}", "not counted")
    error = numeric(first(part, "test_error"), "{:.2f}", "not trained")
    return TableEntry(label), *deltas, cost, TableEntry("yes" if products else "no"), error
