"""The verdict and its guard: a bias that hides Delta does not hide the relative one, whatever the tolerance."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sesn import EquivarianceError, ScaleGrid, ScaleLift, assert_equivariant, basis_a, equivariance_error
from sesn.meter.branches import scrambled
from sesn.meter.compare import HARDLY, INDEPENDENT, middle
from sesn.meter.reading import RejectedError
from sesn.strategies import images
from sesn.tools.images import random_images

IMAGES = random_images(0, (4, 1, 64, 64), 1.0, None)
#: Over many powers of ten, with their ends, where rules change.
NUMBERS = st.floats(-14, 1).map(lambda power: 10.0**power) | st.sampled_from([0.0, INDEPENDENT, HARDLY, math.nan])
LADDER = [0.0, *(10.0**power for power in range(-7, 2))]
MEASURED = equivariance_error(nn.Flatten(), IMAGES, 1.0, kind="invariant")


def found(delta: float, ceiling: float | None) -> EquivarianceError:
    """Scores of four images with these numbers."""
    given = [None if value is None else torch.full((4,), value, dtype=torch.float64) for value in (delta, ceiling)]
    return replace(MEASURED, valid=given[0], ceiling=given[1])


@given(delta=NUMBERS, ceiling=NUMBERS, drawn=st.lists(st.floats(0, 10), max_size=5), absolute=st.booleans())
def test_a_looser_tolerance_never_fails_what_a_stricter_one_passes(
    delta: float, ceiling: float, drawn: list[float], absolute: bool
) -> None:
    error = found(delta, ceiling)
    verdicts = [error.passes(tolerance, absolute=absolute) for tolerance in sorted([*LADDER, *drawn])]
    assert verdicts == sorted(verdicts)
    shows = ceiling > (HARDLY if absolute else INDEPENDENT) or (absolute and math.isnan(ceiling))
    assert verdicts[-1] == (shows and delta <= 10 * (1 if absolute else ceiling))


@given(delta=st.floats(0, 10))
def test_without_unrelated_images_there_is_no_relative_verdict(delta: float) -> None:
    assert not found(delta, None).passes(math.inf)
    assert found(delta, None).passes(delta, absolute=True)


LEVELS = torch.tensor([1.0, 0.5, 2.0, 0.7])[:, None, None, None]


def softmax_network() -> nn.Module:
    """Probabilities that hardly differ between images: Delta 6e-4, unrelated images 2.5e-2."""
    torch.manual_seed(0)
    conv, linear = nn.Conv2d(1, 8, 3, bias=False), nn.Linear(8, 5, bias=False)
    for layer in (conv, linear):
        nn.init.normal_(layer.weight, std=0.3)
    return nn.Sequential(conv, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear, nn.Softmax(1)).double().eval()


def passes(module: nn.Module, tolerance: float | None, images: Tensor = IMAGES, absolute: bool = False) -> bool:
    try:
        assert_equivariant(module, images, 0.5, tolerance=tolerance, absolute=absolute)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("tolerance", [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0])
def test_an_output_that_hardly_depends_on_the_image_passes_at_no_tolerance(tolerance: float) -> None:
    assert not passes(softmax_network(), tolerance, LEVELS * IMAGES, absolute=True)
    assert tolerance == 1.0 or not passes(softmax_network(), tolerance)


def biased(weight: float) -> nn.Module:
    layer = nn.Conv2d(1, 4, 7, padding=3)
    torch.manual_seed(0)
    nn.init.normal_(layer.weight, std=weight)
    nn.init.ones_(layer.bias)
    return layer


@pytest.mark.parametrize("weight", [0.02, 1e-3])
def test_a_bias_does_not_make_an_ordinary_convolution_pass(weight: float) -> None:
    layer = biased(weight)
    assert not passes(layer, None)
    assert not any(passes(layer, 10.0**power) for power in range(-5, 0))
    assert not any(passes(layer, 10.0**power, absolute=True) for power in range(-5, 1))


class Offset(nn.Module):
    """Maps of an ordinary convolution on a level that tells how much contrast the image has."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 5, padding=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) + 100 * x.square().mean((-3, -2, -1), keepdim=True)


def test_a_mean_that_differs_between_images_does_not_make_maps_pass() -> None:
    """It is invariant and tells images apart, so that only the maps without their means show what they are."""
    error = equivariance_error(Offset().double(), LEVELS * IMAGES, 0.5)
    assert middle(error.valid) < 0.1
    assert middle(error.relative) > 0.3
    assert not error.passes(0.1)


# --- unrelated images

PICTURES = images(height=st.integers(8, 24), leading=(3, 2)) | images(height=st.integers(8, 9), exponent=0.0)


@given(pictures=PICTURES, mean=st.floats(-2, 2))
def test_an_unrelated_image_has_the_same_spectrum_and_colours_and_shows_something_else(
    pictures: Tensor, mean: float
) -> None:
    pictures = pictures + mean
    other = scrambled(pictures)
    spectra = [torch.fft.fft2(each) for each in (pictures, other)]
    torch.testing.assert_close(spectra[0].abs(), spectra[1].abs())
    torch.testing.assert_close(*(each.mean((-2, -1)) for each in (pictures, other)))
    # Colours: how the channels of an image go together, at every frequency.
    torch.testing.assert_close(*(each[:, :1] * each.conj() for each in spectra))
    centred = [each - each.mean((-2, -1), keepdim=True) for each in (pictures, other)]
    assert float((centred[0] - centred[1]).norm() / centred[0].norm()) > 0.1


def test_an_image_of_one_colour_is_held_against_noise() -> None:
    assert float(scrambled(torch.zeros(1, 1, 8, 8)).std()) > 0.5
    assert float(scrambled(torch.full((1, 1, 8, 8), 100.0)).std()) > 50


@given(chosen=st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_what_an_image_is_held_against_does_not_depend_on_the_other_images(chosen: list[int]) -> None:
    network = softmax_network()
    every, some = (equivariance_error(network, each, 0.5) for each in (LEVELS * IMAGES, (LEVELS * IMAGES)[chosen]))
    assert every.ceiling is not None
    assert some.ceiling is not None
    torch.testing.assert_close(every.ceiling[chosen], some.ceiling)


def test_a_bias_does_not_bring_delta_to_the_floor() -> None:
    """The floor is that of a signal without a bias, which makes Delta itself as small as one likes."""
    error = equivariance_error(biased(1e-4).double(), IMAGES, 0.5)
    assert float(error.valid.max()) < float(error.floor.min())
    assert not error.at_floor


@given(bias=st.floats(-1e3, 1e3))
def test_a_constant_added_to_the_output_hides_nothing_and_harms_nothing(bias: float) -> None:
    """It only changes how images of more and of less contrast are weighed."""
    lift = ScaleLift(1, 2, basis_a(ScaleGrid.geometric(1.5, 2.0, 3), "wide", 2), dtype=torch.float64).eval()
    nn.init.zeros_(lift.bias)
    without = equivariance_error(lift, IMAGES, 0.5)
    nn.init.constant_(lift.bias, bias)
    error = equivariance_error(lift, IMAGES, 0.5)
    assert 0.5 < middle(error.relative) / middle(without.relative) < 2
    assert error.passes(1e-3)


def test_what_the_probe_cannot_tell_is_said() -> None:
    layer = ScaleLift(1, 2, basis_a(ScaleGrid.geometric(1.5, 2.0, 3), "wide", 2)).eval()
    with pytest.raises(AssertionError, match=r"exceeds the tolerance 1e-09[\s\S]*choose a larger tolerance"):
        assert_equivariant(layer, IMAGES, 0.5, tolerance=1e-9)


def test_a_bug_of_the_meter_inside_a_module_is_no_refusal_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trail's hooks run inside the module: what they raise keeps its type, and what the module raises does not."""
    network = nn.Conv2d(1, 2, 3, padding=1)
    with pytest.raises(RejectedError, match="RuntimeError"):
        equivariance_error(network, torch.randn(2, 3, 16, 16), 0.5)
    with monkeypatch.context() as patch:
        patch.setattr("sesn.meter.trail.window", lambda layer: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            equivariance_error(network, torch.randn(2, 1, 16, 16), 0.5)
    monkeypatch.setattr("sesn.meter.trail.Trail.path_to", lambda trail, tensor: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        equivariance_error(network, torch.randn(2, 1, 16, 16), 0.5)


def test_a_bug_of_our_layers_is_no_refusal_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong shape is one, and so is what torch says to a module that is not ours."""
    layer = ScaleLift(1, 2, basis_a(ScaleGrid([1.0, 2.0]), 7, 3))
    network = nn.Sequential(nn.Identity(), layer)
    with pytest.raises(RejectedError, match="UsageError"):
        equivariance_error(network, torch.randn(2, 3, 16, 16), 0.5)
    # The windows are no function, so that the line of the layer that calls them raises a TypeError.
    monkeypatch.setattr(layer, "_windows", None)
    with pytest.raises(TypeError, match="not callable") as raised:
        equivariance_error(network, torch.randn(2, 1, 16, 16), 0.5)
    assert not isinstance(raised.value, RejectedError)


class Mistaken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(3)  # type: ignore[call-overload, no-any-return]


def test_a_wrong_call_of_torch_by_a_module_is_its_own_fault() -> None:
    with pytest.raises(RejectedError, match="TypeError"):
        equivariance_error(Mistaken(), torch.randn(2, 1, 16, 16), 0.5)


@pytest.mark.parametrize("tolerance", [0.02, 0.2, 0.6])
def test_the_message_names_what_its_number_is(tolerance: float) -> None:
    """The relative Delta where that is too large, which is the ratio of the numbers below; else fine detail."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)).eval()
    drawn = random_images(0, (3, 1, 64, 64), 1)
    error = equivariance_error(network, drawn, 1 / 2)
    plain = middle(error.relative)
    assert 0.2 < plain < 0.6 < middle(error.judged())
    with pytest.raises(AssertionError) as caught:
        assert_equivariant(network, drawn, 1 / 2, tolerance=tolerance)
    number = (
        f"{plain:.3g}"
        if plain > tolerance
        else f"of fine detail (the differences between neighbouring pixels) {middle(error.judged()):.3g}"
    )
    assert f"median relative Delta {number} over" in str(caught.value)
