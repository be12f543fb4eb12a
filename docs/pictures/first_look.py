"""The README's first picture and table: the basis over scales, and Delta of three layers on embedded photographs.

    python docs/pictures/first_look.py reports/first-look

draws the picture from the rows in that folder; with --measure it measures them anew first.
"""

from __future__ import annotations

import statistics
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from picture_script import run
from torch import nn

from sesn import ScaleGrid, ScaleLift, basis_a, equivariance_error
from sesn.tools.drawing import STYLE
from sesn.tools.machine import machine_words, provenance
from sesn.tools.photographs import NAME, photographs

#: 96 pixels shrink to 68: a step of 96/68, close to the square root of two, keeps both grids whole.
STEP = 96 / 68
#: Five scales from 1.5 pixels, total order up to 2, windows of 4.5 sigma either side.
WIDE = basis_a(ScaleGrid.geometric(1.5, STEP, 5), "wide", 3, max_order=2)
PUBLISHED = basis_a(ScaleGrid.geometric(0.9, STEP, 3), 7, 3)
#: Label, colour (Okabe and Ito's palette: told apart by colour-blind readers), and how the layer is made.
LAYERS = {
    "sesn-wide": ("SESN, wide windows", "#0072B2", lambda: ScaleLift(3, 8, WIDE, bias=False)),
    "sesn-stl10": ("SESN, STL-10 windows", "#56B4E9", lambda: ScaleLift(3, 8, PUBLISHED, bias=False)),
    "cnn": ("ordinary CNN", "#D55E00", lambda: nn.Conv2d(3, 8, 7, padding=3, bias=False)),
}


def measure(images: int = 64, draws: int = 4) -> list[dict[str, Any]]:
    """One row per layer and weight draw: Delta of every image, with the probe's floor and ceiling."""
    rows = []
    for method, (label, _, build) in LAYERS.items():
        for seed in range(draws):
            torch.manual_seed(seed)
            error = equivariance_error(build().eval(), photographs(images), 1 / STEP)
            values = {"delta": error.valid, "floor": error.floor, "ceiling": error.ceiling}
            row = {"experiment": "first-look", "method": method, "label": label, "images": f"{NAME}, {images} crops"}
            row |= {"downscale": STEP, "resampler": "lanczos3", "crop": error.crop, "lost": error.lost, "seed": seed}
            rows.append({**row, **{name: value.tolist() for name, value in values.items()}, **provenance()})
    return rows


def values(rows: list[dict[str, Any]], method: str, column: str) -> list[float]:
    """The numbers of all images and weight draws of a layer."""
    return [value for row in rows if row["method"] == method for value in row[column]]


def table(rows: list[dict[str, Any]]) -> str:
    """The medians as the README shows them, with what was measured on what."""
    columns = ("delta", "floor", "ceiling")
    lines = [["layer", *(f"median {name}" for name in columns)], ["---"] * 4]
    for method, (label, *_) in LAYERS.items():
        lines.append([label, *(f"{statistics.median(values(rows, method, name)):.1e}" for name in columns)])
    first, draws = rows[0], len({row["seed"] for row in rows})
    caption = f"one layer, downscale {first['downscale']:.3f}, {first['images']}, {draws} weight draws"
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n({caption}; {machine_words(first)})\n"


def draw(rows: list[dict[str, Any]]) -> Figure:
    """The basis over scales beside the measured Delta."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 3.4), layout="constrained")
        slots = figure.add_gridspec(1, 2, width_ratios=(1.15, 1))
        _draw_basis(figure, slots[0])
        _draw_delta(figure.add_subplot(slots[1]), rows)
    return figure


def _draw_basis(figure: Figure, slot: Any) -> None:
    centre, shown = WIDE.kernel_size // 2, round(3 * WIDE.grid.largest)
    middle = slice(centre - shown, centre + shown + 1)
    tiles = slot.subgridspec(len(WIDE.grid), len(WIDE), hspace=0.08, wspace=0.08)
    for n in range(len(WIDE)):
        largest = float(WIDE.functions[n, 0].abs().max())
        for k, sigma in enumerate(WIDE.grid):
            axes = figure.add_subplot(tiles[k, n])
            limit = largest * (WIDE.grid.smallest / sigma) ** 2
            axes.imshow(WIDE.functions[n, k, middle, middle].numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            if n == 0:
                axes.set_ylabel(f"σ = {sigma:.2g}", rotation=0, ha="right", va="center")
            if k == 0:
                axes.set_title(f"ψ{n}", pad=3)


def _draw_delta(axes: Any, rows: list[dict[str, Any]]) -> None:
    for place, (method, (_, colour, _)) in enumerate(LAYERS.items()):
        shown = values(rows, method, "delta")
        heights = [place + 0.5 * (i / max(1, len(shown) - 1) - 0.5) for i in range(len(shown))]
        axes.plot(shown, heights, ".", ms=2, alpha=0.35, color=colour, rasterized=True)
        middle = statistics.median(shown)
        axes.plot([middle] * 2, [place - 0.33, place + 0.33], color="black", lw=1.6)
        axes.annotate(f"{middle:.1e}", (middle, place + 0.36), ha="center", va="bottom", fontsize=8)
    for column, style in (("floor", ":"), ("ceiling", "--")):
        level = statistics.median(statistics.median(values(rows, method, column)) for method in LAYERS)
        axes.axvline(level, color="0.45", ls=style, lw=1, label=f"{column} of the probe")
    axes.set_xscale("log")
    axes.set_yticks(range(len(LAYERS)), [label for label, *_ in LAYERS.values()])
    axes.set_ylim(-0.6, len(LAYERS) - 0.2)
    first = rows[0]
    axes.set_xlabel(f"equivariance error Δ, downscale {first['downscale']:.3f}\n{first['images']}, one layer")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=8)


if __name__ == "__main__":
    run(__doc__, "first-look", measure, draw, table)
