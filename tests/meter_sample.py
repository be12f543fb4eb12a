"""Small networks and images that the tests of the meter share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sesn import ScaleConv, ScaleGrid, ScaleLift, basis_a
from sesn.tools.images import random_images

IMAGES = random_images(0, (4, 1, 64, 64), 1.0, None)
STEP = 2**-0.5
GRID = ScaleGrid.geometric(1.5, 1 / STEP, 5)
WIDE = basis_a(GRID, "wide", 2)


def weighted(layer: Any, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator))
    return layer.eval()


def mixing_network() -> nn.Sequential:
    lift, mixing = ScaleLift(1, 2, WIDE, algorithm="dense"), ScaleConv(2, 2, WIDE, interscale=2, algorithm="dense")
    return nn.Sequential(weighted(lift), weighted(mixing))


def plain_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 7, padding=3), nn.ReLU(), nn.Conv2d(4, 2, 9, padding=4)).eval()


class Does(nn.Module):
    """A module of one function, with the layers that it is told of."""

    def __init__(self, function: Callable[..., Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.layers)
