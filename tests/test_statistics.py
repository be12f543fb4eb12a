"""Summaries of raw values, and repetition until the interval is narrow enough."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sesn.tools.statistics import repeat_until, summarise


def crossed(draws: int, images: int, between_draws: float, between_images: float, seed: int = 0) -> Tensor:
    """10 to the power of a draw's effect plus an image's effect: how Delta varies."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(draws, 1, generator=generator, dtype=torch.float64) * between_draws
    columns = torch.randn(1, images, generator=generator, dtype=torch.float64) * between_images
    return 10 ** (rows + columns)


def test_the_numbers_of_known_values() -> None:
    summary = summarise(torch.arange(1.0, 101.0).reshape(4, 25))
    assert (summary.median, summary.max, summary.mean) == (50.5, 100.0, 50.5)
    assert summary.p95 == pytest.approx(95.05)
    assert summary.standard_deviation == pytest.approx(29.01, abs=0.01)
    assert (summary.draws, summary.images, summary.n) == (4, 25, 100)
    assert summary.low < summary.median < summary.high


def test_one_row_is_one_draw() -> None:
    values = torch.rand(7, generator=torch.Generator().manual_seed(0))
    assert summarise(values) == summarise(values[None])


def test_the_same_seed_gives_the_same_interval() -> None:
    values = crossed(4, 8, 0.3, 0.3)
    assert summarise(values, seed=5) == summarise(values, seed=5)
    assert summarise(values, seed=5).low != summarise(values, seed=6).low


def test_equal_values_have_an_interval_of_width_zero() -> None:
    assert summarise(torch.full((3, 3), 0.2)).log10_width == 0
    assert summarise(torch.zeros(3, 3)).log10_width == 0


def test_an_interval_that_reaches_zero_is_infinitely_wide() -> None:
    assert summarise(torch.tensor([0.0, 0.0, 1.0, 1.0])).log10_width == math.inf


@pytest.mark.parametrize(("between_draws", "between_images"), [(0.5, 0.0), (0.0, 0.5)])
def test_either_way_of_varying_widens_the_interval(between_draws: float, between_images: float) -> None:
    # A bootstrap of the 256 pooled values would give about 0.5 / sqrt(256) * 4 = 0.16 for both.
    assert summarise(crossed(16, 16, between_draws, between_images)).log10_width > 0.3


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(100):
        summary = summarise(crossed(16, 16, 0.3, 0.3, seed), resamples=200)
        covered += summary.low <= 1.0 <= summary.high
    assert covered >= 90


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    values = crossed(8, 8, 0.3, 0.3)
    whole = summarise(values)
    monkeypatch.setattr("sesn.tools.statistics._AT_ONCE", 1000)
    in_blocks = summarise(values)
    assert in_blocks.median == whole.median
    assert in_blocks.log10_width == pytest.approx(whole.log10_width, rel=0.2)


def test_nothing_is_said_about_values_that_are_not_all_known() -> None:
    summary = summarise(torch.tensor([1.0, math.nan, 2.0]))
    assert math.isnan(summary.median)
    assert math.isnan(summary.log10_width)
    assert summary.n == 3


def test_an_infinite_value_is_counted() -> None:
    summary = summarise(torch.tensor([1.0, 2.0, math.inf]))
    assert (summary.median, summary.max) == (2.0, math.inf)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (1, 2, 3)])
def test_a_summary_wants_draws_and_images(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"values\.shape"):
        summarise(torch.zeros(shape))


def test_repetition_stops_when_the_interval_is_narrow() -> None:
    asked = []

    def measure(draw: int) -> Tensor:
        asked.append(draw)
        return torch.full((5,), 1e-4) * (1 + 0.01 * draw)

    repetition = repeat_until(measure, width=0.1, most=20, least=4)
    assert asked == [0, 1, 2, 3]
    assert repetition.narrow_enough
    assert repetition.values.shape == (4, 5)
    assert "narrower than 0.1" in repetition.reason


def test_repetition_goes_on_as_long_as_it_must() -> None:
    values = crossed(64, 32, 0.2, 0.02)
    repetition = repeat_until(lambda draw: values[draw], width=0.2)
    assert repetition.narrow_enough
    assert 4 < repetition.summary.draws < 64
    assert repetition.summary.log10_width < 0.2


def test_repetition_stops_at_the_cap_and_says_so() -> None:
    values = crossed(6, 4, 2.0, 0.1)
    repetition = repeat_until(lambda draw: values[draw], width=0.01, most=6)
    assert not repetition.narrow_enough
    assert repetition.summary.draws == 6
    assert "the cap of 6 weight draws was reached" in repetition.reason


def test_unknown_values_never_count_as_narrow() -> None:
    assert not repeat_until(lambda _: torch.full((3,), math.nan), most=5).narrow_enough


@pytest.mark.parametrize("wrong", [{"least": 5, "most": 4}, {"least": 0}, {"width": 0.0}, {"width": math.nan}])
def test_repetition_refuses_what_cannot_be_done(wrong: dict) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}`"):
        repeat_until(lambda _: torch.ones(2), **wrong)
