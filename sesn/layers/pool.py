"""Pooling and normalisation on fields [b, c, s, h, w]: over scale, over space, and never over both unless asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesn import _checks


class SpatialWindow(nn.Module):
    """A window that moves over space only, every other axis left alone: its side, stride and padding, checked."""

    def __init__(self, kernel_size: int, stride: int | None = None, padding: int = 0) -> None:
        super().__init__()
        self.kernel_size = _checks.whole("kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else _checks.whole("stride", stride, 1)
        self.padding = _checks.whole("padding", padding, 0)
        rule = f"at most half of kernel_size (={kernel_size})"
        _checks.require(2 * self.padding <= self.kernel_size, "padding", padding, rule)

    @property
    def receptive_radius(self) -> int:
        """Pixels that a window sees to each side."""
        return self.kernel_size // 2

    def extra_repr(self) -> str:
        """The window."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _FieldPool(SpatialWindow):
    """A spatial window on a field, as torch's pooling over three axes wants it."""

    _pool: ClassVar[Callable[..., Tensor]]

    def forward(self, field: Tensor) -> Tensor:
        """Pool every scale by itself.

        Args:
            field: [b, c, s, h, w].

        Returns:
            The field [b, c, s, h', w'].

        Raises:
            UsageError: the field has another shape.
        """
        _checks.real_tensor("field", field, "b c s h w")
        k, s, p = self.kernel_size, self.stride, self.padding
        return type(self)._pool(field, (1, k, k), (1, s, s), (0, p, p))


class SpatialMaxPool(_FieldPool):
    """Spatial max-pooling of a field with a window (1, p, p).

    Args:
        kernel_size: p.
        stride: the step of the window; by default its side.
        padding: pixels beyond the border that a window may cover; they never win.

    Raises:
        UsageError: a number breaks its rule.

    Example:
        >>> sesn.SpatialMaxPool(2)(torch.randn(2, 8, 3, 16, 16)).shape
        torch.Size([2, 8, 3, 8, 8])
    """

    _pool = staticmethod(F.max_pool3d)


class SpatialAvgPool(_FieldPool):
    """Spatial average-pooling of a field with a window (1, p, p).

    Args:
        kernel_size: p.
        stride: the step of the window; by default its side.
        padding: pixels beyond the border that a window may cover; they count as zeros.

    Raises:
        UsageError: a number breaks its rule.

    Example:
        >>> sesn.SpatialAvgPool(3, stride=2, padding=1)(torch.ones(1, 1, 1, 3, 3))
        tensor([[[[[0.4444, 0.4444],
                   [0.4444, 0.4444]]]]])
    """

    _pool = staticmethod(F.avg_pool3d)


class GlobalPool(nn.Module):
    """The maximum or mean over all positions.

    The result no longer depends on where things are, and keeps the scale; after a ScaleProjection it is an invariant.

    Args:
        mode: "max" or "mean".

    Raises:
        UsageError: the mode is another.

    Example:
        >>> sesn.GlobalPool("mean")(torch.randn(2, 8, 3, 16, 16)).shape
        torch.Size([2, 8, 3])
    """

    def __init__(self, mode: Literal["max", "mean"] = "max") -> None:
        super().__init__()
        self.mode = _checks.one_of("mode", mode, ("max", "mean"))

    def forward(self, field: Tensor) -> Tensor:
        """Pool the last two axes away.

        Args:
            field: [b, c, s, h, w], or an image [b, c, h, w].

        Returns:
            [b, c, s], or [b, c].

        Raises:
            UsageError: the field has another shape.
        """
        if not (isinstance(field, Tensor) and field.dim() == 4):
            _checks.real_tensor("field", field, "b c s h w")
        return field.amax(dim=(-2, -1)) if self.mode == "max" else field.mean(dim=(-2, -1))

    def extra_repr(self) -> str:
        """The mode."""
        return f"mode={self.mode!r}"


class ScaleBatchNorm(nn.BatchNorm3d):
    """Batch norm of a field: one mean, variance, weight and bias per channel, over batch, scale and space.

    Separate statistics for each scale would break equivariance. In train mode the statistics of a batch depend on the
    image's size, so equivariance is measured in eval mode.

    Args:
        num_features: channels of the field.
        eps, momentum, affine, track_running_stats, device, dtype: as in torch's BatchNorm3d.

    Raises:
        UsageError: `num_features` is no whole number of at least 1.

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
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **options)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise a field.

        Args:
            input: [b, c, s, h, w].

        Returns:
            The field, of the same shape.

        Raises:
            UsageError: the field has another shape.
        """
        _checks.real_tensor("field", input, "b c s h w")
        _checks.extent("field", input, 1, self.num_features, "layer's num_features", "give that many channels")
        return super().forward(input)
