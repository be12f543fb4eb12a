"""One-dimensional correlation as products with banded matrices, which hold the padding and the stride too.

A short line is one product. A long line is cut into blocks of outputs, each of which multiplies only the pixels its
windows reach: a true one-dimensional convolution in pieces large enough to run at the speed of matrix products. Any
other matrix whose rows reach few pixels, such as a resampler's, is multiplied the same way: `bands`, `along_both`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from sesn.algorithms.axis import Axis

#: Lines up to this length are one block; longer ones have blocks of so many outputs.
LONG_LINE = 256
BLOCK = 128
#: Outputs of a block of `bands`: rows that reach few pixels are cut finer.
BAND = 64
#: Blocks must spare this share of a matrix to be worth their extra calls.
SPARED = 0.3

#: First and last output, first and last pixel; the last ones exclusive.
Span = tuple[int, int, int, int]


def banded_matrix(profiles: Tensor, axis: Axis) -> Tensor:
    """The profiles [f, box] as matrices [f, outputs, size] that correlate a signal with them on this axis."""
    f, box = profiles.shape
    if not axis.circular:
        return _part(profiles, axis, 0, axis.outputs, 0, axis.size)
    taps = torch.arange(-(box // 2), box // 2 + 1, device=profiles.device)
    pixels = (_centres(axis, 0, axis.outputs, profiles)[:, None] + taps[None, :]) % axis.size  # [outputs, box]
    matrix = profiles.new_zeros(f, axis.outputs, axis.size)
    return matrix.scatter_add(2, pixels.expand(f, -1, -1), profiles[:, None, :].expand(-1, axis.outputs, -1))


def _part(profiles: Tensor, axis: Axis, start: int, stop: int, low: int, high: int) -> Tensor:
    """Of a line with zeros past its ends, the rows start..stop and the pixels low..high of every matrix."""
    box = profiles.shape[-1]
    centres = _centres(axis, start, stop, profiles)
    offsets = torch.arange(low, high, device=profiles.device)[None, :] - centres[:, None] + box // 2
    inside = (offsets >= 0) & (offsets < box)
    return torch.where(inside, profiles[:, offsets.clamp(0, box - 1)], profiles.new_zeros(()))


def _centres(axis: Axis, start: int, stop: int, like: Tensor) -> Tensor:
    """The pixels about which the outputs start..stop look."""
    return axis.first + axis.stride * torch.arange(start, stop, device=like.device)


@dataclass(frozen=True)
class Line:
    """Where the rows of a matrix reach: row i the pixels within `reach` of first + step i."""

    first: float
    step: float
    reach: float

    def spans(self, outputs: int, size: int, rows: int) -> list[Span]:
        """Of every so many rows: the rows start..stop and the pixels low..high that they reach, at least one."""
        found = []
        for start in range(0, outputs, rows):
            stop = min(start + rows, outputs)
            low = min(max(math.floor(self.first + self.step * start - self.reach), 0), size - 1)
            high = math.ceil(self.first + self.step * (stop - 1) + self.reach) + 1
            found.append((start, stop, low, min(max(high, low + 1), size)))
        return found


@dataclass(frozen=True)
class Block:
    """The matrix [f, stop - start, high - low] from pixels low..high to outputs start..stop."""

    start: int
    stop: int
    low: int
    high: int
    matrix: Tensor

    @property
    def stacked(self) -> Tensor:
        """[f outputs, pixels]."""
        return self.matrix.flatten(0, 1)


def blocks(profiles: Tensor, axis: Axis) -> tuple[Block, ...]:
    """The banded matrix of an axis in blocks; a periodic axis wraps, so it stays whole."""
    if axis.circular:
        return (Block(0, axis.outputs, 0, axis.size, banded_matrix(profiles, axis)),)
    spans = block_spans(axis, profiles.shape[-1] // 2)
    return tuple(Block(*span, _part(profiles, axis, *span)) for span in spans)


def bands(matrix: Tensor, line: Line, like: Tensor) -> tuple[Block, ...]:
    """A matrix [outputs, size] in blocks without most of its zeros, in the dtype and on the device of `like`.

    Where its rows reach is told by `line`, not looked for: a matrix may have no values yet.
    """
    outputs, size = matrix.shape
    spans = line.spans(outputs, size, BAND)
    if not size or sum((b - a) * (high - low) for a, b, low, high in spans) > (1 - SPARED) * outputs * size:
        return whole(matrix, like)
    return tuple(Block(a, b, low, high, matrix[None, a:b, low:high].to(like)) for a, b, low, high in spans)


def whole(matrix: Tensor, like: Tensor) -> tuple[Block, ...]:
    """A matrix [outputs, size] as one block, in the dtype and on the device of `like`."""
    outputs, size = matrix.shape
    return (Block(0, outputs, 0, size, matrix[None].to(like)),)


def along_both(rows: tuple[Block, ...], columns: tuple[Block, ...], x: Tensor) -> Tensor:
    """R x C^T on the last two axes of x [..., h, w], where `rows` are the blocks of R and `columns` those of C."""
    maps = math.prod(x.shape[:-2])  # not -1: there may be no pixels
    lines = along_rows(columns, x.reshape(maps * x.shape[-2], x.shape[-1]))  # [.. h, 1, w']
    found = along_columns(rows, lines.reshape(maps, x.shape[-2], lines.shape[-1]))  # [.., 1, h', w']
    return found.reshape(*x.shape[:-2], *found.shape[-2:])


def block_spans(axis: Axis, radius: int) -> list[Span]:
    """The outputs and pixels of every block."""
    if axis.circular or axis.size <= LONG_LINE:
        return [(0, axis.outputs, 0, axis.size)]
    return Line(axis.first, axis.stride, radius).spans(axis.outputs, axis.size, BLOCK)


def left(matrix: Tensor, batch: Tensor) -> Tensor:
    """matrix [m, k] times each of a batch [b, k, n]; `matmul` would transpose and copy the batch when it can."""
    return torch.bmm(matrix.expand(batch.shape[0], -1, -1), batch)


def along_rows(parts: tuple[Block, ...], x: Tensor) -> Tensor:
    """Correlate the last axis of x [m, w] with every profile: [m, f, w']."""
    m, f = x.shape[0], parts[0].matrix.shape[0]
    found = [(x[:, p.low : p.high] @ p.stacked.t()).reshape(m, f, p.stop - p.start) for p in parts]
    return found[0] if len(found) == 1 else torch.cat(found, dim=2)


def along_rows_adjoint(parts: tuple[Block, ...], g: Tensor, size: int) -> Tensor:
    """Gradients [m, f, w'] back to [m, w]."""
    back = [(p, g[:, :, p.start : p.stop].flatten(1) @ p.stacked) for p in parts]
    return _sum(back, size)


def along_columns(parts: tuple[Block, ...], x: Tensor) -> Tensor:
    """Correlate the middle axis of x [m, h, w] with every profile: [m, f, h', w]."""
    m, f = x.shape[0], parts[0].matrix.shape[0]
    found = [left(p.stacked, x[:, p.low : p.high]).reshape(m, f, p.stop - p.start, x.shape[2]) for p in parts]
    return found[0] if len(found) == 1 else torch.cat(found, dim=2)


def along_columns_adjoint(parts: tuple[Block, ...], g: Tensor, size: int) -> Tensor:
    """Gradients [m, f, h', w] back to [m, h, w]."""
    back = [(p, left(p.stacked.t(), g[:, :, p.start : p.stop].flatten(1, 2))) for p in parts]
    return _sum(back, size)


def _sum(pieces: list[tuple[Block, Tensor]], size: int) -> Tensor:
    """Add up along axis 1 what the blocks give back to the pixels they share."""
    first = pieces[0][1]
    if len(pieces) == 1 and first.shape[1] == size:
        return first
    total = first.new_zeros(first.shape[0], size, *first.shape[2:])
    for block, piece in pieces:
        total = total.index_add(1, torch.arange(block.low, block.high, device=piece.device), piece)
    return total


def trigonometric_matrix(places: Tensor, size: int, highest: int, exact: bool) -> Tensor:
    """[places, size]: the interpolant of `size` periodic samples by waves up to the `highest`, at any places.

    Places count from the middle of the samples, where the angles of the waves and their rounding are smallest. If the
    highest lies `exact`ly at the cut-off it keeps its cosine only. Of cos(a - b) both terms are products of matrices,
    so that nothing larger than the result is held.
    """
    numbers = partial(torch.arange, dtype=places.dtype, device=places.device)
    waves = numbers(highest + 1)
    single = (waves == 0) | (waves == highest) if exact else waves == 0
    amplitude = torch.where(single, 1.0, 2.0).to(places.dtype)
    there, here = (torch.outer(x, 2 * math.pi / size * waves) for x in (places, numbers(size) - (size - 1) / 2))
    return ((there.cos() * amplitude) @ here.cos().t() + (there.sin() * amplitude) @ here.sin().t()) / size
