"""Hermite polynomials under a Gaussian, the families of the paper (appendix C): types A and B.

    psi_sigma(x, y) = A sigma^-2 He_n(y/sigma) He_m(x/sigma) exp(-(x^2 + y^2) / (2 sigma^2)),

with He_n the probabilists' polynomials (He_2(t) = t^2 - 1).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sesn._checks import numbers, positive, require, whole
from sesn.basis.steerable import ProfilePairs, SteerableBasis, Window, boxes_for
from sesn.scales import MOST_SIGMA, ScaleGrid

#: Below this width a Gaussian sampled at whole pixels is no longer well resolved.
SMALLEST_RESOLVED_SIGMA = 1.2


@dataclass(frozen=True)
class Profile:
    """A one-dimensional Hermite-Gauss function of `order`, narrower than its scale's sigma by `divisor`."""

    order: int
    divisor: float = 1.0
    #: There the functions of the orders in use are at the rounding of float64.
    reach: ClassVar[float] = 6.0

    def sample(self, sigma: float, radius: int) -> Tensor:
        """(1/sigma) He_n(x/sigma) exp(-x^2/(2 sigma^2)) at x = -radius .. radius, in float64."""
        width = sigma / self.divisor
        x = np.arange(-radius, radius + 1, dtype=np.float64) / width
        hermite = np.polynomial.hermite_e.hermeval(x, [0.0] * self.order + [1.0])
        return torch.from_numpy(hermite * np.exp(-0.5 * x**2) / width)


@dataclass(frozen=True)
class Orthogonal(Profile):
    """A Gaussian times a polynomial of `order`, orthogonal to those of lower orders on the pixels of one scale.

    The polynomials p_n obey t p_n = steps[n] p_(n+1) + steps[n-1] p_(n-1), as those of Hermite do, which are orthogonal
    on the whole line.
    """

    steps: tuple[float, ...] = ()

    def sample(self, sigma: float, radius: int) -> Tensor:
        """(1/sigma) p_n(x/sigma) exp(-x^2/(2 sigma^2)) at x = -radius .. radius, in float64."""
        x = np.arange(-radius, radius + 1, dtype=np.float64) / sigma
        before, here, last = np.zeros_like(x), np.exp(-0.5 * x**2) / sigma, 0.0
        for step in self.steps:
            before, here, last = here, (x * here - last * before) / step, step
        return torch.from_numpy(here)


def orthogonal_profiles(count: int, sigma: float, radius: int) -> list[Orthogonal]:
    """As many functions, orthogonal and of one norm at the pixels -radius .. radius of a scale.

    They span what the Hermite-Gauss functions of these orders span. Those resemble each other more and more as the
    orders grow, so that sums of them are small differences of large numbers, which single precision does not hold.
    """
    found = [Orthogonal(0)]
    norm = found[0].sample(sigma, radius).norm()
    for order in range(1, count):
        longer = Orthogonal(order, steps=(*found[-1].steps, 1.0)).sample(sigma, radius)
        found.append(Orthogonal(order, steps=(*found[-1].steps, float(longer.norm() / norm))))
    return found


def basis_a(grid: ScaleGrid, window: Window, effective_size: int, *, max_order: int | None = None) -> SteerableBasis:
    """Make a basis of type A: all pairs of orders (n, m) below E, at one sigma per scale.

    The functions are listed with the order along rows running fastest.

    Args:
        grid: the scales.
        window: an odd side V gives scale s the box 2 floor(floor(V s / s_max) / 2) + 1, as in the paper; "wide" gives
            it the half-width ceil(4.5 s), which cuts nothing off.
        effective_size: E.
        max_order: the highest total order n + m that is kept (E = 3, max_order = 2: six functions); all by default.

    Returns:
        The basis.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> grid = sesn.ScaleGrid.geometric(1.5, 2.0, 2)
        >>> len(sesn.basis_a(grid, 7, 3)), len(sesn.basis_a(grid, "wide", 3, max_order=2))
        (9, 6)
    """
    size = whole("effective_size", effective_size, 1)
    limit = 2 * size if max_order is None else whole("max_order", max_order, 0)
    boxes = boxes_for(grid, window, size)
    functions = [
        (Profile(row), Profile(column)) for column in range(size) for row in range(size) if row + column <= limit
    ]
    return SteerableBasis(grid, boxes, pairs=ProfilePairs.of(functions), name="basis_a")


def basis_b(
    grid: ScaleGrid, window: Window, effective_size: int, *, max_order: int = 4, mult: float = 1.4
) -> SteerableBasis:
    """Make a basis of type B: E x E functions at the sub-sigmas sigma, sigma/mult, sigma/mult^2, and so on.

    The functions are listed sub-sigma by sub-sigma and the first E^2 are kept. The sub-sigmas of a scale share that
    scale's box. Its narrowest functions are resolved, and Delta is low, only while the smallest sub-sigma is at least
    1.2 pixels. With a wide window, a smaller one gives a warning.

    Args:
        grid: the scales.
        window: as in `basis_a`.
        effective_size: E.
        max_order: the highest total order n + m.
        mult: the step between sub-sigmas.

    Returns:
        The basis.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> sesn.basis_b(sesn.ScaleGrid([1.7, 5.1]), 15, 7, mult=1.5)
        basis_b(49 functions, sigmas [1.7, 5.1], boxes [5, 15])
    """
    size = whole("effective_size", effective_size, 1)
    order = whole("max_order", max_order, 0)
    remedy = "each sub-sigma is the last one divided by mult"
    require(positive(mult) and mult > 1, "mult", mult, "greater than 1", remedy)
    boxes = boxes_for(grid, window, size)
    orders = [(row, column) for column in range(order + 1) for row in range(order + 1 - column)]
    sub_sigmas = math.ceil(size**2 / len(orders))
    functions = [
        (Profile(row, mult**j), Profile(column, mult**j)) for j in range(sub_sigmas) for row, column in orders
    ][: size**2]
    narrowest = grid.smallest / mult ** (sub_sigmas - 1)
    if window == "wide" and narrowest < SMALLEST_RESOLVED_SIGMA:
        warnings.warn(
            f"the smallest sub-sigma is {narrowest:.3g} pixels, below {SMALLEST_RESOLVED_SIGMA}: wide windows will not "
            "make Delta small; raise the grid's smallest sigma, lower `mult` or `effective_size`, or use basis_a",
            stacklevel=2,
        )
    return SteerableBasis(grid, boxes, pairs=ProfilePairs.of(functions), name="basis_b")


def basis_for(
    sizes: Sequence[float] = (0.5, 2.0), scales: int = 4, *, smallest: float = SMALLEST_RESOLVED_SIGMA
) -> SteerableBasis:
    """Make a good basis from the range of object sizes that a network should cover.

    It has `scales` widths in equal ratios. The largest width over the smallest is the largest size over the smallest.
    The functions are the ten of `basis_a` up to order 3, with wide windows, which cut nothing off. The documentation's
    page "Which grid?" has its Delta and cost. Layers without a basis use `basis_for()`.

    Args:
        sizes: the smallest and the largest size of the objects, in any unit, since their ratio alone counts:
            (0.5, 2.0) is for objects of half to twice the size of those that the network is trained on.
        scales: how many scale channels cover that range.
        smallest: the smallest sigma in pixels; below 1.2 a Gaussian is not resolved by the pixels.

    Returns:
        The basis. Make it once and give it to every layer of a network.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> sesn.basis_for(sizes=(0.5, 2.0), scales=3)
        basis_for(10 functions, sigmas [1.2, 2.4, 4.8], boxes [13, 23, 45])
    """
    ends = numbers("sizes", sizes, "the smallest and the largest size, such as (0.5, 2.0)")
    rule = "two different positive numbers, the smaller first"
    require(len(ends) == 2 and all(map(positive, ends)) and ends[0] < ends[1], "sizes", ends, rule)
    count = whole("scales", scales, 2, "one scale covers one size")
    resolved = positive(smallest) and smallest >= SMALLEST_RESOLVED_SIGMA
    require(resolved, "smallest", smallest, f"at least {SMALLEST_RESOLVED_SIGMA}", "basis_a takes any width")
    ratio = ends[1] / ends[0]
    require(smallest * ratio < MOST_SIGMA, "sizes", ends, f"close enough for sigmas below {MOST_SIGMA:g} pixels")
    basis = basis_a(ScaleGrid.geometric(smallest, ratio ** (1 / (count - 1)), count), "wide", 4, max_order=3)
    basis.name = "basis_for"
    return basis


@cache
def default_basis() -> SteerableBasis:
    """The basis of a layer that was given none; one for all of them, so that they agree."""
    return basis_for()
