"""Digits of MNIST-scale, and what two networks make of one photograph at three scales; no rows are needed."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from harness.data.mnist_scale import LARGEST, SMALLEST, MNISTScale, mnist_scale
from harness.report.findings import sentence
from sesn import BandlimitedReLU, Meter, ScaleConv, ScaleGrid, ScaleLift, basis_a
from sesn.tools.drawing import FULL, HALF, SMALL, Drawing, Frame, encoded, styled
from sesn.tools.photographs import PICTURES

#: Rows of the picture of digits.
SIZES = (1.0, 0.8, 0.6, 0.45, 0.3)
#: The photograph: a square of twice the side is halved. Then it is shrunk by steps of the networks' grid of scales.
PHOTOGRAPH, SIDE, STEP = "chelsea", 136, math.sqrt(2)
STEPS = (0, 1, 2)
SCALES, SHOWN = 5, 2
CNN, SESN = NETWORKS = ("CNN", "SESN")


# --- digits


@cache
def _digits() -> MNISTScale:
    return mnist_scale(0, "embedded")


def samples_frame(_selections: Any) -> Any:
    """For every digit and size the test image that is nearest to it: its number and its own size."""
    made = _digits()
    factors, labels = made.factors["test"], made.test.labels
    lines = []
    for wanted in SIZES:
        for digit in range(10):
            far = (factors - wanted).abs().where(labels == digit, LARGEST - SMALLEST)
            number = int(far.argmin())
            lines.append((wanted, digit, number, float(factors[number])))
    return pd.DataFrame(lines, columns=["row", "digit", "image", "size"])


@styled
def draw_samples(points: Any) -> Drawing:
    """Digits across, sizes down."""
    images = _digits().test.images[torch.tensor(points["image"].to_numpy())]
    rows, side = len(SIZES), images.shape[-1]
    mosaic = images.reshape(rows, -1, side, side).transpose(1, 2).reshape(rows * side, -1)
    figure = Figure(figsize=(HALF, 1.7), layout="constrained")
    axes = figure.subplots()
    axes.imshow(mosaic.numpy(), cmap="gray_r", interpolation="nearest")
    axes.set_yticks([(row + 0.5) * side for row in range(rows)], [f"{size:g}" for size in SIZES])
    axes.set(xticks=[], ylabel="size")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return Drawing(figure)


# --- maps


class Seen(NamedTuple):
    """The photograph at one scale; of each network a map, which should look the same at every scale, and Delta."""

    image: Tensor
    maps: dict[str, Tensor]
    deltas: dict[str, float]


def _networks() -> dict[str, nn.Module]:
    """Two layers of either kind with the same weights every time."""
    basis = basis_a(ScaleGrid.geometric(1.5, STEP, SCALES), "wide", 3, max_order=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = [nn.Conv2d(3, 8, 7, padding=3, bias=False), nn.ReLU(), nn.Conv2d(8, 1, 7, padding=3, bias=False)]
        steerable = [ScaleLift(3, 8, basis, bias=False), BandlimitedReLU(), ScaleConv(8, 1, basis, bias=False)]
    return {key: nn.Sequential(*layers).double().eval() for key, layers in ((CNN, plain), (SESN, steerable))}


@cache
def seen() -> tuple[Seen, ...]:
    """The photograph at every scale; SESN's map moves along the scale axis with it."""
    meter, networks, factors = Meter(), _networks(), [STEP**-step for step in STEPS]
    whole = torch.tensor(PICTURES[PHOTOGRAPH](), dtype=torch.float64).permute(2, 0, 1)[None] / 255
    top, left = (length // 2 - SIDE for length in whole.shape[-2:])
    picture = meter.move(whole[..., top : top + 2 * SIDE, left : left + 2 * SIDE], 0.5)
    mean = picture.mean(dim=(-2, -1), keepdim=True)
    deltas = {
        key: [0.0, *(_rounded(one.valid) for one in meter.sweep(network, picture - mean, factors[1:], context=False))]
        for key, network in networks.items()
    }
    found = []
    for step, factor in enumerate(factors):
        small = meter.move(picture - mean, factor)
        with torch.no_grad():
            maps = {CNN: networks[CNN](small)[0, 0], SESN: networks[SESN](small)[0, 0, SHOWN - step]}
        found.append(Seen((small + mean)[0].clamp(0, 1), maps, {key: values[step] for key, values in deltas.items()}))
    return tuple(found)


def _rounded(delta: Tensor) -> float:
    """To as many digits as every machine gives."""
    return float(f"{float(delta):.4g}")


def maps_frame(_selections: Any) -> Any:
    """Delta of each network at each scale of the photograph."""
    lines = [
        (name, STEP**step, one.image.shape[-1], one.deltas[name])
        for step, one in zip(STEPS, seen(), strict=True)
        for name in NETWORKS
    ]
    return pd.DataFrame(lines, columns=["network", "downscale", "pixels", "delta"])


@styled
def draw_maps(points: Any) -> Drawing:
    """All scales side by side where nothing moves; as an animation one after the other."""
    sizes = points["pixels"].unique().tolist()
    labels = [sentence("map-input", pixels=size) for size in sizes]
    frames = []
    for one, label in zip(seen(), labels, strict=True):
        figure = Figure(figsize=(FULL, 2.75), layout="constrained")
        _draw_scale(figure.subplots(1, 3), one, label)
        frames.append(Frame(encoded(Drawing(figure).laid_out(), "svg", SMALL), label=label))
    still = Figure(figsize=(FULL, 5.4), layout="constrained")
    for column, one, label in zip(still.subplots(3, len(STEPS)).T, seen(), labels, strict=True):
        _draw_scale(column, one, label)
    return Drawing(still, frames=tuple(frames))


def _draw_scale(axes: Any, one: Seen, label: str) -> None:
    """The photograph at its own size, and both maps enlarged to that of the original."""
    shrunk, *maps = axes
    margin = (SIDE - one.image.shape[-1]) / 2
    place = (margin, SIDE - margin, SIDE - margin, margin)
    shrunk.imshow(one.image.permute(1, 2, 0).numpy(), extent=place, interpolation="none")
    shrunk.set_title(label, fontsize=8)
    for panel, name in zip(maps, NETWORKS, strict=True):
        limit = float(np.quantile(seen()[0].maps[name].abs().numpy(), 0.995))
        look = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "interpolation": "none"}
        panel.imshow(one.maps[name].numpy(), extent=(0, SIDE, SIDE, 0), **look)
        delta = one.deltas[name]
        panel.set_title(sentence("map-delta", network=name, delta=delta) if delta else name, fontsize=8)
    for panel in axes:
        panel.set(xlim=(0, SIDE), ylim=(SIDE, 0), xticks=[], yticks=[])
        panel.spines[:].set(visible=True, color="0.8")
