"""Other numbers of pixels for a field [b, c, s, h, w]; the scale axis stays as it is."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from sesn import _checks
from sesn._torch import recording
from sesn.layers.each import each_map
from sesn.layers.typed import TensorModule

Interpolation = Literal["nearest", "bilinear", "bicubic"]

#: Bytes of a number in single precision.
FLOAT32 = 4


def triangle(distance: Tensor) -> Tensor:
    """The filter of "bilinear" at this many coarser pixels from its centre."""
    return (1 - distance).clamp_min(0)


def cubic(distance: Tensor) -> Tensor:
    """The filter of "bicubic" at this many coarser pixels from its centre: Keys' cubic with a slope of -1/2 at 1."""
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((2.5 - 0.5 * distance) * distance - 4) * distance + 2
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0))


#: The low-pass filters of `ScaleDownsample`, as torch has them.
KERNELS = {"bilinear": triangle, "bicubic": cubic}


class ScaleUpsample(TensorModule):
    """More pixels at every scale: each map is interpolated separately, as `nn.Upsample` does for images.

    On a field `nn.Upsample` would make more scales, too. The next layer sees `factor` times as many pixels to a side
    for the same object, so its basis may have `factor` times the sigmas of the layer before.

    Args:
        factor: how many times as many pixels along rows and columns.
        mode: "bicubic", which is the most equivariant, "bilinear" or "nearest".

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> sesn.ScaleUpsample()(torch.randn(2, 8, 3, 16, 16)).shape
        torch.Size([2, 8, 3, 32, 32])
    """

    def __init__(self, factor: int = 2, mode: Interpolation = "bicubic") -> None:
        super().__init__()
        self.factor = _checks.whole("factor", factor, 1)
        self.mode = cast(Interpolation, _checks.one_of("mode", mode, ("nearest", "bilinear", "bicubic")))

    def forward(self, field: Tensor) -> Tensor:
        """Interpolate every scale by itself.

        Args:
            field: [b, c, s, h, w].

        Returns:
            The field [b, c, s, factor h, factor w].

        Raises:
            UsageError: the field has another shape.
        """
        _checks.real_tensor("field", field, "b c s h w")
        return each_map(lambda maps: F.interpolate(maps, scale_factor=self.factor, mode=self.mode), field)

    def extra_repr(self) -> str:
        """The factor and the interpolation."""
        return f"factor={self.factor}, mode={self.mode!r}"


class ScaleDownsample(TensorModule):
    """Fewer pixels at every scale: a low-pass filter, then samples in the middle of every `factor` pixels.

    Without a filter, frequencies that the coarser pixels cannot hold appear as lower ones, and which ones depends on
    the size of the picture. A filter that also weakens what they can hold, such as a wide binomial blur, costs more
    equivariance than it brings, since it blurs a small picture more than a large one. "bicubic" cuts off most sharply.

    Args:
        factor: how many times fewer pixels along rows and columns.
        mode: the filter: "bicubic", or "bilinear", a triangle of twice the factor.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> sesn.ScaleDownsample()(torch.randn(2, 8, 3, 16, 15)).shape
        torch.Size([2, 8, 3, 8, 7])
    """

    def __init__(self, factor: int = 2, mode: Literal["bilinear", "bicubic"] = "bicubic") -> None:
        super().__init__()
        self.factor = _checks.whole("factor", factor, 1)
        self.mode = _checks.one_of("mode", mode, ("bilinear", "bicubic"))

    def forward(self, field: Tensor) -> Tensor:
        """Filter and sample every scale by itself.

        Args:
            field: [b, c, s, h, w].

        Returns:
            The field [b, c, s, h // factor, w // factor].

        Raises:
            UsageError: the field has another shape, or fewer pixels along a side than the factor.
        """
        _checks.real_tensor("field", field, "b c s h w")
        side, rule = min(field.shape[-2:]), f"at least {self.factor}, the factor"
        _checks.require(side >= self.factor, "input side", side, rule, "use a larger image or a smaller factor")
        # Torch cannot record the gradient of its filter for any batch, has none of two bytes a number on CPUs, and is
        # wrong for one column (2.13). ONNX places the samples elsewhere where the factor does not divide a side.
        if recording() or field.element_size() < FLOAT32 or field.shape[-1] < 2 * self.factor:
            down, across = (self._matrix(side, field) for side in field.shape[-2:])
            return down @ field @ across.t()
        return each_map(
            lambda maps: F.interpolate(maps, scale_factor=1 / self.factor, mode=self.mode, antialias=True), field
        )

    def _matrix(self, side: int, like: Tensor) -> Tensor:
        """What the filter does to columns of so many pixels: [pixels after, pixels before]."""
        options: dict[str, Any] = {"dtype": torch.promote_types(like.dtype, torch.float32), "device": like.device}
        places = (torch.arange(side // self.factor, **options) + 0.5) * self.factor
        distances = (torch.arange(side, **options) + 0.5 - places[:, None]).abs() / self.factor
        weights = KERNELS[self.mode](distances)
        return (weights / weights.sum(1, keepdim=True)).to(like.dtype)

    def extra_repr(self) -> str:
        """The factor and the filter."""
        return f"factor={self.factor}, mode={self.mode!r}"
