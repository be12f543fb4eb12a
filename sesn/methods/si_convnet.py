"""Locally scale-invariant CNNs: convolve rescaled copies of the map, scale the responses back, keep the largest.

A. Kanazawa, A. Sharma and D. Jacobs, "Locally scale-invariant convolutional neural networks", arXiv 2014.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from sesn import _checks
from sesn.algorithms.axis import plain_number
from sesn.methods._layer import KernelLayer, convolve_inside, corner_aligned, fitted, largest, resize
from sesn.methods.cnn import conv1x1
from sesn.methods.method import CHANNELS, COLOURS, MNIST_SIDE, Goals, Method, Source
from sesn.networks import Recipe, Regime, mnist, stir, wrn


def rescaled_size(size: int, scale: float) -> int:
    """floor(size scale)."""
    return math.floor(size * scale)


def warp(size: int, scale: float) -> Tensor:
    """[size, size]: resize by `scale` with corners aligned, then crop or pad with zeros back to `size`."""
    return fitted(corner_aligned(size, rescaled_size(size, scale)), size)


def pixels_seen(size: int, scale: float) -> tuple[int, int]:
    """The first and last pixel that `warp(size, scale)` reads, from numbers alone: tensors may have no values yet."""
    resized = rescaled_size(size, scale)
    start = (size - resized) // 2
    step = (size - 1) / (resized - 1) if resized > 1 else 0.0
    last = math.ceil((min(resized, size - start) - 1) * step)
    return math.floor(max(0, -start) * step), min(last, size - 1)


class SIConv(KernelLayer):
    """Locally scale-invariant convolution, [b, c, h, w] -> [b, c', h', w'].

    max over s of W_{1/s}( correlation(W_s x, w) + bias ), where W_s resizes a map bilinearly by s, corners aligned, to
    floor(h s) pixels, and crops it about its centre or pads it with zeros back to its own size. For s > 1 only the
    middle 1 / s of the map has a response; elsewhere that scale contributes an exact 0 to the maximum. The output
    side is ceil(h / stride).

    Where s < 1 scaling back crops the responses, so only those that survive are computed.

    Args:
        in_channels, out_channels: channels of the two maps.
        kernel_size: side of the kernel, odd.
        scales: the factors s.
        stride, device, dtype: spatial stride, and of the parameters.
        bias: one number per output channel, added before scaling back.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        scales: Sequence[float],
        *,
        bias: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, scales, **options)
        self.register_parameter("bias", nn.Parameter(self.weight.new_empty(out_channels)) if bias else None)
        self.details += () if bias else ("bias=False",)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and biases uniformly in +-1 / sqrt(c k^2), as torch's Conv2d starts."""
        super().reset_parameters()
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight[0].numel())
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, image: Tensor) -> Tensor:
        """Convolve a map [b, c, h, w] at all scales and keep the largest response, [b, c', h', w']."""
        self._check_image(image, self.weight)
        size = plain_number(min(image.shape[-2:]))
        for scale in self.scales:
            good = rescaled_size(size, scale) >= 1 and rescaled_size(self._outputs(size), 1 / scale) >= 1
            rule = f"large enough for a pixel to be left at scale {scale:g} and back"
            _checks.require(good, "image side", size, rule, "use a larger image or scales nearer to 1")
        return largest([self._scale(image, scale) for scale in self.scales])

    def _scale(self, image: Tensor, scale: float) -> Tensor:
        if scale == 1:
            pad = self.kernel_size // 2
            return convolve_inside(F.pad(image, (pad, pad, pad, pad)), self.weight, self.bias, self.stride)
        sizes = [plain_number(size) for size in image.shape[-2:]]
        rows, columns = (self._matrix("to", size, scale) for size in sizes)
        responses = convolve_inside(resize(image, rows, columns), self.weight, self.bias, self.stride)
        rows, columns = (self._matrix("back", size, scale) for size in sizes)
        return resize(responses, rows, columns)

    def _matrix(self, way: str, size: int, scale: float) -> Tensor:
        make = self._to if way == "to" else self._back
        return self._store.constant((way, size, scale), self.weight, lambda: make(size, scale))

    def _outputs(self, size: int) -> int:
        return -(-size // self.stride)

    def _to(self, size: int, scale: float) -> Tensor:
        """The rows of the rescaled map that the wanted responses see, with the zeros that pad it."""
        first, last = pixels_seen(self._outputs(size), 1 / scale)
        pad = self.kernel_size // 2
        start, stop = first * self.stride - pad, last * self.stride + pad + 1
        padded = F.pad(warp(size, scale), (0, 0, max(0, -start), max(0, stop - size)))
        return padded[max(0, start) :][: stop - start]

    def _back(self, size: int, scale: float) -> Tensor:
        first, last = pixels_seen(self._outputs(size), 1 / scale)
        return warp(self._outputs(size), 1 / scale)[:, first : last + 1]

    def multiply_adds(self, shape: Sequence[int]) -> int:
        """Nominal multiply-adds for a map of this shape: a whole map convolved, and resampled twice, at every scale.

        Resampling counts 4 for each pixel that it makes.
        """
        resampled = self.in_channels * math.prod(shape[-2:]) + self.out_channels * self._positions(shape)
        resampling = 4 * shape[0] * resampled * sum(scale != 1 for scale in self.scales)
        return super().multiply_adds(shape) + resampling


# --- its networks

MNIST_SCALES = (0.3, 0.45, 0.67, 1.0, 1.49, 2.23, 3.33)
STL10_SCALES = (0.5, 1.0, 2.0)


def mnist_parts(regime: Regime) -> mnist.StageParts:
    """7 x 7 convolutions with a bias, at seven scales."""
    return mnist.StageParts(lambda stage, i, o: SIConv(i, o, 7, MNIST_SCALES))


def wrn_parts(recipe: Recipe) -> wrn.BlockParts:
    """3 x 3 convolutions at three scales; the shortcuts are plain."""
    return wrn.BlockParts(
        stem=lambda i, o: SIConv(i, o, 3, STL10_SCALES, bias=False),
        conv=lambda place, i, o, stride: SIConv(i, o, 3, STL10_SCALES, stride=stride, bias=False),
        shortcut=conv1x1,
        fan_out=(SIConv, nn.Conv2d),
    )


def at_step(step: float) -> nn.Module:
    """The image shrunk by the step, as it is, and enlarged."""
    return SIConv(COLOURS, CHANNELS, MNIST_SIDE, (1 / step, 1, step), bias=False)


SI_CONVNET = Method(
    "si-convnet",
    "SI-ConvNet",
    Source("Kanazawa et al. 2014, arXiv:1412.5104", "Input Rescaling"),
    "#AFCF33",
    {
        "mnist": mnist.MNISTSkeleton(mnist_parts),
        "stl10": wrn.WRNSkeleton(wrn_parts),
        "stir": stir.STIRSkeleton(mnist_parts),
    },
    at_step,
    resamples="input",
    representative=False,
    goals=Goals(work=2.5),
)
