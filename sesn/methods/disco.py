"""DISCO: kernels that commute with shrinking on the pixel grid, exactly at whole scales and fitted at others.

I. Sosnovik, A. Moskalev and A. Smeulders, "DISCO: accurate discrete scale convolutions", BMVC 2021.

The basis at scale 1 is E x E pixels. At a whole scale s it is the same pixels s apart, at others it was fitted
(`_disco_fit`). Hermite functions on the E x E pixels mix those of each scale alike, and the layers are those of SESN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from sesn.basis import SteerableBasis, basis_a, basis_b
from sesn.layers.conv import ScaleConv, ScaleConv1x1, ScaleLift
from sesn.layers.norm import ScaleBatchNorm
from sesn.layers.pool import GlobalPool, SpatialAvgPool, SpatialMaxPool
from sesn.layers.project import ScaleProjection
from sesn.methods._disco_fit import FITS, KERNELS, least_kernels, whole_kernels
from sesn.methods.method import CHANNELS, COLOURS, EXTENT, HIDDEN_SCALES, HIDDEN_STEP, Method, Source
from sesn.methods.steerable import vector_parts
from sesn.networks import mnist, stir, wrn
from sesn.networks.skeleton import FIELD, MAP, Carrier, Recipe, Regime
from sesn.networks.wrn import BlockPlace
from sesn.scales import ScaleGrid

#: The width of the mixing functions on MNIST-scale, and their `mult`, by whether there is random scaling.
MIXING_SIGMA, MIXING_MULT = 1.9, {False: 1.5, True: 1.9}
#: The width of those on STL-10.
WIDE_SIGMA = 0.9
#: E on MNIST-scale.
SIZE = FITS["mnist"].size


def pixel_kernels(scale: float, name: str) -> Tensor:
    """The pixels of a published basis at one of its scales, on the smallest box that holds them."""
    settings = FITS[name]
    if scale.is_integer():
        return whole_kernels(int(scale), settings.size, int(scale) * (settings.size - 1) + 1)
    return torch.from_numpy(_fitted()[f"{name}-{scale:g}"]).double()


@cache
def _fitted() -> dict[str, np.ndarray]:
    with np.load(KERNELS) as arrays:
        return dict(arrays)


def mixed_basis(functions: Tensor, kernels: Sequence[Tensor], scales: Sequence[float]) -> SteerableBasis:
    """The basis of functions [n, E, E] of the pixels, with the pixels' kernels [E^2, box, box] at every scale."""
    samples = [torch.tensordot(functions.flatten(1), pixels, dims=1) for pixels in kernels]
    basis = SteerableBasis.from_samples(samples, ScaleGrid(scales))
    basis.name = "disco"
    return basis


def hermite_mixing(augmented: bool = False) -> Tensor:
    """The 49 functions of type B on 7 x 7 pixels."""
    grid = ScaleGrid([MIXING_SIGMA])
    return basis_b(grid, SIZE, SIZE, max_order=4, mult=MIXING_MULT[augmented]).scale_functions(0)


@cache
def mnist_basis(augmented: bool = False) -> SteerableBasis:
    """The published basis of the MNIST-scale networks: scales 1, 1.26, 1.59 and 2."""
    scales = FITS["mnist"].scales
    return mixed_basis(hermite_mixing(augmented), [pixel_kernels(scale, "mnist") for scale in scales], scales)


@cache
def stl10_basis() -> SteerableBasis:
    """The published basis of the wide residual network: scales 1, 1.41 and 2."""
    settings = FITS["stl10"]
    functions = basis_a(ScaleGrid([WIDE_SIGMA]), settings.size, settings.size).scale_functions(0)
    return mixed_basis(functions, [pixel_kernels(scale, "stl10") for scale in settings.scales], settings.scales)


# --- the networks

#: Fields that are pooled by their mean.
AVERAGED = Carrier(nn.ReLU, SpatialAvgPool, ScaleBatchNorm)


def _last_pool(kernel_size: int, stride: int, padding: int) -> nn.Module:
    """To 2 x 2 positions: at 56 maxima over 7 x 7 at every place, then means of 2 x 2 in steps of 4.

    At 28, where nothing was published, all but the means are about half as wide.
    """
    return nn.Sequential(nn.MaxPool2d(kernel_size - 1, 1), nn.AvgPool2d(2, kernel_size // 2))


def mnist_parts(regime: Regime) -> mnist.StageParts:
    """Fields throughout, pooled by their mean, and projected in the last stage before its ReLU."""
    return vector_parts(mnist_basis(regime.augmented), (AVERAGED, AVERAGED, MAP._replace(pool=_last_pool)))


def stir_parts(regime: Regime) -> mnist.StageParts:
    """The kernels of the network that is trained with random scaling, as STIR has them."""
    return mnist_parts(replace(regime, augmented=True))


def wrn_parts(recipe: Recipe) -> wrn.BlockParts:
    """As SESN-B, projected at the entry of groups 2 and 3, with maxima over 2 x 2 pixels in place of strides."""
    basis = stl10_basis()

    def halved(layer: nn.Module, stride: int) -> nn.Module:
        return nn.Sequential(layer, SpatialMaxPool(stride)) if stride > 1 else layer

    def conv(place: BlockPlace, in_channels: int, out_channels: int, stride: int) -> nn.Module:
        if place.enters_group and place.group > 0:
            lift = ScaleLift(in_channels, out_channels, basis, bias=False)
            return halved(nn.Sequential(ScaleProjection(), lift), stride)
        return halved(ScaleConv(in_channels, out_channels, basis, bias=False), stride)

    return wrn.BlockParts(
        stem=lambda i, o: ScaleLift(i, o, basis, bias=False),
        conv=conv,
        shortcut=lambda place, i, o, stride: halved(ScaleConv1x1(i, o, bias=False), stride),
        carrier=FIELD,
        head=lambda channels: nn.Sequential(ScaleProjection(), MAP.activated(channels), GlobalPool("mean")),
        fan_out=(ScaleLift, ScaleConv, ScaleConv1x1),
    )


# --- the layer by itself


def basis_at(scales: Sequence[float]) -> SteerableBasis:
    """The MNIST-scale basis at other scales: whole ones as they come, one other beside scale 1 by its least loss."""
    kernels = [
        whole_kernels(int(scale), SIZE, int(scale) * (SIZE - 1) + 1)
        if float(scale).is_integer()
        else least_kernels(scale, SIZE, _side(scale))
        for scale in scales
    ]
    return mixed_basis(hermite_mixing(), kernels, scales)


def _side(scale: float) -> int:
    """One pixel more to each side than the enlarged pixels need: 15 at scale 2, as published."""
    return 2 * (int(np.ceil(scale * (SIZE // 2))) + 1) + 1


def at_step(step: float) -> nn.Module:
    """The MNIST-scale basis at scale 1 and at the step."""
    return ScaleLift(COLOURS, CHANNELS, basis_at((1.0, step)), bias=False)


def between(extent: int = EXTENT) -> nn.Module:
    """The MNIST-scale basis at whole scales, from field to field."""
    scales = [float(HIDDEN_STEP**k) for k in range(HIDDEN_SCALES)]
    return ScaleConv(CHANNELS, CHANNELS, basis_at(scales), interscale=extent)


DISCO = Method(
    "disco",
    "DISCO",
    Source("Sosnovik et al. 2021, BMVC", "Discrete Filters"),
    "#F0FF48",
    {
        "mnist": mnist.MNISTSkeleton(mnist_parts, {"fitted": mnist_basis}),
        "stl10": wrn.WRNSkeleton(wrn_parts),
        "stir": stir.STIRSkeleton(stir_parts),
    },
    at_step,
    between,
    later=True,
    representative=False,
)
