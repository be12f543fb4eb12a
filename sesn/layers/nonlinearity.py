"""Pointwise nonlinearities. A ReLU commutes with every transformation of continuous signals, but sampled it aliases."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from sesn import _checks
from sesn._torch import recording
from sesn.algorithms.axis import PaddingMode
from sesn.algorithms.banded import Block, Line, along_both, bands, trigonometric_matrix, whole
from sesn.layers.store import Store
from sesn.layers.typed import TensorModule

#: Taps either side of the interpolating filter for zero ends, and the Kaiser window's shape: 70 dB of stop-band.
_RADIUS = 12
_KAISER = 7.0
#: Terms of the window's series: those beyond are below rounding.
_BESSEL_TERMS = 30

Blocks = tuple[Block, ...]


class BandlimitedReLU(TensorModule):
    """A ReLU at twice the resolution: interpolate to the half-pixel grid, rectify, low-pass, keep every second sample.

    Rectifying creates frequencies that the pixels cannot hold, which alias and break scale equivariance. At twice the
    resolution most of them can be held, and they are filtered out before sampling back.

    Args:
        padding_mode: "zeros" uses a windowed sinc that ends at the border; "circular" is exact for periodic signals.

    Raises:
        UsageError: the padding mode is another.

    Example:
        >>> sesn.BandlimitedReLU()(torch.randn(2, 8, 3, 16, 16)).shape
        torch.Size([2, 8, 3, 16, 16])
    """

    def __init__(self, padding_mode: PaddingMode = "zeros") -> None:
        super().__init__()
        self.padding_mode: PaddingMode = padding_mode
        _checks.one_of("padding_mode", padding_mode, ("zeros", "circular"))
        self._store = Store()

    def forward(self, x: Tensor) -> Tensor:
        """Rectify the last two axes.

        Args:
            x: [..., h, w].

        Returns:
            A tensor of the same shape.

        Raises:
            UsageError: there are fewer axes, or the numbers are not floating-point.
        """
        _checks.floating("x", x)
        _checks.require(x.dim() >= 2, "x.shape", tuple(x.shape), "[..., h, w]")
        mode = self.padding_mode
        (up_h, down_h), (up_w, down_w) = (
            self._store.get(size, x, partial(_two_rates, size, mode, x)) for size in x.shape[-2:]
        )
        return along_both(down_h, down_w, torch.relu(along_both(up_h, up_w, x)))

    def extra_repr(self) -> str:
        """What differs from the default."""
        return "" if self.padding_mode == "zeros" else f"padding_mode={self.padding_mode!r}"


def _two_rates(size: int, padding_mode: PaddingMode, like: Tensor) -> tuple[Blocks, Blocks]:
    """Interpolation [2N, N] to the half-pixel grid, and low-pass and decimation [N, 2N] back.

    Whole while a graph is recorded, whose sizes may be open, and where every pixel reaches every other.
    """
    pixel = torch.arange(size, dtype=torch.float64, device=like.device)
    fine = torch.arange(2 * size, dtype=torch.float64, device=like.device) / 2
    if padding_mode == "circular":
        up = trigonometric_matrix(fine - (size - 1) / 2, size, size // 2, exact=size % 2 == 0)
    else:
        up = _windowed_sinc(fine[:, None] - pixel[None, :])
    down = up.t() / 2
    if recording() or padding_mode == "circular":
        return whole(up, like), whole(down, like)
    return bands(up, Line(0.0, 0.5, _RADIUS), like), bands(down, Line(0.0, 2.0, 2 * _RADIUS), like)


def _windowed_sinc(distance: Tensor) -> Tensor:
    shape = _KAISER * (1 - (distance / _RADIUS) ** 2).clamp_min(0).sqrt()
    window = _bessel(shape) / float(np.i0(_KAISER))
    return torch.where(distance.abs() < _RADIUS, torch.sinc(distance) * window, torch.zeros_like(distance))


def _bessel(x: Tensor) -> Tensor:
    """The modified Bessel function I_0 up to 7, by its series: torch's own cannot be exported to ONNX."""
    quarter = (x / 2) ** 2
    total = torch.ones_like(x)
    for k in range(_BESSEL_TERMS, 0, -1):
        total = 1 + total * quarter / k**2
    return total
