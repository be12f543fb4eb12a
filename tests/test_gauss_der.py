"""Gaussian derivative networks: the filters against scipy and polynomials, and the network against its parts."""

from __future__ import annotations

import math
from itertools import pairwise

import hypothesis.strategies as st
import pytest
import scipy.special
import torch
from hypothesis import given
from torch import nn

import sesn
from sesn import ScaleConv, ScaleGrid, ScaleLift
from sesn.basis import window_boxes
from sesn.methods import METHODS, gauss_der
from sesn.methods.gauss_der import DiscreteDerivative, derivative_basis, layer_basis

SIGMAS = st.floats(0.8, 6.0)


def radius(sigma: float) -> int:
    (box,) = window_boxes(ScaleGrid([sigma]), "wide")
    return box // 2


@given(SIGMAS)
def test_smoothing_is_by_the_discrete_gaussian(sigma: float) -> None:
    reach = radius(sigma)
    n = torch.arange(-reach, reach + 1, dtype=torch.float64)
    expected = torch.from_numpy(scipy.special.ive(n.abs().numpy(), sigma**2))  # exp(-t) I_n(t), t = sigma^2
    torch.testing.assert_close(DiscreteDerivative(0).sample(sigma, reach), expected, rtol=1e-4, atol=1e-12)


@given(SIGMAS, st.integers(0, 2), st.integers(0, 2))
def test_derivatives_of_powers_are_those_of_calculus(sigma: float, order: int, power: int) -> None:
    """As a correlation at the origin: sigma^n times the n-th derivative of x^p; of x^2 smoothing adds its variance."""
    reach = 2 * radius(sigma) + 10  # where the tails, which are heavier than those of a Gaussian, count no more
    x = torch.arange(-reach, reach + 1, dtype=torch.float64)
    found = float((DiscreteDerivative(order).sample(sigma, reach) * x**power).sum())
    expected = {(0, 0): 1.0, (0, 2): sigma**2, (1, 1): sigma, (2, 2): 2 * sigma**2}.get((order, power), 0.0)
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-8)


def test_a_layer_has_six_weights_for_a_pair_of_channels() -> None:
    basis = layer_basis(0)
    assert len(basis) == 6
    assert basis.separable
    orders = [
        (basis.pairs.profiles[r].order, basis.pairs.profiles[c].order)
        for r, c in zip(basis.pairs.rows, basis.pairs.columns, strict=True)
    ]  # type: ignore[union-attr, attr-defined]
    assert sorted(orders) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]
    assert ScaleLift(3, 4, basis).weight.shape == (4, 3, 6)


def test_the_layer_commutes_with_rescaling_where_a_plain_one_does_not() -> None:
    images = torch.rand(2, 3, 96, 96, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    errors = [
        float(sesn.equivariance_error(module.double().eval(), images, 0.5).valid.max())
        for module in (gauss_der.at_step(2.0), nn.Conv2d(3, 8, 7, padding=3, bias=False))
    ]
    assert errors[0] < 0.1 * errors[1]  # of white noise, which a sigma of one pixel hardly resolves


def test_sigma_grows_with_depth_and_scale_channels_multiply_all_of_it() -> None:
    network = sesn.build("gauss-der", "mnist")
    grids = [layer.grid for layer in network.modules() if isinstance(layer, ScaleLift | ScaleConv)]
    assert len(grids) == 6
    for before, after in pairwise(grids):
        assert after.smallest / before.smallest == pytest.approx(gauss_der.GROWTH)
        assert after.ratio == pytest.approx(before.ratio)
    finer = sesn.build("gauss-der", "mnist", resolution=56)
    assert finer.layers[0][0].grid.smallest == pytest.approx(2 * grids[0].smallest)  # type: ignore[index, union-attr]


def test_the_parameters_are_six_a_pair_two_a_norm_and_the_last_biases() -> None:
    widths = (1, *gauss_der.WIDTHS, 10)
    expected = 6 * sum(a * b for a, b in pairwise(widths)) + 2 * sum(gauss_der.WIDTHS) + 10
    assert METHODS["gauss-der"].count("mnist").total == expected == 24_570


def test_the_scores_are_those_of_the_middle_pixel() -> None:
    network = sesn.build("gauss-der", "mnist", channels=(3, 4)).double().eval()
    image = torch.randn(2, 1, 28, 28, dtype=torch.float64)
    last = network.classifier
    whole = ScaleConv(last.in_channels, 10, last.basis).double()  # type: ignore[arg-type, union-attr]
    whole.load_state_dict(last.state_dict())  # type: ignore[union-attr]
    everywhere = whole(network.layers(image))  # type: ignore[operator]
    torch.testing.assert_close(network(image), everywhere[..., 14, 14].amax(2))


def test_a_channel_is_the_network_with_wider_filters() -> None:
    """Scale channel j of a layer is a layer of its own at that sigma: no channel sees another."""
    basis = derivative_basis(ScaleGrid([1.0, 1.5]))
    conv = ScaleConv(2, 2, basis).double()
    field = torch.randn(1, 2, 2, 20, 20, dtype=torch.float64)
    changed = field.clone()
    changed[:, :, 1] += 1
    assert torch.equal(conv(field)[:, :, 0], conv(changed)[:, :, 0])
    assert METHODS["gauss-der"].between is not None


@given(sigma=st.floats(0.9, 9), order=st.integers(0, 2))
def test_next_to_nothing_lies_outside_the_window(sigma: float, order: int) -> None:
    """As a part of a filter's energy, which is what Delta is made of; a window of 3 sigma would be seen."""
    (box,) = derivative_basis(ScaleGrid([sigma])).boxes

    def left_out(radius: int) -> float:
        whole, half = DiscreteDerivative(order).sample(sigma, 8 * box), 8 * box
        return float(1 - whole[half - radius : half + radius + 1].square().sum() / whole.square().sum())

    assert left_out(box // 2) < 1e-6
    assert order == 0 or left_out(math.floor(3 * sigma)) > 1e-6
