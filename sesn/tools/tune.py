"""`tune`: which kernels have the smallest Delta for a number of multiply-adds?

Given the number of scales and their range, one layer is tried with many smallest sigmas, windows and sets of orders.
Delta is that of the basis itself: each function is one output channel, so the ratio of sums over channels is what
random weights, equal in variance, give on average. No weights are drawn, and sets of orders on the same window share
their measurement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from sesn import Meter, ScaleLift, SteerableBasis
from sesn._checks import complaint, require, whole
from sesn.basis import Profile, ProfilePairs
from sesn.errors import UsageError
from sesn.meter.compare import middle
from sesn.tools.kernels import Candidate, candidates, published_stl10

#: Delta within this factor of the best, or within so many times the probe's floor, cannot be told from it.
ALIKE, AT_FLOOR = 2.0, 3.0
#: The most that can be asked for, and why.
MOST = {
    "scales": (32, "every scale takes seconds, and networks have a handful"),
    "side": (4096, "windows as wide as a larger map would fill the memory"),
    "channels": (1 << 16, "no layer of more fits into the memory"),
}

Function: TypeAlias = tuple[Profile, Profile]


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
    require(isinstance(images, Tensor) and images.dim() == 4, "images", _shape(images), "grey images [b, 1, h, w]")
    require(images.shape[1] == 1, "images", _shape(images), "grey images [b, 1, h, w]", "average the channels first")
    scales, side, channels = whole("scales", scales, 2), whole("side", side, 8), whole("channels", channels, 1)
    for name, value in (("scales", scales), ("side", side), ("channels", channels)):
        most, reason = MOST[name]
        require(value <= most, name, value, f"at most {most:,}", reason)
    require(math.isfinite(span) and span > 1, "range", span, "above 1", "it is the largest sigma over the smallest")
    published = published_stl10(side, channels)
    most_macs = published.separable_macs if macs is None else whole("macs", macs, 1)
    tried = [*candidates(scales, span, side, channels)]
    _require_affordable(tried, most_macs, span)
    done: list[Candidate] = []
    with _one_thread():
        for group in _groups([published, *tried]):
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


def _groups(tried: Sequence[Candidate]) -> list[list[Candidate]]:
    """Candidates that differ in their orders only; the published one stays alone and first."""
    groups: dict[Any, list[Candidate]] = {"published": [tried[0]]}
    for each in tried[1:]:
        groups.setdefault((each.grid, each.boxes), []).append(each)
    return list(groups.values())


def measured(group: Sequence[Candidate], images: Tensor) -> list[Candidate]:
    """The candidates of one grid and one window with their Delta for one step of the grid."""
    wanted = [_functions(each) for each in group]
    known = {function: None for functions in wanted for function in functions}
    every = sorted(known, key=lambda pair: (pair[1].divisor, pair[1].order, pair[0].divisor, pair[0].order))
    difference, energy, floor = _squares(group[0], every, images)
    place = {function: i for i, function in enumerate(every)}
    found = []
    for each, functions in zip(group, wanted, strict=True):
        chosen = [place[function] for function in functions]
        delta = difference[:, chosen].sum(1) / energy[:, chosen].sum(1)
        found.append(replace(each, delta=middle(delta), floor=floor))
    return found


def _functions(each: Candidate) -> list[Function]:
    pairs = each.orders.basis(each.grid, each.kernel_size).pairs
    assert pairs is not None  # both types are products of profiles
    return [(pairs.profiles[r], pairs.profiles[c]) for r, c in zip(pairs.rows, pairs.columns, strict=True)]


def _squares(each: Candidate, functions: list[Function], images: Tensor) -> tuple[Tensor, Tensor, float]:
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


def _require_affordable(tried: Sequence[Candidate], macs: int, span: float) -> None:
    if not tried:
        raise UsageError(complaint("range", span, "small enough for the windows to fit the map", "raise `side`"))
    cheapest = min(each.separable_macs for each in tried)
    if macs < cheapest:
        remedy = "raise it, or use fewer scales, fewer channels or a smaller side"
        rule = f"at least {cheapest}, the cheapest candidate's cost"
        raise UsageError(complaint("macs", macs, rule, remedy))


def _shape(images: Any) -> object:
    return tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
