"""Normalisation of fields [b, c, s, h, w] with one weight and bias per channel, the same at every scale.

Which numbers share a mean and a variance decides what a norm commutes with. Over channels alone it commutes with
everything that only moves points. Over positions too, it commutes with what keeps the mean over positions, as
rescaling does but for the borders. Over scales it does not commute: rescaling brings other scales into the grid.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from sesn import _checks
from sesn.layers.each import each_scale
from sesn.layers.typed import TensorModule


class ScaleBatchNorm(TensorModule, nn.BatchNorm3d):
    """Batch norm of a field: one mean, variance, weight and bias per channel, over batch, scale and space.

    Separate statistics for each scale would break equivariance. In train mode the statistics of a batch depend on the
    image's size, so equivariance is measured in eval mode.

    Args:
        num_features: channels of the field.
        eps, momentum, affine, track_running_stats, device, dtype: as in torch's BatchNorm3d.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> sesn.ScaleBatchNorm(8)(torch.randn(2, 8, 3, 16, 16)).shape
        torch.Size([2, 8, 3, 16, 16])
    """

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        _checks.whole("num_features", num_features, 1)
        flags = _checks.flag("affine", affine), _checks.flag("track_running_stats", track_running_stats)
        _check_numbers(eps, dtype)
        right = momentum is None or _from_zero(momentum, 1.0)
        _checks.require(right, "momentum", momentum, "a number from 0 to 1", "None takes the mean over all batches")
        super().__init__(num_features, eps, momentum, *flags, **options)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise a field.

        Args:
            input: [b, c, s, h, w].

        Returns:
            The field, of the same shape.

        Raises:
            UsageError: the field has another shape.
        """
        _checks.with_channels("field", input, "b c s h w", self.num_features, "num_features")
        return super().forward(input)


class ScaleGroupNorm(TensorModule, nn.GroupNorm):
    """Group norm of a field: one mean and variance per group of channels and scale, over the positions.

    On a field, torch's own group norm also takes the mean over the scales, so what rescaling brings into the grid
    changes every value. With one group per channel this is instance norm. The scales lose their strengths relative to
    each other, so a projection by a maximum after it no longer prefers the scale that fits best.

    Args:
        num_groups: of channels.
        num_channels: of the field, a multiple of `num_groups`.
        eps, affine, device, dtype: as in torch's GroupNorm.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> sesn.ScaleGroupNorm(2, 8)(torch.randn(2, 8, 3, 16, 16)).shape
        torch.Size([2, 8, 3, 16, 16])
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        *,
        eps: float = 1e-5,
        affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        _checks.whole("num_groups", num_groups, 1)
        _checks.whole("num_channels", num_channels, 1)
        _check_numbers(eps, dtype)
        rule = f"a multiple of num_groups (={num_groups})"
        _checks.require(num_channels % num_groups == 0, "num_channels", num_channels, rule)
        super().__init__(num_groups, num_channels, eps, _checks.flag("affine", affine), **options)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise a field.

        Args:
            input: [b, c, s, h, w].

        Returns:
            The field, of the same shape.

        Raises:
            UsageError: the field has another shape.
        """
        _checks.with_channels("field", input, "b c s h w", self.num_channels, "num_channels")
        return each_scale(super().forward, input)


class ScaleLayerNorm(TensorModule, nn.LayerNorm):
    """Layer norm of a field: at every scale and position a mean and variance over the channels.

    It commutes with everything that only moves points, including rescaling and shifts along the scales.

    Args:
        num_features: channels of the field.
        eps, bias, device, dtype: as in torch's LayerNorm.
        affine: whether there is a weight and, unless `bias` is False, a bias per channel.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> sesn.ScaleLayerNorm(8)(torch.randn(2, 8, 3, 16, 16)).shape
        torch.Size([2, 8, 3, 16, 16])
    """

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.num_features = _checks.whole("num_features", num_features, 1)
        flags = _checks.flag("affine", affine), _checks.flag("bias", bias)
        _check_numbers(eps, dtype)
        super().__init__(self.num_features, eps, *flags, **options)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise a field.

        Args:
            input: [b, c, s, h, w].

        Returns:
            The field, of the same shape.

        Raises:
            UsageError: the field has another shape.
        """
        _checks.with_channels("field", input, "b c s h w", self.num_features, "num_features")
        return super().forward(input.movedim(1, -1)).movedim(-1, 1)


def _check_numbers(eps: Any, dtype: Any) -> None:
    """Reject what torch takes without a word, and fails on later or makes NaN of."""
    _checks.require(_from_zero(eps), "eps", eps, "a number of at least 0", "such as 1e-5")
    _checks.float_dtype(dtype)


def _from_zero(value: Any, most: float = math.inf) -> bool:
    return isinstance(value, Real) and (value == 0 or (_checks.positive(value) and value <= most))
