"""How many bytes a forward pass asks memory for: by the fused kernel, and by separate passes that write their results.

The kernel's number is that of its own loads and stores, counted as its loops and masks make them. Pixels that several
programs ask for are counted each time, although a cache may answer; the profiles, a few kilobytes in all that stay in
the nearest cache, are told apart. The bias and the table of terms are too few bytes to count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from sesn.algorithms.fused.geometry import Geometry, function_blocks
from sesn.algorithms.fused.launch import Line, line_of, mix_tile
from sesn.algorithms.separable import column_runs
from sesn.basis import ProfilePairs


class Traffic(NamedTuple):
    """Bytes read of the field, the weights and the profiles, written and read of intermediate maps, and written."""

    field: int
    weight: int
    profiles: int
    maps: int
    output: int
    #: What it would be if every tensor were moved once, because a cache answered all that is asked again.
    once: int

    @property
    def moved(self) -> int:
        """All bytes but those of the profiles."""
        return self.field + self.weight + self.maps + self.output


class Problem(NamedTuple):
    """A convolution by its sizes: of all channels `inputs` and `outputs`, and of numbers of `dtype`."""

    batch: int
    inputs: int
    outputs: int
    geometry: Geometry
    pairs: ProfilePairs
    dtype: torch.dtype = torch.float32
    project: bool = False

    @property
    def written(self) -> int:
        """Bytes of the output; a projected one has the scales of its maxima beside it, in four bytes each."""
        rows, columns = self.geometry.rows, self.geometry.columns
        scales, bytes_each = (
            (1, self.dtype.itemsize + 4) if self.project else (self.geometry.targets, self.dtype.itemsize)
        )
        return self.batch * self.outputs * scales * rows.outputs * columns.outputs * bytes_each


def unfused_traffic(problem: Problem) -> Traffic:
    """At least so many bytes by passes along columns and rows and a mixing that each write their results once."""
    rows, columns, terms = problem.geometry.rows, problem.geometry.columns, len(problem.geometry.terms)
    functions, size = len(problem.pairs.rows), problem.dtype.itemsize
    channels = problem.batch * problem.inputs * terms * size
    lines = len(column_runs(problem.pairs)) * rows.size * columns.outputs
    maps = functions * rows.outputs * columns.outputs
    weight = problem.outputs * problem.inputs // problem.geometry.groups * functions * terms * size
    written = problem._replace(project=False).written
    # The maximum over the scales is one more pass: it reads all of them, and writes the largest.
    projected = written + problem.written if problem.project else 0
    pixels, moved = channels * rows.size * columns.size, channels * 2 * (lines + maps) + projected
    return Traffic(pixels, weight, 0, moved, written, pixels + weight + moved + written)


def fused_traffic(problem: Problem) -> Traffic:
    """The bytes of the kernel `mix`."""
    geometry, blocks = problem.geometry, function_blocks(problem.pairs)
    p, q, size = len(blocks.rows[0]), len(blocks.columns[0]), problem.dtype.itemsize
    inputs, outputs = problem.inputs // geometry.groups, problem.outputs // geometry.groups
    tile = mix_tile(p, q, outputs, problem.dtype, problem.project)
    taps = 2 * max(term.radius for term in geometry.terms) + 1
    programs = problem.batch * geometry.groups * -(-outputs // tile.OUTPUTS)
    pixels = entries = tiles = 0
    for term in geometry.terms:
        down = _Pieces.of(line_of(geometry.rows, taps // 2, False), tile.HEIGHT, term.radius, taps, tile.PIECE)
        across = _Pieces.of(line_of(geometry.columns, taps // 2, False), tile.WIDTH, term.radius, taps, tile.PIECE)
        pixels += down.sources * across.sources
        entries += p * down.entries * across.tiles + q * down.pieces * across.entries
        tiles += down.tiles * across.tiles
    loops = inputs * len(blocks.rows) * size
    weight = problem.batch * problem.outputs * tiles * loops * p * q
    seen = problem.batch * problem.inputs * geometry.sources * geometry.rows.size * geometry.columns.size * size
    weights = problem.outputs * inputs * geometry.neighbours * len(blocks.rows) * p * q * size
    once = seen + weights + problem.written
    return Traffic(programs * loops * pixels, weight, programs * loops * entries, 0, problem.written, once)


class _Pieces(NamedTuple):
    """Along one axis, of all tiles together: the tiles, their pieces, the sources in them, and entries of bands."""

    tiles: int
    pieces: int
    sources: int
    entries: int

    @classmethod
    def of(cls, line: Line, height: int, radius: int, taps: int, piece: int) -> _Pieces:
        tiles = range(0, line.targets, height)
        pieces = sources = entries = 0
        for start in tiles:
            for wrap, begin, end in _spans(line, start, min(start + height, line.targets), radius):
                at = range(begin, end, piece)
                pieces += len(at)
                sources += max(end - begin, 0)
                seen = torch.tensor([row + k for row in at for k in range(piece)], dtype=torch.int64, device="cpu")
                targets = torch.arange(start, start + height, device="cpu")
                tap = seen[:, None] + wrap * line.size - line.first - line.stride * targets + taps // 2
                entries += int(((tap >= 0) & (tap < taps)).sum())
        return cls(len(tiles), pieces, sources, entries)


def _spans(line: Line, start: int, stop: int, radius: int) -> Iterator[tuple[int, int, int]]:
    """For each wrap, from where to where the sources lie that targets start..stop see."""
    for wrap in range(line.wrap, line.wraps):
        shift = line.first - wrap * line.size
        begin, end = shift + line.stride * start - radius, shift + line.stride * (stop - 1) + radius + 1
        yield wrap, max(begin, 0), min(end, line.sources)
