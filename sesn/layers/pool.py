"""Pooling on fields [b, c, s, h, w] over space: every scale by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from sesn import _checks
from sesn.layers.each import each_map
from sesn.layers.steerable import Sides, pair_of, sides_of
from sesn.layers.typed import TensorModule


class SpatialWindow(TensorModule):
    """A window that moves over space only, every other axis left alone: its sides, stride and padding, checked."""

    def __init__(self, kernel_size: Sides, stride: Sides | None = None, padding: Sides = 0) -> None:
        super().__init__()
        self.kernel_size = sides_of(kernel_size, "kernel_size")
        self.stride = self.kernel_size if stride is None else sides_of(stride)
        self.padding = sides_of(padding, "padding", 0)
        fits = all(2 * p <= k for p, k in zip(pair_of(self.padding), pair_of(self.kernel_size), strict=True))
        _checks.require(fits, "padding", padding, f"at most half of kernel_size (={kernel_size})")

    @property
    def receptive_radius(self) -> int:
        """Pixels that a window sees to each side."""
        return max(pair_of(self.kernel_size)) // 2

    def extra_repr(self) -> str:
        """The window."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _FieldPool(SpatialWindow):
    """A spatial window on every map of a field."""

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
        window = (pair_of(each) for each in (self.kernel_size, self.stride, self.padding))
        return each_map(lambda maps: type(self)._pool(maps, *window), field)


class SpatialMaxPool(_FieldPool):
    """Spatial max-pooling of a field, over windows that are squares or rectangles of pixels.

    Args:
        kernel_size: the side of a window, or (rows, columns).
        stride: the distance between windows, or (rows, columns); by default kernel_size.
        padding: pixels beyond the border that a window may cover, or (rows, columns); they are never the maximum.

    Raises:
        UsageError: a number breaks its rule.

    Example:
        >>> sesn.SpatialMaxPool(2)(torch.randn(2, 8, 3, 16, 16)).shape
        torch.Size([2, 8, 3, 8, 8])
    """

    _pool = staticmethod(F.max_pool2d)


class SpatialAvgPool(_FieldPool):
    """Spatial average-pooling of a field, over windows that are squares or rectangles of pixels.

    Args:
        kernel_size: the side of a window, or (rows, columns).
        stride: the distance between windows, or (rows, columns); by default kernel_size.
        padding: pixels beyond the border that a window may cover, or (rows, columns); they count as zeros.

    Raises:
        UsageError: a number breaks its rule.

    Example:
        >>> sesn.SpatialAvgPool(3, stride=2, padding=1)(torch.ones(1, 1, 1, 3, 3))
        tensor([[[[[0.4444, 0.4444],
                   [0.4444, 0.4444]]]]])
    """

    _pool = staticmethod(F.avg_pool2d)


class SpatialAdaptivePool(TensorModule):
    """Pooling of every scale to maps of one size, whatever the size of the field.

    Two images of different sizes then have features of one shape, so that layers after it that count pixels, such as a
    linear one, can be used. If a picture is rescaled, its features stay at their places and move along the scales.

    Args:
        output_size: the side, or (rows, columns), of the maps.
        mode: "mean" or "max".

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> sesn.SpatialAdaptivePool((4, 2))(torch.randn(2, 8, 3, 16, 13)).shape
        torch.Size([2, 8, 3, 4, 2])
    """

    def __init__(self, output_size: int | tuple[int, int], mode: Literal["max", "mean"] = "mean") -> None:
        super().__init__()
        self.output_size = _checks.pair("output_size", output_size, 1)
        self.mode = _checks.one_of("mode", mode, ("max", "mean"))

    def forward(self, field: Tensor) -> Tensor:
        """Pool every scale by itself.

        Args:
            field: [b, c, s, h, w].

        Returns:
            The field [b, c, s, *output_size].

        Raises:
            UsageError: the field has another shape.
        """
        _checks.real_tensor("field", field, "b c s h w")
        pool = F.adaptive_max_pool2d if self.mode == "max" else F.adaptive_avg_pool2d
        return each_map(lambda maps: pool(maps, self.output_size), field)

    def extra_repr(self) -> str:
        """The size and the mode."""
        return f"output_size={self.output_size}, mode={self.mode!r}"


class GlobalPool(TensorModule):
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
