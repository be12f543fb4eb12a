"""The docs' picture of what an observed Delta is made of, from rows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from harness.drawing import STYLE

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


def medians(rows: Sequence[dict[str, Any]], panel: str) -> dict[str, list[tuple[float, float]]]:
    """The median over images of every point of a panel, by series."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["panel"] == panel:
            points.setdefault(row["series"], []).append((row["x"], statistics.median(row["delta"])))
    return points


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
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
        draws = max(len(row["seeds"]) for row in rows)
        mixed = f"interscale: {draws} weight draws, else one"
        lines = (
            "one linear layer, downscale √2",
            rows[0]["images"],
            mixed,
            f"{rows[0]['machine']}, torch {rows[0]['torch']}",
        )
        caption.text(0, 0.6, "\n".join(lines))
    return figure
