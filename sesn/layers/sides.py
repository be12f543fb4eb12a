"""Strides and paddings: one number for rows and columns alike, or one for each."""

from __future__ import annotations

from typing import Any

from sesn import _checks

#: A number for rows and columns alike, or one for each.
Sides = int | tuple[int, int]


def pair_of(sides: Sides) -> tuple[int, int]:
    """One number for rows and columns, or each its own."""
    return (sides, sides) if isinstance(sides, int) else sides


def sides_of(stride: Any, name: str = "stride", least: int = 1, remedy: str = "") -> Sides:
    """The number for rows and columns alike, or both; checked."""
    rows, columns = _checks.pair(name, stride, least, remedy)
    return rows if rows == columns else (rows, columns)


def pixels_of_padding(padding: str | Sides, kernel_size: int) -> Sides:
    """The padding in pixels: half the kernel for "same", none for "valid"."""
    if isinstance(padding, str):
        return kernel_size // 2 if _checks.one_of("padding", padding, ("same", "valid")) == "same" else 0
    return sides_of(padding, "padding", 0, "or use 'same' or 'valid'")
