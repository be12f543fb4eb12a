"""A rotation-equivariant network of escnn, which takes geometric tensors, wrapped so that it can be checked.

`sesn check docs/examples/escnn_network.py:wrapped` measures it; `nox -s zoo` does so.
"""

from __future__ import annotations

from typing import Any

from escnn import gspaces
from escnn import nn as enn
from torch import Tensor, nn


class Wrapped(nn.Module):
    """The network on plain tensors."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Make the images a geometric tensor, and take the tensor out of the answer."""
        return self.network(enn.GeometricTensor(images, self.network.in_type)).tensor  # type: ignore[no-any-return]


def bare() -> nn.Module:
    """Two convolutions that commute with eight rotations, and the largest answer over them."""
    space = gspaces.rot2dOnR2(8)
    images = enn.FieldType(space, 3 * [space.trivial_repr])
    fields = enn.FieldType(space, 4 * [space.regular_repr])
    first = [enn.R2Conv(images, fields, 5, padding=2), enn.InnerBatchNorm(fields), enn.ReLU(fields)]
    return enn.SequentialModule(*first, enn.R2Conv(fields, fields, 5, padding=2), enn.GroupPooling(fields))


def wrapped() -> nn.Module:
    """The same for images that are plain tensors."""
    return Wrapped(bare())
