"""A small layer and its input, for tests of how algorithms are chosen."""

from __future__ import annotations

from typing import Any

import torch

from sesn import ScaleConv, ScaleGrid, basis_a

BASIS = basis_a(ScaleGrid([0.9, 1.3]), 5, 2)
SHAPE = (2, 2, 2, 12, 12)


def conv(**options: Any) -> ScaleConv:
    torch.manual_seed(0)
    return ScaleConv(2, 3, BASIS, interscale=2, **options)


def field(*shape: int, dtype: torch.dtype = torch.float32, gradient: bool = True) -> torch.Tensor:
    drawn = torch.randn(shape or SHAPE, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return drawn.requires_grad_(gradient)
