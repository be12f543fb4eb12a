"""`tune`: which kernels have the smallest Delta for a number of multiply-adds?

Given the number of scales and their range, one layer is tried with many smallest sigmas, windows and sets of orders.
Delta is that of the basis itself: each function is one output channel, so the ratio of sums over channels is what
random weights, equal in variance, give on average. No weights are drawn, and sets of orders on the same window share
their measurement.

The cost is nominal: multiply-adds of one forward pass for one image, per scale, with c channels in and out, n
functions, f runs of functions with a common column profile and maps of h x h pixels,

    separable  c^2 n h^2  +  c h^3 (f + n)      the mixing, and two passes as products with banded matrices
    dense      c^2 v^2 h^2  +  c^2 n v^2        the convolution with a box of side v, and composing the kernel.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sesn import Meter, ScaleGrid, ScaleLift, SteerableBasis, basis_a, basis_b
from sesn._checks import complaint, require, whole
from sesn.algorithms.separable import column_runs
from sesn.basis import SMALLEST_RESOLVED_SIGMA, Profile, ProfilePairs, Window
from sesn.errors import UsageError
from sesn.meter.compare import middle

#: Smallest sigmas to try, from the published one to where detail is clearly lost.
SMALLEST_SIGMAS = (0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5)
#: Windows to try: the side of the paper's largest box, or None for the wide window.
KERNEL_SIZES = (7, 9, 11, 13, 15, 17, 21, None)
#: Delta within this factor of the best, or within so many times the probe's floor, cannot be told from it.
ALIKE, AT_FLOOR = 2.0, 3.0
#: The least and the most that can be asked for, and why.
ALLOWED = {
    "scales": (2, 32, "every scale takes seconds, and networks have a handful"),
    "side": (8, 4096, "windows as wide as a larger map would fill the memory"),
    "channels": (1, 1 << 16, "no layer of more fits into the memory"),
}


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
        measured = ("separable_macs", "dense_macs", "delta", "floor")
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
            **{name: getattr(self, name) for name in measured},
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


@dataclass(frozen=True)
class Tuning:
    """What was tried and what is proposed."""

    proposal: Candidate
    published: Candidate
    candidates: tuple[Candidate, ...]
    macs: int
    side: int
    channels: int

    @property
    def gain(self) -> float:
        """How many times smaller than that of the published STL-10 kernels the proposal's Delta is."""
        return self.published.delta / self.proposal.delta

    def front(self, cost: Callable[[Candidate], int]) -> list[Candidate]:
        """The candidates that no other beats in both cost and Delta, the cheapest first."""
        best, kept = math.inf, []
        for each in sorted(self.candidates, key=lambda c: (cost(c), c.delta)):
            if each.delta < best:
                best = each.delta
                kept.append(each)
        return kept


def tune(
    images: Tensor,
    scales: int,
    span: float,
    *,
    macs: int | None = None,
    side: int = 48,
    channels: int = 128,
    on_step: Callable[[float], None] = lambda part: None,
) -> Tuning:
    """Try every candidate on images [b, 1, h, w] and propose one that costs no more than is allowed.

    Args:
        images: grey images to measure Delta on, in float64.
        scales: how many scales, at least 2.
        span: the largest sigma over the smallest, above 1.
        macs: the most multiply-adds of the separable path; by default what the published STL-10 kernels cost.
        side: of the maps that the cost is for; windows wider than the map are not tried.
        channels: in and out, likewise.
        on_step: told which part of the work was done now; the parts sum to 1.
    """
    shape = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
    require(isinstance(shape, tuple) and len(shape) == 4, "images", shape, "grey images [b, 1, h, w]")
    require(shape[1] == 1, "images", shape, "grey images [b, 1, h, w]", "average the channels first")
    for name, value in (("scales", scales), ("side", side), ("channels", channels)):
        least, most, reason = ALLOWED[name]
        require(whole(name, value, least) <= most, name, value, f"at most {most:,}", reason)
    require(math.isfinite(span) and span > 1, "range", span, "above 1", "it is the largest sigma over the smallest")
    published = published_stl10(side, channels)
    most_macs = published.separable_macs if macs is None else whole("macs", macs, 1)
    tried = [*candidates(scales, span, side, channels)]
    if not tried:
        raise UsageError(complaint("range", span, "small enough for the windows to fit the map", "raise `side`"))
    cheapest = min(each.separable_macs for each in tried)
    remedy = "raise it, or use fewer scales, fewer channels or a smaller side"
    require(most_macs >= cheapest, "macs", most_macs, f"at least {cheapest}, the cheapest candidate's cost", remedy)
    groups: dict[Any, list[Candidate]] = {}  # those that differ in their orders only
    for each in tried:
        groups.setdefault((each.grid, each.boxes), []).append(each)
    done: list[Candidate] = []
    with _one_thread():
        for group in [[published], *groups.values()]:
            done += measured(group, images)
            on_step(len(group) / (len(tried) + 1))
    return Tuning(propose(done[1:], most_macs), done[0], tuple(done[1:]), most_macs, side, channels)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The products are too small to share; threads that wait for each other are slow where other programs run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def measured(group: Sequence[Candidate], images: Tensor) -> list[Candidate]:
    """The candidates of one grid and one window with their Delta for one step of the grid."""
    wanted = [_functions(each) for each in group]
    known = {function for functions in wanted for function in functions}
    every = sorted(known, key=lambda pair: (pair[1].divisor, pair[1].order, pair[0].divisor, pair[0].order))
    difference, energy, floor = _squares(group[0], every, images)
    found = []
    for each, functions in zip(group, wanted, strict=True):
        chosen = [every.index(function) for function in functions]
        delta = difference[:, chosen].sum(1) / energy[:, chosen].sum(1)
        found.append(replace(each, delta=middle(delta), floor=floor))
    return found


def _functions(each: Candidate) -> list[tuple[Profile, Profile]]:
    pairs = each.orders.basis(each.grid, each.kernel_size).pairs
    assert pairs is not None  # both types are products of Hermite profiles
    profiles = [profile for profile in pairs.profiles if isinstance(profile, Profile)]
    return [(profiles[r], profiles[c]) for r, c in zip(pairs.rows, pairs.columns, strict=True)]


def _squares(each: Candidate, functions: list[tuple[Profile, Profile]], images: Tensor) -> tuple[Tensor, Tensor, float]:
    """Mean squares of the difference and of the signal, [images, functions], and the meter's floor.

    Every function is one output channel, measured apart from the others.
    """
    factor, meter = 1 / each.grid.ratio, Meter()
    basis = SteerableBasis(each.grid, each.boxes, pairs=ProfilePairs.of(functions))
    lift = ScaleLift(1, len(basis), basis, bias=False, algorithm="separable", dtype=torch.float64).eval()
    with torch.no_grad():
        lift.weight.copy_(torch.eye(len(basis), dtype=torch.float64)[:, None, :])
    error = meter.measure(lift, images, factor, context=False, repeat=False, apart=True)
    energy = error.energy.reshape(len(images), -1)
    return error.valid.reshape(len(images), -1) * energy, energy, middle(meter.floor(images, factor, error.crop))


def propose(done: Sequence[Candidate], macs: int) -> Candidate:
    """The candidate of smallest Delta that costs no more than `macs`.

    Fewer functions and larger sigmas always have a smaller Delta, and a layer that sees less. So where several cannot
    be told apart (within a factor of two, or at the probe's floor) it is the one that sees most: the most functions,
    then the smallest sigma, then the cheapest.
    """
    within = [each for each in done if each.separable_macs <= macs]
    best = min(within, key=lambda each: each.delta)
    enough = max(ALIKE * best.delta, AT_FLOOR * best.floor)
    alike = [each for each in within if each.delta <= enough]
    return min(alike, key=lambda c: (-c.functions, c.grid.smallest, c.separable_macs, c.dense_macs, c.delta))
