"""Each method's own layer, outside its networks: for any step between its scales, and from field to field.

A layer for a step f has the scales that make f a step of its grid: 1 and f for filters that grow, 1/f, 1 and f for
methods that resize their input both ways. A step that a method cannot have is refused by the layer itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from harness.methods import METHODS
from sesn import ScaleConv, ScaleGrid, ScaleLift, ScaleProjection, SteerableBasis, basis_a, basis_b
from sesn.baselines import (
    DSSConv,
    DSSLift,
    SEVFConv,
    SEVFLift,
    SiCNNConv,
    SiCNNLift,
    SIConv,
    SSConv,
    VectorMagnitude,
    sevf_angles,
    sevf_scales,
)
from sesn.models.dss import MNIST_ZERO_SCALE
from sesn.models.ss_cnn import MNIST_NOMINAL, MNIST_ORDERS
from sesn.models.steerable import DESIGNS, PAPER
from sesn.models.wrn import Place

COLOURS, CHANNELS = 3, 8
#: The side of a kernel in the MNIST-scale networks, and in the wide ResNets.
MNIST_SIDE, WIDE_SIDE = 7, 3
#: Neighbouring scales that a filter sees where the method lets one choose: as in the paper's and DSS' own networks.
EXTENT = 2
#: The step between the scales of layers from field to field, and how many they have.
HIDDEN_STEP, HIDDEN_SCALES = 2, 3


@dataclass(frozen=True)
class MethodLayers:
    """The layers of one method.

    Attributes:
        at_step: makes the layer whose neighbouring scales are a factor apart, from images to what the method hands on.
        between: makes the layer from field [b, c, s, h, w] to field; None if the method hands on no scales.
        side: of the kernel of the plain convolution that it is compared with.
    """

    at_step: Callable[[float], nn.Module]
    between: Callable[[], nn.Module] | None = None
    side: int = MNIST_SIDE


def plain(side: int) -> nn.Module:
    """The convolution of the plain CNN."""
    return nn.Conv2d(COLOURS, CHANNELS, side, padding=side // 2, bias=False)


def no_scales(step: float) -> nn.Module:
    """Refuse: there is nothing that a step could lie between."""
    raise ValueError(f"`step` (={step:.4g}) must not be given: a plain convolution has one scale")


def no_row(step: float) -> nn.Module:
    """Refuse: nobody has said yet how the method's layer is built for a step."""
    raise ValueError(f"`step` (={step:.4g}) needs a row of the method in LAYERS of {__name__}")


def sicnn(step: float) -> nn.Module:
    """The kernel, and the kernel enlarged by the step."""
    return SiCNNLift(COLOURS, CHANNELS, MNIST_SIDE, (1, step))


def si_convnet(step: float) -> nn.Module:
    """The image shrunk by the step, as it is, and enlarged."""
    return SIConv(COLOURS, CHANNELS, MNIST_SIDE, (1 / step, 1, step), bias=False)


def sevf(step: float) -> nn.Module:
    """As SI-ConvNet, with three angles."""
    return SEVFLift(COLOURS, CHANNELS, MNIST_SIDE, sevf_scales(3, step), sevf_angles(3))


def dss(step: float) -> nn.Module:
    """The image and its blur, with the filter dilated by the step; the layer itself refuses broken numbers."""
    base: int = int(step) if float(step).is_integer() else step  # type: ignore[assignment]
    lift = DSSLift(2, base, MNIST_ZERO_SCALE)
    return nn.Sequential(lift, DSSConv(COLOURS, CHANNELS, MNIST_SIDE, 2, base=base))


def ss_cnn(step: float) -> nn.Module:
    """Three filters; their sides are whole and odd, which the steps between them follow: the nearest from below."""
    sizes = [odd_side(MNIST_NOMINAL * scale) for scale in (1 / step, 1, step)]
    return SSConv(COLOURS, CHANNELS, sizes, MNIST_NOMINAL, MNIST_ORDERS)


def odd_side(side: float) -> int:
    """2 floor(side / 2) + 1, the rule for the sides of SESN's kernels."""
    return 2 * math.floor(side / 2) + 1


def _basis_b(step: float, scales: int) -> SteerableBasis:
    """From the paper's smallest sigma; windows as wide, in sigmas, as the paper's largest."""
    paper = PAPER[28]
    grid = ScaleGrid.geometric(paper.smallest, step, scales)
    side = odd_side(paper.size * grid.largest / (paper.smallest * paper.reach))
    return basis_b(grid, side, 7, max_order=4, mult=paper.mult)


def sesn(step: float) -> nn.Module:
    """The MNIST-scale basis at two scales."""
    return ScaleLift(COLOURS, CHANNELS, _basis_b(step, 2), bias=False)


def _design(name: str) -> Callable[[float], nn.Module]:
    """The basis of an STL-10 design at two scales, windows again in proportion."""

    def at_step(step: float) -> nn.Module:
        smallest = DESIGNS[name].smallest
        side = max(3, odd_side(7 * step / 1.41**2))
        return ScaleLift(COLOURS, CHANNELS, basis_a(ScaleGrid([smallest, smallest * step]), side, 3), bias=False)

    return at_step


def projected(at_step: Callable[[float], nn.Module]) -> Callable[[float], nn.Module]:
    """With the maximum over scales after it: the Scalar variant."""
    return lambda step: nn.Sequential(at_step(step), ScaleProjection())


# From field to field


class ScalesToVectors(nn.Module):
    """A field of lengths [b, c, s, h, w] to the sum of its scales' vectors [b, c, 2, h, w]."""

    angles: Tensor

    def __init__(self, angles: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("angles", torch.tensor(angles, dtype=torch.float64), persistent=False)

    def forward(self, field: Tensor) -> Tensor:
        """Scale k points in the direction of angle k."""
        directions = torch.stack([self.angles.cos(), self.angles.sin()]).to(field.dtype)
        return torch.einsum("bcshw,vs->bcvhw", field, directions)


class VectorsToScales(ScalesToVectors):
    """Vectors [b, c, 2, h, w] to a field [b, c, s, h, w]: the length at the scale of the nearest angle, 0 elsewhere."""

    def forward(self, vectors: Tensor) -> Tensor:
        """Which scale a vector belongs to is no matter of gradients."""
        length = VectorMagnitude()(vectors)
        winner = nearest_scale(vectors.detach(), self.angles)
        return torch.stack([torch.where(winner == k, length, 0.0) for k in range(len(self.angles))], dim=2)


def nearest_scale(vectors: Tensor, angles: Tensor) -> Tensor:
    """The index [b, c, h, w] of the angle that each vector [b, c, 2, h, w] points nearest to."""
    turned = torch.atan2(vectors[:, :, 1], vectors[:, :, 0])
    return (turned[..., None] - angles.to(turned)).abs().argmin(dim=-1)


def _sevf_between() -> nn.Module:
    scales, angles = sevf_scales(HIDDEN_SCALES, HIDDEN_STEP), sevf_angles(HIDDEN_SCALES)
    conv = SEVFConv(CHANNELS, CHANNELS, MNIST_SIDE, scales, angles)
    return nn.Sequential(ScalesToVectors(angles), conv, VectorsToScales(angles))


def _sicnn_between() -> nn.Module:
    return SiCNNConv(CHANNELS, CHANNELS, MNIST_SIDE, [HIDDEN_STEP**k for k in range(HIDDEN_SCALES)])


def _dss_between() -> nn.Module:
    return DSSConv(CHANNELS, CHANNELS, MNIST_SIDE, HIDDEN_SCALES, interscale=EXTENT)


def _sesn_between() -> nn.Module:
    return ScaleConv(CHANNELS, CHANNELS, _basis_b(HIDDEN_STEP, HIDDEN_SCALES), interscale=EXTENT)


def _design_between(key: str) -> Callable[[], nn.Module]:
    """The first convolution of the network's first group, as the design has it."""

    def between() -> nn.Module:
        parts = METHODS[key].stl10
        assert parts is not None
        return parts("paper").conv(Place(0, 0), CHANNELS, CHANNELS, 1)

    return between


#: One row for each method.
LAYERS: dict[str, MethodLayers] = {
    "cnn": MethodLayers(no_scales),
    "wrn": MethodLayers(no_scales, side=WIDE_SIDE),
    "sicnn-scalar": MethodLayers(projected(sicnn)),
    "sicnn-vector": MethodLayers(sicnn, _sicnn_between),
    "si-convnet": MethodLayers(si_convnet),
    "sevf-scalar": MethodLayers(lambda step: nn.Sequential(sevf(step), VectorMagnitude())),
    "sevf-vector": MethodLayers(sevf, _sevf_between),
    "dss-scalar": MethodLayers(projected(dss)),
    "dss-vector": MethodLayers(dss, _dss_between),
    "ss-cnn": MethodLayers(ss_cnn),
    "sesn-scalar": MethodLayers(projected(sesn)),
    "sesn-vector": MethodLayers(sesn, _sesn_between),
    "sesn-a": MethodLayers(_design("a"), _design_between("sesn-a"), WIDE_SIDE),
    "sesn-b": MethodLayers(_design("b"), _design_between("sesn-b"), WIDE_SIDE),
    "sesn-c": MethodLayers(_design("c"), _design_between("sesn-c"), WIDE_SIDE),
    "harm-wrn": MethodLayers(no_scales, side=WIDE_SIDE),
}


def layers_of(key: str) -> MethodLayers:
    """The layers of a method. One without a row is measured as its networks have it; no other step can be tried."""
    return LAYERS.get(key, MethodLayers(no_row))


# What a layer's output is


def vector_angles(module: nn.Module) -> tuple[float, ...] | None:
    """The angles of a layer that hands on vectors; None for any other."""
    last = list(module.modules())[-1]
    return last.angles if isinstance(last, SEVFLift | SEVFConv) else None
