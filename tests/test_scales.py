"""ScaleGrid: the discrete scales, and which of them partner under a change of scale."""

from __future__ import annotations

import copy
import math
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import assume, given

from sesn import ScaleGrid

widths = st.lists(st.floats(0.1, 50), min_size=1, max_size=6, unique=True).map(sorted)
geometric = st.builds(ScaleGrid.geometric, st.floats(0.5, 3), st.floats(1.1, 2), st.integers(1, 7))


@given(widths)
def test_keeps_its_sigmas(sigmas: list[float]) -> None:
    grid = ScaleGrid(sigmas)
    assert grid.sigmas == tuple(sigmas) == tuple(grid)
    assert len(grid) == len(sigmas)
    assert (grid.smallest, grid.largest) == (sigmas[0], sigmas[-1])


@given(widths)
def test_takes_any_sequence_of_numbers(sigmas: list[float]) -> None:
    grids = {
        ScaleGrid(kind(sigmas)) for kind in (tuple, iter, np.array, lambda s: torch.tensor(s, dtype=torch.float64))
    }
    assert grids == {ScaleGrid(sigmas)}
    assert all(type(sigma) is float for grid in grids for sigma in grid)


@given(st.floats(0.5, 3), st.floats(1.05, 2), st.integers(1, 13))
def test_geometric_grids_have_a_constant_ratio(smallest: float, ratio: float, count: int) -> None:
    grid = ScaleGrid.geometric(smallest, ratio, count)
    assert len(grid) == count
    assert grid.sigmas == pytest.approx([smallest * ratio**k for k in range(count)], rel=1e-12)
    assert grid.ratio == pytest.approx(ratio if count > 1 else 1.0, rel=1e-12)


@given(widths)
def test_the_mean_ratio_spans_the_grid(sigmas: list[float]) -> None:
    grid = ScaleGrid(sigmas)
    assert grid.smallest * grid.ratio ** (len(grid) - 1) == pytest.approx(grid.largest)


@given(widths)
def test_grids_are_values(sigmas: list[float]) -> None:
    grid = ScaleGrid(sigmas)
    for same in (ScaleGrid(sigmas), copy.deepcopy(grid), pickle.loads(pickle.dumps(grid))):
        assert same == grid
        assert hash(same) == hash(grid)
    assert grid != ScaleGrid([*sigmas, sigmas[-1] + 1])
    with pytest.raises(AttributeError):
        grid.sigmas = (1.0,)  # type: ignore[misc]


def test_repr_can_be_read_back() -> None:
    grid = ScaleGrid([0.9, 1.269, 1.789])
    assert eval(repr(grid)) == grid


# Partners under a change of scale: sigma_j = sigma_k / s


@given(geometric, st.data())
def test_whole_steps_shift_the_grid(grid: ScaleGrid, data: st.DataObject) -> None:
    shift = data.draw(st.integers(1 - len(grid), len(grid) - 1))
    match = grid.match(grid.ratio**-shift)
    assert match.pairs == tuple((k, k + shift) for k in range(len(grid)) if 0 <= k + shift < len(grid))
    assert match.on_grid
    assert match.residual < 1e-9


@given(geometric, st.floats(0.1, 10))
def test_the_residual_is_the_largest_misfit_of_the_pairs(grid: ScaleGrid, factor: float) -> None:
    match = grid.match(factor)
    misfits = [abs(math.log(factor * grid.sigmas[j] / grid.sigmas[k])) for k, j in match.pairs]
    if misfits:
        assert match.residual == pytest.approx(max(misfits), abs=1e-12)
    else:
        assert math.isnan(match.residual)
        assert not match.on_grid


@given(geometric, st.floats(0.1, 10))
def test_the_nearest_shift_is_at_most_half_a_step_away(grid: ScaleGrid, factor: float) -> None:
    assume(1 / (grid.largest / grid.smallest) <= factor <= grid.largest / grid.smallest)
    match = grid.match(factor)
    assert match.pairs
    assert match.residual <= math.log(grid.ratio) / 2 + 1e-9


@given(geometric, st.floats(1.03, 10))
def test_factors_more_than_half_a_step_beyond_the_grid_have_no_partners(grid: ScaleGrid, beyond: float) -> None:
    assume(len(grid) > 1)
    reach = grid.largest / grid.smallest * math.sqrt(grid.ratio)
    assert grid.match(reach * beyond).pairs == grid.match(1 / (reach * beyond)).pairs == ()


@given(geometric, st.floats(0.01, 0.49))
def test_factors_less_than_half_a_step_beyond_the_grid_take_the_last_shift(grid: ScaleGrid, part: float) -> None:
    assume(len(grid) > 1)
    factor = grid.largest / grid.smallest * grid.ratio**part
    assert grid.match(factor).pairs == ((len(grid) - 1, 0),)
    assert grid.match(1 / factor).pairs == ((0, len(grid) - 1),)


@given(st.floats(0.1, 10))
def test_a_single_scale_partners_itself_and_says_how_far_off(factor: float) -> None:
    match = ScaleGrid([1.5]).match(factor)
    assert match.pairs == ((0, 0),)
    assert match.residual == pytest.approx(abs(math.log(factor)), abs=1e-12)


def test_partners_are_one_to_one() -> None:
    assert ScaleGrid([1.5, 1.52]).match(1.0).pairs == ((0, 0), (1, 1))
    assert ScaleGrid([1, 2, 2.02, 4]).match(0.5).pairs == ((0, 1), (1, 3))


@given(geometric, st.integers(0, 3), st.floats(-0.015, 0.015))
def test_the_inverse_factor_swaps_the_pairs(grid: ScaleGrid, shift: int, off: float) -> None:
    factor = grid.ratio**shift * math.exp(off)
    match = grid.match(factor)
    assert {(j, k) for k, j in grid.match(1 / factor).pairs} == set(match.pairs)


def test_published_sigmas_partner_in_spite_of_their_rounding() -> None:
    match = ScaleGrid([1.7, 2.45, 3.54, 5.1]).match(3 ** (-1 / 3))
    assert match.pairs == ((0, 1), (1, 2), (2, 3))
    assert match.on_grid
