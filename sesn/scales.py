"""The discrete scales: which sigmas a layer uses, and which of them partner under a change of scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from sesn._checks import numbers, positive, require, whole

#: Published sigmas are rounded to two decimals: two scales partner when their log-ratio is this small.
ON_GRID_TOLERANCE = 0.02
#: Wider than any image, and far from what numbers can hold.
MOST_SIGMA = 1e9


@dataclass(frozen=True)
class ScaleMatch:
    """How scale channels pair up when the input is rescaled by `factor`.

    `pairs` holds (k, j): channel k of the rescaled input's response partners channel j of the original's.
    `residual` is the largest |ln(factor * sigma_j / sigma_k)| over the pairs: 0 for an exact partner.
    """

    factor: float
    pairs: tuple[tuple[int, int], ...]
    residual: float

    @property
    def on_grid(self) -> bool:
        """Whether every pair is an exact partner, up to the rounding of published sigmas."""
        return self.residual <= ON_GRID_TOLERANCE


@dataclass(frozen=True, init=False)
class ScaleGrid:
    """A strictly increasing list of Gaussian widths sigma, in pixels: one per scale channel.

    Args:
        sigmas: the widths.

    Raises:
        UsageError: they are not positive, finite, increasing numbers.

    Example:
        >>> sesn.ScaleGrid([1.0, 1.41, 2.0]).ratio
        1.4142135623730951
    """

    sigmas: tuple[float, ...]

    def __init__(self, sigmas: Iterable[float]) -> None:
        object.__setattr__(self, "sigmas", _validated(sigmas))

    @classmethod
    def geometric(cls, smallest: float, ratio: float, count: int) -> ScaleGrid:
        """Make `count` scales, each `ratio` times the one before.

        Args:
            smallest: the first sigma.
            ratio: the step between neighbouring scales, greater than 1.
            count: how many.

        Returns:
            The grid.

        Raises:
            UsageError: an argument breaks its rule.

        Example:
            >>> sesn.ScaleGrid.geometric(1.5, 2.0, 3).sigmas
            (1.5, 3.0, 6.0)
        """
        count = whole("count", count, 1)
        require(positive(smallest), "smallest", smallest, "a positive, finite number")
        remedy = "it is the step between neighbouring scales"
        require(positive(ratio) and ratio > 1, "ratio", ratio, "greater than 1", remedy)
        largest = math.log(smallest) + (count - 1) * math.log(ratio)
        require(largest < math.log(MOST_SIGMA), "ratio", ratio, f"small enough for sigmas below {MOST_SIGMA:g} pixels")
        return cls(smallest * ratio**k for k in range(count))

    def __len__(self) -> int:
        return len(self.sigmas)

    def __iter__(self) -> Iterator[float]:
        return iter(self.sigmas)

    @property
    def smallest(self) -> float:
        """The smallest sigma."""
        return self.sigmas[0]

    @property
    def largest(self) -> float:
        """The largest sigma."""
        return self.sigmas[-1]

    @property
    def ratio(self) -> float:
        """The mean step between neighbouring scales (1 for a single scale)."""
        if len(self) == 1:
            return 1.0
        return float((self.largest / self.smallest) ** (1 / (len(self) - 1)))

    def match(self, factor: float, tolerance: float = ON_GRID_TOLERANCE) -> ScaleMatch:
        """Pair the channels of Phi(L_s f) with those of Phi(f), where s = factor.

        By the paper's L_s[f] * psi_sigma = L_s[f * psi_(sigma/s)], channel k of the rescaled image's response
        partners channel j of the original's when sigma_j = sigma_k / s.

        Args:
            factor: s > 0.
            tolerance: how far the logarithms of exact partners may be apart.

        Returns:
            The pairs. Where a factor lies between two steps of the grid, the nearest shift is taken and `residual` says
            how far it is off. No pair at all, with a residual of NaN, means that the factor reaches beyond the grid.

        Raises:
            UsageError: the factor is not a positive, finite number.

        Example:
            >>> sesn.ScaleGrid([1.0, 2.0, 4.0]).match(0.5).pairs
            ((0, 1), (1, 2))
        """
        require(positive(factor), "factor", factor, "a positive, finite number")
        # Exact partners one to one, the closest first.
        scales = range(len(self))
        taken: dict[int, int] = {}
        for misfit, k, j in sorted((self._misfit(factor, k, j), k, j) for k in scales for j in scales):
            if misfit <= tolerance and k not in taken and j not in taken.values():
                taken[k] = j
        if exact := tuple(sorted(taken.items())):
            return ScaleMatch(factor, exact, max(self._misfit(factor, k, j) for k, j in exact))
        reach = math.log(self.largest / self.smallest) + math.log(self.ratio) / 2
        if len(self) > 1 and abs(math.log(factor)) > reach:
            return ScaleMatch(factor, (), math.nan)
        return min(
            (self._shifted(factor, m) for m in range(1 - len(self), len(self))), key=lambda match: match.residual
        )

    def _shifted(self, factor: float, shift: int) -> ScaleMatch:
        pairs = tuple((k, k + shift) for k in range(len(self)) if 0 <= k + shift < len(self))
        return ScaleMatch(factor, pairs, max(self._misfit(factor, k, j) for k, j in pairs))

    def _misfit(self, factor: float, k: int, j: int) -> float:
        return abs(math.log(factor * self.sigmas[j] / self.sigmas[k]))

    def __repr__(self) -> str:
        return f"ScaleGrid([{', '.join(f'{sigma:.4g}' for sigma in self.sigmas)}])"


def _validated(sigmas: Iterable[float]) -> tuple[float, ...]:
    values = numbers("sigmas", sigmas, "for example ScaleGrid([1.0, 1.41, 2.0])")
    require(len(values) > 0, "sigmas", values, "non-empty", "give at least one width in pixels")
    for index, sigma in enumerate(values):
        require(math.isfinite(sigma), f"sigmas[{index}]", sigma, "finite")
        require(sigma > 0, f"sigmas[{index}]", sigma, "positive", "a width is given in pixels")
    for index, (before, sigma) in enumerate(pairwise(values), start=1):
        remedy = f"{sigma} at index {index} does not exceed {before}; sort them and drop repeats"
        require(sigma > before, "sigmas", values, "strictly increasing", remedy)
    return values
