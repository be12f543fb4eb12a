"""The cost model: multiply-adds of each algorithm for one scale, weighted by how fast each kind of work runs.

Per scale, with batch b, i input and o output channels, n functions, a map of h x w pixels giving h' x w', f runs of
functions that share a column profile, and a kernel of t taps that can see data:

    dense      b o i h' w' t    the convolution            + o i n t                        composing the kernel
    separable  b o i h' w' n    the mixing                 + b i w' h (f w + n h')          the two passes
                                                       (or + b i n h' w' h w                on maps up to 64 pixels)

The weights below turn counts into time. They are rounded ratios of throughput on a two-core AVX2 machine, forward and
backward: large boxes, few input channels and short lines all run below the rate of an ordinary convolution. The choice
is made scale by scale, so one layer may use both algorithms. `nox -s bench` compares the choice with both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sesn.algorithms.axis import Axis
from sesn.algorithms.banded import block_spans
from sesn.algorithms.separable import PLANE_PIXELS

Algorithm = Literal["auto", "dense", "separable"]
ALGORITHMS: tuple[Algorithm, ...] = ("auto", "dense", "separable")

#: Weights of a multiply-add; 1 is about the machine's best rate.
SMALL_BOX, LARGE_BOX, LARGE_BOX_SIDE = 1.1, 1.4, 9
VECTOR_CHANNELS = 16
MIXING = 1.5
PLANE_PASS = 3.4
LINE_OVERHEAD = 100.0


@dataclass(frozen=True)
class Cost:
    """Weighted multiply-adds of one scale's forward pass, for both algorithms."""

    dense: float
    separable: float

    @property
    def cheaper(self) -> Literal["dense", "separable"]:
        """The algorithm to use."""
        return "separable" if self.separable < self.dense else "dense"


def convolution_cost(
    batch: int, in_channels: int, out_channels: int, functions: int, runs: int, box: int, rows: Axis, columns: Axis
) -> Cost:
    """Estimate the work of one scale."""
    sides = [useful_side(box, axis) for axis in (rows, columns)]
    taps = sides[0] * sides[1]
    outputs = batch * rows.outputs * columns.outputs
    channels = in_channels * out_channels
    slowness = LARGE_BOX if max(sides) >= LARGE_BOX_SIDE else SMALL_BOX
    slowness *= max(1.0, VECTOR_CHANNELS / in_channels)
    dense = channels * outputs * taps * slowness + MIXING * channels * functions * taps
    passes = _passes(functions, runs, box // 2, rows, columns)
    separable = MIXING * channels * outputs * functions + batch * in_channels * passes
    return Cost(dense, separable)


def useful_side(box: int, axis: Axis) -> int:
    """How many taps along an axis can see data, a wrapped axis counting each pixel once."""
    side = 2 * axis.useful_radius(box // 2) + 1
    return min(side, axis.size) if axis.circular else side


def _passes(functions: int, runs: int, radius: int, rows: Axis, columns: Axis) -> float:
    pixels = rows.size * columns.size
    if pixels <= PLANE_PIXELS:
        return PLANE_PASS * functions * rows.outputs * columns.outputs * pixels
    across, down = (_banded_area(axis, radius) for axis in (columns, rows))
    count = runs * rows.size * across + functions * columns.outputs * down
    return count * (1 + LINE_OVERHEAD / min(rows.size, columns.size))


def _banded_area(axis: Axis, radius: int) -> int:
    """Entries of the blocks of a banded matrix: outputs times the pixels that they multiply."""
    return sum((stop - start) * (high - low) for start, stop, low, high in block_spans(axis, radius))
