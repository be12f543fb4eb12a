"""The transposed convolution: from coarse pixels to fine ones with steerable kernels, every scale by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesn.algorithms import Axis
from sesn.basis import SteerableBasis
from sesn.layers.fit import Fitted, fitted, fitted_weights, known_conv
from sesn.layers.steerable import Sides, SteerableConv, known_basis, pair_of


class ScaleConvTranspose(SteerableConv):
    """The adjoint of a ScaleConv with "same" padding: [b, c, s, h, w] -> [b, c', s, stride h, stride w].

    With the weight w[o, i, n] it is the adjoint of a ScaleConv from c' to c channels with the weight w[i, o, n]. The
    sigmas of the basis are in pixels of the output. They should be at least about the stride. Narrower kernels
    leave gaps between the pixels that they spread, and the finer pixels then show where the coarser ones were.

    Args:
        in_channels, out_channels: channels of the two fields.
        basis: the steerable functions and their scales, which are the scales of both fields; `basis_for()` if it is
            left out.
        stride: how many times as many pixels, or (rows, columns).
        bias: whether to add one number per output channel, shared by all scales and positions.
        device, dtype: of the parameters, as in torch's layers.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> basis = sesn.basis_a(sesn.ScaleGrid.geometric(2.0, 1.41, 3), 15, 3)
        >>> sesn.ScaleConvTranspose(8, 4, basis, stride=2)(torch.randn(2, 8, 3, 16, 16)).shape
        torch.Size([2, 4, 3, 32, 32])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        basis: SteerableBasis | None = None,
        *,
        stride: Sides = 1,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, basis, stride=stride, bias=bias, algorithm="dense", device=device, dtype=dtype
        )

    @classmethod
    def from_conv_transpose2d(
        cls, conv: nn.ConvTranspose2d, basis: SteerableBasis, *, reference: int = 0
    ) -> Fitted[Self]:
        """Make a layer whose kernels at one scale are those of an ordinary transposed convolution.

        The fit is by least squares, as in `ScaleConv.from_conv2d`.

        Args:
            conv: the transposed convolution, from maps to maps with `stride` times as many pixels: its kernel is odd,
                its padding half the kernel's side, its output_padding the stride less one, and it has one group.
            basis: the steerable functions and their scales.
            reference: the index of the scale at which the kernels are fitted; 0 is the smallest.

        Returns:
            The layer and the relative residual, as a `Fitted`. A residual above 0.05 is warned about.

        Raises:
            UsageError: an argument breaks its rule.

        Example:
            >>> basis = sesn.complete_basis(sesn.ScaleGrid([1.0, 1.41, 2.0]), 3)
            >>> finer = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1)
            >>> sesn.ScaleConvTranspose.from_conv_transpose2d(finer, basis).residual < 1e-6
            True
        """
        conv, basis = known_conv(conv, nn.ConvTranspose2d), known_basis(basis)
        weight, residual = fitted_weights(conv, basis, reference)
        like: dict[str, Any] = {"device": conv.weight.device, "dtype": conv.weight.dtype}
        place: dict[str, Any] = {"stride": conv.stride, "bias": conv.bias is not None}
        layer = cls(conv.in_channels, conv.out_channels, basis, **place, **like)
        with torch.no_grad():
            layer.weight.copy_(weight.transpose(0, 1))
            if layer.bias is not None and conv.bias is not None:
                layer.bias.copy_(conv.bias)
        return fitted(layer, conv, residual, reference)

    def forward(self, field: Tensor) -> Tensor:
        """Spread a field over finer pixels.

        Args:
            field: [b, c, s, h, w], in the layer's dtype.

        Returns:
            The field [b, c', s, stride h, stride w].

        Raises:
            UsageError: the field has another shape or dtype than the layer takes.
        """
        self._check_input(field, weight := self.weight)
        self._follow(weight)
        axes = self._placed(field.shape[-2:])
        return torch.stack([self._spread(k, maps, weight, axes) for k, maps in enumerate(field.unbind(2))], dim=2)

    def _spread(self, scale: int, maps: Tensor, weight: Tensor, axes: tuple[Axis, Axis]) -> Tensor:
        kernel = self._kernel(scale, 1, weight, *axes).transpose(0, 1)
        steps, radii = pair_of(self.stride), (kernel.shape[-2] // 2, kernel.shape[-1] // 2)
        missing = [max(0, step - 1 - radius) for step, radius in zip(steps, radii, strict=True)]
        # The border is cut off here: torch is handed no padding but in one place, which `padded_convolution` tells.
        spread = F.conv_transpose2d(maps, kernel, self.bias, steps, output_padding=missing)
        ends = [(-r, r + axis.size - n) for r, axis, n in zip(radii, axes, spread.shape[-2:], strict=True)]
        return F.pad(spread, (*ends[1], *ends[0]))

    def _placed(self, sides: Sequence[int]) -> tuple[Axis, Axis]:
        """The axes of the convolution whose adjoint this is: it comes from the finer pixels."""
        down, across = pair_of(self.stride)
        return self._axes((down * sides[0], across * sides[1]), pair_of(self.padding))

    @property
    def receptive_radius(self) -> None:  # type: ignore[override]
        """The meter reads torch's function in it, which tells where the finer pixels lie as well."""

    def multiply_adds(self, shape: Sequence[int]) -> int:
        """Count the multiply-adds of the textbook convolution, with each scale's whole box at every input.

        Args:
            shape: the shape of the input.

        Returns:
            The number for the whole batch.
        """
        return super().multiply_adds((*shape[:-2], *(axis.size for axis in self._placed(shape[-2:]))))

    def _weight_tail(self) -> tuple[int, ...]:
        return (len(self.basis),)

    def _windows(self) -> list[tuple[int, int]]:
        return [(k, k + 1) for k in range(len(self.grid))]

    def extra_repr(self) -> str:
        """`in -> out`, the basis and the stride."""
        return super().extra_repr().replace(", algorithm='dense'", "")
