"""The convolutions: ScaleLift (T -> H), ScaleConv (H -> H, optionally interscale) and ScaleConv1x1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sesn import _checks
from sesn.algorithms.choose import Algorithm
from sesn.basis import SteerableBasis
from sesn.layers.fit import FittedConv
from sesn.layers.steerable import Border, Sides, known_basis, pair_of, sides_of
from sesn.layers.typed import TensorModule
from sesn.scales import ScaleGrid

ScalePadding = Literal["zeros", "replicate", "truncate"]


class ScaleLift(FittedConv):
    """Scale convolution of an image, which makes it a field: [b, c, h, w] -> [b, c', s, h', w'] (convTH in the paper).

    Output channel o at scale k is the correlation of the image with sum_n w[o, i, n] psi_n at sigma_k, plus the bias.

    Args:
        in_channels, out_channels: channels of the image and of the field.
        basis: the steerable functions and their scales; `basis_for()` if it is left out.
        stride: spatial stride, or (rows, columns); with "same" padding the output side is ceil(h / stride).
        padding: "same" (V // 2), "valid" (0) or a number of pixels, or (rows, columns), V being the basis' kernel size.
        padding_mode: "zeros", "circular", "reflect" or "replicate".
        groups: the channels are split into this many groups, which do not see each other.
        bias: whether to add one number per output channel, shared by all scales and positions.
        algorithm: "auto" picks "dense", "separable" or "spectral" scale by scale, by the cost model of
            `sesn.algorithms`. On a GPU with Triton (extra `gpu`) there is "fused" as well.
        device, dtype: of the parameters, as in torch's layers.

    Raises:
        UsageError: an argument breaks its rule, or `algorithm` does not fit the basis.

    Example:
        >>> basis = sesn.basis_a(sesn.ScaleGrid.geometric(0.9, 1.41, 3), 7, 3)
        >>> sesn.ScaleLift(3, 8, basis, stride=2)(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 8, 3, 16, 16])
    """

    def forward(self, image: Tensor) -> Tensor:
        """Lift an image to a field.

        Args:
            image: [b, c, h, w], in the layer's dtype.

        Returns:
            The field [b, c', s, h', w'].

        Raises:
            UsageError: the image has another shape or dtype than the layer takes, or is too small for it.
        """
        self._check_input(image, weight := self.weight)
        return self._convolve(image.unsqueeze(2), weight)

    def _check_input(self, image: Tensor, weight: Tensor) -> None:
        """Reject what is no image for this layer."""
        _checks.with_channels("image", image, "b c h w", self.in_channels, "in_channels")
        _checks.same_dtype("image", image, weight)

    def _weight_tail(self) -> tuple[int, ...]:
        return (len(self.basis),)

    def _windows(self) -> list[tuple[int, int]]:
        return [(0, 1)] * len(self.grid)


class ScaleConv(FittedConv):
    """Scale convolution of a field to a field: [b, c, s, h, w] -> [b, c', s, h', w'] (convHH in the paper).

    Output scale k = sum_i correlation(field[k + i], kernel_i at sigma_k), i = 0 .. interscale - 1: the same and the
    next larger scales. The largest ones see past the end of the grid, as `scale_padding` says.

    Args:
        in_channels, out_channels: channels of the two fields.
        basis: the steerable functions and their scales, which are those of both fields; `basis_for()` by default.
        interscale: K_S, how many neighbouring scales a filter sees.
        scale_padding: what lies past the largest scale: "zeros", the largest scale again ("replicate"), or nothing
            ("truncate"), so that the output has interscale - 1 scales fewer; the layer's `grid` has the others.
        stride, padding, padding_mode, groups, bias, algorithm, device, dtype: as in `ScaleLift`.

    Raises:
        UsageError: an argument breaks its rule, such as an `interscale` beyond the number of scales.

    Example:
        >>> basis = sesn.basis_a(sesn.ScaleGrid.geometric(0.9, 1.41, 3), 7, 3)
        >>> sesn.ScaleConv(8, 4, basis, interscale=2)(torch.randn(2, 8, 3, 16, 16)).shape
        torch.Size([2, 4, 3, 16, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        basis: SteerableBasis | None = None,
        *,
        interscale: int = 1,
        scale_padding: ScalePadding = "zeros",
        stride: Sides = 1,
        padding: str | Sides = "same",
        padding_mode: Border = "zeros",
        groups: int = 1,
        bias: bool = True,
        algorithm: Algorithm = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        scales = len(known_basis(basis).grid)
        # Before the weight is made, whose shape it decides.
        self.interscale = _checks.whole("interscale", interscale, 1)
        rule = f"at most the number of scales ({scales})"
        _checks.require(self.interscale <= scales, "interscale", interscale, rule, "use a longer grid")
        self.scale_padding = _checks.one_of("scale_padding", scale_padding, ("zeros", "replicate", "truncate"))
        super().__init__(
            in_channels,
            out_channels,
            basis,
            stride=stride,
            padding=padding,
            padding_mode=padding_mode,
            groups=groups,
            bias=bias,
            algorithm=algorithm,
            device=device,
            dtype=dtype,
        )

    def forward(self, field: Tensor) -> Tensor:
        """Convolve a field.

        Args:
            field: [b, c, s, h, w], in the layer's dtype.

        Returns:
            The field [b, c', s, h', w'].

        Raises:
            UsageError: the field has another shape or dtype than the layer takes, or is too small for it.
        """
        self._check_input(field, weight := self.weight)
        return self._convolve(longer(field, self.repeats), weight)

    @property
    def grid(self) -> ScaleGrid:
        """The scales of the output: fewer than the basis has, if what sees past the largest is left out."""
        grid, kept = self.basis.grid, len(self._windows())
        return grid if kept == len(grid) else ScaleGrid(grid.sigmas[:kept])

    @property
    def repeats(self) -> int:
        """How many times the largest scale is seen again."""
        return self.interscale - 1 if self.scale_padding == "replicate" else 0

    def _weight_tail(self) -> tuple[int, ...]:
        return self.interscale, len(self.basis)

    def _windows(self) -> list[tuple[int, int]]:
        scales, extent = len(self.basis.grid), self.interscale
        outputs = scales - extent + 1 if self.scale_padding == "truncate" else scales
        return [(k, min(k + extent, scales + self.repeats)) for k in range(outputs)]

    def extra_repr(self) -> str:
        """As for every layer, and the interscale extent."""
        extent = f", interscale={self.interscale}" if self.interscale > 1 else ""
        padding = f", scale_padding={self.scale_padding!r}" if self.scale_padding != "zeros" else ""
        return super().extra_repr() + extent + padding


def longer(field: Tensor, repeats: int) -> Tensor:
    """The field with its largest scale so many times again."""
    if repeats == 0:
        return field
    return torch.cat([field, field[:, :, -1:].expand(-1, -1, repeats, -1, -1)], dim=2)


class ScaleConv1x1(TensorModule):
    """One matrix [c', c] applied at every scale and position of a field, with an optional spatial stride.

    Args:
        in_channels, out_channels: channels of the two fields.
        stride: spatial stride, or (rows, columns).
        bias: whether to add one number per output channel.
        device, dtype: of the parameters, as in torch's layers.

    Raises:
        UsageError: a number is not a whole one of at least 1.

    Example:
        >>> sesn.ScaleConv1x1(8, 4, stride=2)(torch.randn(2, 8, 3, 16, 16)).shape
        torch.Size([2, 4, 3, 8, 8])
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        stride: Sides = 1,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = _checks.whole("in_channels", in_channels, 1)
        self.out_channels = _checks.whole("out_channels", out_channels, 1)
        self.stride, biased = sides_of(stride), _checks.flag("bias", bias)
        _checks.float_dtype(dtype)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, **options))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_channels, **options)) if biased else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights uniformly in +-1/sqrt(C_in) and set biases to zero."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, field: Tensor) -> Tensor:
        """Mix the channels of a field.

        Args:
            field: [b, c, s, h, w], in the layer's dtype.

        Returns:
            The field [b, c', s, h', w'].

        Raises:
            UsageError: the field has another shape or dtype than the layer takes.
        """
        _checks.with_channels("field", field, "b c s h w", self.in_channels, "in_channels")
        weight = self.weight
        _checks.same_dtype("field", field, weight)
        down, across = pair_of(self.stride)
        picked = field[..., ::down, ::across]
        return torch.nn.functional.conv3d(picked, weight[:, :, None, None, None], self.bias)

    @property
    def receptive_radius(self) -> int:
        """Zero: an output pixel sees one pixel of the input. With a stride, some pixels are not seen at all."""
        return 0

    def multiply_adds(self, shape: Sequence[int]) -> int:
        """Count the multiply-adds.

        Args:
            shape: the shape of the field.

        Returns:
            The number for the whole batch.
        """
        positions = math.prod(-(-size // step) for size, step in zip(shape[-2:], pair_of(self.stride), strict=True))
        return shape[0] * self.in_channels * self.out_channels * shape[2] * positions

    def extra_repr(self) -> str:
        """`in -> out` and what differs from the defaults."""
        stride = f", stride={self.stride}" if self.stride != 1 else ""
        return f"{self.in_channels} -> {self.out_channels}{stride}" + ("" if self.bias is not None else ", bias=False")
