"""The goals for wide windows: of the right rows, met or missed, and explained by what is left without a cause."""

from __future__ import annotations

import math
from typing import Any

import pytest
import synthetic

from harness.experiments import EXPERIMENTS
from harness.paper import published
from harness.records import Cell, Measurement, Result
from harness.report import goals
from harness.report.goals import GOALS, cause
from harness.report.select import select

STEP = math.sqrt(2)


def measured(experiment: str, nonlinearity: str, *found: Measurement, **settings: Any) -> Result:
    common = {"images": "stl10", "window": "wide", "nonlinearity": nonlinearity, "side": 96}
    cell = Cell(experiment, 1, "lite", "", common | settings)
    return Result(cell, "ok", found, "", synthetic.PROVENANCE, synthetic.STARTED, 1.0)


def deep(nonlinearity: str, one: float, fifty: float, **settings: Any) -> Result:
    values = [Measurement("delta", (level, level), {"depth": depth}) for depth, level in ((1, one), (50, fifty))]
    floors = [Measurement("floor", (3e-6,), {"depth": depth}) for depth in (1, 50)]
    floors.append(Measurement("delta_cropped", (1e-6, 1e-6), {"depth": 1}))
    return measured("delta-depth", nonlinearity, *values, *floors, **settings)


def lifted(inside: float, uncropped: dict[float, float], **settings: Any) -> Result:
    found = []
    for downscale, level in uncropped.items():
        at = {"downscale": downscale}
        found += [Measurement("delta", (inside,), at), Measurement("delta_uncropped", (level,), at)]
    return measured("delta-downscale", "linear", *found, **settings)


def frame_of(*results: Result) -> Any:
    rows = synthetic.frame(results)
    return goals.frame({key: select(rows, published(), EXPERIMENTS[key]) for key in ("delta-depth", "delta-downscale")})


@pytest.fixture(scope="module")
def frame() -> Any:
    networks = [deep("linear", 2e-5, 3e-5), deep("relu", 1e-4, 3e-2), deep("bandlimited", 1e-4, 4e-3)]
    networks += [deep("nested", 1e-4, 2e-3), deep("nested", 1e-12, 3e-8, window="periodic")]
    networks.append(deep("linear", 1e-13, 1e-12, window="periodic"))
    factors = {STEP: 2e-5, 2.0: 5e-5, 4.0: 3e-4, 8.0: 0.5}
    return frame_of(*networks, lifted(1e-6, factors), lifted(9.0, {2.0: 9.0}, side=384))


def test_every_goal_has_the_value_of_its_rows(frame: Any) -> None:
    assert frame["goal"].tolist() == [goal.name for goal in GOALS]
    assert frame["mean"].tolist() == pytest.approx([2e-5, 3e-4, 3e-5, 3e-2, 4e-3, 3e-8])
    assert frame["met"].tolist() == [False, False, True, False, True, False]


def test_the_cause_is_what_nothing_is_left_without(frame: Any) -> None:
    causes = [cause(line) for line in frame.to_dict("records")]
    assert causes[:2] == ["the border: away from it 1e-06"] * 2
    assert causes[3] == "the nonlinearity: linear layers have 3e-05"
    assert causes[5] == "the nonlinearity: linear layers have 1e-12"
    (alone,) = frame_of(deep("relu", 1.0, 3.0)).to_dict("records")
    assert cause(alone) == "not separated here"
    beside = frame_of(deep("relu", 1.0, 3.0), deep("linear", 1.0, 2.0)).to_dict("records")[-1]
    assert cause(beside) == "not the nonlinearity"


def test_the_table_says_which_goals_are_met(frame: Any) -> None:
    lines = goals.table(frame).lines
    assert [line[6].text for line in lines] == ["no", "no", "yes", "no", "yes", "no"]


def test_published_windows_have_no_goals() -> None:
    assert not len(frame_of(deep("linear", 1.0, 1.0, window="published")))
    assert not len(frame_of())


def test_a_goal_whose_cells_all_failed_is_left_out() -> None:
    """Other cells of the same experiment are there."""
    frame = frame_of(deep("linear", 2e-5, 3e-5), lifted(9.0, {2.0: 9.0}, side=384))
    assert frame["goal"].tolist() == [GOALS[0].name, GOALS[2].name]


def test_a_goal_with_a_delta_that_is_no_number_is_missed() -> None:
    frame = frame_of(lifted(1e-6, {STEP: 2e-5, 4.0: math.nan}))
    assert frame["met"].tolist() == [False]
