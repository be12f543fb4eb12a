"""The page "All definitions of the error side by side": six networks under every definition of an equivariance error.

    python docs/pictures/metrics.py reports/metrics

draws the picture and prints the table from the rows in that folder; with --measure it measures them anew first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from picture_script import run
from torch import Tensor, nn
from torch.nn import functional as F

from sesn import BandlimitedReLU, PartneredProjection, ScaleConv, ScaleGrid, ScaleLift, ScaleProjection, basis_a
from sesn.tools.drawing import PALETTE, STYLE
from sesn.tools.images import image_set
from sesn.tools.machine import machine_words, provenance
from sesn.tools.metrics import DEFINITIONS, Definition, Metric, metrics, written

SIDE, FACTOR, CLASSES = 96, 0.5, 8
#: The end of the axes: what is less may as well be zero.
LEAST = 1e-8
BASIS = basis_a(ScaleGrid.geometric(1.5, 2**0.5, 5), "wide", 3, max_order=2)


def cnn(bias: float = 0.0) -> nn.Sequential:
    """Two ordinary convolutions; a bias on the last one changes nothing about them."""
    last = nn.Conv2d(16, CLASSES, 5, padding=2)
    if bias and last.bias is not None:
        nn.init.constant_(last.bias, bias)
    return nn.Sequential(nn.Conv2d(3, 16, 5, padding=2), nn.ReLU(), last)


def steerable(project: nn.Module) -> nn.Sequential:
    """Two steerable layers with wide windows, and a projection to a map."""
    layers = ScaleLift(3, 8, BASIS, bias=False), BandlimitedReLU(), ScaleConv(8, CLASSES, BASIS, bias=False)
    return nn.Sequential(*layers, project)


class Dilated(nn.Module):
    """Kernels at one scale and the same kernels dilated by two at another: exact where images are halved."""

    grid = ScaleGrid([1.0, 2.0])

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(*ends, 3, bias=False) for ends in ((3, 8), (8, CLASSES)))

    def forward(self, images: Tensor) -> Tensor:
        """A field of two scales."""
        scales = []
        for apart in (1, 2):
            hidden = F.conv2d(images, self.first.weight, padding=apart, dilation=apart)
            scales.append(F.conv2d(hidden, self.second.weight, padding=apart, dilation=apart))
        return torch.stack(scales, 2)


class Transformer(nn.Module):
    """Patches of 8 x 8 pixels, an embedding of their positions, and attention between them."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, 16, 8, 8)
        self.pos_embed = nn.Parameter(0.5 * torch.randn(1, 16, SIDE // 8, SIDE // 8))
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Conv2d(16, CLASSES, 1)

    def forward(self, images: Tensor) -> Tensor:
        """A map with a pixel for each patch."""
        maps = self.cut(images)
        maps = maps + F.interpolate(self.pos_embed, maps.shape[-2:], mode="bicubic", antialias=True)
        tokens = self.block(maps.flatten(2).transpose(1, 2))
        return self.head(tokens.transpose(1, 2).reshape(maps.shape))


#: By method: the label on the page, and what makes the network.
NETWORKS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "cnn": ("CNN", cnn),
    "cnn-bias": ("CNN, bias of 5", lambda: cnn(5.0)),
    "sesn": ("SESN, maximum", lambda: steerable(ScaleProjection())),
    "sesn-partnered": (
        "SESN, partnered",
        lambda: steerable(PartneredProjection(BASIS.grid, side=SIDE, steps=2, reduce="soft")),
    ),
    "dilated": ("dilated, exact", Dilated),
    "transformer": ("transformer", Transformer),
}


def measure(seeds: int = 3, count: int = 8) -> list[dict[str, Any]]:
    """One row per network and seed, which draws the weights: every value, and why there is none."""
    torch.set_num_threads(1)
    images, name = image_set("embedded", channels=3, height=SIDE, width=SIDE, count=count)
    rows = []
    for method, (label, make) in NETWORKS.items():
        for seed in range(seeds):
            torch.manual_seed(seed)
            found = metrics(make().double().eval(), images, FACTOR)
            row = {"experiment": "metrics", "method": method, "label": label, "seed": seed, "images": name}
            values = {one.definition.name: None if math.isnan(one.value) else one.value for one in found}
            reasons = {one.definition.name: one.reason for one in found if one.reason}
            rows.append({**row, "downscale": 1 / FACTOR, "values": values, "reasons": reasons, **provenance()})
    return rows


def values(rows: list[dict[str, Any]], method: str, name: str) -> list[float]:
    """One definition's value for every seed; none if there is none."""
    found = [row["values"][name] for row in rows if row["method"] == method]
    return [one for one in found if one is not None]


def table(rows: list[dict[str, Any]]) -> str:
    """Medians over seeds, a line for each definition."""
    lines = [["", *(label for label, _ in NETWORKS.values())], ["---"] * (len(NETWORKS) + 1)]
    for definition, _ in DEFINITIONS:
        found = [values(rows, method, definition.name) for method in NETWORKS]
        medians = [statistics.median(each) if each else math.nan for each in found]
        lines.append(
            [
                f"{definition.name} ({definition.better} is better)",
                *(written(Metric(definition, one)) for one in medians),
            ]
        )
    first, seeds = rows[0], len({row["seed"] for row in rows})
    caption = f"medians of {seeds} draws of the weights; {first['images']}; downscale {first['downscale']:g}"
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n({caption}; {machine_words(first)})\n"


def bias_words(rows: list[dict[str, Any]]) -> str:
    """What a bias does to the four definitions that it fools."""
    names = ("Δ", "mean of channel ratios", "Lie error", "signal to error")
    without, with_bias = (
        [statistics.median(values(rows, method, name)) for name in names] for method in ("cnn", "cnn-bias")
    )
    least = min(a / b for a, b in zip(without[:3], with_bias[:3], strict=True))
    gain = with_bias[3] - without[3]
    return (
        f"It divides Δ, the mean of channel ratios and the Lie error by over {1000 * math.floor(least / 1000):,},\n"
        f"  and adds {gain:.0f} decibels to the ratio of signal to error (10 decibels stand for a factor of 10)."
    )


def sentences() -> str:
    """What each definition sees and what fools it."""
    lines = [["definition", "quoted by", "what it sees", "what fools it"], ["---"] * 4]
    lines += [[one.name, one.quoted, one.sees, one.fooled] for one, _ in DEFINITIONS]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def draw(rows: list[dict[str, Any]]) -> Figure:
    """A panel for each definition, a mark for each network and seed."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 7.0), layout="constrained")
        panels = figure.subplots(4, 3).flatten()
        for place, (axes, (definition, _)) in enumerate(zip(panels, DEFINITIONS, strict=True)):
            for height, (method, colour) in enumerate(zip(NETWORKS, PALETTE, strict=True)):
                _draw_marks(axes, -height, values(rows, method, definition.name), definition, colour)
            unit = f", {definition.unit}" if definition.unit else ""
            axes.set_title(f"{definition.name}{unit}\n({definition.better} is better)", fontsize=8)
            axes.set_ylim(-len(NETWORKS) + 0.5, 0.5)
            labels = [label for label, _ in NETWORKS.values()] if place % 3 == 0 else [""] * len(NETWORKS)
            axes.set_yticks([-height for height in range(len(NETWORKS))], labels, fontsize=8)
            axes.grid(axis="y", color="0.9", lw=0.8)
            axes.tick_params(axis="x", labelsize=7)
            axes.set_axisbelow(True)
    return figure


def _draw_marks(axes: Axes, height: int, found: list[float], definition: Definition, colour: str) -> None:
    """Hollow for what lies below the axis."""
    if not found:
        place = axes.get_yaxis_transform()
        axes.text(0.5, height, "none", va="center", ha="center", transform=place, color="0.5")
    if definition.unit not in ("dB", "%"):
        axes.set_xscale("log")
        axes.set_xlim(LEAST / 3, 100 if definition.unit else 10)
        axes.set_xticks([1e-8, 1e-6, 1e-4, 1e-2, 1])
        axes.xaxis.set_minor_locator(NullLocator())
        below, found = [LEAST for one in found if one < LEAST], [one for one in found if one >= LEAST]
        axes.plot(below, [height] * len(below), "o", ms=5, color=colour, mfc="none")
    axes.plot(found, [height] * len(found), "o", ms=5, alpha=0.7, color=colour, mew=0)


if __name__ == "__main__":
    run(__doc__, "metrics", measure, draw, lambda rows: f"{table(rows)}\n{sentences()}")
