"""Kernels to choose from: which functions, at which sigmas, on which windows, and what one layer of them costs.

The cost is nominal: multiply-adds of one forward pass for one image, per scale, with c channels in and out, n
functions, f runs of functions with a common column profile and maps of h x h pixels,

    separable  c^2 n h^2  +  c h^3 (f + n)      the mixing, and two passes as products with banded matrices
    dense      c^2 v^2 h^2  +  c^2 n v^2        the convolution with a box of side v, and composing the kernel.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sesn import ScaleGrid, SteerableBasis, basis_a, basis_b
from sesn.algorithms.separable import column_runs
from sesn.basis import SMALLEST_RESOLVED_SIGMA, Window

#: Smallest sigmas to try, from the published one to where detail is clearly lost.
SMALLEST_SIGMAS = (0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5)
#: Windows to try: the side of the paper's largest box, or None for the wide window.
KERNEL_SIZES = (7, 9, 11, 13, 15, 17, 21, None)


@dataclass(frozen=True)
class Orders:
    """Which functions: type A with E x E orders, those of total order <= `total` only if given; or type B."""

    label: str
    size: int
    total: int | None = None
    type: str = "A"

    def basis(self, grid: ScaleGrid, kernel_size: int | None) -> SteerableBasis:
        """These functions on a grid, with the paper's windows of this size or with wide ones."""
        window: Window = "wide" if kernel_size is None else kernel_size
        if self.type == "A":
            return basis_a(grid, window, self.size, max_order=self.total)
        with warnings.catch_warnings():  # that its narrowest functions are not resolved shows in Delta
            warnings.simplefilter("ignore")
            return basis_b(grid, window, self.size, max_order=self.total or 2)


ORDERS = (
    Orders("A, E=2, ≤ 1", 2, 1),
    Orders("A, E=2", 2),
    Orders("A, E=3, ≤ 2", 3, 2),
    Orders("A, E=3", 3),
    Orders("B, E=3, ≤ 2", 3, 2, "B"),
    Orders("A, E=4, ≤ 3", 4, 3),
)


@dataclass(frozen=True)
class Candidate:
    """One choice of kernels, what it costs and, once measured, its Delta (the median over the images)."""

    orders: Orders
    grid: ScaleGrid
    kernel_size: int | None
    functions: int
    boxes: tuple[int, ...]
    separable_macs: int
    dense_macs: int
    delta: float = math.nan
    floor: float = math.nan

    @property
    def code(self) -> str:
        """The call that makes it."""
        grid = f"ScaleGrid.geometric({self.grid.smallest:g}, {self.grid.ratio:.5g}, {len(self.grid)})"
        window = '"wide"' if self.kernel_size is None else self.kernel_size
        order = "" if self.orders.total is None else f", max_order={self.orders.total}"
        return f"basis_{self.orders.type.lower()}({grid}, {window}, {self.orders.size}{order})"

    def row(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "type": self.orders.type,
            "effective_size": self.orders.size,
            "max_order": self.orders.total,
            "functions": self.functions,
            "smallest_sigma": self.grid.smallest,
            "ratio": self.grid.ratio,
            "scales": len(self.grid),
            "window": "wide" if self.kernel_size is None else "paper",
            "kernel_size": self.kernel_size,
            "boxes": list(self.boxes),
            "separable_macs": self.separable_macs,
            "dense_macs": self.dense_macs,
            "delta": self.delta,
            "floor": self.floor,
        }


def candidate(orders: Orders, grid: ScaleGrid, kernel_size: int | None, side: int, channels: int) -> Candidate:
    """A choice of kernels with its costs, not measured yet."""
    basis = orders.basis(grid, kernel_size)
    separable, dense = layer_macs(basis, side, channels)
    return Candidate(orders, grid, kernel_size, len(basis), basis.boxes, separable, dense)


def published_stl10(side: int, channels: int) -> Candidate:
    """The kernels of the published STL-10 networks: type A, E = 3, V = 7, sigmas 0.9, 1.27, 1.79."""
    return candidate(Orders("A, E=3", 3), ScaleGrid.geometric(0.9, 1.41, 3), 7, side, channels)


def layer_macs(basis: SteerableBasis, side: int, channels: int) -> tuple[int, int]:
    """Nominal multiply-adds of one H -> H layer on one image: separable and dense."""
    assert basis.pairs is not None
    n, runs, scales = len(basis), len(column_runs(basis.pairs)), len(basis.grid)
    separable = channels**2 * n * side**2 + channels * side**3 * (runs + n)
    taps = sum(box**2 for box in basis.boxes)
    return scales * separable, channels**2 * taps * side**2 + channels**2 * n * taps


def candidates(scales: int, span: float, side: int, channels: int) -> Iterator[Candidate]:
    """Every choice whose functions and windows fit: at least one pixel either side, none wider than the map."""
    ratio = span ** (1 / (scales - 1))
    for smallest in SMALLEST_SIGMAS:
        grid = ScaleGrid.geometric(smallest, ratio, scales)
        for orders in ORDERS:
            made = [candidate(orders, grid, size, side, channels) for size in _sizes(grid, orders)]
            fit = [each for each in made if max(each.boxes) <= side and min(each.boxes) >= 3]
            yield from {each.boxes: each for each in fit}.values()  # two windows may have the same boxes


def _sizes(grid: ScaleGrid, orders: Orders) -> Iterator[int | None]:
    """Paper windows are proportional to sigma: the smallest box must have room for all orders."""
    narrow = grid.smallest / (1.4 if orders.type == "B" else 1.0)
    for size in KERNEL_SIZES:
        if size is None:
            if orders.type == "A" or narrow >= SMALLEST_RESOLVED_SIGMA:
                yield None
        elif 2 * (math.floor(size * grid.smallest / grid.largest) // 2) + 1 >= max(3, orders.size):
            yield size
