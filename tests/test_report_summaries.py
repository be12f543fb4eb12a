"""Averages, spreads and intervals of the report, and when paper and rows agree."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.report.summaries import Sample, agreement, summarised


def frame(values: dict[tuple[int, int], float]) -> pd.DataFrame:
    return pd.DataFrame([{"seed": s, "repeat": r, "value": v, "group": "g"} for (s, r), v in values.items()])


def test_a_group_is_summarised_over_all_its_values() -> None:
    (line,) = summarised(frame({(0, 0): 1.0, (0, 1): 2.0, (1, 0): 3.0, (1, 1): 6.0}), ["group"]).to_dict("records")
    assert line["mean"] == 3.0
    assert line["median"] == 2.5
    assert line["standard_deviation"] == pytest.approx(np.std([1, 2, 3, 6], ddof=1))
    assert line["low"] <= line["median"] <= line["high"]
    assert (line["draws"], line["values"]) == (2, 4)


def test_a_draw_that_lacks_an_image_is_left_out() -> None:
    (line,) = summarised(frame({(0, 0): 1.0, (0, 1): 2.0, (1, 0): 100.0}), ["group"]).to_dict("records")
    assert (line["mean"], line["draws"]) == (1.5, 1)


def test_nan_is_not_averaged_away() -> None:
    (line,) = summarised(frame({(0, 0): 1.0, (0, 1): math.nan}), ["group"]).to_dict("records")
    assert math.isnan(line["mean"])
    assert math.isnan(line["median"])


@given(
    st.lists(st.floats(1, 3), min_size=3, max_size=8),
    st.lists(st.floats(1, 3), min_size=3, max_size=8),
)
def test_welchs_interval_is_scipys(paper: list[float], here: list[float]) -> None:
    samples = [Sample(float(np.mean(x)), float(np.std(x, ddof=1)), len(x)) for x in (paper, here)]
    if min(sample.standard_deviation for sample in samples) < 1e-3:
        return
    test = stats.ttest_ind(here, paper, equal_var=False)
    found = agreement(*samples)
    interval = test.confidence_interval(0.95)
    assert found.half_width == pytest.approx((interval.high - interval.low) / 2)
    assert found.within == (test.pvalue >= 0.05)


@given(st.integers(1, 2), st.integers(1, 2), st.floats(0, 100), st.floats(0, 10))
def test_fewer_than_three_runs_are_not_judged(few: int, other: int, mean: float, spread: float) -> None:
    """The interval of two is a dozen times as wide as their spread: SEVF's 7.12 % was "in" beside 1.96 %."""
    many = Sample(2.0, 0.1, 6)
    for paper, here in ((many, Sample(mean, spread, few)), (Sample(mean, spread, few), many)):
        found = agreement(paper, here)
        assert math.isnan(found.half_width)
        assert (found.within, found.word) == (None, "")
        assert found.difference == here.mean - paper.mean
    assert agreement(Sample(2.0, 0.1, other), Sample(mean, spread, few)).word == ""


def test_without_any_spread_nothing_is_said() -> None:
    assert agreement(Sample(2.0, math.nan, 1), Sample(2.0, math.nan, 1)).word == ""
