"""How far a module looks: its receptive radius and total stride, window by window.

A layer says so itself with an attribute `receptive_radius`, in pixels of its input, and a `stride` unless it is 1. Of
torch's functions, which its layers call too, convolutions, pools, interpolation and padding are known. What is not
known counts as pointwise here (`trail` notices what it calls, and `extent` then asks gradients), and so does
BandlimitedReLU, whose filters fade over 12 pixels and carry next to nothing there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

#: How many pixels to each side an interpolation takes numbers from.
_INTERPOLATION = {"nearest": 1, "nearest-exact": 1, "bilinear": 1, "bicubic": 2}
_NAME = re.compile(r"_?(conv_transpose|conv|max_pool|avg_pool)[23]d(_with_indices)?|(interpolate)|(pad)")
#: The arguments of the functions that are known, in the order in which they come after the input.
_ARGUMENTS = {
    "conv": "weight bias stride padding dilation",
    "conv_transpose": "weight bias stride padding output_padding groups dilation",
    "max_pool": "kernel_size stride padding dilation",
    "avg_pool": "kernel_size stride padding",
    "interpolate": "size scale_factor mode align_corners recompute_scale_factor antialias",
    "pad": "pad",
}


class Window(NamedTuple):
    """What one output of a layer or a function sees of its input."""

    radius: float = 0  # pixels to each side
    stride: float = 1  # pixels between neighbouring outputs
    first: float = 0  # the middle of the first window: 0 is the middle of the first pixel
    samples: bool = True  # whether it keeps every so many pixels, whatever their number


@dataclass(frozen=True)
class Receptive:
    """Which input pixels an output pixel depends on. After upsampling these numbers may be fractions."""

    radius: float = 0  # input pixels that it sees to each side
    stride: float = 1  # input pixels between neighbouring outputs
    first: float = 0  # where the first output looks, in input pixels: 0 is the middle of the first; NaN if not known
    measured: tuple[str, ...] = ()  # the layers because of which the radius was measured by gradients

    def then(self, radius: float, stride: float, first: float = 0) -> Receptive:
        """Followed by a layer with this radius, stride and first place."""
        return Receptive(self.radius + radius * self.stride, self.stride * stride, self.first + first * self.stride)

    def off_centre(self, side: int, left: int) -> float:
        """Input pixels from the middle of an image to the middle of the `left` outputs that are made of it."""
        return self.first + self.stride * (left - 1) / 2 - (side - 1) / 2

    def rearranged(self, before: int, after: int) -> Receptive:
        """Where something that is not known has made `after` pixels of `before`: how far apart is known, not where."""
        if not before or not after or before == after:
            return self
        coarser = round(before / after) if before > after else 1 / round(after / before)
        return Receptive(self.radius, self.stride * coarser, math.nan)


def spoilt_by(layer: nn.Module) -> int:
    """Scale channels that see past the end of the scale axis: all but one of those that an output sees (`interscale`).

    Only of layers that also say how far they see: a block may keep the extent of a layer in it. None where the layer
    leaves those scales out.
    """
    if getattr(layer, "scale_padding", None) == "truncate":
        return 0
    extent = getattr(layer, "interscale", 1) if hasattr(layer, "receptive_radius") else 1
    return extent - 1 if isinstance(extent, int) else 0


def submodules(module: nn.Module) -> list[nn.Module]:
    """The module and all below it, a shared one as often as it is listed."""
    return [layer for _, layer in module.named_modules(remove_duplicate=False)]


def window(layer: nn.Module) -> Window | None:
    """What a layer says of itself; None if it says nothing."""
    radius = getattr(layer, "receptive_radius", None)
    if not isinstance(radius, int | float):
        return None
    side, padding = (_widest(getattr(layer, name, None)) for name in ("kernel_size", "padding"))
    apart = _widest(getattr(layer, "dilation", 1))
    told = isinstance(side, int) and isinstance(padding, int) and isinstance(apart, int)
    first = (side - 1) * apart / 2 - padding if told else 0.0
    return Window(radius, _widest(getattr(layer, "stride", 1)), first)


def window_of(name: str, arguments: Sequence[Any], named: Mapping[str, Any], before: int, after: int) -> Window | None:
    """What a function of torch sees, which made `after` pixels a side of `before`; None if it is not known."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    kind = next(filter(None, (match[1], match[3], match[4])))
    given = {**dict(zip(_ARGUMENTS[kind].split(), arguments[1:], strict=False)), **named}
    if kind == "interpolate":
        return _interpolation(given, before, after)
    if kind == "pad":
        return Window(0, 1, -given["pad"][0], samples=False)
    sides = given["weight"].shape[2:] if "weight" in given else given["kernel_size"]
    side, apart = _widest(sides), _widest(given.get("dilation", 1))
    stride, reach = (
        _widest(given.get("stride") or sides if "pool" in kind else given.get("stride", 1)),
        side // 2 * apart,
    )
    padding = given.get("padding", 0)
    if isinstance(padding, str):
        padding = (side - 1) * apart // 2 if padding == "same" else 0
    first = (side - 1) * apart / 2 - _widest(padding)
    if kind == "conv_transpose":
        return Window(math.ceil(reach / stride), 1 / stride, -first / stride)
    return Window(reach, stride, first)


def _interpolation(given: Mapping[str, Any], before: int, after: int) -> Window:
    """Of as many pixels as there are: `scale_factor` says how far apart they are only where it was given."""
    mode, scale = given.get("mode", "nearest"), given.get("scale_factor")
    apart = 1 / _widest(scale) if scale and not given.get("recompute_scale_factor") else before / after
    if given.get("align_corners"):
        return Window(1, (before - 1) / max(1, after - 1), 0, samples=False)
    radius = _INTERPOLATION.get(mode, 1) * (max(1, apart) if given.get("antialias") or mode == "area" else 1)
    first = 0 if mode == "nearest" and apart >= 1 else (apart - 1) / 2
    return Window(0 if apart == 1 else radius, apart, first, samples=False)


def _widest(value: Any) -> Any:
    """The largest extent over rows and columns, the last axes, of a window given as a number or per axis."""
    return max(value[-2:]) if isinstance(value, tuple | list) else value
