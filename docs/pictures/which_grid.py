"""The table of the page "Which grid?": Delta and cost of `sesn.basis_for` for several ranges and numbers of scales.

    python docs/pictures/which_grid.py reports/which-grid

prints the table from the rows in that folder; with --measure it measures them anew first.
"""

from __future__ import annotations

from typing import Any

from picture_script import run

from sesn import basis_for
from sesn.tools.images import image_set
from sesn.tools.machine import machine_words, provenance
from sesn.tools.tune import ORDERS, candidate, measured

#: How many times larger the largest object is than the smallest, and by how many scales that is covered.
CHOICES = ((2.0, 2), (2.0, 3), (4.0, 3), (4.0, 4), (4.0, 5), (8.0, 4))
SIDE, CHANNELS = 48, 32


def measure(count: int = 8) -> list[dict[str, Any]]:
    """One row per choice: Delta of one layer for one step of the grid, and its multiply-adds."""
    images, name = image_set("embedded", channels=1, height=96, width=96, count=count)
    rows = []
    for ratio, scales in CHOICES:
        basis = basis_for(sizes=(1.0, ratio), scales=scales)
        orders = next(each for each in ORDERS if len(each.basis(basis.grid, None)) == len(basis))
        [found] = measured([candidate(orders, basis.grid, None, SIDE, CHANNELS)], images.double())
        assert found.boxes == basis.boxes
        row = {"experiment": "which-grid", "range": ratio, "images": name}
        rows.append({**row, "side": SIDE, "channels": CHANNELS, **found.row(), **provenance()})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """What the page shows."""
    names = ["largest over smallest size", "scales", "step", "σ in pixels", "largest window", "Δ", "cost"]
    lines = [names, ["---"] * len(names)]
    for row in rows:
        ordinary = 9 * row["channels"] ** 2 * row["side"] ** 2
        ends = f"{row['smallest_sigma']:.3g} to {row['smallest_sigma'] * row['range']:.3g}"
        numbers = [f"{row['range']:g}", str(row["scales"]), f"{row['ratio']:.2f}", ends, str(max(row["boxes"]))]
        lines.append([*numbers, f"{row['delta']:.0e}", f"{row['separable_macs'] / ordinary:.1f}"])
    first = rows[0]
    caption = (
        f"one layer, one step of the grid, {first['images']}; cost: multiply-adds of the separable algorithm over "
    )
    caption += (
        f"those of an ordinary 3 x 3 convolution, {first['channels']} channels, {first['side']} x {first['side']}"
    )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n({caption}; {machine_words(first)})\n"


if __name__ == "__main__":
    run(__doc__, "which-grid", measure, words=table)
