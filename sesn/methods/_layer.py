"""What the baselines share: channels, checks of what comes in, and a convolution that skips taps over padding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesn import _checks
from sesn._meaning import Constants, WithMeaning
from sesn.algorithms import Axis, Work, padded_convolution, spectral_convolution
from sesn.algorithms.axis import plain_number
from sesn.algorithms.choose import dense_cost, spectral_cost
from sesn.algorithms.spectral import Taps
from sesn.layers.store import Store
from sesn.methods._resize import resized_reach
from sesn.scales import ScaleGrid

#: Constants kept per layer: scales times map sizes.
KEPT = 128


class BaselineLayer(WithMeaning):
    """A layer with channels and a stride; subclasses add the parameters."""

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

    @property
    def scale_grid(self) -> ScaleGrid | None:
        """The scales that the layer works at, whether or not its output has an axis of them; None if it has one."""
        return None

    @property
    def receptive_radius(self) -> int:
        """Pixels of the input that an output sees to each side, at the scale that sees farthest."""
        raise NotImplementedError

    def multiply_adds(self, shape: Sequence[int]) -> int:
        """Nominal multiply-adds for an input of this shape: `_taps_seen` at every output position."""
        return shape[0] * self.in_channels * self.out_channels * self._taps_seen() * self._positions(shape)

    def _positions(self, shape: Sequence[int]) -> int:
        return math.prod(-(-size // self.stride) for size in shape[-2:])

    def _taps_seen(self) -> int:
        """Taps of all scales' kernels together, for a pair of channels."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """`in -> out`, what the layer is made of, and the stride unless it is 1."""
        parts = [f"{self.in_channels} -> {self.out_channels}", *self._details()]
        return ", ".join(parts + ([f"stride={self.stride}"] if self.stride != 1 else []))

    def _details(self) -> list[str]:
        return []


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

    @property
    def scale_grid(self) -> ScaleGrid:
        """The scales that the kernels work at."""
        return ScaleGrid(self.scales)

    @property
    def receptive_radius(self) -> int:
        """Pixels that the kernel sees to each side where the map is smallest, with what resizing spreads."""
        return resized_reach(self.kernel_size, self.stride, self.scales[0])

    def _taps_seen(self) -> int:
        return len(self.scales) * self.kernel_size**2

    def _details(self) -> list[str]:
        scales = ", ".join(f"{scale:{self.shown}}" for scale in self.scales)
        return [f"kernel_size={self.kernel_size}", f"scales=({scales})"]


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


def correlate(x: Tensor, kernel: Tensor, first: int, stride: int) -> Tensor:
    """Correlate x [b, i, h, w] with a kernel [o, i, y, x] whose first row and column lie `first` from its centre.

    Zeros outside the map; centres at 0, stride, ..., so the output side is ceil(h / stride). Taps farther from the
    centre than the map is long only ever see zeros and are cut off. Wide kernels on small maps go the spectral way.
    """
    (top, bottom), (left, right) = (_reach(first, side, size) for side, size in _sides(kernel, x))
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


def _reach(first: int, side: int, size: int) -> tuple[int, int]:
    return max(first, 1 - size), min(first + side - 1, size - 1)
