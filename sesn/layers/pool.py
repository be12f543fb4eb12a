"""Pooling and normalisation on fields [b, c, s, h, w]: over scale, over space, and never over both unless asked."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesn import _checks


class ScaleProjection(nn.Module):
    """f(s, x) -> max over s: a field [b, c, s, h, w] (or [b, c, s]) loses its scale axis and stays equivariant."""

    def forward(self, field: Tensor) -> Tensor:
        """Project H to T."""
        if isinstance(field, Tensor) and field.dim() == 3:
            return field.amax(dim=2)
        _checks.real_tensor("field", field, "b c s h w")
        return field.amax(dim=2)


class SpatialWindow(nn.Module):
    """A window that moves over space only, every other axis left alone: its side, stride and padding, checked."""

    def __init__(self, kernel_size: int, stride: int | None = None, padding: int = 0) -> None:
        super().__init__()
        self.kernel_size = _checks.whole("kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else _checks.whole("stride", stride, 1)
        self.padding = _checks.whole("padding", padding, 0)
        _checks.require(
            2 * self.padding <= self.kernel_size, "padding", padding, f"at most half of kernel_size (={kernel_size})"
        )

    @property
    def receptive_radius(self) -> int:
        """Pixels that a window sees to each side."""
        return self.kernel_size // 2

    def extra_repr(self) -> str:
        """The window."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _FieldPool(SpatialWindow):
    """A spatial window on a field, as torch's pooling over three axes wants it."""

    def _windows(self, field: Tensor) -> tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int, int]]:
        _checks.real_tensor("field", field, "b c s h w")
        k, s, p = self.kernel_size, self.stride, self.padding
        return (1, k, k), (1, s, s), (0, p, p)


class SpatialMaxPool(_FieldPool):
    """Spatial max-pooling of a field with a window (1, p, p)."""

    def forward(self, field: Tensor) -> Tensor:
        """[b, c, s, h, w] -> [b, c, s, h', w']."""
        window, stride, padding = self._windows(field)
        return F.max_pool3d(field, window, stride, padding)


class SpatialAvgPool(_FieldPool):
    """Spatial average-pooling of a field with a window (1, p, p); padding counts as zeros."""

    def forward(self, field: Tensor) -> Tensor:
        """[b, c, s, h, w] -> [b, c, s, h', w']."""
        window, stride, padding = self._windows(field)
        return F.avg_pool3d(field, window, stride, padding)


class GlobalPool(nn.Module):
    """The maximum or mean over all positions: [b, c, s, h, w] -> [b, c, s], or an image [b, c, h, w] -> [b, c].

    The result no longer depends on where things are, and keeps the scale; after a ScaleProjection it is an invariant.
    """

    def __init__(self, mode: Literal["max", "mean"] = "max") -> None:
        super().__init__()
        self.mode = _checks.one_of("mode", mode, ("max", "mean"))

    def forward(self, field: Tensor) -> Tensor:
        """Pool the last two axes away."""
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
    """

    def __init__(
        self,
        num_features: int,
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
        """Normalise a field [b, c, s, h, w]."""
        _checks.real_tensor("field", input, "b c s h w")
        _checks.extent("field", input, 1, self.num_features, "layer's num_features", "give that many channels")
        return super().forward(input)
