"""Scale-invariant CNNs: every column convolves with the same kernel, rescaled to its own size.

Y. Xu, T. Xiao, J. Zhang, K. Yang and Z. Zhang, "Scale-invariant convolutional neural networks", arXiv 2014.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sesn import _checks
from sesn._meaning import Constants
from sesn.layers.conv import ScaleConv1x1
from sesn.layers.pool import GlobalPool
from sesn.layers.project import ScaleProjection
from sesn.methods._layer import KernelLayer, correlate
from sesn.methods.method import (
    CHANNELS,
    COLOURS,
    HIDDEN_SCALES,
    HIDDEN_STEP,
    MNIST_SIDE,
    Goals,
    Method,
    Source,
    projected,
)
from sesn.methods.steerable import shortcut
from sesn.networks import RECIPES, Recipe, Regime, mnist, stir, wrn
from sesn.networks.skeleton import FIELD, Carrier, ColumnBatchNorm


def canvas_side(kernel_size: int, scales: Sequence[float]) -> int:
    """k + 2 ceil((M - k) / 2) with M = floor(k max(scales)): the smallest odd side, up to a pixel, for all kernels."""
    return kernel_size + 2 * max(0, math.ceil((math.floor(kernel_size * max(scales)) - kernel_size) / 2))


def bilinear_rescaling(kernel_size: int, scale: float, side: int) -> Tensor:
    """[side, k] in float64: the piecewise linear interpolant of the kernel, zero outside, at positions j / scale.

    Both kernel and canvas are odd and the centre stays where it is.
    """
    positions = (torch.arange(side, dtype=torch.float64) - side // 2) / scale
    taps = torch.arange(kernel_size, dtype=torch.float64) - kernel_size // 2
    return (1 - (positions[:, None] - taps).abs()).clamp(min=0)


def released_rescaling(kernel_size: int, scale: float, side: int) -> Tensor:
    """[side, k] in float64: how the released code resizes a canvas with the kernel in its middle, and cuts it back.

    The resized canvas has n = floor(side scale) pixels: pixel i is the nearest, floor(i / scale), when enlarging, and
    lies at i (side - 1) / (n - 1), bilinearly, when shrinking. It is put at floor((side - n) / 2), so that some
    kernels end up half a pixel off the centre.
    """
    resized = math.floor(side * scale)
    inside = torch.zeros(side, kernel_size, dtype=torch.float64)
    start = (side - kernel_size) // 2
    inside[start : start + kernel_size] = torch.eye(kernel_size, dtype=torch.float64)
    left = (side - resized) // 2
    result = torch.zeros(side, kernel_size, dtype=torch.float64)
    for i in range(max(0, -left), min(resized, side - left)):
        if scale > 1:
            result[left + i] = inside[min(math.floor(i / scale), side - 1)]
        else:
            position = i * (side - 1) / (resized - 1) if resized > 1 else 0.0
            below = min(math.floor(position), side - 1)
            above = min(below + 1, side - 1)
            result[left + i] = torch.lerp(inside[below], inside[above], position - below)
    return result


class _SiCNN(KernelLayer):
    """The kernel [c', c, k, k] and its rescaled copies, of the same L1 norm."""

    weight: nn.Parameter
    such_as = "one factor per column, such as (0.67, 1, 1.5)"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        scales: Sequence[float],
        *,
        recipe: Recipe = "paper",
        **options: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, scales, **options)
        self.recipe = _checks.one_of("recipe", recipe, RECIPES)
        self.firsts, self.sides = self._supports()
        ends = (first + side - 1 for first, side in zip(self.firsts, self.sides, strict=True))
        self.receptive_radius = max(-min(self.firsts), *ends)
        self.taps = sum(side**2 for side in self.sides)
        self.details += (f"recipe={recipe!r}",) if recipe != "paper" else ()
        self.reset_parameters()

    def kernels(self) -> list[Tensor]:
        """The kernel of each scale [c', c, y, x], cropped to its support; its first tap lies at `firsts` of the centre.

        All have the L1 norm of the unscaled kernel, for each pair of channels.
        """
        taps = self._store.constant("taps", self.weight, self._taps)
        flat = self.weight.flatten(2)
        norm = flat.abs().sum(dim=-1, keepdim=True)
        shape = self.weight.shape[:2]
        areas = [side * side for side in self.sides]
        parts = torch.functional.split(flat.reshape(-1, flat.shape[-1]) @ taps, areas, dim=-1)
        found = []
        for part, side in zip(parts, self.sides, strict=True):
            kernel = part.reshape(*shape, -1)
            own = kernel.abs().sum(dim=-1, keepdim=True)  # a kernel of zeros stays as it is
            found.append((kernel * (norm / torch.where(own > 0, own, 1.0))).reshape(*shape, side, side))
        return found

    def _rescalings(self) -> list[Tensor]:
        """[side, k] for each scale, on the canvas. A 1x1 kernel is the same at all scales."""
        if self.kernel_size == 1:
            return [torch.ones(1, 1, dtype=torch.float64) for _ in self.scales]
        side = canvas_side(self.kernel_size, self.scales)
        make = released_rescaling if self.recipe == "released" else bilinear_rescaling
        identity = bilinear_rescaling(self.kernel_size, 1.0, side)
        return [identity if scale == 1 else make(self.kernel_size, scale, side) for scale in self.scales]

    def _supports(self) -> tuple[list[int], list[int]]:
        """Where the support of each scale's kernel starts, counted from the centre, and its side."""
        firsts, sides = [], []
        with torch.device("cpu"):
            for scale, matrix in zip(self.scales, self._rescalings(), strict=True):
                used = matrix.sum(dim=1).nonzero()[:, 0].tolist()
                rule = f"large enough to leave something of a kernel of {self.kernel_size}"
                _checks.require(bool(used), "scales", scale, rule, "use larger scales or kernels")
                firsts.append(used[0] - matrix.shape[0] // 2)
                sides.append(used[-1] - used[0] + 1)
        return firsts, sides

    def _taps(self) -> Tensor:
        """[k^2, sum of sides^2]: both axes' rescalings of every scale, side by side."""
        planes = []
        for matrix, first, side in zip(self._rescalings(), self.firsts, self.sides, strict=True):
            start = first + matrix.shape[0] // 2
            planes.append(torch.kron(matrix[start : start + side], matrix[start : start + side]).T)
        return torch.cat(planes, dim=1)

    def _convolve(self, columns: Sequence[Tensor]) -> Tensor:
        kernels = zip(columns, self.kernels(), self.firsts, strict=True)
        return torch.stack([correlate(x, kernel, first, self.stride) for x, kernel, first in kernels], dim=2)

    def meaning(self) -> Constants:
        """How the kernel is rescaled."""
        return {**super().meaning(), "recipe": self.recipe}


class SiCNNLift(_SiCNN):
    """All columns look at the image: [b, c, h, w] -> [b, c', s, h', w'].

    Column i is the correlation with w_i = R_i w R_i^T, R_i rescaling the kernel's axes by scales[i], times
    |w|_1 / |w_i|_1 for each pair of channels. There is no bias. The output side is ceil(h / stride).

    Args:
        in_channels, out_channels: channels of the image and of each column.
        kernel_size: side of the unscaled kernel, odd.
        scales: the factor of each column.
        stride, device, dtype: spatial stride, and of the parameters.
        recipe: "paper" rescales bilinearly about the kernel's centre on an odd canvas; "released" does what the
            released code did (`released_rescaling`), with kernels that are half a pixel off the centre.
    """

    def forward(self, image: Tensor) -> Tensor:
        """Lift an image [b, c, h, w] to a field [b, c', s, h', w']."""
        self._check_image(image, self.weight)
        return self._convolve([image] * len(self.scales))


class SiCNNConv(_SiCNN):
    """Column i sees column i only: [b, c, s, h, w] -> [b, c', s, h', w']. Kernels and arguments as in `SiCNNLift`."""

    def forward(self, field: Tensor) -> Tensor:
        """Convolve a field [b, c, s, h, w] to a field [b, c', s, h', w']."""
        self._check_field(field, self.weight, len(self.scales))
        return self._convolve(field.unbind(2))


# --- its networks

MNIST_SCALES = (0.3, 0.45, 0.67, 1.0, 1.49, 2.23, 3.33)
STL10_SCALES = (0.67, 1.0, 1.5)


def columns(scales: int) -> Carrier:
    """A field whose scales are normalised one by one: the published counts of parameters say so."""
    return FIELD._replace(norm=partial(ColumnBatchNorm, scales=scales))


def mnist_scalar(regime: Regime) -> mnist.StageParts:
    """The maximum over the columns after every convolution; the paper gives its times only."""
    recipe = regime.recipe
    return mnist.StageParts(
        lambda stage, i, o: nn.Sequential(SiCNNLift(i, o, 7, MNIST_SCALES, recipe=recipe), ScaleProjection())
    )


def mnist_vector(regime: Regime) -> mnist.StageParts:
    """Columns throughout; their maximum is taken after the last norm."""
    recipe, carrier = regime.recipe, columns(len(MNIST_SCALES))
    return mnist.StageParts(
        lambda stage, i, o: (SiCNNConv if stage else SiCNNLift)(i, o, 7, MNIST_SCALES, recipe=recipe),
        (carrier, carrier, carrier),
        projection=ScaleProjection,
    )


def wrn_parts(recipe: Recipe) -> wrn.BlockParts:
    """Columns throughout; their maximum is taken after the mean over positions."""
    carrier = columns(len(STL10_SCALES))
    return wrn.BlockParts(
        stem=lambda i, o: SiCNNLift(i, o, 3, STL10_SCALES, recipe=recipe),
        conv=lambda place, i, o, stride: SiCNNConv(i, o, 3, STL10_SCALES, stride=stride, recipe=recipe),
        shortcut=shortcut,
        carrier=carrier,
        head=lambda channels: nn.Sequential(carrier.activated(channels), GlobalPool("mean"), ScaleProjection()),
        fan_out=(SiCNNLift, SiCNNConv, ScaleConv1x1),
    )


def at_step(step: float) -> nn.Module:
    """The kernel, and the kernel enlarged by the step."""
    return SiCNNLift(COLOURS, CHANNELS, MNIST_SIDE, (1, step))


def between() -> nn.Module:
    """Columns to columns."""
    return SiCNNConv(CHANNELS, CHANNELS, MNIST_SIDE, [HIDDEN_STEP**k for k in range(HIDDEN_SCALES)])


SOURCE = Source("Xu et al. 2014, arXiv:1411.6369", "Filter Rescaling")
GOALS = Goals(work=1.5, times={28: 25.0})
SICNN_SCALAR = Method(
    "sicnn-scalar",
    "SiCNN Scalar",
    SOURCE,
    "#7E5F36",
    {"mnist": mnist.MNISTSkeleton(mnist_scalar), "stir": stir.STIRSkeleton(mnist_scalar)},
    projected(at_step),
    resamples="filters",
    representative=False,
    goals=GOALS,
    absences={
        "mnist/released": "the released code has no such network",
        "mnist/error": "the paper gives its times only",
        "stl10": "on STL-10 the paper keeps the columns; use sicnn-vector",
    },
)
SICNN_VECTOR = Method(
    "sicnn-vector",
    "SiCNN Vector",
    SOURCE,
    "#A96000",
    {
        "mnist": mnist.MNISTSkeleton(mnist_vector),
        "stl10": wrn.WRNSkeleton(wrn_parts),
        "stir": stir.STIRSkeleton(mnist_vector),
    },
    at_step,
    between,
    resamples="filters",
    goals=GOALS,
    labels={"stl10": "SiCNN"},
)
