"""Scale equivariance with vector fields: the best scale's response, pointing in that scale's direction.

D. Marcos, B. Kellenberger, S. Lobry and D. Tuia, "Scale equivariance in CNNs with vector fields", ICML workshop 2018.

A vector field is [b, c, 2, h, w], the two components (u, v) on the third axis.
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
from sesn.layers.pool import GlobalPool
from sesn.methods._layer import KernelLayer, centre_aligned, correlate, largest, resize
from sesn.methods._vectors import (
    ScalesToVectors,
    VectorBatchNorm,
    VectorMagnitude,
    VectorMaxPool,
    VectorsToScales,
    check_vectors,
)
from sesn.methods.method import CHANNELS, COLOURS, HIDDEN_SCALES, HIDDEN_STEP, MNIST_SIDE, Goals, Method, Source
from sesn.networks import Recipe, Regime, mnist, stir, wrn
from sesn.networks.skeleton import MAP, Carrier

#: The angle between neighbouring scales: eight scales span 120 degrees.
ANGLE_STEP = math.radians(120 / 7)


def sevf_scales(count: int = 8, base: float = 1.26) -> tuple[float, ...]:
    """base^j for j = -(count // 2), ...: eight scales from 0.397 to 2.000 by default."""
    good = _checks.positive(base) and base > 1
    _checks.require(good, "base", base, "a number greater than 1", "it is the step between scales")
    return tuple(float(base) ** j for j in _exponents(count))


def sevf_angles(count: int = 8, step: float = ANGLE_STEP) -> tuple[float, ...]:
    """j step, in radians, for the same j as `sevf_scales`: scale 1 has angle 0."""
    return tuple(j * step for j in _exponents(count))


def rescaled_size(size: int, scale: float) -> int:
    """round(size scale)."""
    return round(size * scale)


class _SEVF(KernelLayer):
    """What both layers share: the scales, one scale's responses, and the best of them as vectors."""

    shown = ".3g"
    such_as = "such as sevf_scales()"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        scales: Sequence[float],
        angles: Sequence[float],
        **options: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, scales, **options)
        remedy = "such as sevf_angles()"
        found, count = _checks.numbers("angles", angles, remedy), len(self.scales)
        _checks.require(len(found) == count, "angles", found, f"{count} numbers, one for each of `scales`", remedy)
        good = all(abs(angle) <= 2 * math.pi for angle in found)
        _checks.require(good, "angles", found, "between -2 pi and 2 pi", "give radians, not degrees")
        #: the directions of the scales in the output
        self.vector_angles = self.angles = found
        self.reset_parameters()

    def _best(self, x: Tensor, kernels: Sequence[Tensor]) -> Tensor:
        """x [b, i, h, w] and a kernel [o, i, k, k] per scale to a vector field [b, o, 2, h', w']."""
        size = min(x.shape[-2:])
        good = size >= self.stride and rescaled_size(size, self.scales[0]) >= 1
        rule = f"large enough for a pixel to be left at scale {self.scales[0]:g} and stride {self.stride}"
        _checks.require(good, "input side", size, rule, "use a larger map or larger scales")
        responses = []
        for kernel, scale in zip(kernels, self.scales, strict=True):
            scaled = self._resized(x, [rescaled_size(size, scale) for size in x.shape[-2:]])
            response = correlate(scaled, kernel, -(self.kernel_size // 2), self.stride)
            responses.append(self._resized(response, [size // self.stride for size in x.shape[-2:]]))
        return _vectors(responses, self.angles)

    def _resized(self, x: Tensor, sizes: list[int]) -> Tensor:
        if list(x.shape[-2:]) == sizes:
            return x
        pairs = zip(x.shape[-2:], sizes, strict=True)
        return resize(x, *(self._store.constant(pair, x, partial(centre_aligned, *pair)) for pair in pairs))

    def meaning(self) -> Constants:
        """The scales and their directions."""
        return {**super().meaning(), "angles": self.angles}

    def multiply_adds(self, shape: Sequence[int]) -> int:
        """Nominal multiply-adds for an input of this shape: the resized map convolved at every scale, and resampling.

        Resampling counts 4 for each pixel that it makes.
        """
        total, channels, sizes = 0, math.prod(shape[1:-2]), list(shape[-2:])
        for scale in self.scales:
            scaled = [rescaled_size(size, scale) for size in sizes]
            responses = [-(-size // self.stride) for size in scaled]
            outputs = [size // self.stride for size in sizes]
            made = channels * math.prod(scaled) * (scaled != sizes)
            made += self.out_channels * math.prod(outputs) * (responses != outputs)
            total += channels * self.out_channels * self.kernel_size**2 * math.prod(responses) + 4 * made
        return shape[0] * total


class SEVFLift(_SEVF):
    """From a map to a vector field, [b, c, h, w] -> [b, c', 2, h', w'].

    For scale s_j the map is resized to round(h s_j) pixels, correlated with w, and the response resized to the output:
    r_j. With j the scale of the largest response, the first if several tie,

        (u, v) = ReLU(r_j) (cos a_j, sin a_j).

    Resizing is bilinear with pixel centres aligned and no antialiasing. There is no bias. The output side is
    h // stride.

    Args:
        in_channels, out_channels: channels of the map and of the vector field.
        kernel_size: side of the kernel, odd.
        scales: the factors s_j, see `sevf_scales`.
        angles: the angle a_j of each scale in radians, see `sevf_angles`.
        stride, device, dtype: spatial stride, and of the parameters.
    """

    weight: nn.Parameter

    def forward(self, image: Tensor) -> Tensor:
        """Lift a map [b, c, h, w] to a vector field [b, c', 2, h', w']."""
        self._check_image(image, self.weight)
        return self._best(image, [self.weight] * len(self.scales))


class SEVFConv(_SEVF):
    """From a vector field to a vector field, [b, c, 2, h, w] -> [b, c', 2, h', w'].

    As `SEVFLift`, with a kernel of two components that turns with the scale: the response at scale j is that of u to
    w_u cos a_j + w_v sin a_j plus that of v to -w_u sin a_j + w_v cos a_j.
    """

    weight_u: nn.Parameter
    weight_v: nn.Parameter
    weights = ("weight_u", "weight_v")

    def forward(self, vectors: Tensor) -> Tensor:
        """Convolve a vector field [b, c, 2, h, w] to a vector field [b, c', 2, h', w']."""
        check_vectors(vectors)
        self._check_channels("vectors", vectors, self.weight_u)
        return self._best(vectors.flatten(1, 2), [self._kernel(angle) for angle in self.angles])

    def _kernel(self, angle: float) -> Tensor:
        """[o, i 2, k, k]: the kernel turned by the angle, its components beside those of the flattened field."""
        cos, sin = math.cos(angle), math.sin(angle)
        u = self.weight_u * cos + self.weight_v * sin
        v = self.weight_v * cos - self.weight_u * sin
        return torch.stack([u, v], dim=2).flatten(1, 2)


def _vectors(responses: list[Tensor], angles: Sequence[float]) -> Tensor:
    """The largest response, rectified, in the direction of its scale; of equal ones the first."""
    best = largest(responses)
    with torch.no_grad():
        cos, sin = (torch.full_like(best, value) for value in (math.cos(angles[-1]), math.sin(angles[-1])))
        for response, angle in zip(responses[-2::-1], angles[-2::-1], strict=True):
            hit = response == best
            cos.masked_fill_(hit, math.cos(angle))
            sin.masked_fill_(hit, math.sin(angle))
    length = best.relu()
    return torch.stack([length * cos, length * sin], dim=2)


def _exponents(count: int) -> range:
    number = _checks.whole("count", count, 1)
    return range(-(number // 2), number - number // 2)


# --- its networks

MNIST_SCALES, MNIST_ANGLES = sevf_scales(), sevf_angles()
#: Neither the paper nor the release says how SEVF went on STL-10: our choice.
STL10_SCALES = (0.67, 1.0, 1.5)
STL10_ANGLES = sevf_angles(3)


def vectors(recipe: Recipe) -> Carrier:
    """A vector field [b, c, 2, h, w]; its layers end in the ReLU already."""
    return Carrier(nn.Identity, VectorMaxPool, partial(VectorBatchNorm, recipe=recipe))


def mnist_scalar(regime: Regime) -> mnist.StageParts:
    """The length of the vector after every convolution; no norm after the last."""
    return mnist.StageParts(
        lambda stage, i, o: nn.Sequential(SEVFLift(i, o, 7, MNIST_SCALES, MNIST_ANGLES), VectorMagnitude()),
        carriers=(MAP, MAP, MAP._replace(norm=nn.Identity)),
        hidden_bias=True,
    )


def mnist_vector(regime: Regime) -> mnist.StageParts:
    """Vector fields throughout; their length is taken after the last pooling, and no norm stands there."""
    carrier = vectors(regime.recipe)
    return mnist.StageParts(
        lambda stage, i, o: (SEVFConv if stage else SEVFLift)(i, o, 7, MNIST_SCALES, MNIST_ANGLES),
        carriers=(carrier, carrier, carrier._replace(norm=nn.Identity)),
        channels=(23, 45, 68),
        projection=VectorMagnitude,
        hidden_bias=True,
    )


def wrn_parts(recipe: Recipe) -> wrn.BlockParts:
    """Our completion: vector fields throughout, in the shortcuts too, and their length after the last norm."""
    carrier = vectors(recipe)
    return wrn.BlockParts(
        stem=lambda i, o: SEVFLift(i, o, 3, STL10_SCALES, STL10_ANGLES),
        conv=lambda place, i, o, stride: SEVFConv(i, o, 3, STL10_SCALES, STL10_ANGLES, stride=stride),
        shortcut=lambda place, i, o, stride: SEVFConv(i, o, 1, STL10_SCALES, STL10_ANGLES, stride=stride),
        carrier=carrier,
        head=lambda channels: nn.Sequential(carrier.activated(channels), VectorMagnitude(), GlobalPool("mean")),
        base=(11, 23, 45),
        stem_width=11,
    )


def at_step(step: float) -> nn.Module:
    """As SI-ConvNet, with three angles."""
    return SEVFLift(COLOURS, CHANNELS, MNIST_SIDE, sevf_scales(3, step), sevf_angles(3))


def between() -> nn.Module:
    """Vectors to vectors, with fields of their lengths before and after."""
    scales, angles = sevf_scales(HIDDEN_SCALES, HIDDEN_STEP), sevf_angles(HIDDEN_SCALES)
    conv = SEVFConv(CHANNELS, CHANNELS, MNIST_SIDE, scales, angles)
    return nn.Sequential(ScalesToVectors(angles), conv, VectorsToScales(angles))


SOURCE = Source("Marcos et al. 2018, arXiv:1807.11783", "Input Rescaling")
GOALS = Goals(work=2.5)
SEVF_SCALAR = Method(
    "sevf-scalar",
    "SEVF Scalar",
    SOURCE,
    "#7FE3C0",
    {"mnist": mnist.MNISTSkeleton(mnist_scalar), "stir": stir.STIRSkeleton(mnist_scalar)},
    lambda step: nn.Sequential(at_step(step), VectorMagnitude()),
    resamples="input",
    representative=False,
    goals=GOALS,
    absences={"stl10": "on STL-10 vectors are kept; use sevf-vector"},
)
SEVF_VECTOR = Method(
    "sevf-vector",
    "SEVF Vector",
    SOURCE,
    "#184E48",
    {
        "mnist": mnist.MNISTSkeleton(mnist_vector),
        "stl10": wrn.WRNSkeleton(wrn_parts),
        "stir": stir.STIRSkeleton(mnist_vector),
    },
    at_step,
    between,
    resamples="input",
    representative=False,
    goals=GOALS,
    labels={"stl10": "SEVF"},
    absences={
        "stl10/released": "the released code has no such network",
        "stl10/error": "the paper found its training unstable",
    },
)
