"""The first look: Delta of one lift with wide windows, with the published ones, and of an ordinary convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from harness.data.photographs import NAME, photographs
from harness.machine import provenance
from sesn import ScaleGrid, ScaleLift, basis_a, equivariance_error

CHANNELS = 8
#: 96 pixels shrink to 68: a step of 96/68, close to the square root of two, keeps both grids whole.
STEP = 96 / 68
LABELS = {
    "sesn-wide": "SESN, wide windows",
    "sesn-stl10": "SESN, STL-10 windows",
    "cnn": "ordinary CNN",
}


def wide_basis() -> Any:
    """Five scales from 1.5 pixels, total order up to 2, windows of 4.5 sigma either side."""
    return basis_a(ScaleGrid.geometric(1.5, STEP, 5), "wide", 3, max_order=2)


def _published() -> nn.Module:
    return ScaleLift(3, CHANNELS, basis_a(ScaleGrid.geometric(0.9, STEP, 3), 7, 3), bias=False)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "sesn-wide": lambda: ScaleLift(3, CHANNELS, wide_basis(), bias=False),
    "sesn-stl10": _published,
    "cnn": lambda: nn.Conv2d(3, CHANNELS, 7, padding=3, bias=False),
}


def measure(images: int = 64, draws: int = 4, on_step: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
    """One row per module and weight draw: Delta of every image, with the probe's floor and ceiling."""
    pictures = photographs(images)
    rows = []
    for key, build in MODULES.items():
        for draw in range(draws):
            rows.append(_row(key, build, draw, pictures))
            on_step()
    return rows


def _row(key: str, build: Callable[[], nn.Module], draw: int, pictures: Tensor) -> dict[str, Any]:
    torch.manual_seed(draw)
    error = equivariance_error(build().eval(), pictures, 1 / STEP)
    assert error.ceiling is not None  # more than one image
    return {
        "experiment": "first-look",
        "method": key,
        "label": LABELS[key],
        "images": f"{NAME}, {len(pictures)} crops",
        "downscale": STEP,
        "resampler": "lanczos3",
        "crop": error.crop,
        "lost": error.lost,
        "seed": draw,
        "delta": error.valid.tolist(),
        "floor": error.floor.tolist(),
        "ceiling": error.ceiling.tolist(),
        **provenance(),
    }
