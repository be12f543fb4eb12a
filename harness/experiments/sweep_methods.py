"""The layers of a method in the Delta sweeps: their network, how it is measured, and what they refuse."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from harness.experiments.properties import drawn, meter_for, own_factor
from harness.experiments.sweep_networks import (
    Amount,
    CopiedAlongScale,
    DepthSettings,
    DownscaleSettings,
    Layer,
    SweepSettings,
    meter_of,
    nonlinearity,
    powers,
)
from sesn import EquivarianceError, Meter
from sesn._source import worded
from sesn.errors import UsageError
from sesn.methods import Method, scales_of, vector_angles
from sesn.methods.method import CHANNELS, COLOURS, HIDDEN_SCALES, HIDDEN_STEP

#: The window of cells that are about a method: its layers have their own kernels and scales.
OWN = "own"
#: The factors of a layer whose output has no scales, which could lack a partner, are the powers of this one.
ANY_STEP = math.sqrt(2)


class Subject(NamedTuple):
    """What is measured, and at which factors.

    Attributes:
        network: layer by layer.
        meter: how.
        downscale: of the sweeps that have one factor.
        step: the downscales of the others are its powers.
        scales: of the output; None for a map, which has a partner at every factor.
    """

    network: nn.Sequential
    meter: Meter
    downscale: float
    step: float
    scales: int | None

    @property
    def factor(self) -> float:
        """The one factor, as the meter wants it."""
        return 1 / self.downscale


def downscaled(subject: Subject, images: Tensor, downscales: Sequence[float]) -> Iterator[EquivarianceError]:
    """The error at each downscale, from one Phi(f)."""
    factors = [1 / downscale for downscale in downscales]
    return subject.meter.sweep(subject.network, images, factors, context=False, repeat=False)


def chain_of(row: Method, settings: SweepSettings, seed: int, layers: int, meter: Meter) -> Subject:
    """The layers that `Method.chain` makes, drawn by the seed, their biases zero."""
    made = drawn(lambda: nn.Sequential(*row.chain(layers)), seed)
    first = made.get_submodule("0")
    with torch.no_grad():
        field = first(noise(settings.side)).dim() == 5
    grid = scales_of(first)
    # Vectors end in the ReLU of their layer, and another one would turn them.
    told = settings if vector_angles(first) is None else replace(settings, nonlinearity="linear")
    network = nn.Sequential(*(Layer(layer, nonlinearity(told)) for layer in made.children())).eval()
    scales, step = (len(grid), grid.ratio) if grid is not None and field else (None, ANY_STEP)
    return Subject(network, meter_for(first, meter), own_factor(grid), step, scales)


def between_of(row: Method, settings: SweepSettings, seed: int, meter: Meter) -> Subject:
    """The layer from field to field, on mixtures of an image's colours that are copied along the scale axis."""

    def made() -> nn.Module:
        assert row.between is not None  # `no_extent` is asked before
        copied = CopiedAlongScale(row.between(extent=settings.extent), HIDDEN_SCALES)
        return nn.Sequential(nn.Conv2d(COLOURS, CHANNELS, 1, bias=False), copied)

    layer = Layer(drawn(made, seed), nonlinearity(settings))
    return Subject(nn.Sequential(layer).eval(), meter_for(layer, meter), HIDDEN_STEP, HIDDEN_STEP, HIDDEN_SCALES)


# --- asked by the plan, before anything is run


def no_extent(row: Method) -> str:
    """Why the extent of a method cannot be swept; empty if it can."""
    if row.between is None:
        return f"{row.label} hands on no scales from layer to layer, so that it has no interscale extent"
    if "extent" not in inspect.signature(row.between).parameters:
        return f"`between` of {row.label} takes no `extent`, so that there is nothing to sweep"
    return ""


@torch.no_grad()
def tried(row: Method, points: Callable[[], Iterator[EquivarianceError]]) -> tuple[int, str]:
    """How many of the points can be measured, and why there are no more; the reason is empty if all can."""
    count = 0
    if row.layer is None:
        return count, "the method has no `layer`, so that there is nothing to sweep; give it one"
    try:
        # The layers of the package raise UsageError for what they refuse; those from outside may raise anything.
        with worded(f"`method` (={row.key!r}): its layer") if row.digest else nullcontext():
            for _ in points():
                count += 1
    except UsageError as refusal:
        return count, str(refusal)
    return count, ""


def noise(side: int) -> Tensor:
    """An image that layers are tried on."""
    return torch.randn(1, COLOURS, side, side, generator=torch.Generator().manual_seed(0))


# --- the cells of a method: its settings, and why it is left out, if it is

#: The settings of a cell, and why it is left out; empty if it is not.
OwnCells = Iterator[tuple[SweepSettings, str]]


def own_depths(row: Method, base: Mapping[str, Any], amount: Amount) -> OwnCells:
    """A chain of so many layers; nothing is cropped, as of the networks of SESN's kernels."""
    settings = DepthSettings(**base, layers=amount.layers, crop=0)

    def points() -> Iterator[EquivarianceError]:
        image, meter = noise(settings.side), meter_of(settings)
        subject = chain_of(row, settings, 0, 2, meter)
        # Two layers tell it of all that keep the side of the map: those that follow are like the second.
        if subject.network(image).shape[-2:] != image.shape[-2:]:
            subject = chain_of(row, settings, 0, settings.layers, meter)
        return subject.meter.along(subject.network, image, subject.factor)

    count, reason = tried(row, points)
    place = f"layer {count + 1} of {settings.layers} on {settings.side} pixels: " if count or row.layer else ""
    yield settings, f"{place}{reason}" if reason else ""


def own_downscales(row: Method, base: Mapping[str, Any], amount: Amount) -> OwnCells:
    """Up to the largest downscale that the layer can be measured at."""
    settings = DownscaleSettings(**base, largest_downscale=amount.downscale_96, enlarging="fourier", crop="auto")
    found: list[float] = []

    def points() -> Iterator[EquivarianceError]:
        subject = chain_of(row, settings, 0, 1, meter_of(settings))
        found.extend(powers(subject.step, subject.scales, settings.largest_downscale))
        return downscaled(subject, noise(settings.side), found)

    count, reason = tried(row, points)
    if count and count < len(found):
        settings, reason = replace(settings, largest_downscale=found[count - 1]), ""
    yield settings, reason


def own_extents(row: Method, base: Mapping[str, Any], _amount: Amount) -> OwnCells:
    """Every extent that fits into the scales of the layer from field to field."""
    if reason := no_extent(row):
        yield SweepSettings(**base, extent=1, crop="auto"), reason
        return
    for extent in range(1, HIDDEN_SCALES + 1):
        settings = SweepSettings(**base, extent=extent, crop="auto")
        yield settings, tried(row, partial(_one_extent, row, settings))[1]


def _one_extent(row: Method, settings: SweepSettings) -> Iterator[EquivarianceError]:
    subject = between_of(row, settings, 0, meter_of(settings))
    return downscaled(subject, noise(settings.side), [subject.downscale])
