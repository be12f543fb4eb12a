"""What the baselines share: a layer's facts and checks, quick convolutions and maxima, and resizing as matrices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesn import _checks
from sesn._meaning import Constants, WithMeaning
from sesn._torch import recording
from sesn.algorithms import Axis, Work, padded_convolution, spectral_convolution
from sesn.algorithms.axis import plain_number
from sesn.algorithms.choose import dense_cost, spectral_cost
from sesn.algorithms.spectral import Taps
from sesn.layers.store import Store
from sesn.scales import ScaleGrid

#: The receptive radius of a layer that sees the whole map: more pixels than one has.
EVERYWHERE = 10**6
#: Constants kept per layer: scales times map sizes.
KEPT = 128


class BaselineLayer(WithMeaning):
    """A layer with channels and a stride; subclasses add the parameters and these facts.

    Attributes:
        scale_grid: the scales that the layer works at, whether or not its output has an axis of them; None for one.
        receptive_radius: pixels of the input that an output sees to each side, at the scale that sees farthest.
        taps: of all scales' kernels together, for a pair of channels.
        details: what the repr says of it.
    """

    scale_grid: ScaleGrid | None = None
    receptive_radius: int
    taps: int
    details: tuple[str, ...] = ()

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.in_channels = _checks.whole("in_channels", in_channels, 1)
        self.out_channels = _checks.whole("out_channels", out_channels, 1)
        self.stride = _checks.whole("stride", stride, 1)
        self._store = Store(KEPT)

    def _check_image(self, image: Tensor, weight: Tensor) -> None:
        _checks.real_tensor("image", image, "b c h w")
        self._check_channels("image", image, weight)

    def _check_field(self, field: Tensor, weight: Tensor, scales: int) -> None:
        _checks.real_tensor("field", field, "b c s h w")
        self._check_channels("field", field, weight)
        _checks.extent("field", field, 2, scales, "layer's number of scales", "use the same scales throughout")

    def _check_channels(self, name: str, value: Tensor, weight: Tensor) -> None:
        _checks.extent(name, value, 1, self.in_channels, "layer's in_channels", "give that many channels")
        _checks.same_dtype(name, value, weight)
        for axis in (-2, -1):
            _checks.require(value.shape[axis] > 0, f"{name}.shape", tuple(value.shape), "without an empty side")

    def multiply_adds(self, shape: Sequence[int]) -> int:
        """Nominal multiply-adds for an input of this shape: all taps at every output position."""
        return shape[0] * self.in_channels * self.out_channels * self.taps * self._positions(shape)

    def _positions(self, shape: Sequence[int]) -> int:
        return math.prod(-(-size // self.stride) for size in shape[-2:])

    def extra_repr(self) -> str:
        """`in -> out`, what the layer is made of, and the stride unless it is 1."""
        parts = [f"{self.in_channels} -> {self.out_channels}", *self.details]
        return ", ".join(parts + ([f"stride={self.stride}"] if self.stride != 1 else []))


class KernelLayer(BaselineLayer):
    """A layer whose kernels [c', c, k, k] work at several scales; a subclass draws them when all parameters are there.

    Args:
        in_channels, out_channels: channels of the two maps.
        kernel_size: side of the kernels, odd.
        scales: the factors that the map or the kernel is rescaled by.
        stride: spatial stride.
        device, dtype: of the parameters.
    """

    #: The names of the kernels, how a scale is shown, and what is said to who gives no scales.
    weights: tuple[str, ...] = ("weight",)
    shown = "g"
    such_as = "the factors to rescale by, such as (0.5, 1, 2)"
    scale_grid: ScaleGrid

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        scales: Sequence[float],
        *,
        stride: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, stride)
        self.kernel_size = _checks.odd("kernel_size", kernel_size)
        self.scales = positive("scales", scales, self.such_as)
        self.scale_grid = ScaleGrid(self.scales)
        self.receptive_radius = resized_reach(self.kernel_size, self.stride, self.scales[0])
        self.taps = len(self.scales) * self.kernel_size**2
        shown = ", ".join(f"{scale:{self.shown}}" for scale in self.scales)
        self.details = f"kernel_size={self.kernel_size}", f"scales=({shown})"
        shape = self.out_channels, self.in_channels, self.kernel_size, self.kernel_size
        for name in self.weights:
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))

    def reset_parameters(self) -> None:
        """Draw the kernels uniformly in +-1 / sqrt(c k^2)."""
        for name in self.weights:
            nn.init.kaiming_uniform_(getattr(self, name), a=math.sqrt(5))

    def meaning(self) -> Constants:
        """By what the map or the kernel is rescaled."""
        return {"scales": self.scales}


def transform_work(shape: Sequence[int]) -> int:
    """Nominal multiply-adds of the fast Fourier transform of a real map [..., h, w]: n log2 n for n pixels."""
    pixels = math.prod(shape[-2:])
    return round(pixels * math.log2(pixels))


def odd_side(side: float) -> int:
    """2 floor(side / 2) + 1, the rule for the sides of SESN's kernels."""
    return 2 * math.floor(side / 2) + 1


def positive(name: str, values: Iterable[float], remedy: str = "") -> tuple[float, ...]:
    """A non-empty tuple of positive finite numbers in increasing order."""
    found = _checks.numbers(name, values, remedy)
    good = bool(found) and all(math.isfinite(value) and value > 0 for value in found)
    _checks.require(good, name, found, "one or more positive finite numbers", remedy)
    _checks.require(list(found) == sorted(set(found)), name, found, "strictly increasing", "sort it")
    return found


# --- convolutions


def correlate(x: Tensor, kernel: Tensor, first: int, stride: int) -> Tensor:
    """Correlate x [b, i, h, w] with a kernel [o, i, y, x] whose first row and column lie `first` from its centre.

    Zeros outside the map; centres at 0, stride, ..., so the output side is ceil(h / stride). Taps farther from the
    centre than the map is long only ever see zeros and are cut off. Wide kernels on small maps go the spectral way.
    """
    (top, bottom), (left, right) = (
        (max(first, 1 - size), min(first + side - 1, size - 1)) for side, size in _sides(kernel, x)
    )
    kernel = kernel[:, :, top - first : bottom - first + 1, left - first : right - first + 1]
    rows, columns = same_axes(x, stride)
    taps = Taps(top, bottom - top + 1), Taps(left, right - left + 1)
    if spectral_pays(x, kernel, rows, columns, taps):
        return spectral_convolution(x, kernel, None, rows, columns, taps)
    if top == -bottom and left == -right:  # the convolution's own padding, no copy of the input
        return padded_convolution(x, kernel, stride=stride, padding=(bottom, right))
    return F.conv2d(F.pad(x, (-left, right, -top, bottom)), kernel, stride=stride)


def same_axes(x: Tensor, stride: int) -> tuple[Axis, Axis]:
    """Rows and columns with window centres at 0, stride, ... and zeros outside."""
    sides = (plain_number(size) for size in x.shape[-2:])
    rows, columns = (Axis(size, -(-size // stride), 0, stride, circular=False) for size in sides)
    return rows, columns


def convolve_inside(x: Tensor, kernel: Tensor, bias: Tensor | None, stride: int) -> Tensor:
    """Correlate x [b, i, h, w] with an odd kernel [o, i, k, k] where it fits into the map whole, and add the bias."""
    rows, columns = (Axis.of(size, side, stride, 0, False) for side, size in _sides(kernel, x))
    taps = Taps.centred(kernel.shape[-2]), Taps.centred(kernel.shape[-1])
    if spectral_pays(x, kernel, rows, columns, taps):
        return spectral_convolution(x, kernel, bias, rows, columns, taps)
    return F.conv2d(x, kernel, bias, stride)


def spectral_pays(x: Tensor, kernel: Tensor, rows: Axis, columns: Axis, taps: tuple[Taps, Taps]) -> bool:
    """Whether the spectral algorithm is estimated to be quicker than the ordinary convolution."""
    work = Work.on(x, kernel.shape[1], kernel.shape[0], rows, columns)
    return spectral_cost(work, *taps) < dense_cost(work, taps[0].count, taps[1].count)


def _sides(kernel: Tensor, x: Tensor) -> tuple[tuple[int, int], tuple[int, int]]:
    return (kernel.shape[-2], x.shape[-2]), (kernel.shape[-1], x.shape[-1])


# --- the maximum over scales, written to be quick: no stack of all scales, and one pass per scale backwards


def largest(maps: list[Tensor]) -> Tensor:
    """The elementwise maximum of the maps of all scales; where scales tie the first one gets the gradient."""
    if len(maps) == 1:
        return maps[0]
    if recording() or not torch.is_grad_enabled():
        return reduce(torch.maximum, maps)
    return _Largest.apply(*maps)  # type: ignore[no-any-return, no-untyped-call]


class _Largest(torch.autograd.Function):
    """torch.stack(maps).max(dim=0).values takes two to three times as long, forward and backward."""

    @staticmethod
    def forward(*maps: Tensor) -> Tensor:
        return reduce(torch.maximum, maps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(output, *inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        output, *maps = ctx.saved_tensors
        left = grads[0]
        shares = []
        for values in maps:
            share = torch.where(values == output, left, 0.0)
            left = left - share
            shares.append(share)
        return tuple(shares)


# --- bilinear resizing R_h x R_w^T, its matrices in float64 until they are used


def corner_aligned(size: int, outputs: int) -> Tensor:
    """[outputs, size]: output i at i (size - 1) / (outputs - 1), so that first and last pixels stay (align_corners)."""
    step = (size - 1) / (outputs - 1) if outputs > 1 else 0.0
    return _interpolation(torch.arange(outputs, dtype=torch.float64) * step, size)


def centre_aligned(size: int, outputs: int) -> Tensor:
    """[outputs, size]: output i at (i + 1/2) size / outputs - 1/2; the ends are repeated. No antialiasing."""
    positions = (torch.arange(outputs, dtype=torch.float64) + 0.5) * (size / outputs) - 0.5
    return _interpolation(positions.clamp(min=0), size)


def fitted(matrix: Tensor, side: int) -> Tensor:
    """Crop the outputs of a resizing [n, size] about their centre, or put zeros around them, to `side` outputs.

    The first output goes to floor((side - n) / 2), as the released code has it.
    """
    start = (side - matrix.shape[0]) // 2
    result = matrix.new_zeros(side, matrix.shape[1])
    first, last = max(0, start), min(side, start + matrix.shape[0])
    result[first:last] = matrix[first - start : last - start]
    return result


def resize(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """x [b, c, h, w] with rows [h', h] and columns [w', w] to [b, c, h', w']."""
    return rows @ (x @ columns.T)


def resized_reach(kernel_size: int, stride: int, smallest: float) -> int:
    """Pixels that an output sees to each side through a kernel on a map resized by `smallest`, and back.

    Between two responses, a stride apart, the output is interpolated. Pixels are resized about their centres, so that
    strided responses lie off the output's place. The last two pixels are what interpolating the input and rounding its
    size to whole pixels may add.
    """
    shift = (stride - 1) / 2 * abs(1 / smallest - 1)
    return math.ceil((kernel_size // 2 + stride) / smallest + shift) + 2


def _interpolation(positions: Tensor, size: int) -> Tensor:
    below = positions.floor().clamp(max=size - 1)
    weight = (positions - below)[:, None]
    pixels = torch.arange(size)
    low = (pixels == below.long()[:, None]).double()
    high = (pixels == (below.long()[:, None] + 1).clamp(max=size - 1)).double()
    return (1 - weight) * low + weight * high
