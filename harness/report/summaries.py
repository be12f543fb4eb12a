"""The one place of the report that averages: mean, spread, n, intervals, and whether paper and rows agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy import stats

from sesn.tools.statistics import LEVEL, summarise

#: Enough for the ends of an interval to be steady to the width of a line.
RESAMPLES = 300
#: The interval of two runs reaches six times as far from their mean as they lie apart: nearly all is within it.
LEAST_RUNS = 3
#: What `summarised` adds to the columns it groups by.
SUMMARY = ("mean", "standard_deviation", "median", "low", "high", "draws", "values")

#: Of so many pairs all orders can be counted.
FEW_PAIRS = 8


def summarised(rows: Any, by: Sequence[str]) -> Any:
    """One line per group of rows: mean and standard deviation of all values, median and its interval, and how many.

    A group's values are [seeds, repeats]; a seed that lacks a repeat of the others is left out, since the two-way
    bootstrap needs every draw on every image. No rows give no lines, whatever columns they lack.
    """
    if not len(rows):
        return pd.DataFrame(columns=[*by, *SUMMARY])
    # Sorted once, without the columns of provenance: at the paper's budget there are thousands of groups.
    lean = rows[[*by, "seed", "repeat", "value"]].sort_values(["seed", "repeat"], kind="stable")
    lines = [
        {**dict(zip(by, key, strict=True)), **_summary(group["seed"].to_numpy(), group["value"].to_numpy())}
        for key, group in lean.groupby(list(by), sort=True, dropna=False, observed=True)
    ]
    return pd.DataFrame(lines, columns=[*by, *SUMMARY])


def medians(rows: Any, by: str | Sequence[str], column: str = "value") -> Any:
    """The median of each group, without values that are no numbers."""
    return rows.groupby(by if isinstance(by, str) else list(by))[column].median()


def _summary(seeds: Any, values: Any) -> dict[str, float]:
    """The summary of values that are sorted by their seeds."""
    parts = np.split(values, np.flatnonzero(np.diff(seeds)) + 1)
    longest = max(len(part) for part in parts)
    whole = np.stack([part for part in parts if len(part) == longest])
    found = summarise(torch.tensor(whole, dtype=torch.float64), resamples=RESAMPLES)
    return {name: getattr(found, "n" if name == "values" else name) for name in SUMMARY}


class Agreement(NamedTuple):
    """The difference here - paper, and half the width of the interval that holds it if the two agree (NaN: unknown)."""

    difference: float
    half_width: float

    @property
    def within(self) -> bool | None:
        """Whether the difference lies within the combined interval; None where nothing is known of the spread."""
        known = math.isfinite(self.difference) and math.isfinite(self.half_width)
        return bool(abs(self.difference) <= self.half_width) if known else None

    @property
    def word(self) -> str:
        """How a table says it: in, out, or nothing where it is unknown."""
        return {True: "in", False: "out", None: ""}[self.within]


NO_AGREEMENT = Agreement(math.nan, math.nan)


class Sample(NamedTuple):
    """A mean, the standard deviation of the values behind it, and how many there are."""

    mean: float
    standard_deviation: float
    n: int


NO_SAMPLE = Sample(math.nan, math.nan, 0)


def agreement(paper: Sample, here: Sample) -> Agreement:
    """Compare two means by Welch's interval; of fewer than `LEAST_RUNS` on a side it is unknown."""
    return Agreement(here.mean - paper.mean, _half_width(paper, here))


def _half_width(paper: Sample, here: Sample) -> float:
    if min(paper.n, here.n) < LEAST_RUNS or not all(math.isfinite(s.standard_deviation) for s in (paper, here)):
        return math.nan
    parts = [sample.standard_deviation**2 / sample.n for sample in (paper, here)]
    if not sum(parts):
        return 0.0
    freedom = sum(parts) ** 2 / sum(part**2 / (s.n - 1) for part, s in zip(parts, (paper, here), strict=True))
    return float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(sum(parts))


def counting_interval(rate: float, images: int) -> tuple[float, float]:
    """The ends of Wilson's interval of an error rate in %: what the choice of test images explains."""
    found = stats.binomtest(round(rate * images / 100), images).proportion_ci(LEVEL, method="wilson")
    return 100 * float(found.low), 100 * float(found.high)


def octaves_near_the_best(scales: Any, values: Any, points: float) -> float:
    """How far scales reach around the one with the highest value, in octaves, before a value is `points` below it."""
    order = np.argsort(np.asarray(scales))
    x, y = np.log2(np.asarray(scales, float)[order]), np.asarray(values, float)[order]
    low = high = int(y.argmax())
    while low > 0 and y[low - 1] >= y.max() - points:
        low -= 1
    while high + 1 < len(y) and y[high + 1] >= y.max() - points:
        high += 1
    return float(x[high] - x[low])


def mean_of(values: Any) -> float:
    """The mean of numbers; NaN of none."""
    return float(np.mean(values)) if len(values) else math.nan


def rank_correlation(first: Any, second: Any) -> tuple[float, float]:
    """Spearman's coefficient, and how probable one as large would be if the two had nothing to do with each other.

    Of up to eight pairs all orders are counted, because the usual approximation is wrong for so few.
    """
    rank, chance = stats.spearmanr(first, second)
    if len(first) <= FEW_PAIRS and math.isfinite(rank):
        orders = stats.PermutationMethod(n_resamples=math.factorial(FEW_PAIRS))
        chance = stats.pearsonr(stats.rankdata(first), stats.rankdata(second), method=orders).pvalue
    return float(rank), float(chance)


def rounding(value: str | float) -> float:
    """Half a unit of the last digit that a published number shows: 3.8 was rounded from within 0.05."""
    decimals = len(str(value).partition(".")[2])
    return 0.5 * 10.0**-decimals
