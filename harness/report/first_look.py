"""The first look's picture: the basis over scales beside the measured Delta."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpecFromSubplotSpec
from rich.table import Table

from harness.drawing import STYLE
from harness.files import replacing
from harness.machine import machine_words
from sesn import SteerableBasis

#: Okabe and Ito's palette: told apart by colour-blind readers.
COLOURS = {"sesn-wide": "#0072B2", "sesn-stl10": "#56B4E9", "cnn": "#D55E00"}


def medians(rows: Sequence[dict[str, Any]], column: str) -> dict[str, float]:
    """The median over images and weight draws, by method."""
    methods = dict.fromkeys(row["method"] for row in rows)
    return {m: statistics.median(v for row in rows if row["method"] == m for v in row[column]) for m in methods}


def draw(rows: Sequence[dict[str, Any]], basis: SteerableBasis) -> Figure:
    """The figure, from rows alone and the basis it shows."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 3.4), layout="constrained")
        slots = figure.add_gridspec(1, 2, width_ratios=(1.15, 1))
        _draw_basis(figure, slots[0], basis)
        _draw_delta(figure.add_subplot(slots[1]), rows)
    return figure


def _draw_basis(figure: Figure, slot: Any, basis: SteerableBasis) -> None:
    centre, shown = basis.kernel_size // 2, round(3 * basis.grid.largest)
    middle = slice(centre - shown, centre + shown + 1)
    tiles = GridSpecFromSubplotSpec(len(basis.grid), len(basis), slot, hspace=0.08, wspace=0.08)
    for n in range(len(basis)):
        largest = float(basis.functions[n, 0].abs().max())
        for k, sigma in enumerate(basis.grid):
            axes = figure.add_subplot(tiles[k, n])
            limit = largest * (basis.grid.smallest / sigma) ** 2
            axes.imshow(basis.functions[n, k, middle, middle].numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(False)
            if n == 0:
                axes.set_ylabel(f"σ = {sigma:.2g}", rotation=0, ha="right", va="center")
            if k == 0:
                axes.set_title(f"ψ{n}", pad=3)


def _draw_delta(axes: Any, rows: Sequence[dict[str, Any]]) -> None:
    labels = {row["method"]: row["label"] for row in rows}
    for place, method in enumerate(labels):
        values = [value for row in rows if row["method"] == method for value in row["delta"]]
        heights = [place + 0.5 * (i / max(1, len(values) - 1) - 0.5) for i in range(len(values))]
        axes.plot(values, heights, ".", ms=2, alpha=0.35, color=COLOURS[method], rasterized=True)
        middle = statistics.median(values)
        axes.plot([middle] * 2, [place - 0.33, place + 0.33], color="black", lw=1.6)
        axes.annotate(f"{middle:.1e}", (middle, place + 0.36), ha="center", va="bottom", fontsize=8)
    for column, style in (("floor", ":"), ("ceiling", "--")):
        level = statistics.median(medians(rows, column).values())
        axes.axvline(level, color="0.45", ls=style, lw=1, label=f"{column} of the probe")
    axes.set_xscale("log")
    axes.set_yticks(range(len(labels)), labels.values())
    axes.set_ylim(-0.6, len(labels) - 0.2)
    first = rows[0]
    axes.set_xlabel(f"equivariance error Δ, downscale {first['downscale']:.3f}\n{first['images']}, one layer")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=8)


def summary(rows: Sequence[dict[str, Any]]) -> tuple[str, list[list[str]]]:
    """A caption that says what was measured on what, and a heading and one line per method: medians over all draws."""
    first = rows[0]
    machine = machine_words(first)
    draws = len({row["seed"] for row in rows})
    caption = f"one layer, downscale {first['downscale']:.3f}, {first['images']}, {draws} weight draws; {machine}"
    columns = {name: medians(rows, name) for name in ("delta", "floor", "ceiling")}
    labels = {row["method"]: row["label"] for row in rows}
    lines = [["layer", *(f"median {name}" for name in columns)]]
    lines += [[label, *(f"{values[method]:.1e}" for values in columns.values())] for method, label in labels.items()]
    return caption, lines


def report_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The summary for a terminal."""
    caption, (heading, *lines) = summary(rows)
    table = Table(*heading, title="equivariance error", caption=caption)
    for line in lines:
        table.add_row(*line)
    return table


def markdown_table(rows: Sequence[dict[str, Any]]) -> str:
    """The summary as Markdown."""
    caption, (heading, *lines) = summary(rows)
    table = [heading, ["---"] * len(heading), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in table) + f"\n\n({caption})\n"


def save_rows(rows: Sequence[dict[str, Any]], folder: Path, name: str) -> Path:
    """Write the rows, one JSON object a line, all or nothing."""
    path = folder / f"{name}.jsonl"
    with replacing(path) as partial:
        partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
