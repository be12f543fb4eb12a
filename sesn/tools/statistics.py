"""Mean, spread and intervals of raw values [draws, images], and repetition until the interval is narrow enough.

Weight draws and images are crossed: every draw is measured on every image, so the values of one draw (or of one image)
are not independent. The two-way bootstrap resamples draws and images, each with replacement, and takes the median of
the crossed sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sesn._checks import require

#: The interval holds this much of the bootstrap's medians.
LEVEL = 0.95
RESAMPLES = 1000
#: Numbers held at once while resampling: 32 MB.
_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Summary:
    """What is said of raw values; `low` and `high` are the two-way bootstrap interval of the median.

    All are NaN if any value is: a median over what happens to be left would be a silent number.
    """

    median: float
    p95: float
    max: float
    mean: float
    standard_deviation: float
    low: float
    high: float
    draws: int
    images: int

    @property
    def n(self) -> int:
        """How many values there are."""
        return self.draws * self.images

    @property
    def log10_width(self) -> float:
        """The width of the interval in powers of ten; 0 for an interval that is one point."""
        if self.low == self.high:
            return 0.0
        return math.log10(self.high / self.low) if self.low > 0 else math.nan if math.isnan(self.low) else math.inf


@dataclass(frozen=True)
class Repetition:
    """Raw values [draws, images], their summary, and whether the interval became as narrow as was asked."""

    values: Tensor
    summary: Summary
    narrow_enough: bool
    width: float

    @property
    def reason(self) -> str:
        """Why it stopped, in words."""
        reached = f"the interval of log10 Delta is {self.summary.log10_width:.2g} wide"
        if self.narrow_enough:
            return f"{reached}, narrower than {self.width:g}, after {self.summary.draws} weight draws"
        return f"the cap of {self.summary.draws} weight draws was reached: {reached}, wider than {self.width:g}"


def summarise(values: Tensor, seed: int = 0, resamples: int = RESAMPLES) -> Summary:
    """The summary of raw values [draws, images]; [images] counts as one draw. The same seed gives the same interval."""
    raw = np.atleast_2d(values.detach().cpu().to(torch.float64).numpy())
    shape = tuple(values.shape)
    require(raw.ndim == 2 and raw.size > 0, "values.shape", shape, "[draws, images] with at least one value")
    if np.isnan(raw).any():
        raw = np.full_like(raw, math.nan)
    low, high = _interval(raw, seed, resamples)
    return Summary(
        median=float(np.median(raw)),
        p95=float(np.quantile(raw, 0.95, method="linear" if np.isfinite(raw).all() else "higher")),
        max=float(raw.max()),
        mean=float(raw.mean()),
        standard_deviation=float(raw.std(ddof=1)) if raw.size > 1 and np.isfinite(raw).all() else math.nan,
        low=low,
        high=high,
        draws=raw.shape[0],
        images=raw.shape[1],
    )


def _interval(raw: NDArray[np.float64], seed: int, resamples: int) -> tuple[float, float]:
    """The two-way percentile bootstrap of the median, in blocks that fit into memory."""
    random = np.random.default_rng(seed)
    draws, images = raw.shape
    block = max(1, _AT_ONCE // raw.size)
    medians = []
    for start in range(0, resamples, block):
        many = min(block, resamples - start)
        rows = random.integers(draws, size=(many, draws, 1))
        columns = random.integers(images, size=(many, 1, images))
        medians.append(np.median(raw[rows, columns].reshape(many, -1), axis=1))
    tail = (1 - LEVEL) / 2
    found = np.concatenate(medians)
    # Values that were seen, not interpolated ones: Delta is infinite where L_s Phi(f) is zero.
    return float(np.quantile(found, tail, method="lower")), float(np.quantile(found, 1 - tail, method="higher"))


def repeat_until(
    measure: Callable[[int], Tensor], width: float = 0.1, most: int = 64, least: int = 4, seed: int = 0
) -> Repetition:
    """Measure draw after draw until the interval of log10 of the median is narrower than `width`, or `most` is reached.

    Args:
        measure: takes the number of the weight draw (0, 1, ...) and returns one value per image, the same images
            every time.
        width: in powers of ten; 0.1 is an interval whose ends are a factor 1.26 apart.
        most: the cap on the number of draws.
        least: the draws made before the interval is believed.
        seed: of the bootstrap.
    """
    require(1 <= least <= most, "least", least, f"between 1 and `most` (={most})")
    require(width > 0, "width", width, "positive", "it is the interval's width in powers of ten")
    rows = [measure(draw) for draw in range(least)]
    while True:
        values = torch.stack(rows)
        summary = summarise(values, seed)
        narrow = summary.log10_width < width
        if narrow or len(rows) == most:
            return Repetition(values, summary, narrow, width)
        rows.append(measure(len(rows)))
