"""How far a module looks: its receptive radius and total stride, estimated from its layers in order."""

from __future__ import annotations

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


def receptive_field(module: nn.Module) -> Receptive:
    """Walk the layers in the order of `modules()`; parallel branches count one after the other: rather too wide."""
    total = Receptive()
    for layer in module.modules():
        total = total.then(*_window(layer))
    return total


def _window(layer: nn.Module) -> tuple[int, int]:
    if isinstance(layer, ScaleLift | ScaleConv):
        return layer.basis.kernel_size // 2, layer.stride
    if isinstance(layer, ScaleConv1x1):
        return 0, layer.stride
    if isinstance(layer, SpatialMaxPool | SpatialAvgPool):
        return layer.kernel_size // 2, layer.stride
    if isinstance(layer, nn.Conv2d):
        return _last(layer.kernel_size) // 2 * _last(layer.dilation), _last(layer.stride)
    if isinstance(layer, nn.MaxPool2d | nn.AvgPool2d | nn.MaxPool3d | nn.AvgPool3d):
        return _last(layer.kernel_size) // 2, _last(layer.stride)
    return 0, 1


def _last(value: Any) -> int:
    """The width of a window given as a number or per axis."""
    return int(value[-1] if isinstance(value, tuple) else value)
