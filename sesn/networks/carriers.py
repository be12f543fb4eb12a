"""What a network's layers hand on, and how it is pooled and normalised: maps, fields, or a method's own features."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from sesn import _checks
from sesn.layers.pool import ScaleBatchNorm, SpatialMaxPool


class Carrier(NamedTuple):
    """The modules that treat one kind of features.

    Attributes:
        activation: makes the nonlinearity.
        pool: makes a spatial max-pooling from (kernel_size, stride, padding).
        norm: makes a normalisation from the number of channels.
    """

    activation: Callable[[], nn.Module]
    pool: Callable[[int, int, int], nn.Module]
    norm: Callable[[int], nn.Module]

    def activated(self, channels: int) -> nn.Sequential:
        """Norm, then nonlinearity: how a pre-activation residual block begins."""
        return nn.Sequential(self.norm(channels), self.activation())


class ColumnBatchNorm(nn.BatchNorm2d):
    """Batch norm of a field [b, c, s, h, w] with statistics, weights and biases of their own at every scale."""

    def __init__(self, channels: int, scales: int) -> None:
        self.channels, self.scales = channels, scales
        super().__init__(channels * scales)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise each channel and scale by itself."""
        _checks.real_tensor("field", input, "b c s h w")
        _checks.extent("field", input, 1, self.channels, "layer's channels", "give that many channels")
        _checks.extent("field", input, 2, self.scales, "layer's scales", "use the same scales throughout")
        return super().forward(input.flatten(1, 2)).reshape(input.shape)


def no_norm(channels: int) -> nn.Module:
    """A normalisation that is left out."""
    return nn.Identity()


#: A map [b, c, h, w].
MAP = Carrier(nn.ReLU, nn.MaxPool2d, nn.BatchNorm2d)
#: A field [b, c, s, h, w], normalised over its scales together.
FIELD = Carrier(nn.ReLU, SpatialMaxPool, ScaleBatchNorm)
