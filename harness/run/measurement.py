"""What an observed Delta is made of, measured one ingredient at a time on embedded photographs: the docs' pictures."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from harness.data.photographs import NAME, photographs
from harness.machine import provenance
from harness.run.sweep_networks import CopiedAlongScale
from sesn import Meter, ScaleConv, ScaleGrid, ScaleLift, SteerableBasis, basis_a, equivariance_error, rescale
from sesn.basis import ProfilePairs
from sesn.meter.resample import RESAMPLERS

STEP = math.sqrt(2)
DOWNSCALES = (1.2, STEP, 2.0, 2 * STEP, 4.0)
HALF_WIDTHS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0)
SMALLEST = (0.6, 0.75, 0.9, 1.05, 1.2, 1.5, 1.8)
EXTENTS = (1, 2, 3, 4, 5)
OFFSETS = (0.0, 0.05, 0.1, 0.25, 0.5)
CHANNELS = 4
#: Weights decide how much an interscale layer loses: that panel takes several draws.
DRAWS = 8

Measure = Callable[[Tensor], list[dict[str, Any]]]


def _lift(smallest: float, half_width: float, scales: int = 5) -> ScaleLift:
    """A linear lift whose windows reach `half_width` sigmas, six functions of total order up to 2."""
    grid = ScaleGrid.geometric(smallest, STEP, scales)
    boxes = [2 * math.ceil(half_width * sigma) + 1 for sigma in grid]
    pairs: ProfilePairs | None = basis_a(grid, "wide", 3, max_order=2).pairs
    lift = ScaleLift(3, CHANNELS, SteerableBasis(grid, boxes, pairs=pairs), bias=False)
    _draw_weights(lift, 0)
    return lift.eval()


def _draw_weights(layer: ScaleLift | ScaleConv, seed: int) -> None:
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(seed)))


def _row(panel: str, series: str, x: float, values: Tensor, draws: int = 1) -> dict[str, Any]:
    """Delta of every image, weight draw by weight draw: the draws have seeds 0, 1, ..."""
    row = {"experiment": "measurement", "panel": panel, "series": series, "x": x}
    return {**row, "seeds": list(range(draws)), "delta": values.tolist()}


def resamplers(images: Tensor) -> list[dict[str, Any]]:
    """The meter's own floor, by resampler and downscale."""
    rows = []
    for resampler in RESAMPLERS:
        for downscale in DOWNSCALES:
            floor = Meter(resampler).floor(images, 1 / downscale, int(images.shape[-1] / downscale) // 4)
            rows.append(_row("resampler", resampler, downscale, floor))
    return rows


def windows(images: Tensor) -> list[dict[str, Any]]:
    """Delta of a lift against the half-width of its windows, and against its smallest sigma."""
    rows = [
        _row("window", "Δ", width, equivariance_error(_lift(1.5, width), images, 1 / STEP).valid)
        for width in HALF_WIDTHS
    ]
    rows += [
        _row("sampling", "Δ", sigma, equivariance_error(_lift(sigma, 6.0), images, 1 / STEP).valid)
        for sigma in SMALLEST
    ]
    return rows


def _copied(extent: int, seed: int) -> nn.Module:
    """The layer whose truncation is measured, with random weights."""
    basis = basis_a(ScaleGrid.geometric(1.5, STEP, 5), "wide", 3, max_order=2)
    layer = ScaleConv(3, CHANNELS, basis, interscale=extent, bias=False)
    _draw_weights(layer, seed)
    return CopiedAlongScale(layer).eval()


def truncation(images: Tensor) -> list[dict[str, Any]]:
    """Delta over all partnered channels and over the valid ones, against the interscale extent."""
    rows = []
    for extent in EXTENTS:
        errors = [equivariance_error(_copied(extent, seed), images, 1 / STEP) for seed in range(DRAWS)]
        rows.append(_row("interscale", "all channels", extent, torch.cat([e.all for e in errors]), DRAWS))
        if not bool(errors[0].valid.isnan().all()):
            rows.append(_row("interscale", "valid channels", extent, torch.cat([e.valid for e in errors]), DRAWS))
    return rows


def misregistration(images: Tensor) -> list[dict[str, Any]]:
    """What a grid that is off by a fraction of a pixel adds: the identity, its output moved."""
    rows = []
    for offset in OFFSETS:
        shifted = Meter(action=partial(rescale, offset=offset), kind="map", crop=12)
        error = shifted.measure(nn.Identity(), images, 1 / STEP, context=False, repeat=False)
        rows.append(_row("registration", "Δ", offset, error.valid))
    return rows


MEASURES: tuple[Measure, ...] = (resamplers, windows, truncation, misregistration)


def measure_ingredients(images: int = 32, on_step: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
    """All panels' rows, each with what it was measured on."""
    pictures = photographs(images)
    rows: list[dict[str, Any]] = []
    for measure in MEASURES:
        rows += measure(pictures)
        on_step()
    return [{**row, "images": f"{NAME}, {images} crops", **provenance()} for row in rows]
