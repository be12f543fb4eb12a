"""SESN, the paper's networks: Scalar and Vector on MNIST-scale, A, B and C on STL-10."""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import nn

from sesn.basis import SteerableBasis, basis_a, basis_b
from sesn.conv import ScaleConv, ScaleConv1x1, ScaleLift
from sesn.models import mnist, wrn
from sesn.models.carriers import FIELD, MAP
from sesn.models.recipes import Recipe, Regime
from sesn.models.wrn import Place
from sesn.pool import GlobalPool, ScaleProjection
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


def mnist_scalar(regime: Regime) -> mnist.Parts:
    """Every layer lifts a map and projects the field."""
    basis = kernels("scalar", regime).basis()
    return mnist.Parts(lambda stage, i, o: nn.Sequential(ScaleLift(i, o, basis), ScaleProjection()))


def mnist_vector(regime: Regime) -> mnist.Parts:
    """Fields throughout, projected in the last stage, before its ReLU."""
    basis = kernels("vector", regime).basis()

    def layer(stage: int, in_channels: int, out_channels: int) -> nn.Module:
        if stage == 0:
            return ScaleLift(in_channels, out_channels, basis)
        conv = ScaleConv(in_channels, out_channels, basis)
        return conv if stage == 1 else nn.Sequential(conv, ScaleProjection())

    return mnist.Parts(layer, (FIELD, FIELD, MAP))


# STL-10


class Design(NamedTuple):
    """What tells SESN-A, -B and -C apart."""

    smallest: float = 0.9
    projected_groups: tuple[int, ...] = ()
    interscale_groups: tuple[int, ...] = ()


#: The release gives C wider kernels and lets a single layer interact across scales; the paper mentions neither.
DESIGNS = {
    "a": Design(),
    "b": Design(projected_groups=(1, 2)),
    "c": Design(smallest=1.1, interscale_groups=(0,)),
}


def projected_head(channels: int) -> nn.Module:
    """Max over scales first, then BN, ReLU and the mean."""
    return nn.Sequential(ScaleProjection(), MAP.activated(channels), GlobalPool("mean"))


def shortcut(place: Place, in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """One matrix for all scales."""
    return ScaleConv1x1(in_channels, out_channels, stride, bias=False)


def _wrn_parts(design: Design) -> wrn.Parts:
    basis = basis_a(ScaleGrid.geometric(design.smallest, 1.41, 3), 7, 3)

    def conv(place: Place, in_channels: int, out_channels: int, stride: int) -> nn.Module:
        if place.enters_group and place.group in design.projected_groups:
            return nn.Sequential(ScaleProjection(), ScaleLift(in_channels, out_channels, basis, stride, bias=False))
        seen = 2 if place.enters_group and place.group in design.interscale_groups else 1
        return ScaleConv(in_channels, out_channels, basis, seen, stride, bias=False)

    return wrn.Parts(
        stem=lambda i, o: ScaleLift(i, o, basis, bias=False),
        conv=conv,
        shortcut=shortcut,
        carrier=FIELD,
        head=projected_head,
        fan_out=(ScaleLift, ScaleConv, ScaleConv1x1),
    )


def wrn_parts_a(recipe: Recipe) -> wrn.Parts:
    """SESN-A: fields throughout, no projection until the end."""
    return _wrn_parts(DESIGNS["a"])


def wrn_parts_b(recipe: Recipe) -> wrn.Parts:
    """SESN-B: the residual branch is projected and lifted anew at the entry of groups 2 and 3."""
    return _wrn_parts(DESIGNS["b"])


def wrn_parts_c(recipe: Recipe) -> wrn.Parts:
    """SESN-C: the first convolution of group 1 sees two neighbouring scales."""
    return _wrn_parts(DESIGNS["c"])
