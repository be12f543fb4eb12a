"""The cost model: how long each algorithm is expected to take for one scale, by what it has to do there.

Per scale, with batch b, i input and o output channels, n functions, a map of h x w pixels giving h' x w', f runs of
functions that share a column profile, and a kernel of t = y x taps that can see data, the multiply-adds are

    dense      b o i h' w' t    the convolution            + o i n t                        composing the kernel
    separable  b o i h' w' n    the mixing                 + b i w' h (f w + n h')          the two passes
                                                       (or + b i n h' w' h w                on maps up to 64 pixels)
    spectral   4 b o i p q      the products of spectra    + 2 p (h w + 2 q w)              for each of b i maps, and so
                                                             for each of b o outputs and o i kernels, + o i n t

where the spectral period along each axis is long enough for the window, about h + y / 2, and p is half of it. `fused`
does the arithmetic of `separable`, some of it again at the borders of its tiles.

On a CPU the time is a sum of such counts, and of the numbers that are moved, each with a weight in picoseconds. The
weights were fitted by least squares to the logarithms of times of 227 drawn layers on a two-core AVX2 machine with one
thread. On a GPU it is the roofline of the device's policy, which nobody has timed. Forward passes, and those with one
or both gradients, have weights of their own. The choice is made scale by scale, so one layer may use all algorithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sesn._torch import casting, recording
from sesn.algorithms.axis import Axis
from sesn.algorithms.banded import block_spans
from sesn.algorithms.policy import CPU, PORTABLE, DevicePolicy, Roofline, Way, policy_of
from sesn.algorithms.separable import PLANE_PIXELS
from sesn.algorithms.spectral import Taps, period

Algorithm = Literal["auto", "dense", "separable", "spectral", "fused"]
#: Those that run on every device, and those that need a GPU.
ALGORITHMS: tuple[Algorithm, ...] = ("auto", *PORTABLE)
DEVICE_ALGORITHMS: tuple[Algorithm, ...] = ("fused",)

#: What is computed: the outputs alone; the gradients of the weights, too; or those of the input as well.
Mode = Literal["forward", "weights", "gradients"]
MODES: tuple[Mode, ...] = ("forward", "weights", "gradients")
#: How many times the work of a forward pass that is.
PASSES = {"forward": 1, "weights": 2, "gradients": 3}

#: Picoseconds on a CPU of each of the `terms` of a `Load`.
WEIGHTS: dict[Way, dict[Mode, tuple[int, ...]]] = {
    # Multiply-adds with the output channels filled up; the same in wide boxes; the same for each input channel below
    # four; those of composing; numbers read and written; those of a wrapped map; scales.
    "dense": {
        "forward": (22, 0, 1, 0, 870, 2400, 200_000_000),
        "weights": (46, 80, 1, 135, 2000, 2300, 350_000_000),
        "gradients": (64, 116, 55, 184, 5400, 7100, 450_000_000),
    },
    # Multiply-adds of the mixing; of the passes; numbers of the responses; those of the lines between the passes;
    # scales.
    "separable": {
        "forward": (35, 18, 950, 2900, 250_000_000),
        "weights": (63, 26, 2200, 6800, 250_000_000),
        "gradients": (90, 35, 3700, 10_800, 270_000_000),
    },
    # Multiply-adds of the products; of the transforms; numbers of the maps and their spectra; those of the kernels;
    # multiply-adds of composing; scales.
    "spectral": {
        "forward": (40, 40, 1030, 860, 0, 400_000_000),
        "weights": (70, 91, 2250, 1980, 76, 700_000_000),
        "gradients": (86, 122, 3170, 3470, 87, 900_000_000),
    },
}
#: A convolution runs over so many output channels at once, also where there are fewer, and a product over so many.
VECTOR_CHANNELS, PRODUCT_CHANNELS = 8, 4
#: With fewer input channels the gradient by the input is slow.
FEW_CHANNELS = 4
#: From this side on, the gradient by a kernel is slow.
WIDE_BOX = 15
#: A multiply-add of the one product of the smallest maps costs as much as so many in a pass over lines.
PLANE_PASS = 3
#: Matrix units of GPUs take at least so many channels at once.
TILE_CHANNELS = 16
#: `fused` makes responses again around tiles of so many positions, and for every so many output channels.
FUSED_TILE, FUSED_OUTPUTS = 32, 64
#: How many times as slow its products are taken to be as those of the vendor's libraries.
FUSED_SLOWNESS = 2
#: Kernels with more numbers in their spectra are left to the other algorithms, for the memory (32 MB in float32).
SPECTRAL_KERNEL = 1 << 23
#: A recorded graph serves any batch, so its algorithms are chosen for this one.
USUAL_BATCH = 16


class Load(NamedTuple):
    """What an algorithm has to do in the forward pass of one scale.

    Attributes:
        multiply_adds: all of them.
        moved: bytes that are read and written, if every tensor is moved once by each operation that uses it.
        launches: operations.
        terms: the counts that the weights of a CPU multiply.
        filled: the multiply-adds of matrix products on a GPU, with channels filled up to its tiles, and all others.
        sensible: False where the algorithm is not to be chosen, for its memory or precision.
    """

    multiply_adds: int
    moved: int
    launches: int
    terms: tuple[float, ...]
    filled: float
    sensible: bool = True


@dataclass(frozen=True)
class Cost:
    """Expected picoseconds of each algorithm for one scale; infinite where one is out of the question."""

    dense: float
    separable: float
    spectral: float
    fused: float = math.inf

    @property
    def cheaper(self) -> Way:
        """The algorithm to use."""
        costs: dict[Way, float] = vars(self)  # type: ignore[assignment]
        return min(costs, key=lambda way: costs[way])


@dataclass(frozen=True)
class Work:
    """What is to be convolved: a batch, the channels of a group, where windows sit along both axes, and on what.

    Attributes:
        precise: whether numbers have single precision at least.
        mode: what is computed.
        groups: groups of channels, each with as many.
        policy: of the device.
        size: bytes of a number.
        rounded: whether a GPU may round the factors of products to ten bits.
    """

    batch: int
    in_channels: int
    out_channels: int
    rows: Axis
    columns: Axis
    precise: bool = True
    mode: Mode = "gradients"
    groups: int = 1
    policy: DevicePolicy = CPU
    size: int = 4
    rounded: bool = False

    @classmethod
    def on(cls, x: Tensor, in_channels: int, out_channels: int, rows: Axis, columns: Axis) -> Work:
        """The work on this batch; spectra are not taken of numbers of half precision."""
        batch = USUAL_BATCH if recording() else x.shape[0]
        precise = x.dtype in (torch.float32, torch.float64) and not casting(x)
        mode: Mode = "gradients" if torch.is_grad_enabled() else "forward"
        # A compiler cannot ask a GPU for its properties.
        policy = CPU if recording() else policy_of(x.device)
        return cls(batch, in_channels, out_channels, rows, columns, precise, mode, policy=policy, size=x.element_size())

    @property
    def pairs(self) -> int:
        """Kernels."""
        return self.in_channels * self.out_channels * self.groups

    @property
    def pixels(self) -> int:
        """Numbers of the maps that are read."""
        return self.batch * self.groups * self.in_channels * self.rows.size * self.columns.size

    @property
    def outputs(self) -> int:
        """Positions of all outputs of a channel."""
        return self.batch * self.rows.outputs * self.columns.outputs

    @property
    def written(self) -> int:
        """Numbers of the maps that are written."""
        return self.outputs * self.groups * self.out_channels

    def picoseconds(self, way: Way, load: Load) -> float:
        """The expected time, by the model of the device; infinite for what is not to be chosen."""
        if not load.sensible or way not in self.policy.candidates:
            return math.inf
        if (roofline := self.policy.roofline) is not None:
            times = PASSES[self.mode]
            rate = self._rate(roofline)
            return 1e3 * times * roofline.nanoseconds(load.filled, load.moved, load.launches, rate)
        weights = WEIGHTS[way][self.mode]
        return sum(weight * term for weight, term in zip(weights, load.terms, strict=True))

    def _rate(self, roofline: Roofline) -> int:
        if self.size == 8:
            return roofline.double_rate
        return roofline.tensor_rate if self.rounded or not self.precise else roofline.rate

    def filled(self) -> float:
        """How many times as many output channels a GPU's matrix units work on."""
        return -(-self.out_channels // TILE_CHANNELS) * TILE_CHANNELS / self.out_channels


def convolution_cost(work: Work, functions: int, runs: int | None, box: int) -> Cost:
    """Estimate the time of one scale of a basis; runs is None if its functions are not products."""
    loads = convolution_loads(work, functions, runs, box)
    costs = {way: work.picoseconds(way, load) for way, load in loads.items()}
    return Cost(**{"separable": math.inf, **costs})


def convolution_loads(work: Work, functions: int, runs: int | None, box: int) -> dict[Way, Load]:
    """What each algorithm that the basis allows has to do."""
    taps = [Taps.centred(2 * axis.useful_radius(box // 2) + 1) for axis in (work.rows, work.columns)]
    # The taps that can see data, a wrapped axis counting each pixel once.
    sides = [
        min(one.count, axis.size) if axis.circular else one.count
        for one, axis in zip(taps, (work.rows, work.columns), strict=True)
    ]
    composing = work.pairs * functions * sides[0] * sides[1]
    found: dict[Way, Load] = {"dense": dense_load(work, sides[0], sides[1], composing)}
    if runs is not None:
        found["separable"] = separable_load(work, functions, runs, box // 2)
        found["fused"] = fused_load(work, functions, runs, box // 2)
    found["spectral"] = spectral_load(work, taps[0], taps[1], composing)
    return found


def dense_cost(work: Work, height: int, width: int) -> float:
    """An ordinary convolution with a kernel of these sides."""
    return work.picoseconds("dense", dense_load(work, height, width))


def spectral_cost(work: Work, row_taps: Taps, column_taps: Taps) -> float:
    """The spectral algorithm with a kernel of these taps."""
    return work.picoseconds("spectral", spectral_load(work, row_taps, column_taps))


def dense_load(work: Work, height: int, width: int, composing: int = 0) -> Load:
    """One convolution with a kernel of these sides, which may have to be composed first."""
    count = work.pairs * work.outputs * height * width
    padded = count * VECTOR_CHANNELS / min(work.out_channels, VECTOR_CHANNELS)
    missing = max(0, FEW_CHANNELS - work.in_channels)
    numbers = work.pixels + work.written
    terms = (
        padded,
        padded if max(height, width) >= WIDE_BOX else 0,
        padded * missing,
        composing,
        numbers,
        numbers if work.rows.circular else 0,
        1,
    )
    moved = work.size * (numbers + work.pairs * height * width)
    return Load(count + composing, moved, 3, terms, count * work.filled() + composing)


def separable_load(work: Work, functions: int, runs: int, radius: int) -> Load:
    """Two passes over lines, and the mixing."""
    maps = work.batch * work.groups * work.in_channels
    mixing = work.pairs * work.outputs * functions
    passes = maps * _pass_count(functions, runs, radius, work.rows, work.columns)
    responses = maps * functions * work.rows.outputs * work.columns.outputs
    lines = maps * runs * work.rows.size * work.columns.outputs
    slow = PLANE_PASS if _is_small(work) else 1
    few = max(1.0, PRODUCT_CHANNELS / work.out_channels)
    moved = work.size * (work.pixels + 2 * (lines + responses) + work.written)
    terms = (mixing * few, slow * passes, responses, lines, 1)
    return Load(mixing + passes, moved, 4 + runs, terms, mixing * work.filled() + passes)


def fused_load(work: Work, functions: int, runs: int, radius: int) -> Load:
    """The passes of every tile with its border, and the mixing, in one operation; only input and output are moved."""
    plain = separable_load(work, functions, runs, radius)
    mixing = work.pairs * work.outputs * functions
    again = -(-work.out_channels // FUSED_OUTPUTS) * (1 + 2 * radius / FUSED_TILE) ** 2
    moved = work.size * (round(work.pixels * again) + work.written)
    filled = FUSED_SLOWNESS * (mixing * work.filled() + (plain.multiply_adds - mixing) * again)
    return Load(plain.multiply_adds, moved, 4, (), filled)


def spectral_load(work: Work, row_taps: Taps, column_taps: Taps, composing: int = 0) -> Load:
    """Transforms of maps, outputs and kernels, and products at every frequency."""
    # Half of the period along rows, and the period along columns.
    p, q = period(work.rows, row_taps) // 2 + 1, period(work.columns, column_taps)
    many = work.pairs // work.groups * 2 * p * q > SPECTRAL_KERNEL
    spectrum, batch = 2 * p * q, work.batch * work.groups

    def transform(height: int, width: int) -> int:
        return 2 * p * width * (height + 2 * q)

    products = 4 * work.batch * work.pairs * p * q
    transforms = (
        batch * work.in_channels * transform(work.rows.size, work.columns.size)
        + batch * work.out_channels * transform(work.rows.outputs, work.columns.outputs)
        + work.pairs * transform(row_taps.count, column_taps.count)
    )
    numbers = work.pixels + work.written + batch * (work.in_channels + work.out_channels) * spectrum
    kernels = work.pairs * (row_taps.count * column_taps.count + spectrum)
    terms = products, transforms, numbers, kernels, composing, work.groups
    moved = 2 * work.size * (numbers + kernels)
    count = products + transforms + composing
    return Load(count, moved, 14 * work.groups, terms, count, work.precise and not many)


def _is_small(work: Work) -> bool:
    return work.rows.size * work.columns.size <= PLANE_PIXELS


def _pass_count(functions: int, runs: int, radius: int, rows: Axis, columns: Axis) -> int:
    """Multiply-adds of the passes over one map."""
    pixels = rows.size * columns.size
    if pixels <= PLANE_PIXELS:
        return functions * rows.outputs * columns.outputs * pixels
    # Entries of the blocks of the banded matrices: outputs times the pixels that they multiply.
    across, down = (
        sum((stop - start) * (high - low) for start, stop, low, high in block_spans(axis, radius))
        for axis in (columns, rows)
    )
    return runs * rows.size * across + functions * columns.outputs * down
