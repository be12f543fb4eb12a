"""Fourier-Bessel functions, the vibrations of a round drum, as Sosnovik et al. (ICCV workshop 2021) use them.

On the disc of `radius` sigmas, with r and theta in units of it, angular order k and R_kq the q-th zero of J_k,

    F_kq(r) = J_k(R_kq r) / |J_(k+1)(R_kq)|,   and   F_0q,  sqrt(2) F_kq cos(k theta),  sqrt(2) F_kq sin(k theta).

They vanish continuously where the disc ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sesn._checks import positive, require, whole
from sesn.basis.bessel import bessel_j, bessel_zeros
from sesn.basis.steerable import SteerableBasis, Window, boxes_for, known_grid
from sesn.errors import UsageError
from sesn.scales import ScaleGrid

#: A function is kept while its next zero is at most this many times the radius in pixels: faster ones alias.
HIGHEST = 2.7 * math.pi


class Wave(NamedTuple):
    """One function: its zero R_kq, and the angular order, negative for the sine."""

    zero: float
    order: int


@dataclass(frozen=True)
class FourierBessel:
    """The functions of some waves on a disc of `radius` sigmas."""

    waves: tuple[Wave, ...]
    radius: float

    @property
    def reach(self) -> float:
        """The disc."""
        return self.radius

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """All functions [n, v, v] at coordinates in units of sigma."""
        r, theta = torch.hypot(x, y).numpy() / self.radius, torch.atan2(y, x).numpy()
        inside = r < 1
        planes = [np.where(inside, _drum(abs(order), zero, r) * _turn(order, theta), 0.0) for zero, order in self.waves]
        return torch.from_numpy(np.stack(planes))


def _drum(order: int, zero: float, r: np.ndarray) -> np.ndarray:
    scale = math.sqrt(2) if order else 1.0
    found: np.ndarray = scale * bessel_j(order, zero * np.minimum(r, 1)) / np.abs(bessel_j(order + 1, np.array(zero)))
    return found


def _turn(order: int, theta: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.cos(order * theta) if order >= 0 else np.sin(-order * theta)
    return found


def slowest_waves(count: int, highest: float) -> tuple[Wave, ...]:
    """The first so many waves by their zeros, the cosine of a pair first; without those whose next zero is too high."""
    # About z^2 / 4 of the functions have a zero below z, and the first zero of J_k is above k.
    orders, each = math.ceil(2 * math.sqrt(count)) + 4, math.ceil(2 * math.sqrt(count) / math.pi) + 4
    waves = [
        Wave(zeros[q], signed)
        for k in range(orders)
        for zeros in [bessel_zeros(k, each + 1)]
        for q in range(each)
        if zeros[q + 1] <= highest
        for signed in dict.fromkeys((k, -k))
    ]
    return tuple(sorted(waves, key=lambda wave: wave.zero)[:count])


def basis_fourier_bessel(
    grid: ScaleGrid, window: Window, effective_size: int, *, radius: float | None = None
) -> SteerableBasis:
    """Make a basis of the E x E slowest Fourier-Bessel functions, by the zero R_kq.

    They are not products of one-dimensional functions, so the separable algorithm does not apply.

    Args:
        grid: the scales.
        window: an odd side V, as in `basis_a`; or "wide" for boxes that hold the whole disc.
        effective_size: E.
        radius: of the disc in sigmas. By default V // 2 + 1/2, as published: a scale of sigma 1 fills a box of side V,
            and the discs of larger scales are cut off. With a wide window it must be given.

    Returns:
        The basis.

    Raises:
        UsageError: an argument breaks its rule, or the disc is too small for so many functions.

    Example:
        >>> sesn.basis_fourier_bessel(sesn.ScaleGrid([0.6, 0.76, 0.95, 1.2]), 15, 7)
        basis_fourier_bessel(49 functions, sigmas [0.6, 0.76, 0.95, 1.2], boxes [7, 9, 11, 15])
    """
    known_grid(grid)
    size = whole("effective_size", effective_size, 1)
    require(radius is None or positive(radius), "radius", radius, "a positive number of sigmas")
    if window == "wide":
        if radius is None:
            raise UsageError("`radius` must be given for window='wide': the boxes hold a disc of so many sigmas")
        disc, boxes = radius, tuple(2 * max(0, math.ceil(radius * sigma) - 1) + 1 for sigma in grid)
    else:
        boxes = boxes_for(grid, window, size)
        disc = max(boxes) // 2 + 0.5 if radius is None else radius
    waves = slowest_waves(size**2, HIGHEST * disc)
    rule = f"small enough for a disc of {disc:g} sigmas, which has {len(waves)} functions"
    require(len(waves) == size**2, "effective_size", effective_size, rule, "raise `radius` or `window`")
    functions = FourierBessel(waves, disc)
    return SteerableBasis(grid, boxes, functions=[functions], name="basis_fourier_bessel")
