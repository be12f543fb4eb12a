"""The trigonometric interpolant of periodic samples as a matrix."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor


def trigonometric_matrix(positions: Tensor, size: int, highest: int, exact: bool) -> Tensor:
    """[positions, size]: at any positions, the interpolant of `size` periodic samples by waves up to the `highest`.

    If the highest lies `exact`ly at the cut-off it keeps its cosine only. Of cos(a - b) both terms are products of
    matrices, so that nothing larger than the result is held.
    """
    numbers = partial(torch.arange, dtype=positions.dtype, device=positions.device)
    waves = numbers(highest + 1)
    single = (waves == 0) | (waves == highest) if exact else waves == 0
    amplitude = torch.where(single, 1.0, 2.0).to(positions.dtype)
    there, here = (torch.outer(x, 2 * math.pi / size * waves) for x in (positions, numbers(size)))
    return ((there.cos() * amplitude) @ here.cos().t() + (there.sin() * amplitude) @ here.sin().t()) / size
