"""Figure 1 (how kernels are built and reshaped) and the filter basis over scales, drawn from the tensors themselves."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from harness.report.findings import between, sentence
from sesn import ScaleConv, ScaleGrid, ScaleLift, SteerableBasis, basis_a
from sesn.tools.drawing import FULL, Drawing, styled

#: As in the paper's figure: 3 channels in, 2 out, 4 scales.
CHANNELS_IN, CHANNELS_OUT, SCALES = 3, 2, 4
#: White is zero; grey is a kernel that is not there.
MAP, NOTHING = "RdBu_r", "0.88"


class Example(NamedTuple):
    """The layers of Figure 1 with their weights, and the kernels that one 2-D convolution takes."""

    basis: SteerableBasis
    lift: ScaleLift
    conv: ScaleConv
    #: [out * scale, in, V, V]
    lift_matrix: Tensor
    #: [out * scale, in * scale, V, V]: zero where the scales differ
    conv_matrix: Tensor


@cache
def example() -> Example:
    """The same weights every time."""
    basis = basis_a(ScaleGrid.geometric(1.0, math.sqrt(2), SCALES), 13, 3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        lift = ScaleLift(CHANNELS_IN, CHANNELS_OUT, basis, bias=False, dtype=torch.float64)
        conv = ScaleConv(CHANNELS_IN, CHANNELS_OUT, basis, bias=False, dtype=torch.float64)
    kernels = torch.einsum("oin,nkyx->oikyx", lift.weight.detach(), basis.functions)
    lift_matrix = kernels.transpose(1, 2).flatten(0, 1)
    apart = torch.einsum("oin,nkyx->oikyx", conv.weight.detach()[:, :, 0], basis.functions)
    conv_matrix = torch.einsum("oikyx,kl->okilyx", apart, torch.eye(SCALES, dtype=torch.float64))
    side = basis.kernel_size
    shape = (CHANNELS_OUT * SCALES, CHANNELS_IN * SCALES, side, side)
    return Example(basis, lift, conv, lift_matrix, conv_matrix.reshape(shape))


def kernels_frame(_selections: Any) -> Any:
    """One line per kernel of the two matrices: where it stands, and its norm."""
    lines = [
        (name, row, column, float(matrix[row, column].norm()))
        for name, matrix in (("T → H", example().lift_matrix), ("H → H", example().conv_matrix))
        for row in range(matrix.shape[0])
        for column in range(matrix.shape[1])
    ]
    return pd.DataFrame(lines, columns=["panel", "row", "column", "norm"])


@styled
def draw_kernels(_points: Any) -> Drawing:
    """Left: weights times basis; middle and right: the kernels as one 2-D convolution takes them."""
    found = example()
    figure = Figure(figsize=(FULL, 3.5), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(0.8, 0.85, 1.9))
    _draw_building(left, found)
    _draw_matrix(middle, found.lift_matrix, "T → H", 1)
    _draw_matrix(right, found.conv_matrix, "H → H", SCALES)
    return Drawing(figure)


def _draw_building(axes: Any, found: Example) -> None:
    """One column of weights, the basis with a row for each, and below their combination."""
    weight, side = found.lift.weight.detach()[0, 0], found.basis.kernel_size + 1
    rows = [*found.basis.functions.unbind(0), found.lift_matrix[:SCALES, 0]]
    above, below = (_mosaic(_evened(part, found.basis.grid)) for part in (rows[:-1], rows[-1:]))
    start = above.shape[0] + side / 2
    width = above.shape[1] - 0.5
    _show(axes, below, (-0.5, width, start + below.shape[0], start))
    _show(axes, above, (-0.5, width, above.shape[0] - 0.5, -0.5))
    for n, value in enumerate(weight / weight.abs().max()):
        colour = mpl.colormaps["PuOr_r"](0.5 + 0.5 * float(value))
        axes.add_patch(Rectangle((-1.6 * side, n * side - 0.5), side, side - 1, color=colour, lw=0))
    axes.set(xlim=(-1.7 * side, width), ylim=(start + side, -1))
    axes.set_xticks([])
    names = [*(f"$w_{n + 1}$" for n in range(len(weight))), r"$\kappa$"]
    axes.set_yticks([*((n + 0.5) * side for n in range(len(weight))), start + side / 2], names)
    axes.set_title(r"$\kappa = w \times \Psi$", fontsize=8)
    axes.set_xlabel("scale →")


def _evened(rows: Any, grid: ScaleGrid) -> list[list[Tensor]]:
    """Rows of kernels, one column a scale, without the fall of their amplitude with sigma squared."""
    return [[kernel * (sigma / grid.smallest) ** 2 for kernel, sigma in zip(row, grid, strict=True)] for row in rows]


def _draw_matrix(axes: Any, matrix: Tensor, title: str, block: int) -> None:
    """Kernels as rows (output) and columns (input); `block` is how many columns one input channel has."""
    rows, columns = matrix.shape[:2]
    axes.set_title(f"{title}: {rows} × {columns} kernels", fontsize=8)
    picture = _mosaic([list(line) for line in matrix])
    side = matrix.shape[-1] + 1
    _show(axes, picture)
    for row in range(SCALES, rows, SCALES):
        axes.axhline(row * side - 0.5, color="black", lw=0.8)
    for column in range(block, columns, block):
        axes.axvline(column * side - 0.5, color="black", lw=0.8)
    names = [f"$f_{i + 1}$" for i in range(CHANNELS_IN)]
    axes.set_xticks([(c + block / 2) * side for c in range(0, columns, block)], names)
    out = [f"$g_{o + 1}$" for o in range(CHANNELS_OUT)]
    axes.set_yticks([(o + 0.5) * SCALES * side for o in range(CHANNELS_OUT)], out)
    axes.set_xlabel("input channels" + (f" × {SCALES} scales" if block > 1 else ""))
    axes.set_ylabel(f"output channels × {SCALES} scales")


def _mosaic(rows: list[list[Tensor]]) -> Any:
    """Tiles with a gap of a pixel, each row's largest at full colour; an all-zero tile is left out."""
    side = rows[0][0].shape[-1]
    picture = np.full((len(rows) * (side + 1) - 1, len(rows[0]) * (side + 1) - 1), np.nan)
    for i, row in enumerate(rows):
        limit = max(float(tile.abs().max()) for tile in row) or 1.0
        for j, tile in enumerate(row):
            if float(tile.abs().max()) > 0:
                top, left = i * (side + 1), j * (side + 1)
                picture[top : top + side, left : left + side] = tile.numpy() / limit
    return picture


def _show(axes: Any, picture: Any, extent: tuple[float, float, float, float] | None = None) -> None:
    colours = mpl.colormaps[MAP].with_extremes(bad=NOTHING)
    axes.imshow(picture, cmap=colours, vmin=-1, vmax=1, interpolation="nearest", extent=extent)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


# --- the basis over scales

PUBLISHED = "published windows (STL-10)"
WIDE = "wide windows"


@cache
def bases() -> dict[str, SteerableBasis]:
    """The basis of the STL-10 networks, and the same orders on wide windows with a finer sampled start."""
    return {
        PUBLISHED: basis_a(ScaleGrid.geometric(0.9, 1.41, 3), 7, 3),
        WIDE: basis_a(ScaleGrid.geometric(1.5, math.sqrt(2), 5), "wide", 3),
    }


def basis_frame(_selections: Any) -> Any:
    """One line per function and scale: sigma, norm, and the sum of the pixels."""
    lines = [
        # A sum that is zero but for rounding is zero, and not minus zero, on every machine.
        (name, n, round(sigma, 6), basis.boxes[k], float(tile.norm()), round(float(tile.sum()), 12) + 0.0)
        for name, basis in bases().items()
        for k, sigma in enumerate(basis.grid)
        for n, tile in enumerate(basis.functions[:, k])
    ]
    return pd.DataFrame(lines, columns=["basis", "function", "sigma", "box", "norm", "sum"])


def basis_says(frame: Any) -> list[str]:
    """Whether a function keeps its integral when its scale changes: what a constant input would see."""
    found = []
    for name, part in frame.groupby("basis", sort=False):
        sums = part.groupby("function")["sum"]
        spread = float((sums.max() - sums.min()).max() / part["sum"].abs().max())
        reach = (part["box"] // 2) / part["sigma"]
        ends = between(reach.min(), reach.max())
        found.append(sentence("basis-sums", basis=name, reach=ends, spread=spread))
    return found


@styled
def draw_basis(_points: Any) -> Drawing:
    """Functions across, scales down; each tile shows 3 sigma of the largest scale, the same pixels for all."""
    figure = Figure(figsize=(FULL, 6.0), layout="constrained")
    grid = figure.subplots(2, 1, height_ratios=[len(basis.grid) for basis in bases().values()])
    for axes, (name, basis) in zip(grid, bases().items(), strict=True):
        centre, shown = basis.kernel_size // 2, min(basis.kernel_size // 2, round(3 * basis.grid.largest))
        middle = slice(centre - shown, centre + shown + 1)
        tiles = basis.functions[:, :, middle, middle].transpose(0, 1)
        side = tiles.shape[-1] + 1
        _show(axes, _mosaic([list(row) for row in tiles]))
        places = [(k + 0.5) * side for k in range(len(basis.grid))]
        axes.set_yticks(places, [f"σ = {sigma:.2f}" for sigma in basis.grid])
        names = [f"$\\psi_{{{n + 1}}}$" for n in range(len(basis))]
        axes.set_xticks([(n + 0.5) * side for n in range(len(basis))], names)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.set_title(f"{name}, {2 * shown + 1} × {2 * shown + 1} pixels", fontsize=8)
    return Drawing(figure)
