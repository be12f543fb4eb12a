"""What a fused convolution is told besides tensors: where windows lie, which scales see which, and blocks of functions.

An operator of torch takes tensors and numbers, so all of the geometry becomes one list of whole numbers and back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sesn._torch import numbers_like, picked
from sesn.algorithms.axis import Axis
from sesn.basis import ProfilePairs

#: Blocks of functions have at most so many row and column profiles, and are filled up to at least the second number:
#: the product of two profiles is the depth of a matrix product, which a GPU wants to be 16 or more.
MOST_PROFILES, LEAST_PROFILES = 8, 4


class Term(NamedTuple):
    """One of the sums: a target scale sees a source scale by the weights of a neighbour and the profiles of a scale."""

    target: int
    source: int
    neighbour: int
    profiles: int
    radius: int


@dataclass(frozen=True)
class Geometry:
    """A convolution from `sources` scales on the axes' pixels to `targets` scales on their outputs.

    The weight has `neighbours` scales. The channels are split into `groups`.
    """

    rows: Axis
    columns: Axis
    groups: int
    sources: int
    targets: int
    neighbours: int
    terms: tuple[Term, ...]

    def encoded(self) -> list[int]:
        """All numbers in one list."""
        axes = (int(number) for axis in (self.rows, self.columns) for number in _numbers(axis))
        return [
            *axes,
            self.groups,
            self.sources,
            self.targets,
            self.neighbours,
            *(n for term in self.terms for n in term),
        ]

    @classmethod
    def decoded(cls, numbers: Sequence[int]) -> Geometry:
        """The geometry of such a list."""
        rows, columns = (
            Axis(size, outputs, first, stride, bool(circular))
            for size, outputs, first, stride, circular in (numbers[:5], numbers[5:10])
        )
        groups, sources, targets, neighbours = numbers[10:14]
        terms = tuple(Term(*numbers[start : start + 5]) for start in range(14, len(numbers), 5))
        return cls(rows, columns, groups, sources, targets, neighbours, terms)


def _numbers(axis: Axis) -> tuple[int, ...]:
    return axis.size, axis.outputs, axis.first, axis.stride, int(axis.circular)


def terms_of(windows: Iterable[tuple[int, int]], scales: Iterable[int], boxes: Sequence[int]) -> tuple[Term, ...]:
    """The sums of these output scales, each of which sees the input scales start..stop of its window."""
    chosen = [(k, window) for k, window in zip(scales, windows, strict=True)]
    return tuple(
        Term(target, start + neighbour, neighbour, scale, boxes[scale] // 2)
        for target, (scale, (start, stop)) in enumerate(chosen)
        for neighbour in range(stop - start)
    )


@dataclass(frozen=True)
class Blocks:
    """The functions in blocks, each of all products of its row and column profiles; -1 stands for no profile.

    Function i is the product at place slots[i] of all blocks, of which `rows` and `columns` list the profiles.
    """

    rows: tuple[tuple[int, ...], ...]
    columns: tuple[tuple[int, ...], ...]
    slots: tuple[int, ...]


def function_blocks(pairs: ProfilePairs) -> Blocks:
    """Few blocks with few products that no function needs: profiles stay together that functions multiply."""
    named = sorted(set(zip(pairs.rows, pairs.columns, strict=True)))
    blocks = [
        (high, wide)
        for rows, columns in _connected(named)
        for high, wide in itertools.product(_pieces(rows), _pieces(columns))
        if any(row in high and column in wide for row, column in named)
    ]
    p, q = (_power_of_two(max(len(block[axis]) for block in blocks)) for axis in (0, 1))
    place = {
        (row, column): (b * p + i) * q + j
        for b, (rows, columns) in enumerate(blocks)
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    }
    filled = [(tuple(high + [-1] * (p - len(high))), tuple(wide + [-1] * (q - len(wide)))) for high, wide in blocks]
    slots = tuple(place[pair] for pair in zip(pairs.rows, pairs.columns, strict=True))
    return Blocks(tuple(high for high, _ in filled), tuple(wide for _, wide in filled), slots)


def _connected(named: Sequence[tuple[int, int]]) -> list[tuple[list[int], list[int]]]:
    """Row and column profiles that some chain of functions joins, as in a type-B basis those of one sub-sigma."""
    parts: list[tuple[set[int], set[int]]] = []
    for row, column in named:
        joined = [part for part in parts if row in part[0] or column in part[1]]
        rows = {row, *(other for part in joined for other in part[0])}
        columns = {column, *(other for part in joined for other in part[1])}
        parts = [part for part in parts if part not in joined] + [(rows, columns)]
    return [(sorted(rows), sorted(columns)) for rows, columns in parts]


def _pieces(profiles: list[int]) -> list[list[int]]:
    return [profiles[start : start + MOST_PROFILES] for start in range(0, len(profiles), MOST_PROFILES)]


def _power_of_two(number: int) -> int:
    return max(LEAST_PROFILES, 1 << (number - 1).bit_length())


class Tables(NamedTuple):
    """What kernels look up, row profiles [s, blocks, p, V] and column profiles [s, blocks, q, V]; and the slots [n]."""

    down: Tensor
    across: Tensor
    slots: Tensor

    def packed(self, weight: Tensor) -> Tensor:
        """Weights [o, i, k, n] by slot, [o, i, k, blocks p q]: zero where no function is."""
        slots = self.down.shape[1] * self.down.shape[2] * self.across.shape[2]
        return weight.new_zeros(*weight.shape[:-1], slots).index_add(-1, self.slots, weight)


def make_tables(samples: Sequence[Tensor], pairs: ProfilePairs) -> Tables:
    """The tables of the profiles [f, box] of every scale."""
    taps, blocks = max(one.shape[-1] for one in samples), function_blocks(pairs)
    # A row of zeros at the end: -1 finds it.
    framed = [F.pad(one, ((taps - one.shape[-1]) // 2,) * 2 + (0, 1)) for one in samples]
    profiles = torch.stack(framed, dim=1)
    down, across = (
        torch.stack([picked(profiles, places) for places in lists]).permute(2, 0, 1, 3).contiguous()
        for lists in (blocks.rows, blocks.columns)
    )
    return Tables(down, across, numbers_like(profiles.new_empty(0, dtype=torch.int64), blocks.slots))
