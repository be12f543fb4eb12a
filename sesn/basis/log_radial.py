"""Log-radial harmonics: waves in the logarithm of the radius, in a few directions (Ghosh & Gupta 2019).

With r the distance to the centre in sigmas, for an order k and a direction phi_j,

    g(r, phi) cos(kappa ln r - pi/4)   and   g(r, phi) sin(kappa ln r - pi/4),    kappa = 2 pi k / ln(r_max),

where g = exp(-d^2 / (2 sigma_phi^2)) / r, d is the angle between phi and the line of direction phi_j, and r_max is the
distance of the box's corner. They are zero outside the circle that the box holds. A change of scale turns the phase of
a wave in ln r; here it is a change of sigma like any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sesn._checks import positive, require, whole
from sesn.basis.steerable import SteerableBasis, Window, boxes_for
from sesn.scales import ScaleGrid

#: The orders of the waves, slowest first.
ORDERS = (0.5, 1.0, 2.0)
PHASE = -math.pi / 4


@dataclass(frozen=True)
class LogRadial:
    """The first `count` of the pairs of waves in every order and direction; the direction runs faster."""

    count: int
    directions: int
    width: float
    orders: tuple[float, ...] = ORDERS
    #: The box decides the waves, and nothing is left outside it.
    reach: ClassVar[float] = 0.0

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """The functions [count, v, v] at coordinates in units of sigma."""
        pixel = x[0, 1] - x[0, 0] if x.shape[-1] > 1 else torch.ones_like(x[0, 0])
        # The centre would have the logarithm of zero; it is taken to be as far out as its neighbours, as in SS-CNN.
        r = torch.maximum(torch.hypot(x, y), pixel)
        phi = torch.atan2(x, -y)  # from the upward direction, to the right
        logarithm, turns = r.log(), 2 * math.pi / r.amax().log()
        inside = (torch.hypot(x, y) <= x.amax() * (1 + 1e-12)) / r
        planes = [
            inside * beam * wave(turns * order * logarithm + PHASE)
            for order in self.orders
            for beam in (_beam(phi, direction, self.width) for direction in _directions(self.directions))
            for wave in (torch.cos, torch.sin)
        ]
        return torch.stack(planes[: self.count])


def _directions(count: int) -> list[float]:
    """From 0 to pi, both of which are the same line; numbers, not a tensor, so that compiled code makes them too."""
    return [math.pi * index / max(count - 1, 1) for index in range(count)]


def _beam(phi: Tensor, direction: float, width: float) -> Tensor:
    """exp(-d^2 / (2 width^2)) with d the angle to a line: at most a quarter turn."""
    angle = torch.remainder(phi - direction, math.pi)
    return torch.exp(-torch.minimum(angle, math.pi - angle).square() / (2 * width**2))


def basis_log_radial(
    grid: ScaleGrid, window: Window, effective_size: int, *, directions: int = 10, width: float = 0.3
) -> SteerableBasis:
    """Make a basis of E x E log-radial harmonics.

    They are listed order by order (0.5, 1, 2), in each direction by direction, the cosine before the sine, and the
    first E^2 are kept. They are not products of one-dimensional functions, so the separable algorithm does not apply.

    Args:
        grid: the scales; the corners of a box must be more than one sigma from its centre, where ln r is zero.
        window: as in `basis_a`. The functions fall off as 1/r only, and end with their box.
        effective_size: E.
        directions: angles from 0 to pi, the last of which is the first line again.
        width: sigma_phi, how wide the beam of a direction is, in radians.

    Returns:
        The basis.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> sesn.basis_log_radial(sesn.ScaleGrid([0.5, 0.63, 0.79, 1.0]), 15, 7)
        basis_log_radial(49 functions, sigmas [0.5, 0.63, 0.79, 1.0], boxes [7, 9, 11, 15])
    """
    size = whole("effective_size", effective_size, 1)
    lines = whole("directions", directions, 1)
    require(positive(width), "width", width, "a positive angle in radians")
    boxes = boxes_for(grid, window, size)
    most = 2 * len(ORDERS) * lines
    rule = f"at least {math.ceil(size**2 / (2 * len(ORDERS)))} for {size**2} functions"
    require(most >= size**2, "directions", directions, rule, "or lower `effective_size`")
    for sigma, box in zip(grid, boxes, strict=True):
        corner = math.sqrt(2) * (box // 2)
        rule = f"below {corner:.4g} pixels, the distance of the corners of its box of side {box}"
        require(sigma < corner * (1 - 1e-9), "sigma", sigma, rule, "raise `window` or lower the sigmas")
    return SteerableBasis(grid, boxes, functions=[LogRadial(size**2, lines, float(width))], name="basis_log_radial")
