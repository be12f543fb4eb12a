"""How far a module looks: its receptive radius and total stride, estimated from its layers in order.

A layer says so itself with an attribute `receptive_radius`, in pixels of its input, and a `stride` unless it is 1; of
torch's layers convolutions, pools and upsampling are known. What is not known counts as pointwise here (`trail` notices
what it calls, and `extent` then asks gradients), and so does BandlimitedReLU, whose filters fade over 12 pixels and
carry next to nothing there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

#: The window of a layer that sees one pixel.
POINTWISE = 0, 1, 0
#: How many pixels to each side an interpolation takes numbers from.
_INTERPOLATION = {"nearest": 1, "nearest-exact": 1, "bilinear": 1, "bicubic": 2}


@dataclass(frozen=True)
class Receptive:
    """Which input pixels an output pixel depends on. After upsampling these numbers may be fractions."""

    radius: float = 0  # input pixels that it sees to each side
    stride: float = 1  # input pixels between neighbouring outputs
    first: float = 0  # where the first output looks, in input pixels: 0 is the middle of the first

    def then(self, radius: float, stride: float, first: float = 0) -> Receptive:
        """Followed by a layer with this radius, stride and first place."""
        return Receptive(self.radius + radius * self.stride, self.stride * stride, self.first + first * self.stride)

    def off_centre(self, side: int, left: int) -> float:
        """Input pixels from the middle of an image to the middle of the `left` outputs that are made of it."""
        return self.first + self.stride * (left - 1) / 2 - (side - 1) / 2

    def leaving(self, left: int, side: int) -> Receptive:
        """As the sizes show, `side` pixels having become `left`.

        Strides of parallel branches multiply in a list of layers, and not in the sizes. If more pixels are left than
        the stride leaves, it was counted for too much: it is the divisor nearest to the ratio of the sizes, which
        rounding makes inexact, and after upsampling the ratio.
        """
        if left <= math.ceil(side / self.stride):
            return self
        several = int(self.stride) if float(self.stride).is_integer() else 0
        divisors = [d for d in range(1, several + 1) if several % d == 0]
        stride = min(divisors, key=lambda d: abs(math.log(d * left / side)), default=side / left)
        return replace(self, stride=stride)


def spoilt_by(layer: nn.Module) -> int:
    """Scale channels that a layer fills with zeros: all but one of those that it sees, as its `interscale` says.

    Only of layers that also say how far they see: a block may keep the extent of a layer in it.
    """
    extent = getattr(layer, "interscale", 1) if hasattr(layer, "receptive_radius") else 1
    return extent - 1 if isinstance(extent, int) else 0


def submodules(module: nn.Module) -> list[nn.Module]:
    """The module and all below it, a shared one as often as it is listed."""
    return [layer for _, layer in module.named_modules(remove_duplicate=False)]


def window(layer: nn.Module) -> tuple[float, float, float] | None:
    """Radius, stride and first place of one layer by itself; None if neither the layer nor torch says so."""
    own = getattr(layer, "receptive_radius", None)
    if isinstance(own, int | float):
        return own, _widest(getattr(layer, "stride", 1)), _first(layer)
    if isinstance(layer, nn.ConvTranspose2d):
        stride = max(layer.stride)
        return math.ceil(_reach(layer) / stride), 1 / stride, -_first(layer) / stride
    if isinstance(layer, nn.Conv2d | nn.Conv3d):
        return _reach(layer), max(layer.stride[-2:]), _first(layer)
    if isinstance(layer, nn.MaxPool2d | nn.AvgPool2d | nn.MaxPool3d | nn.AvgPool3d):
        return _widest(layer.kernel_size) // 2, _widest(layer.stride), _first(layer)
    if isinstance(layer, nn.Upsample) and layer.scale_factor:
        finer = _widest(layer.scale_factor)
        return _INTERPOLATION.get(layer.mode, 1), 1 / finer, 0.0 if layer.align_corners else (1 / finer - 1) / 2
    return None


def _first(layer: nn.Module) -> float:
    """Where the middle of the first window lies, in input pixels from the first pixel.

    That is half of the window's extent less the padding, or 0 for a layer that does not give both as numbers.
    """
    side = _widest(getattr(layer, "kernel_size", None))
    padding = _widest(getattr(layer, "padding", None))
    apart = _widest(getattr(layer, "dilation", 1))
    if not isinstance(side, int) or not isinstance(padding, int) or not isinstance(apart, int):
        return 0.0  # padding="same" keeps the size, so the first window is centred on the first pixel
    return (side - 1) * apart / 2 - padding


def _reach(layer: nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d) -> int:
    """Pixels from the middle of the kernel to its end, along rows or columns, whichever are more."""
    return max([side // 2 * apart for side, apart in zip(layer.kernel_size, layer.dilation, strict=True)][-2:])


def _widest(value: Any) -> Any:
    """The largest extent over rows and columns, the last axes, of a window given as a number or per axis."""
    return max(value[-2:]) if isinstance(value, tuple) else value
