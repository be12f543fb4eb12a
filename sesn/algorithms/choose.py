"""The cost model: multiply-adds of each algorithm for one scale, weighted by how fast each kind of work runs.

Per scale, with batch b, i input and o output channels, n functions, a map of h x w pixels giving h' x w', f runs of
functions that share a column profile, and a kernel of t = y x taps that can see data:

    dense      b o i h' w' t    the convolution            + o i n t                        composing the kernel
    separable  b o i h' w' n    the mixing                 + b i w' h (f w + n h')          the two passes
                                                       (or + b i n h' w' h w                on maps up to 64 pixels)
    spectral   4 b o i p q      the products of spectra    + 2 p (h w + 2 q w)              for each of b i maps, and so
                                                             for each of b o outputs and o i kernels, + o i n t

where the spectral period along each axis is long enough for the window, about h + y / 2, and p is half of it. The
weights below turn counts into time. They are rounded ratios of throughput on a two-core AVX2 machine, forward and
backward: large boxes, few input channels and short lines all run below the rate of an ordinary convolution, and the
spectral way moves its numbers about more than the others do. The choice is made scale by scale, so one layer may use
all algorithms. `nox -s bench` compares the choice with each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sesn._torch import casting, recording
from sesn.algorithms.axis import Axis
from sesn.algorithms.banded import block_spans
from sesn.algorithms.separable import PLANE_PIXELS
from sesn.algorithms.spectral import Taps, period

Way = Literal["dense", "separable", "spectral"]
Algorithm = Literal["auto", "dense", "separable", "spectral", "fused"]
#: Those that run on every device, and those that need a GPU.
ALGORITHMS: tuple[Algorithm, ...] = ("auto", "dense", "separable", "spectral")
DEVICE_ALGORITHMS: tuple[Algorithm, ...] = ("fused",)

#: Weights of a multiply-add; 10 is about the machine's best rate. They are whole numbers, because torch.compile with
#: dynamic=True takes every float outside a function for a variable, and compiles again when it finds that it is none.
SMALL_BOX, LARGE_BOX, LARGE_BOX_SIDE = 11, 14, 9
VECTOR_CHANNELS = 16
MIXING = 15
PLANE_PASS = 34
#: Pixels that the overhead of a line is worth.
LINE_OVERHEAD = 100
SPECTRAL_PRODUCT = 17
#: Weight of a number that the spectral way reads, writes and transposes.
SPECTRAL_NUMBER = 700
#: Weight of a multiply-add in a pass over lines or in a transform.
PLAIN = 10
#: With fewer input channels the spectra of the outputs outweigh the products.
SPECTRAL_CHANNELS = 4
#: Kernels with more numbers in their spectra are left to the other algorithms, for the memory (32 MB in float32).
SPECTRAL_KERNEL = 1 << 23
#: A recorded graph serves any batch, so its algorithms are chosen for this one.
USUAL_BATCH = 16


@dataclass(frozen=True)
class Cost:
    """Weighted multiply-adds of one scale's forward pass; infinite where an algorithm is out of the question."""

    dense: float
    separable: float
    spectral: float

    @property
    def cheaper(self) -> Way:
        """The algorithm to use."""
        ways: tuple[Way, ...] = ("dense", "separable", "spectral")
        costs = self.dense, self.separable, self.spectral  # min(..., key=...) is more than torch.compile can follow
        return ways[costs.index(min(costs))]


@dataclass(frozen=True)
class Work:
    """What is to be convolved: a batch, its channels, and where windows sit along both axes."""

    batch: int
    in_channels: int
    out_channels: int
    rows: Axis
    columns: Axis
    precise: bool = True

    @classmethod
    def on(cls, x: Tensor, in_channels: int, out_channels: int, rows: Axis, columns: Axis) -> Work:
        """The work on this batch; spectra are not taken of numbers of half precision."""
        batch = USUAL_BATCH if recording() else x.shape[0]
        precise = x.dtype in (torch.float32, torch.float64) and not casting(x)
        return cls(batch, in_channels, out_channels, rows, columns, precise)

    @property
    def pairs(self) -> int:
        """Kernels."""
        return self.in_channels * self.out_channels

    @property
    def outputs(self) -> int:
        """Positions of all outputs of a channel."""
        return self.batch * self.rows.outputs * self.columns.outputs


def convolution_cost(work: Work, functions: int, runs: int | None, box: int) -> Cost:
    """Estimate the work of one scale of a basis; runs is None if its functions are not products."""
    taps = [Taps.centred(2 * axis.useful_radius(box // 2) + 1) for axis in (work.rows, work.columns)]
    # The taps that can see data, a wrapped axis counting each pixel once.
    sides = [
        min(one.count, axis.size) if axis.circular else one.count
        for one, axis in zip(taps, (work.rows, work.columns), strict=True)
    ]
    composing = MIXING * work.pairs * functions * sides[0] * sides[1]
    separable = float("inf")
    if runs is not None:
        passes = _passes(functions, runs, box // 2, work.rows, work.columns)
        separable = MIXING * work.pairs * work.outputs * functions + work.batch * work.in_channels * passes
    return Cost(dense_cost(work, *sides) + composing, separable, spectral_cost(work, *taps) + composing)


def dense_cost(work: Work, height: int, width: int) -> float:
    """An ordinary convolution with a kernel of these sides."""
    slowness = LARGE_BOX if max(height, width) >= LARGE_BOX_SIDE else SMALL_BOX
    return work.pairs * work.outputs * height * width * slowness * max(1.0, VECTOR_CHANNELS / work.in_channels)


def spectral_cost(work: Work, row_taps: Taps, column_taps: Taps) -> float:
    """The spectral algorithm with a kernel of these taps."""
    p = period(work.rows, row_taps) // 2 + 1
    q = period(work.columns, column_taps)
    few, many = work.in_channels < SPECTRAL_CHANNELS, work.pairs * 2 * p * q > SPECTRAL_KERNEL
    if few or many or not work.precise:
        return float("inf")

    def plane(height: int, width: int) -> float:
        numbers = height * width + 2 * p * q
        return PLAIN * 2 * p * width * (height + 2 * q) + SPECTRAL_NUMBER * numbers

    maps = work.batch * work.in_channels * plane(work.rows.size, work.columns.size)
    outputs = work.batch * work.out_channels * plane(work.rows.outputs, work.columns.outputs)
    kernels = work.pairs * plane(row_taps.count, column_taps.count)
    return SPECTRAL_PRODUCT * 4 * work.batch * work.pairs * p * q + maps + outputs + kernels


def _passes(functions: int, runs: int, radius: int, rows: Axis, columns: Axis) -> float:
    pixels = rows.size * columns.size
    if pixels <= PLANE_PIXELS:
        return PLANE_PASS * functions * rows.outputs * columns.outputs * pixels
    # Entries of the blocks of the banded matrices: outputs times the pixels that they multiply.
    across, down = (
        sum((stop - start) * (high - low) for start, stop, low, high in block_spans(axis, radius))
        for axis in (columns, rows)
    )
    count = runs * rows.size * across + functions * columns.outputs * down
    return PLAIN * count * (1 + LINE_OVERHEAD / min(rows.size, columns.size))
