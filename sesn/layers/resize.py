"""Other numbers of pixels for a field [b, c, s, h, w]; the scale axis stays as it is."""

from __future__ import annotations

from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from sesn import _checks
from sesn._torch import recording
from sesn.algorithms.axis import plain_number
from sesn.layers.each import each_map
from sesn.layers.typed import TensorModule

Interpolation = Literal["nearest", "bilinear", "bicubic"]

#: Bytes of a number in single precision.
FLOAT32 = 4


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
    """Fewer pixels at every scale: a low-pass filter, then samples `factor` pixels apart, centred on the map.

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
        # Torch cannot record the gradient of its filter for any batch, and on CPUs has none of two bytes a number.
        if field.element_size() < FLOAT32 or (field.requires_grad and recording()):
            down, across = (self._matrix(plain_number(side), field) for side in field.shape[-2:])
            return down @ field @ across.t()
        return each_map(lambda maps: self._sampled(maps, 1 / self.factor), field)

    def _sampled(self, maps: Tensor, across: float) -> Tensor:
        return F.interpolate(maps, scale_factor=(1 / self.factor, across), mode=self.mode, antialias=True)

    def _matrix(self, side: int, like: Tensor) -> Tensor:
        """What the filter does to columns of so many pixels: [pixels after, pixels before]."""
        precise = torch.promote_types(like.dtype, torch.float32)
        unit = torch.eye(side, dtype=precise, device=like.device)
        return self._sampled(unit[None, None], 1.0)[0, 0].to(like.dtype)

    def extra_repr(self) -> str:
        """The factor and the filter."""
        return f"factor={self.factor}, mode={self.mode!r}"
