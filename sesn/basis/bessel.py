"""Bessel functions of the first kind and their zeros, for whole orders, in float64."""

from __future__ import annotations

from functools import cache

import numpy as np

#: Points of the quadrature beyond order + 1.5 x argument: there J_n has fallen below the rounding.
BEYOND = 40
#: Halvings of an interval of a few units down to the rounding.
HALVINGS = 60


def bessel_j(order: int, x: np.ndarray) -> np.ndarray:
    """J_k at every x, to a few rounding errors of x.

    The mean of cos(k t - x sin t) over N equal steps of a turn is the sum of J_(k + mN)(x) over all whole m, of which
    J_k alone is above the rounding if N is larger than k + 1.5 |x| by some tens.
    """
    x = np.asarray(x, dtype=np.float64)
    steps = int(order + 1.5 * np.abs(x).max(initial=0.0)) + BEYOND
    turn = 2 * np.pi * np.arange(steps) / steps
    found: np.ndarray = np.cos(order * turn - x[..., None] * np.sin(turn)).mean(-1)
    return found


@cache
def bessel_zeros(order: int, count: int) -> tuple[float, ...]:
    """The first positive zeros of J_k, ascending.

    Between neighbouring zeros of J_(k-1) lies exactly one of J_k, which halving finds; the zeros of J_0 lie one each
    between the multiples of pi.
    """
    ends = np.pi * np.arange(count + 1) if order == 0 else np.array(bessel_zeros(order - 1, count + 1))
    low, high = ends[:-1].copy(), ends[1:].copy()
    sign = np.sign(bessel_j(order, low))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = np.sign(bessel_j(order, middle)) == sign
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return tuple(((low + high) / 2).tolist())
