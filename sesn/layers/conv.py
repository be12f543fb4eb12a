"""The layers: ScaleLift (T -> H), ScaleConv (H -> H, optionally interscale) and ScaleConv1x1.

Axes everywhere: b batch, c (i in, o out) channels, s scales from small to large, h rows, w columns, n basis functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sesn import _checks
from sesn._meaning import Constants, WithMeaning
from sesn._torch import casting
from sesn.algorithms import (
    ALGORITHMS,
    Axis,
    Work,
    compose_kernel,
    convolution_cost,
    dense_convolution,
    separable_convolution,
    spectral_convolution,
)
from sesn.algorithms.axis import PaddingMode
from sesn.algorithms.choose import Algorithm
from sesn.algorithms.separable import ScaleTask, column_runs
from sesn.basis import SteerableBasis
from sesn.errors import UsageError, WrongTypeError
from sesn.layers.store import ConstantTable, KernelCache, can_cache
from sesn.scales import ScaleGrid


class _SteerableConv(WithMeaning):
    """What the two steerable layers share: the parameters, the constants, and one scale's convolution."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        basis: SteerableBasis,
        weight_tail: tuple[int, ...],
        stride: int,
        padding: str | int,
        padding_mode: PaddingMode,
        bias: bool,
        algorithm: Algorithm,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        if not isinstance(basis, SteerableBasis):
            raise WrongTypeError(
                _checks.complaint("basis", basis, "a SteerableBasis", "make one with basis_a or basis_b")
            )
        self.in_channels = _checks.whole("in_channels", in_channels, 1)
        self.out_channels = _checks.whole("out_channels", out_channels, 1)
        self.basis = basis
        self.stride = _checks.whole("stride", stride, 1)
        self.padding = _padding(padding, basis.kernel_size)
        self.padding_mode = _checks.one_of("padding_mode", padding_mode, ("zeros", "circular"))
        self.algorithm = _checks.one_of("algorithm", algorithm, ALGORITHMS)
        if algorithm == "separable" and not basis.separable:
            raise UsageError(
                f"`algorithm` (='separable') needs products of one-dimensional functions, which {basis!r} is not; "
                "use 'dense', 'spectral' or 'auto'"
            )
        _checks.float_dtype(dtype)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, *weight_tail, **options))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_channels, **options)) if bias else None)
        self._table = ConstantTable(basis)
        self._table.register(self, self.weight)
        self._kernels = KernelCache()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights uniform in +-1/sqrt(fan_in), fan_in = C_in K_S N_b; biases zero, as the released models start."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @property
    def grid(self) -> ScaleGrid:
        """The scales of the output."""
        return self.basis.grid

    def meaning(self) -> Constants:
        """What the weights multiply: the sigmas, the windows and the functions."""
        return self.basis.signature

    def _load_from_state_dict(self, *args: Any) -> None:
        self._kernels.clear()  # as for `_apply`
        super()._load_from_state_dict(*args)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move or cast the layer; the basis is taken afresh from float64, so that .double() loses nothing."""
        self._kernels.clear()  # first: it has a weak reference to the weight, which torch then cannot swap
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._table.register(self, self.weight)
        return self

    def _convolve(self, field: Tensor, weight: Tensor) -> Tensor:
        """field [b, i, s, h, w], the layer's weight to [b, o, s', h', w'].

        The weight is handed down, not read again: a parametrised one is computed at each reading.
        """
        self._table.follow(self, weight)
        windows = self._windows()
        rows, columns = (self._axis(size) for size in field.shape[-2:])
        ways = [self._algorithm_at(k, field, stop - start, rows, columns) for k, (start, stop) in enumerate(windows)]
        tasks = [
            ScaleTask(*windows[k], self._table.passes(self, k, rows, columns))
            for k, way in enumerate(ways)
            if way == "separable"
        ]
        separable = separable_convolution(field, _per_scale(weight), self.bias, tasks) if tasks else None
        if separable is not None and len(tasks) == len(windows):
            return separable
        done = iter(separable.unbind(2) if separable is not None else ())
        slices = field.unbind(2)
        maps = [
            next(done) if way == "separable" else self._kernel_scale(way, k, slices[start:stop], weight, rows, columns)
            for k, (way, (start, stop)) in enumerate(zip(ways, windows, strict=True))
        ]
        return torch.stack(maps, dim=2)

    def _kernel_scale(
        self, way: str, scale: int, seen: Sequence[Tensor], weight: Tensor, rows: Axis, columns: Axis
    ) -> Tensor:
        """One scale by the algorithms that take a composed kernel."""
        x = seen[0] if len(seen) == 1 else torch.cat(list(seen), dim=1)
        kernel = self._kernel(scale, len(seen), weight, rows, columns)
        convolution = spectral_convolution if way == "spectral" else dense_convolution
        return convolution(x, kernel, self.bias, rows, columns)

    @property
    def kernel_size(self) -> int:
        """The side of the widest kernel, V."""
        return self.basis.kernel_size

    @property
    def receptive_radius(self) -> int:
        """Pixels that the widest kernel sees to each side."""
        return self.basis.kernel_size // 2

    def _axis(self, size: int) -> Axis:
        return Axis.of(size, self.basis.kernel_size, self.stride, self.padding, self.padding_mode == "circular")

    def multiply_adds(self, shape: Sequence[int]) -> int:
        """Nominal multiply-adds for an input of this shape: each scale's whole box at every output."""
        positions = math.prod(self._axis(size).outputs for size in shape[-2:])
        taps = sum((b - a) * box**2 for (a, b), box in zip(self._windows(), self.basis.boxes, strict=True))
        return shape[0] * self.in_channels * self.out_channels * taps * positions

    def _windows(self) -> list[tuple[int, int]]:
        """The input scales that each output scale sees, the last exclusive."""
        raise NotImplementedError

    def _algorithm_at(self, scale: int, field: Tensor, seen: int, rows: Axis, columns: Axis) -> str:
        if self.algorithm != "auto":
            return self.algorithm
        runs = None if self.basis.pairs is None else len(column_runs(self.basis.pairs))
        work = Work.on(field, self.in_channels * seen, self.out_channels, rows, columns)
        return convolution_cost(work, len(self.basis), runs, self.basis.boxes[scale]).cheaper

    def _kernel(self, scale: int, seen: int, weight: Tensor, rows: Axis, columns: Axis) -> Tensor:
        """The kernel of one output scale for the input scales that it sees, as channels [o, seen i, y, x]."""
        taps = self._table.taps(self, scale, rows, columns)

        def composed() -> Tensor:
            return compose_kernel(_per_scale(weight)[:, :, :seen].transpose(1, 2).flatten(1, 2), taps)

        if self.training or torch.is_grad_enabled() or casting(taps) or not can_cache(weight):
            return composed()
        return self._kernels.get((scale, taps.shape), weight, composed)

    def extra_repr(self) -> str:
        """`in -> out` and what differs from the defaults."""
        parts = [f"{self.in_channels} -> {self.out_channels}", f"basis={self.basis!r}"]
        if self.stride != 1:
            parts.append(f"stride={self.stride}")
        if self.padding != self.basis.kernel_size // 2:
            parts.append(f"padding={self.padding}")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode!r}")
        if self.bias is None:
            parts.append("bias=False")
        if self.algorithm != "auto":
            parts.append(f"algorithm={self.algorithm!r}")
        return ", ".join(parts)


class ScaleLift(_SteerableConv):
    """Scale convolution of an image, T -> H: [b, c, h, w] -> [b, c', s, h', w'] (paper, equation for convTH).

    Output channel o at scale k is the correlation of the image with sum_n w[o, i, n] psi_n at sigma_k, plus the bias.

    Args:
        in_channels, out_channels: channels of the image and of the field.
        basis: the steerable functions and their scales.
        stride: spatial stride; with "same" padding the output side is ceil(h / stride).
        padding: "same" (V // 2), "valid" (0) or a number of pixels, V being the basis' kernel size.
        padding_mode: "zeros" or "circular".
        bias: one number per output channel, shared by all scales and positions.
        algorithm: "auto" picks "dense", "separable" or "spectral" scale by scale, by the cost model of
            `sesn.algorithms`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        basis: SteerableBasis,
        stride: int = 1,
        padding: str | int = "same",
        padding_mode: PaddingMode = "zeros",
        bias: bool = True,
        algorithm: Algorithm = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        tail = (len(basis),) if isinstance(basis, SteerableBasis) else ()
        super().__init__(
            in_channels, out_channels, basis, tail, stride, padding, padding_mode, bias, algorithm, device, dtype
        )

    def forward(self, image: Tensor) -> Tensor:
        """Lift an image [b, c, h, w] to a field [b, c', s, h', w']."""
        _checks.real_tensor("image", image, "b c h w")
        _checks.extent("image", image, 1, self.in_channels, "layer's in_channels", "give that many channels")
        weight = self.weight
        _checks.same_dtype("image", image, weight)
        return self._convolve(image.unsqueeze(2), weight)

    def _windows(self) -> list[tuple[int, int]]:
        return [(0, 1)] * len(self.grid)


class ScaleConv(_SteerableConv):
    """Scale convolution of a field, H -> H: [b, c, s, h, w] -> [b, c', s, h', w'] (paper, equation for convHH).

    Output scale k = sum_i correlation(field[k + i], kernel_i at sigma_k), i = 0 .. interscale - 1: the same and the
    next larger scales, with zeros past the largest. Arguments as in `ScaleLift`, and

        interscale: K_S, how many neighbouring scales a filter sees.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        basis: SteerableBasis,
        interscale: int = 1,
        stride: int = 1,
        padding: str | int = "same",
        padding_mode: PaddingMode = "zeros",
        bias: bool = True,
        algorithm: Algorithm = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self_interscale = _checks.whole("interscale", interscale, 1)
        tail: tuple[int, ...] = ()
        if isinstance(basis, SteerableBasis):
            scales = len(basis.grid)
            _checks.require(
                self_interscale <= scales,
                "interscale",
                interscale,
                f"at most the number of scales ({scales})",
                "use a longer grid",
            )
            tail = (self_interscale, len(basis))
        super().__init__(
            in_channels, out_channels, basis, tail, stride, padding, padding_mode, bias, algorithm, device, dtype
        )
        self.interscale = self_interscale

    def forward(self, field: Tensor) -> Tensor:
        """Convolve a field [b, c, s, h, w] to a field [b, c', s, h', w']."""
        _checks.real_tensor("field", field, "b c s h w")
        _checks.extent("field", field, 1, self.in_channels, "layer's in_channels", "give that many channels")
        _checks.extent(
            "field", field, 2, len(self.grid), "number of scales of the layer's basis", "use one grid throughout"
        )
        weight = self.weight
        _checks.same_dtype("field", field, weight)
        return self._convolve(field, weight)

    def _windows(self) -> list[tuple[int, int]]:
        scales = len(self.grid)
        return [(k, min(k + self.interscale, scales)) for k in range(scales)]

    def extra_repr(self) -> str:
        """As for every layer, and the interscale extent."""
        return super().extra_repr() + (f", interscale={self.interscale}" if self.interscale > 1 else "")


class ScaleConv1x1(nn.Module):
    """One matrix [c', c] applied at every scale and position of a field, with an optional spatial stride."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int = 1,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = _checks.whole("in_channels", in_channels, 1)
        self.out_channels = _checks.whole("out_channels", out_channels, 1)
        self.stride = _checks.whole("stride", stride, 1)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, **options))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_channels, **options)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights uniform in +-1/sqrt(C_in), biases zero."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, field: Tensor) -> Tensor:
        """Mix the channels of a field [b, c, s, h, w]."""
        _checks.real_tensor("field", field, "b c s h w")
        _checks.extent("field", field, 1, self.in_channels, "layer's in_channels", "give that many channels")
        weight = self.weight
        _checks.same_dtype("field", field, weight)
        picked = field[..., :: self.stride, :: self.stride]
        return torch.nn.functional.conv3d(picked, weight[:, :, None, None, None], self.bias)

    @property
    def receptive_radius(self) -> int:
        """None but the pixel itself; there is a stride, though."""
        return 0

    def multiply_adds(self, shape: Sequence[int]) -> int:
        """Nominal multiply-adds for a field of this shape."""
        positions = math.prod(-(-size // self.stride) for size in shape[-2:])
        return shape[0] * self.in_channels * self.out_channels * shape[2] * positions

    def extra_repr(self) -> str:
        """`in -> out` and what differs from the defaults."""
        stride = f", stride={self.stride}" if self.stride != 1 else ""
        return f"{self.in_channels} -> {self.out_channels}{stride}" + ("" if self.bias is not None else ", bias=False")


def _per_scale(weight: Tensor) -> Tensor:
    """The weights as [o, i, k, n]: a lift sees one scale, the image's."""
    return weight if weight.dim() == 4 else weight.unsqueeze(2)


def _padding(padding: str | int, kernel_size: int) -> int:
    if isinstance(padding, str):
        return kernel_size // 2 if _checks.one_of("padding", padding, ("same", "valid")) == "same" else 0
    return _checks.whole("padding", padding, 0, "or use 'same' or 'valid'")
