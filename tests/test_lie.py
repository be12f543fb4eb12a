"""The Lie error of scaling: analytic values, the limit of Delta, networks for which it vanishes, and what has none."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measures import gaussian_blob
from meter_sample import Does
from test_motions import blur
from torch import nn

import sesn
from sesn import GlobalPool, Meter, ScaleGrid, ScaleLift, ScaleProjection, basis_a, lie_error, rescale
from sesn.meter.lie import faded, scaling_generator
from sesn.methods.riesz import RieszConv
from sesn.strategies import SEEDS, random_images

PADDINGS = st.sampled_from(["zeros", "circular"])
KEEP = Meter("fourier", canvas="keep")


def bandlimited(seed: int, side: int = 48) -> torch.Tensor:
    """Images that end in one colour and have nothing near the Nyquist frequency."""
    return faded(rescale(random_images(seed, (2, 1, side // 2, side // 2)), 2.0, "fourier", "circular"), 0.25)


def wide(octaves: float, per_octave: int, reduce: str) -> nn.Sequential:
    """A lift of functions without a mean, projected."""
    grid = ScaleGrid.geometric(1.5, 2 ** (1 / per_octave), round(octaves * per_octave) + 1)
    torch.manual_seed(0)
    lift = ScaleLift(1, 4, basis_a(grid, "wide", 3, max_order=2), bias=False, padding_mode="circular")
    lift.weight.data[..., 0] = 0
    return nn.Sequential(lift, ScaleProjection(reduce=reduce)).double().eval()  # type: ignore[arg-type]


# --- analytic values


@given(width=st.floats(4, 6), kernel=st.floats(1.5, 3.5))
def test_of_a_blurred_blob_it_is_known(width, kernel):
    """A Gaussian of width w blurred by one of width k: the local error is 2 (k^2 / (w^2 + k^2))^2."""
    expected = 2 * (kernel**2 / (width**2 + kernel**2)) ** 2
    error = lie_error(blur(kernel), gaussian_blob(96, width), fade=0)
    assert error.kind == "map"
    assert error.value.item() == pytest.approx(expected, rel=1e-3)


@given(width=st.floats(3, 6), power=st.integers(1, 3))
def test_of_a_mean_over_the_plane_it_is_four(width, power):
    """An area grows as s^2, so any mean of a blob's powers is off by 2 per unit of ln s; a maximum is not."""
    mean, largest = Does(lambda x: (x**power).mean((2, 3))), Does(lambda x: x.amax((2, 3)))
    assert lie_error(mean, gaussian_blob(96, width), fade=0).value.item() == pytest.approx(4, rel=1e-4)
    error = lie_error(largest, gaussian_blob(97, width), fade=0)
    assert (error.kind, error.crop) == ("invariant", 0)
    assert error.value.item() < 1e-9


BACKGROUNDS = st.sampled_from([-2.0, 0.0, 0.3, 2.0])


@given(width=st.floats(3, 5), background=BACKGROUNDS)
def test_an_object_on_a_uniform_background_has_its_analytic_value_by_default(width, background):
    """Only the object grows: its mean M by 2 M per unit of ln s. On a background B the error is (2 M / (M + B))^2."""
    mean, largest = Does(lambda x: x.mean((2, 3))), Does(lambda x: x.amax((2, 3)))
    blob = gaussian_blob(97, width)
    share = float(blob.mean() / (blob.mean() + background))
    assert lie_error(mean, blob + background).value.item() == pytest.approx(4 * share**2, rel=1e-3)
    assert lie_error(largest, blob + background).value.item() < 1e-9


@given(width=st.floats(4, 5), background=BACKGROUNDS, order=st.integers(1, 3), padding_mode=PADDINGS)
def test_of_a_derivative_it_is_the_square_of_its_order(width, background, order, padding_mode):
    """A slope of order n falls as s^-n, whatever the background, although zeros past the border make an edge there."""
    slope = nn.Conv2d(1, 1, (1, 5), padding=(0, 2), padding_mode=padding_mode, bias=False).double()
    slope.weight.data[:] = torch.tensor([1.0, -8.0, 0.0, 8.0, -1.0]) / 12
    error = lie_error(nn.Sequential(*[slope] * order), gaussian_blob(96, width) + background)
    assert error.value.item() == pytest.approx(order**2, rel=0.02)  # such differences of pixels are nearly slopes


@given(seed=SEEDS, layers=st.integers(1, 3))
def test_what_zero_padding_does_at_the_border_does_not_enter(seed, layers):
    """Inside, a network that pads by zeros does what one does that repeats the image; images here have another mean."""
    images = 1 + random_images(seed, (2, 1, 64, 64))
    found = []
    for padding_mode in ("zeros", "circular"):
        torch.manual_seed(seed)
        convs = [nn.Conv2d(1 if n == 0 else 4, 4, 5, padding=2, padding_mode=padding_mode) for n in range(layers)]
        found.append(lie_error(nn.Sequential(*convs).double(), images))
    for zeros, circular in zip(*([one.value, one.delta_rate] for one in found), strict=True):
        torch.testing.assert_close(zeros, circular, rtol=0.03, atol=0)


def test_a_module_without_an_answer_to_a_uniform_image_is_measured_all_the_same():
    standardised = Does(lambda x, layer: layer(x / (x - x.mean()).norm()), nn.Conv2d(1, 2, 5, padding=2).double())
    assert lie_error(standardised, gaussian_blob(64, 4.0) + 1).value.isfinite().all()


@given(width=st.floats(3, 6))
def test_the_generator_is_the_derivative_along_the_rays(width):
    blob = gaussian_blob(64, width)
    x = torch.arange(64, dtype=torch.float64) - 31.5
    expected = blob * (x[:, None].square() + x.square()) / width**2
    torch.testing.assert_close(scaling_generator(blob, "fourier", "auto"), expected, rtol=1e-5, atol=1e-5)


def test_lanczos_has_another_slope_at_the_pixels():
    """Which is why the Fourier interpolant is the default."""
    blob = gaussian_blob(64, 5.0)
    ratio = scaling_generator(blob, "lanczos3", "zeros").norm() / scaling_generator(blob, "fourier", "auto").norm()
    assert float(ratio) == pytest.approx(0.83, abs=0.02)


# --- the limit of Delta


@given(seed=SEEDS, rectify=st.booleans(), pool=st.booleans())
def test_delta_over_the_square_of_ln_s_tends_to_it(seed, rectify, pool):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Conv2d(1, 3, 5, padding=2, padding_mode="circular"), *[nn.Softplus()] * rectify)
    network.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten()] * pool)
    network, images = network.double().eval(), bandlimited(seed)
    error = lie_error(network, images, fade=0)
    gaps = []
    for t in (0.02, 0.005, 0.00125):
        rate = KEEP.measure(network, images, math.exp(t), context=False).valid / t**2
        gaps.append(float((rate / error.value - 1).abs().max()))
    assert gaps[2] < 0.02
    assert gaps[2] < gaps[0] + 1e-4
    assert float((error.delta_rate / error.value - 1).abs().max()) < 0.02


# --- where it vanishes


@pytest.mark.parametrize("module", [nn.Identity(), nn.Softplus(), nn.Conv2d(1, 3, 1).double()], ids=str)
def test_what_works_pixel_by_pixel_has_none(module):
    images = gaussian_blob(64, 5.0).expand(2, -1, -1, -1)
    assert lie_error(module, images, fade=0).value.max() < 1e-10


@pytest.mark.parametrize("reduce", ["mean", "soft", "max"])
def test_it_tends_to_nothing_for_wide_steerable_layers_as_their_scales_grow(reduce):
    """What is left of a projection comes from the ends of the grid, and of a maximum from the steps, too."""
    blob = gaussian_blob(128, 6.0)
    found = [float(lie_error(wide(octaves, 4, reduce), blob, fade=0).value) for octaves in (1, 2, 3, 4)]
    assert found[0] > 0.5
    assert all(later < 0.85 * earlier for earlier, later in pairwise(found))
    assert found[3] < 0.15 * found[0]


def test_a_violator_among_them_is_seen():
    """The kernel of one scale alone is an ordinary one."""
    blob, network = gaussian_blob(128, 6.0), wide(4, 4, "mean")
    single = nn.Sequential(network[0], Does(lambda field: field[:, :, 9]))
    assert lie_error(single, blob, fade=0, kind="map").value > 5 * lie_error(network, blob, fade=0).value


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 1, 1, 1)])
def test_one_number_for_each_image_is_a_score(shape):
    """Of a size it is 4, since the size grows as s^2."""
    size, blob = Does(lambda x: x.sum((1, 2, 3)).reshape(shape)), gaussian_blob(96, 6.0)
    error = lie_error(size, blob, fade=0)
    assert (error.kind, error.value.item()) == ("invariant", pytest.approx(4, rel=1e-3))
    found = sesn.equivariance_error(size, blob, 0.5)
    assert (found.kind, found.valid.item()) == ("invariant", pytest.approx((1 - 1 / 4) ** 2, rel=1e-3))
    assert sesn.consistency(size, blob, [0.5]).mean == 1


@given(seed=SEEDS)
def test_detail_as_fine_as_pixels_hold_is_an_error_of_riesz_transforms_as_well(seed):
    """They commute with every factor: what is left without such detail comes from the border."""
    torch.manual_seed(0)
    layer, images = RieszConv(1, 2, bias=False).double(), random_images(seed, (2, 1, 96, 96))
    held = (torch.fft.fftfreq(96).abs() < 0.45).double()
    coarse = torch.fft.ifft2(torch.fft.fft2(images) * held[:, None] * held).real
    fine, without = (lie_error(layer, one).value.median() for one in (images, coarse))
    assert without < 0.1 * fine


# --- what has none


def test_a_field_has_none_and_is_told_what_to_do():
    lift = wide(2, 1, "max")[0]
    words = r"3 discrete scales.*no derivative.*ScaleProjection\(\).*measure Delta at one step: .*images, 0.5\)"
    with pytest.raises(ValueError, match=words):
        lie_error(lift, gaussian_blob(64, 5.0))
    with pytest.raises(ValueError, match="no Lie error"):
        lie_error(nn.Sequential(lift, GlobalPool()), gaussian_blob(64, 5.0))
    assert lie_error(nn.Sequential(lift, ScaleProjection()), gaussian_blob(64, 5.0)).value.isfinite().all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"step": 0}, r"`step` \(=0\) must be a number above 0"),
        ({"step": 2.0}, "`step`"),
        ({"fade": 0.7}, r"`fade` \(=0.7\) must be a part of the side"),
        ({"resampler": "area"}, "`resampler`"),
        ({"kind": "field"}, "`kind`"),
    ],
)
def test_bad_input_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        lie_error(nn.Identity(), torch.ones(1, 1, 16, 16), **options)


def test_float32_is_near_float64_and_a_module_in_train_mode_is_refused():
    torch.manual_seed(0)
    layer, images = nn.Conv2d(1, 3, 5, padding=2), bandlimited(0)
    single, double = lie_error(layer, images).value, lie_error(layer.double(), images).value
    torch.testing.assert_close(single, double, rtol=1e-3, atol=0)
    with pytest.raises(sesn.UsageError, match="train mode"):
        lie_error(nn.BatchNorm2d(1), images)
