"""What an observed Delta is made of, one ingredient at a time: the picture of docs/measuring-delta.md.

    python docs/pictures/measurement.py reports/measurement

draws the picture from the rows in that folder; with --measure it measures them anew first.
"""

from __future__ import annotations

import math
import statistics
from functools import partial
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from picture_script import run
from torch import Tensor, nn

from sesn import Meter, ScaleConv, ScaleGrid, ScaleLift, SteerableBasis, basis_a, equivariance_error, rescale
from sesn.algorithms.resample import RESAMPLERS
from sesn.tools.drawing import STYLE
from sesn.tools.machine import provenance
from sesn.tools.photographs import NAME, photographs

STEP = math.sqrt(2)
#: Weights decide how much an interscale layer loses: that panel takes several draws.
DRAWS = 8
PANELS = {
    "resampler": ("downscale 1/s", "the probe's floor, by resampler"),
    "window": ("half-window in σ", "kernel window (σ₀ = 1.5)"),
    "sampling": ("smallest σ in pixels", "kernel sampling (half-window 6σ)"),
    "interscale": ("interscale extent K_S", "truncation of the scale axis (5 scales)"),
    "registration": ("offset in pixels", "misregistered grids"),
}
#: Okabe and Ito's palette with a marker each, so that no series depends on colour alone.
MARKS = {
    "lanczos3": ("#0072B2", "o"),
    "fourier": ("#009E73", "s"),
    "bicubic": ("#E69F00", "^"),
    "legacy": ("#D55E00", "v"),
    "all channels": ("#D55E00", "v"),
    "valid channels": ("#0072B2", "o"),
    "Δ": ("#0072B2", "o"),
}


class CopiedAlongScale(nn.Module):
    """An image copied along the scale axis, then one interscale layer: truncation and nothing else."""

    def __init__(self, convolution: ScaleConv) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, image: Tensor) -> Tensor:
        """Image to field."""
        scales = len(self.convolution.grid)
        return self.convolution(image[:, :, None].expand(-1, -1, scales, -1, -1))


def with_weights(layer: Any, seed: int = 0) -> Any:
    """The layer in eval mode with normal weights from the seed."""
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(seed)))
    return layer.eval()


def lift(smallest: float, half_width: float) -> ScaleLift:
    """A linear lift whose windows reach `half_width` sigmas, six functions of total order up to 2."""
    grid = ScaleGrid.geometric(smallest, STEP, 5)
    boxes = [2 * math.ceil(half_width * sigma) + 1 for sigma in grid]
    pairs = basis_a(grid, "wide", 3, max_order=2).pairs
    return with_weights(ScaleLift(3, 4, SteerableBasis(grid, boxes, pairs=pairs), bias=False))


def row(panel: str, series: str, x: float, values: Tensor, draws: int = 1) -> dict[str, Any]:
    """Delta of every image, weight draw by weight draw: the draws have seeds 0, 1, ..."""
    place = {"experiment": "measurement", "panel": panel, "series": series, "x": x}
    return {**place, "seeds": list(range(draws)), "delta": values.tolist()}


def measure(count: int = 32) -> list[dict[str, Any]]:
    """Every panel's rows, each with what it was measured on."""
    images = photographs(count)
    rows = [
        row("resampler", name, x, Meter(name).floor(images, 1 / x, int(images.shape[-1] / x) // 4))
        for name in RESAMPLERS
        for x in (1.2, STEP, 2.0, 2 * STEP, 4.0)
    ]
    lifts = {("window", x): lift(1.5, x) for x in (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0)}
    lifts |= {("sampling", x): lift(x, 6.0) for x in (0.6, 0.75, 0.9, 1.05, 1.2, 1.5, 1.8)}
    for (panel, x), layer in lifts.items():
        rows.append(row(panel, "Δ", x, equivariance_error(layer, images, 1 / STEP).valid))
    for extent in (1, 2, 3, 4, 5):
        rows += truncation(images, extent)
    for offset in (0.0, 0.05, 0.1, 0.25, 0.5):
        shifted = Meter(action=partial(rescale, offset=offset), kind="map", crop=12)
        error = shifted.measure(nn.Identity(), images, 1 / STEP, context=False, repeat=False)
        rows.append(row("registration", "Δ", offset, error.valid))
    return [{**each, "images": f"{NAME}, {count} crops", **provenance()} for each in rows]


def truncation(images: Tensor, extent: int) -> list[dict[str, Any]]:
    """Delta over all partnered channels and over the valid ones, where any are left."""
    basis = basis_a(ScaleGrid.geometric(1.5, STEP, 5), "wide", 3, max_order=2)
    errors = []
    for seed in range(DRAWS):
        layer = with_weights(ScaleConv(3, 4, basis, interscale=extent, bias=False), seed)
        errors.append(equivariance_error(CopiedAlongScale(layer).eval(), images, 1 / STEP))
    found = {"all channels": [e.all for e in errors], "valid channels": [e.valid for e in errors]}
    joined = {series: torch.cat(values) for series, values in found.items()}
    return [row("interscale", name, extent, v, DRAWS) for name, v in joined.items() if not bool(v.isnan().all())]


def medians(rows: list[dict[str, Any]], panel: str) -> dict[str, list[tuple[float, float]]]:
    """The median over images of every point of a panel, by series."""
    points: dict[str, list[tuple[float, float]]] = {}
    for each in rows:
        if each["panel"] == panel:
            points.setdefault(each["series"], []).append((each["x"], statistics.median(each["delta"])))
    return points


def draw(rows: list[dict[str, Any]]) -> Figure:
    """One panel for each ingredient, on one logarithmic axis."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 5.6), layout="constrained")
        for place, (panel, (label, title)) in enumerate(PANELS.items(), start=1):
            axes = figure.add_subplot(2, 3, place)
            for series, points in medians(rows, panel).items():
                colour, marker = MARKS[series]
                shown = [(x, y) for x, y in points if y > 0]  # an exact zero has no place on a logarithmic axis
                axes.plot(*zip(*shown, strict=True), marker=marker, ms=4, lw=1.2, color=colour, label=series)
            axes.set(yscale="log", xlabel=label, title=title, ylim=(1e-13, 10))
            axes.set_ylabel("median Δ" if place in (1, 4) else "")
            if len(medians(rows, panel)) > 1:
                axes.legend(frameon=False, fontsize=8, ncols=2, loc="upper center")
        caption = figure.add_subplot(2, 3, 6)
        caption.axis("off")
        first, draws = rows[0], max(len(each["seeds"]) for each in rows)
        mixed = f"interscale: {draws} weight draws, else one"
        lines = (
            "one linear layer, downscale √2",
            first["images"],
            mixed,
            f"{first['machine']}, torch {first['torch']}",
        )
        caption.text(0, 0.6, "\n".join(lines))
    return figure


if __name__ == "__main__":
    run(__doc__, "measurement", measure, draw)
