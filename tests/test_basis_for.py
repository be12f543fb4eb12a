"""A basis from the range of object sizes, and layers that are given none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import sesn
from sesn.basis import SMALLEST_RESOLVED_SIGMA


@given(low=st.floats(0.1, 10), ratio=st.floats(1.1, 8), scales=st.integers(2, 6))
def test_the_grid_covers_the_range_in_equal_steps_of_resolved_widths(low: float, ratio: float, scales: int) -> None:
    basis = sesn.basis_for(sizes=(low, low * ratio), scales=scales)
    grid = basis.grid
    assert grid.largest / grid.smallest == pytest.approx(ratio)
    assert grid.smallest >= SMALLEST_RESOLVED_SIGMA
    assert [sigma / grid.smallest for sigma in grid] == pytest.approx([grid.ratio**k for k in range(scales)])


def test_an_object_that_grows_by_a_step_moves_to_the_next_channel() -> None:
    basis = sesn.basis_for(sizes=(1, 4), scales=3)
    lift = sesn.ScaleLift(1, 2, basis).eval()
    blobs = torch.nn.functional.avg_pool2d(torch.randn(2, 1, 110, 110), 15, 1)
    error = sesn.equivariance_error(lift, blobs, factor=1 / 2)
    assert error.valid.median() < 1e-3


def test_layers_without_a_basis_agree() -> None:
    network = nn.Sequential(
        sesn.ScaleLift(3, 4), nn.ReLU(), sesn.ScaleConv(4, 2, interscale=2), sesn.ScaleConv1x1(2, 2)
    )
    assert network[0].basis is network[2].basis
    assert network[0].basis.signature == sesn.basis_for().signature
    assert network(torch.randn(1, 3, 16, 16)).shape == (1, 2, 4, 16, 16)


def test_a_layer_saved_without_a_basis_is_read_by_one_that_names_it() -> None:
    named = sesn.ScaleLift(3, 4, sesn.basis_for(sizes=(0.5, 2.0), scales=4))
    named.load_state_dict(sesn.ScaleLift(3, 4).state_dict())
    with pytest.raises(RuntimeError, match="`sigmas` is"):
        sesn.ScaleLift(3, 4, sesn.basis_for(scales=3)).load_state_dict(named.state_dict())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"sizes": (2.0, 0.5)}, "sizes"),
        ({"sizes": (1.0, 1.0)}, "sizes"),
        ({"sizes": (0.0, 1.0)}, "sizes"),
        ({"sizes": (1.0, 2.0, 3.0)}, "sizes"),
        ({"sizes": 2.0}, "sizes"),
        ({"sizes": (1e-9, 1.0)}, "sizes"),
        ({"sizes": (1e-300, 1e300)}, "sizes"),
        ({"scales": 1}, "scales"),
        ({"smallest": 0.9}, "smallest"),
        ({"smallest": float("nan")}, "smallest"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises((sesn.UsageError, sesn.WrongTypeError), match=f"`{named}`"):
        sesn.basis_for(**arguments)
