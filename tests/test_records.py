"""Cells are named by what decides their result; bad names and values are refused with the reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records import BUDGETS, METRICS, Cell, Measurement, Result

CELL = Cell("delta-depth", 1, "smoke", "cnn", {"side": 96, "window": "wide"}, 3)

names = st.from_regex(r"[a-z]{1,6}_x", fullmatch=True)
scalars = st.text() | st.integers(-(2**60), 2**60) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
cells = st.builds(
    Cell,
    st.text(min_size=1),
    st.integers(1, 9),
    st.sampled_from(BUDGETS),
    st.text(),
    st.dictionaries(names, scalars, max_size=4),
    st.integers(0, 99),
)


@given(cells)
def test_a_cell_survives_json_with_its_id(cell: Cell) -> None:
    again = Cell.from_dict(json.loads(json.dumps(cell.as_dict())))
    assert again.id == cell.id
    assert again.as_dict() == cell.as_dict()


@given(st.dictionaries(names, scalars, min_size=2, max_size=4))
def test_the_order_of_settings_does_not_matter(settings: dict[str, str]) -> None:
    turned = dict(reversed(settings.items()))
    assert Cell("x", 1, "smoke", "", settings).id == Cell("x", 1, "smoke", "", turned).id


def test_the_id_is_the_same_for_ever() -> None:
    """Stored rows are found by it: if this fails, every stored cell would be run again."""
    assert CELL.id == "61e13b5f7b16b6bf"
    assert (
        Cell("parameters", 1, "paper", "sesn-vector", {"network": "mnist", "recipe": "paper"}).id == "c60e5810c0b48aca"
    )


@pytest.mark.parametrize(
    "other",
    [
        Cell("delta-downscale", 1, "smoke", "cnn", CELL.settings, 3),
        Cell("delta-depth", 2, "smoke", "cnn", CELL.settings, 3),
        Cell("delta-depth", 1, "lite", "cnn", CELL.settings, 3),
        Cell("delta-depth", 1, "smoke", "wrn", CELL.settings, 3),
        Cell("delta-depth", 1, "smoke", "cnn", {"side": 48, "window": "wide"}, 3),
        Cell("delta-depth", 1, "smoke", "cnn", {"side": 96}, 3),
        Cell("delta-depth", 1, "smoke", "cnn", CELL.settings, 4),
    ],
    ids=["experiment", "version", "budget", "method", "a setting", "one less", "seed"],
)
def test_whatever_decides_the_result_decides_the_id(other: Cell) -> None:
    assert other.id != CELL.id


@pytest.mark.parametrize("name", ["value", "seconds", "two words", "", "1st"])
def test_names_that_cannot_be_columns_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="identifiers other than"):
        Cell("x", 1, "smoke", "", {name: 1})
    with pytest.raises(ValueError, match="identifiers other than"):
        Measurement("delta", (1.0,), {name: 1})


@pytest.mark.parametrize("value", [None, [1], float("nan"), float("inf"), {"a": 1}])
def test_settings_that_json_cannot_hold_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="finite number"):
        Cell("x", 1, "smoke", "", {"side": value})  # type: ignore[dict-item]


def test_a_measurement_has_a_known_metric_and_values() -> None:
    assert Measurement("epoch_time", (1.0,)).unit == METRICS["epoch_time"] == "s"
    with pytest.raises(ValueError, match="`metric` \\(='taste'\\) must be one of delta,"):
        Measurement("taste", (1.0,))
    with pytest.raises(ValueError, match="must not be empty"):
        Measurement("delta", ())


def test_a_result_that_is_not_ok_says_why() -> None:
    with pytest.raises(ValueError, match="`reason` must say why"):
        Result(CELL, "failed")
    with pytest.raises(ValueError, match="`status`"):
        Result(CELL, "fine", (), "x")  # type: ignore[arg-type]


def test_the_title_says_what_distinguishes_a_cell() -> None:
    assert CELL.title == "delta-depth: cnn, side=96, window=wide, seed=3"
