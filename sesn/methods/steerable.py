"""SESN, the paper's networks: Scalar and Vector on MNIST-scale, A, B and C on STL-10."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

from torch import nn

from sesn.basis import SteerableBasis, basis_a, basis_b
from sesn.layers.conv import ScaleConv, ScaleConv1x1, ScaleLift
from sesn.layers.nested import NestedReLU
from sesn.layers.nonlinearity import BandlimitedReLU
from sesn.layers.pool import GlobalPool
from sesn.layers.project import ScaleProjection
from sesn.methods._layer import odd_side
from sesn.methods.method import (
    CHANNELS,
    COLOURS,
    EXTENT,
    HIDDEN_SCALES,
    HIDDEN_STEP,
    WIDE_SIDE,
    Goals,
    Method,
    Source,
    projected,
)
from sesn.networks import mnist, stir, wrn
from sesn.networks.skeleton import FIELD, MAP, Carrier, Regime
from sesn.networks.wrn import BlockPlace
from sesn.scales import ScaleGrid

Features = Literal["scalar", "vector"]


class Kernels(NamedTuple):
    """A basis of type B: `scales` sigmas from `smallest` to `smallest * reach`, sub-sigmas by `mult`, V = `size`."""

    scales: int
    smallest: float
    reach: float
    mult: float
    size: int

    def basis(self) -> SteerableBasis:
        """49 functions of total order 4 at most; the sigmas are rounded to two decimals, as the released ones are."""
        steps = (self.reach ** (i / (self.scales - 1)) for i in range(self.scales))
        grid = ScaleGrid(round(self.smallest * step, 2) for step in steps)
        return basis_b(grid, self.size, 7, max_order=4, mult=self.mult)


#: One setting per resolution: four scales.
PAPER: dict[int, Kernels] = {28: Kernels(4, 1.7, 3, 1.5, 15), 56: Kernels(4, 2.0, 2, 1.5, 15)}
#: One setting for each network and column of the table: (features, resolution, augmented).
RELEASED: dict[tuple[Features, int, bool], Kernels] = {
    ("scalar", 28, False): Kernels(4, 1.7, 3, 1.5, 15),
    ("scalar", 28, True): Kernels(4, 1.5, 3, 1.4, 13),
    ("vector", 28, False): Kernels(3, 1.5, 3, 1.5, 13),
    ("vector", 28, True): Kernels(3, 1.5, 3, 1.4, 15),
    ("scalar", 56, False): Kernels(3, 2.0, 2, 1.4, 15),
    ("scalar", 56, True): Kernels(3, 1.0, 3, 1.4, 17),
    ("vector", 56, False): Kernels(4, 2.0, 2, 1.5, 15),
    ("vector", 56, True): Kernels(4, 1.5, 2, 1.4, 13),
}


def kernels(features: Features, regime: Regime) -> Kernels:
    """The basis of an MNIST-scale network."""
    if regime.recipe == "paper":
        return PAPER[regime.resolution]
    return RELEASED[features, regime.resolution, regime.augmented]


def mnist_scalar(regime: Regime) -> mnist.StageParts:
    """Every layer lifts a map and projects the field."""
    basis = kernels("scalar", regime).basis()
    return mnist.StageParts(lambda stage, i, o: nn.Sequential(ScaleLift(i, o, basis), ScaleProjection()))


def mnist_vector(regime: Regime) -> mnist.StageParts:
    """Fields throughout, with the basis of the regime."""
    return vector_parts(kernels("vector", regime).basis())


def vector_parts(
    basis: SteerableBasis, carriers: tuple[Carrier, Carrier, Carrier] = (FIELD, FIELD, MAP)
) -> mnist.StageParts:
    """Fields throughout, projected in the last stage, before its ReLU."""

    def layer(stage: int, in_channels: int, out_channels: int) -> nn.Module:
        if stage == 0:
            return ScaleLift(in_channels, out_channels, basis)
        conv = ScaleConv(in_channels, out_channels, basis)
        return conv if stage == 1 else nn.Sequential(conv, ScaleProjection())

    return mnist.StageParts(layer, carriers)


# STIR


def wide(nonlinearity: Callable[[], nn.Module]) -> mnist.PartsOf:
    """Fields throughout, over a factor of four in scale, with windows that cut nothing off and a nonlinearity.

    The grid was proposed by `sesn tune --scales 5 --range 4 --side 64 --channels 16 --macs 300000000`.
    """

    def parts(regime: Regime) -> mnist.StageParts:
        basis = basis_a(ScaleGrid.geometric(1.1, math.sqrt(2), 5), "wide", 3)
        carrier = FIELD._replace(activation=nonlinearity)
        return mnist.StageParts(
            lambda stage, i, o: (ScaleConv if stage else ScaleLift)(i, o, basis),
            (carrier, carrier, carrier),
            projection=ScaleProjection,
        )

    return parts


#: Sides that an image of 64 pixels shrinks to by steps of the grid.
STIR_SIDES = (64, 45, 32, 23, 16)
#: Beside the published network, whose sigmas span a factor of two.
STIR_DESIGNS = {
    "wide": wide(nn.ReLU),
    "wide-bandlimited": wide(BandlimitedReLU),
    "wide-nested": wide(partial(NestedReLU, STIR_SIDES)),
}


# STL-10


class Design(NamedTuple):
    """What tells SESN-A, -B and -C apart."""

    smallest: float = 0.9
    projected_groups: tuple[int, ...] = ()
    interscale_groups: tuple[int, ...] = ()


#: The release gives C wider kernels and lets a single layer interact across scales; the paper mentions neither.
DESIGNS = {"a": Design(), "b": Design(projected_groups=(1, 2)), "c": Design(smallest=1.1, interscale_groups=(0,))}


def shortcut(place: BlockPlace, in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """One matrix for all scales."""
    return ScaleConv1x1(in_channels, out_channels, stride=stride, bias=False)


def wrn_parts(design: Design) -> wrn.BlockParts:
    """Fields throughout, but where the design projects them."""
    basis = basis_a(ScaleGrid.geometric(design.smallest, 1.41, 3), 7, 3)

    def conv(place: BlockPlace, in_channels: int, out_channels: int, stride: int) -> nn.Module:
        if place.enters_group and place.group in design.projected_groups:
            return nn.Sequential(
                ScaleProjection(), ScaleLift(in_channels, out_channels, basis, stride=stride, bias=False)
            )
        seen = 2 if place.enters_group and place.group in design.interscale_groups else 1
        return ScaleConv(in_channels, out_channels, basis, interscale=seen, stride=stride, bias=False)

    return wrn.BlockParts(
        stem=lambda i, o: ScaleLift(i, o, basis, bias=False),
        conv=conv,
        shortcut=shortcut,
        carrier=FIELD,
        head=lambda channels: nn.Sequential(ScaleProjection(), MAP.activated(channels), GlobalPool("mean")),
        fan_out=(ScaleLift, ScaleConv, ScaleConv1x1),
    )


# --- the layer by itself


def _basis_b(step: float, scales: int) -> SteerableBasis:
    """From the paper's smallest sigma; windows as wide, in sigmas, as the paper's largest."""
    paper = PAPER[28]
    grid = ScaleGrid.geometric(paper.smallest, step, scales)
    side = odd_side(paper.size * grid.largest / (paper.smallest * paper.reach))
    return basis_b(grid, side, 7, max_order=4, mult=paper.mult)


def at_step(step: float) -> nn.Module:
    """The MNIST-scale basis at two scales."""
    return ScaleLift(COLOURS, CHANNELS, _basis_b(step, 2), bias=False)


def between(extent: int = EXTENT) -> nn.Module:
    """The MNIST-scale basis, from field to field."""
    return ScaleConv(CHANNELS, CHANNELS, _basis_b(HIDDEN_STEP, HIDDEN_SCALES), interscale=extent)


def design_at_step(design: Design, step: float) -> nn.Module:
    """The basis of an STL-10 design at two scales, windows again in proportion."""
    side = max(3, odd_side(7 * step / 1.41**2))
    grid = ScaleGrid([design.smallest, design.smallest * step])
    return ScaleLift(COLOURS, CHANNELS, basis_a(grid, side, 3), bias=False)


SOURCE = Source("Sosnovik et al. 2020, arXiv:1910.11093", "Steerable Filters")
GOALS = Goals(work=1.5, times={28: 9.0})
USE_DESIGN = {"stl10": "on STL-10 the paper has three designs of SESN; use sesn-a, sesn-b or sesn-c"}
USE_SESN = {"mnist": "it is a design of the wide ResNet; on MNIST-scale use sesn-scalar or sesn-vector"}
SESN_SCALAR = Method(
    "sesn-scalar",
    "SESN Scalar",
    SOURCE,
    "#FF747C",
    {"mnist": mnist.MNISTSkeleton(mnist_scalar), "stir": stir.STIRSkeleton(mnist_scalar)},
    projected(at_step),
    ours=True,
    goals=GOALS,
    absences=USE_DESIGN,
)
SESN_VECTOR = Method(
    "sesn-vector",
    "SESN Vector",
    SOURCE,
    "#591203",
    {"mnist": mnist.MNISTSkeleton(mnist_vector), "stir": stir.STIRSkeleton(mnist_vector, STIR_DESIGNS)},
    at_step,
    between,
    ours=True,
    goals=GOALS,
    absences=USE_DESIGN,
)


def _of_design(key: str, label: str, colour: str, design: Design) -> Method:
    """A wide ResNet; its layer from field to field is the first convolution of the first group."""
    return Method(
        key,
        label,
        SOURCE,
        colour,
        {"stl10": wrn.WRNSkeleton(lambda recipe: wrn_parts(design))},
        partial(design_at_step, design),
        lambda: wrn_parts(design).conv(BlockPlace(0, 0), CHANNELS, CHANNELS, 1),
        WIDE_SIDE,
        ours=True,
        absences=USE_SESN,
    )


#: Fields throughout, no projection until the end.
SESN_A = _of_design("sesn-a", "SESN-A", "#641A02", DESIGNS["a"])
#: The residual branch is projected and lifted anew at the entry of groups 2 and 3.
SESN_B = _of_design("sesn-b", "SESN-B", "#FF7165", DESIGNS["b"])
#: The first convolution of group 1 sees two neighbouring scales.
SESN_C = _of_design("sesn-c", "SESN-C", "#E2BAB6", DESIGNS["c"])
