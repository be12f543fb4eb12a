"""How far a module looks: its receptive radius and total stride, estimated from its layers in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

from sesn.conv import ScaleConv, ScaleConv1x1, ScaleLift
from sesn.pool import SpatialAvgPool, SpatialMaxPool


@dataclass(frozen=True)
class Receptive:
    """Radius in input pixels that an output pixel sees, and the input pixels between neighbouring outputs."""

    radius: int = 0
    stride: int = 1

    def then(self, radius: int, stride: int) -> Receptive:
        """Followed by a layer with this radius and stride."""
        return Receptive(self.radius + radius * self.stride, self.stride * stride)


def receptive_field(layers: nn.Module | Iterable[nn.Module]) -> Receptive:
    """Of layers in the order in which they are called; parallel branches count one after the other: rather too wide.

    Given a module, its submodules stand for the calls: those that are listed twice count twice.
    """
    total = Receptive()
    for layer in submodules(layers) if isinstance(layers, nn.Module) else layers:
        total = total.then(*_window(layer))
    return total


def submodules(module: nn.Module) -> list[nn.Module]:
    """The module and all below it, a shared one as often as it is listed."""
    return [layer for _, layer in module.named_modules(remove_duplicate=False)]


def _window(layer: nn.Module) -> tuple[int, int]:
    if isinstance(layer, ScaleLift | ScaleConv):
        return layer.basis.kernel_size // 2, layer.stride
    if isinstance(layer, ScaleConv1x1):
        return 0, layer.stride
    if isinstance(layer, SpatialMaxPool | SpatialAvgPool):
        return layer.kernel_size // 2, layer.stride
    if isinstance(layer, nn.Conv2d):
        reach = max(k // 2 * d for k, d in zip(layer.kernel_size, layer.dilation, strict=True))
        return reach, max(layer.stride)
    if isinstance(layer, nn.MaxPool2d | nn.AvgPool2d | nn.MaxPool3d | nn.AvgPool3d):
        return _widest(layer.kernel_size) // 2, _widest(layer.stride)
    return 0, 1


def _widest(value: Any) -> int:
    """The largest extent of a window given as a number or per axis."""
    return int(max(value) if isinstance(value, tuple) else value)
