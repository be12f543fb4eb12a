"""Cardinal B-splines on a square lattice of centres, relative to the window.

I. Sosnovik, A. Moskalev and A. Smeulders, "How to transform kernels for scale-convolutions", ICCV workshop 2021.

Every scale has the same functions on its box, whose coordinates run from -1 to 1: the lattice has E x E centres c from
-spread to spread, and the function of a centre is B((x - c_x) m) B((y - c_y) m), m = mult / spread, with B the cardinal
B-spline of the degree. What scale a kernel really has is therefore decided by the odd side of its box, not by sigma.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sesn._checks import positive, require, whole
from sesn.basis.steerable import ProfilePairs, SteerableBasis, Window, boxes_for
from sesn.errors import UsageError
from sesn.scales import ScaleGrid


@dataclass(frozen=True)
class SplineProfile:
    """A cardinal B-spline around `centre`, stretched by `stretch`, on a box whose coordinates run from -1 to 1."""

    centre: float
    stretch: float
    degree: int
    #: It is the same on every box.
    reach: ClassVar[float] = 0.0

    def sample(self, sigma: float, radius: int) -> Tensor:
        """(1/sigma) B((x / radius - centre) stretch) at x = -radius .. radius, in float64."""
        x = np.arange(-radius, radius + 1, dtype=np.float64) / max(radius, 1)
        return torch.from_numpy(cardinal_bspline((x - self.centre) * self.stretch, self.degree) / sigma)


def cardinal_bspline(x: np.ndarray, degree: int) -> np.ndarray:
    """The centred cardinal B-spline of a degree: the box [-1/2, 1/2) convolved with itself `degree` times.

    By the recursion of Cox and de Boor, from the boxes up; its sums are of positive terms, so nothing cancels.
    """
    # B_d(x) = ((d + 1)/2 + x) B_(d-1)(x + 1/2) / d + ((d + 1)/2 - x) B_(d-1)(x - 1/2) / d
    shifts = np.arange(-degree, degree + 1, 2) / 2
    spline = [((x + shift >= -0.5) & (x + shift < 0.5)).astype(np.float64) for shift in shifts]
    for d in range(1, degree + 1):
        shifts = (shifts[:-1] + shifts[1:]) / 2
        spline = [
            (((d + 1) / 2 + x + shift) * right + ((d + 1) / 2 - x - shift) * left) / d
            for shift, left, right in zip(shifts, spline[:-1], spline[1:], strict=True)
        ]
    found: np.ndarray = spline[0]
    return found


def basis_bspline(
    grid: ScaleGrid,
    window: Window,
    effective_size: int,
    *,
    degree: int = 2,
    mult: float = 2.0,
    spread: float | None = None,
) -> SteerableBasis:
    """Make a basis of E x E B-splines, each around a centre of its own.

    The functions of every scale are the same relative to that scale's box, so Delta is low only between boxes whose
    sides have the ratio of the sigmas. They are products, so every algorithm applies.

    Args:
        grid: the scales.
        window: the odd side V of the largest box; the others as in `basis_a`. There is no wide window, since the
            functions end with their box.
        effective_size: E, the number of centres along each axis.
        degree: of the splines: 0 (boxes), 1 (tents), 2 or more (smooth).
        mult: how much narrower the splines are than the lattice is wide.
        spread: the outermost centres, in half-widths of the box; the smallest sigma if it is left out, as published.

    Returns:
        The basis.

    Raises:
        UsageError: an argument breaks its rule, or a spline lies between the pixels of the smallest box.

    Example:
        >>> sesn.basis_bspline(sesn.ScaleGrid([0.6, 0.76, 0.95, 1.2]), 15, 7, degree=2, mult=2.0)
        basis_bspline(49 functions, sigmas [0.6, 0.76, 0.95, 1.2], boxes [7, 9, 11, 15])
    """
    if window == "wide":
        raise UsageError("`window` (='wide') must be an odd number for B-splines, which end with their box")
    size = whole("effective_size", effective_size, 1)
    order = whole("degree", degree, 0)
    require(positive(mult), "mult", mult, "a positive number", "it divides the width of the splines")
    boxes = boxes_for(grid, window, size)
    ends = grid.smallest if spread is None else spread
    require(positive(ends), "spread", spread, "a positive number", "1 puts the outermost centres at the box's ends")
    centres = np.linspace(-ends, ends, size) if size > 1 else np.zeros(1)
    line = [SplineProfile(float(centre), mult / ends, order) for centre in centres]
    functions = [(row, column) for column in line for row in line]
    return SteerableBasis(grid, boxes, pairs=ProfilePairs.of(functions), name="basis_bspline")
