"""Bilinear resizing as matrices, for the methods that resample maps: R_h x R_w^T, in float64 until it is used."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def corner_aligned(size: int, outputs: int) -> Tensor:
    """[outputs, size]: output i at i (size - 1) / (outputs - 1), so that first and last pixels stay (align_corners)."""
    step = (size - 1) / (outputs - 1) if outputs > 1 else 0.0
    return _interpolation(torch.arange(outputs, dtype=torch.float64) * step, size)


def centre_aligned(size: int, outputs: int) -> Tensor:
    """[outputs, size]: output i at (i + 1/2) size / outputs - 1/2; the ends are repeated. No antialiasing."""
    positions = (torch.arange(outputs, dtype=torch.float64) + 0.5) * (size / outputs) - 0.5
    return _interpolation(positions.clamp(min=0), size)


def fitted(matrix: Tensor, side: int) -> Tensor:
    """Crop the outputs of a resizing [n, size] about their centre, or put zeros around them, to `side` outputs.

    The first output goes to floor((side - n) / 2), as the released code has it.
    """
    start = (side - matrix.shape[0]) // 2
    result = matrix.new_zeros(side, matrix.shape[1])
    first, last = max(0, start), min(side, start + matrix.shape[0])
    result[first:last] = matrix[first - start : last - start]
    return result


def resize(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """x [b, c, h, w] with rows [h', h] and columns [w', w] to [b, c, h', w']."""
    return rows @ (x @ columns.T)


def resized_reach(kernel_size: int, stride: int, smallest: float) -> int:
    """Pixels that an output sees to each side through a kernel on a map resized by `smallest`, and back.

    Between two responses, a stride apart, the output is interpolated. Pixels are resized about their centres, so that
    strided responses lie off the output's place. The last two pixels are what interpolating the input and rounding its
    size to whole pixels may add.
    """
    shift = (stride - 1) / 2 * abs(1 / smallest - 1)
    return math.ceil((kernel_size // 2 + stride) / smallest + shift) + 2


def _interpolation(positions: Tensor, size: int) -> Tensor:
    below = positions.floor().clamp(max=size - 1)
    weight = (positions - below)[:, None]
    pixels = torch.arange(size)
    low = (pixels == below.long()[:, None]).double()
    high = (pixels == (below.long()[:, None] + 1).clamp(max=size - 1)).double()
    return (1 - weight) * low + weight * high
