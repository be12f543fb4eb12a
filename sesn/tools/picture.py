"""The picture of a check: for each downscale the original image, the two branches, and their difference.

Of an output with spatial axes the most energetic channel (and scale) is shown; of any other, its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from sesn.meter.compare import middle
from sesn.meter.reading import SPATIAL
from sesn.tools.check import Checked
from sesn.tools.drawing import PALETTE, STYLE

COLUMNS = ("image $f$", r"$L_s\,Φ(f)$", r"$Φ(L_s f)$", "difference")
#: Okabe and Ito's blue and vermilion, and black: told apart by colour-blind readers.
BRANCH_COLOURS = (*PALETTE[:2], "black")


@dataclass(frozen=True)
class View:
    """What one row shows: the image, and the two branches at one channel (and scale) or flattened."""

    image: Tensor
    moved: Tensor
    direct: Tensor
    place: str
    delta: float
    result: Checked


def draw(module: nn.Module, images: Tensor, results: Sequence[Checked]) -> Figure:
    """The figure: a row per result. `module` is the one of the first weight draw."""
    views = [view(module, images, result) for result in results]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 2.5 * len(views) + 0.3), layout="constrained")
        grid = figure.subplots(len(views), 4, squeeze=False)
        for row, shown in zip(grid, views, strict=True):
            _draw_image(row[0], shown)
            (_draw_maps if shown.moved.dim() == 2 else _draw_values)(row[1:], shown)
            summary, relative = shown.result.delta, shown.result.relative.median
            row[-1].set_xlabel(f"median Δ of {summary.n}: {summary.median:.2g}, relative {relative:.2g}", fontsize=8)
    return figure


def view(module: nn.Module, images: Tensor, result: Checked) -> View:
    """The two branches of the image whose Delta is nearest to the median."""
    error = result.first
    distance = (error.valid - middle(error.valid)).abs()
    index = int(distance.nan_to_num(nan=0.0).argmin())
    assert error.meter is not None  # that of the measurement
    shown = error.meter.branches(module, images[index : index + 1], error.element)
    one, other, place = _most_energetic(shown.moved[0].cpu(), shown.direct[0].cpu(), result)
    return View(shown.images[0].cpu(), one, other, place, float(error.valid[index]), result)


def _most_energetic(moved: Tensor, direct: Tensor, result: Checked) -> tuple[Tensor, Tensor, str]:
    error = result.first
    if error.kind not in SPATIAL:
        return moved.flatten(), direct.flatten(), f"{moved.numel()} values"
    if error.kind == "map":
        channel = int(moved.square().sum(dim=(-2, -1)).argmax())
        return moved[channel], direct[channel], f"channel {channel}"
    pairs = error.pairs or ((0, 0),)
    energies = torch.stack([moved[:, j].square().sum(dim=(-2, -1)) for _, j in pairs])
    pair, channel = divmod(int(energies.argmax()), energies.shape[1])
    k, j = pairs[pair]
    return moved[channel, j], direct[channel, k], f"channel {channel}, scale {j} → {k}"


def _draw_image(axes: Axes, shown: View) -> None:
    picture = shown.image.permute(1, 2, 0) if shown.image.shape[0] == 3 else shown.image[0]
    low, high = picture.min(), picture.max()
    axes.imshow(((picture - low) / (high - low).clamp_min(1e-12)).numpy(), cmap="gray", vmin=0, vmax=1)
    _bare(axes, f"{COLUMNS[0]}, {shown.result.moved}")


def _draw_maps(row: Sequence[Axes], shown: View) -> None:
    difference, crop = shown.moved - shown.direct, shown.result.first.crop
    # Colours span what is measured: the border, whose difference is larger, saturates.
    inside = difference[crop : len(difference) - crop, crop : difference.shape[1] - crop]
    limit, gap = (float(x.abs().max()) or 1.0 for x in (shown.moved, inside))
    titles = (f"{COLUMNS[1]}, {shown.place}", COLUMNS[2], f"{COLUMNS[3]} × {limit / gap:.2g}, Δ = {shown.delta:.2g}")
    maps = (shown.moved, shown.direct, difference)
    for axes, title, values, scale in zip(row, titles, maps, (limit, limit, gap), strict=True):
        axes.imshow(values.numpy(), cmap="RdBu_r", vmin=-scale, vmax=scale)
        _bare(axes, title)
        height, width = (side - 2 * crop for side in values.shape)
        if crop and height > 0 and width > 0:  # what lies outside the dashed frame is left out of Delta
            corner = (crop - 0.5, crop - 0.5)
            axes.add_patch(Rectangle(corner, width, height, fill=False, lw=0.8, ls="--", edgecolor="0.3"))


def _draw_values(row: Sequence[Axes], shown: View) -> None:
    """An output without spatial axes: its values, one line per branch."""
    branches = (shown.moved, shown.direct, shown.moved - shown.direct)
    titles = (f"{COLUMNS[1]}, {shown.place}", COLUMNS[2], f"{COLUMNS[3]}, Δ = {shown.delta:.2g}")
    row[1].sharey(row[0])
    for axes, title, values, colour in zip(row, titles, branches, BRANCH_COLOURS, strict=True):
        axes.plot(values.numpy(), ".", ms=3, color=colour)
        axes.axhline(0, color="0.7", lw=0.6)
        axes.set_title(title, fontsize=8)


def _bare(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
