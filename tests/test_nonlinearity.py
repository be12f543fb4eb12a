"""Pointwise nonlinearities commute with whatever moves samples; the band-limited one aliases less."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measures import assert_same, interior, put
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from sesn import BandlimitedReLU, ScaleGrid, basis_a, equivariance_error, translate
from sesn.layers.nonlinearity import _RADIUS
from sesn.strategies import PADDING_MODES, SEEDS, images, random_images, random_lift

FIELDS = images(leading=st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 4)), exponent=st.floats(0, 1))
SHIFTS = st.tuples(st.integers(-6, 6), st.integers(-6, 6))
#: Those that take no exponential: its last bit depends on where in memory a sample lies.
POINTWISE = st.sampled_from([nn.ReLU(), nn.LeakyReLU(0.1), nn.Hardtanh()])
#: Interpolating and low-passing each look this far.
REACH = 2 * _RADIUS


@given(field=FIELDS, nonlinearity=POINTWISE, shift=SHIFTS, ends=st.sampled_from(PADDING_MODES))
def test_a_pointwise_one_commutes_exactly_with_translation(device, field, nonlinearity, shift, ends):
    field = put(field, device)
    assert torch.equal(nonlinearity(translate(field, *shift, ends)), translate(nonlinearity(field), *shift, ends))


@pytest.mark.parametrize("mode", PADDING_MODES)
def test_a_band_limited_one_runs_where_tensors_have_no_values(mode):
    module, shape = BandlimitedReLU(mode), (2, 3, 96, 40)
    assert module(torch.zeros(shape, device="meta")).shape == shape
    with FakeTensorMode():
        assert module(torch.zeros(shape)).shape == shape
    assert torch.isfinite(module(torch.ones(shape))).all()  # nothing of the above was kept


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (2, 0, 8), (2, 8, 0)])
def test_a_band_limited_one_of_nothing_is_nothing(shape):
    assert BandlimitedReLU()(torch.zeros(shape)).shape == shape


@given(field=FIELDS, nonlinearity=POINTWISE, step=st.integers(2, 4))
def test_a_pointwise_one_commutes_exactly_with_decimation(device, field, nonlinearity, step):
    field = put(field, device)
    assert torch.equal(nonlinearity(field[..., ::step, ::step]), nonlinearity(field)[..., ::step, ::step])


@given(field=FIELDS, nonlinearity=POINTWISE, start=st.integers(0, 3))
def test_a_pointwise_one_commutes_exactly_with_shifts_of_the_scale_axis(device, field, nonlinearity, start):
    field = put(field, device)
    assert torch.equal(nonlinearity(field[:, :, start:]), nonlinearity(field)[:, :, start:])


@given(field=FIELDS, mode=st.sampled_from(PADDING_MODES), start=st.integers(0, 3))
def test_a_band_limited_one_commutes_with_shifts_of_the_scale_axis(device, field, mode, start):
    field, rectify = put(field, device), BandlimitedReLU(mode)
    assert_same(rectify(field[:, :, start:]), rectify(field)[:, :, start:])


@given(field=FIELDS, shift=SHIFTS)
def test_a_circular_band_limited_one_commutes_with_translation(device, field, shift):
    field, rectify = put(field, device), BandlimitedReLU("circular")
    assert_same(rectify(translate(field, *shift, "circular")), translate(rectify(field), *shift, "circular"))


@given(seed=SEEDS, shift=SHIFTS)
def test_a_band_limited_one_commutes_with_translation_away_from_the_border(device, seed, shift):
    field, rectify = put(random_images(seed, (1, 1, 2, 64, 64)), device), BandlimitedReLU("zeros")
    margin = REACH + max(map(abs, shift))
    assert_same(
        interior(rectify(translate(field, *shift)), margin), interior(translate(rectify(field), *shift), margin)
    )


@given(field=images(leading=(1, 1, 2), cutoff=0.5))
def test_a_positive_field_passes_and_a_negative_one_does_not(device, field):
    """Above zero between the pixels too there is nothing to rectify: what remains is interpolation and its inverse."""
    field, rectify = put(field, device), BandlimitedReLU("circular")
    above = field + 4 * field.abs().max()
    assert_same(rectify(above), above)
    assert torch.equal(rectify(-above), torch.zeros_like(above))


@pytest.mark.parametrize(("mode", "resampler", "gain"), [("zeros", "lanczos3", 3), ("circular", "fourier", 10)])
@given(seed=SEEDS)
def test_the_band_limited_one_aliases_less(device, mode, resampler, gain, seed):
    """Delta of a lift and a nonlinearity at one half; the lift alone is a hundred times below either."""
    lift = random_lift(basis_a(ScaleGrid([1.5, 3.0]), "wide", 3), (1, 4), seed, padding_mode=mode, bias=False)
    image = put(random_images(seed, (1, 1, 64, 64)), device)

    def delta(nonlinearity: nn.Module) -> float:
        network = put(nn.Sequential(lift, nonlinearity), device)
        return equivariance_error(network, image, 0.5, resampler=resampler).valid.item()

    # Only what rectifying puts beyond twice the Nyquist frequency aliases: a sixth (zeros: the filter is short) or less
    # than a twentieth (circular: it is exact) of what a plain ReLU aliases.
    assert delta(BandlimitedReLU(mode)) < delta(nn.ReLU()) / gain
