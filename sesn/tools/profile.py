"""`profile`: Delta after every submodule of a network, so that one sees which layer breaks it.

Both branches, Phi(f) and Phi(L_s f), run with hooks on every submodule; what a submodule returned in the one is
compared with what it returned in the other, read by its rank. Submodules that are never called have no row; an output
that cannot be compared has a row that says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from rich.table import Table
from torch import Tensor, nn

from sesn import Meter, OutputOf
from sesn.meter.compare import middle
from sesn.meter.stages import Stage

DEFAULT = Meter()
#: The row of the whole module.
WHOLE = "(output)"


@dataclass(frozen=True)
class LayerRow:
    """One call of one submodule; its numbers are medians over the images."""

    name: str  # where the submodule stands in the network; "(output)" for the network itself
    call: int  # 0 for its first call, 1 for its second, ...
    layer: str  # its class
    leaf: bool  # whether it has no submodules of its own
    kind: str = ""  # how its output was read: field, map, scale, invariant; empty if it was not
    shape: tuple[int, ...] = ()  # of its output in the original branch
    delta: float = math.nan  # NaN if it could not be taken
    jump: float = math.nan  # delta over that of its input (at least the probe's floor): how much it grew here
    energy: float = math.nan  # the mean square of its output
    crop: int = 0  # pixels left out at each border
    values: tuple[float, ...] = ()  # Delta of every image
    note: str = ""  # why there is no Delta, or what to know about it


def profile(module: nn.Module, images: Tensor, factor: float, meter: Meter = DEFAULT) -> list[LayerRow]:
    """Measure Delta after every submodule, in call order.

    Args:
        module: in eval mode.
        images: zero-mean images [n, c, h, w].
        factor: s; below 1 shrinks.
        meter: how to measure. Its `grid` is for fields made before any submodule with a `.grid` is called; afterwards
            the last one called counts.

    Example:
        >>> from sesn.tools.images import random_images
        >>> network = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.ReLU()).eval()
        >>> [row.name for row in profile(network, random_images(0, (2, 1, 48, 48)), 1 / 2)]
        ['0', '1', '(output)']
    """
    stages = meter.inside(module, images, factor)
    least = max(middle(meter.floor(images, factor, max(images.shape[-2:]))), torch.finfo(torch.float64).eps ** 2)
    rows: list[LayerRow] = []
    within = "module." if isinstance(module, OutputOf) else ""
    before = 0.0
    for stage in stages:
        row = _row(stage, within)
        # Against the call that made its input, else the last one before with a Delta. The input of the network is an
        # image, whose Delta is nothing but the meter's floor.
        made = rows[stage.source].delta if stage.source is not None else math.nan
        upstream = 0.0 if row.name == WHOLE else before if math.isnan(made) else made
        rows.append(replace(row, jump=row.delta / max(upstream, least)))
        before = before if math.isnan(row.delta) else row.delta
    return rows


def _row(stage: Stage, within: str) -> LayerRow:
    leaf, error = not any(stage.module.children()), stage.error
    # A wrapper that takes one of the outputs is none of the network's layers.
    row = LayerRow(
        stage.name.removeprefix(within) or WHOLE, stage.call, type(stage.module).__name__, leaf, shape=stage.shape
    )
    if error is None:
        return replace(row, note=stage.note)
    delta, note = error.valid, ""
    if not error.pairs:
        note = f"factor {error.factor:.3g} reaches beyond the grid: no scale channel has a partner"
    elif bool(delta.isnan().all()):
        delta, note = error.all, "no scale channel is left whole: Delta over the spoilt ones"
    values, energy = tuple(delta.tolist()), middle(error.energy)
    return replace(row, kind=error.kind, delta=middle(delta), energy=energy, crop=error.crop, values=values, note=note)


def worst(rows: Sequence[LayerRow]) -> LayerRow | None:
    """The leaf at which Delta grew most; None if no leaf could be compared."""
    known = [row for row in rows if row.leaf and not math.isnan(row.jump)]
    return max(known, key=lambda row: row.jump, default=None)


def profile_table(rows: Sequence[LayerRow], title: str = "layer profile") -> Table:
    """The rows for a terminal; the largest jump stands out."""
    table = Table("submodule", "layer", "read as", "Δ", "jump", "energy", "note", title=title)
    largest = worst(rows)
    for row in rows:
        name = row.name if row.call == 0 else f"{row.name} (call {row.call + 1})"
        delta, energy = ("-" if math.isnan(value) else f"{value:.1e}" for value in (row.delta, row.energy))
        style = "bold" if row is largest else None if row.leaf else "dim"
        table.add_row(name, row.layer, row.kind or "-", delta, _times(row.jump), energy, row.note, style=style)
    if largest is not None:
        table.caption = (
            f"Δ grows most at {largest.name} ({largest.layer}): {_times(largest.jump)}; jumps are against the input "
            f"of a submodule, that of {WHOLE} against the image"
        )
    return table


def _times(value: float) -> str:
    """Two digits, without powers of ten where a reader can do without them."""
    form = ".1e" if value >= 1e5 else ",.0f" if value >= 10 else ".2g"
    return "-" if math.isnan(value) else f"{value:{form}}×"
