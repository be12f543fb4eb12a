"""Shifts, rotations and pairs of functions through the meter: oracles, floors, violators, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from measures import ROUNDING, assert_same, gaussian_blob, interior, put, relative
from meter_sample import Does
from torch import Tensor, nn

import sesn
from sesn import Meter, Rotation, ScaleTranslation, Transform, equivariance_error, rotate
from sesn.meter.action import GroupElement
from sesn.strategies import SEEDS, random_images

#: How far above the probe's floor a violator comes out at least.
SEEN = 100
#: What Lanczos with three lobes adds to a smooth function: its slope at a pixel is 17 % off.
INTERPOLATED = 1e-4
CIRCULAR = Meter("fourier", crop=0)
SHIFTS = st.tuples(st.integers(-9, 9), st.integers(-9, 9)).filter(any)
FRACTIONS = st.tuples(st.floats(-4, 4), st.floats(-4, 4))
ANGLES = st.floats(1, 359)


def circular(seed: int, depth: int = 1) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1 if i == 0 else 2, 2, 5, padding=2, padding_mode="circular") for i in range(depth)]
    return nn.Sequential(*layers).double().eval()


def blur(width: float, aspect: float = 1.0) -> nn.Sequential:
    """A Gaussian, as wide across as down unless an aspect is given."""
    return nn.Sequential(_along(0, width), _along(1, width * aspect)).eval()


def _along(axis: int, width: float) -> nn.Conv2d:
    radius = math.ceil(5 * width)
    size, padding = [(2 * radius + 1, 1), (radius, 0)] if axis == 0 else [(1, 2 * radius + 1), (0, radius)]
    layer = nn.Conv2d(1, 1, size, padding=padding, bias=False).double()
    profile = torch.exp(-0.5 * (torch.arange(-radius, radius + 1, dtype=torch.float64) / width).square())
    layer.weight.data[:] = (profile / profile.sum()).reshape(size)
    return layer


class Placed(nn.Module):
    """Adds a number of its own at every place."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.randn(1, 1, side, side, dtype=torch.float64))

    def forward(self, images: Tensor) -> Tensor:
        return images + self.pos_embed


# --- oracles


@given(seed=SEEDS, shift=SHIFTS, depth=st.integers(1, 4), rectify=st.booleans())
def test_a_circular_network_commutes_with_whole_shifts(device, seed, shift, depth, rectify):
    network = circular(seed, depth).append(nn.ReLU()) if rectify else circular(seed, depth)
    images = put(random_images(seed, (2, 1, 24, 24), 0.0), device)
    error = CIRCULAR.measure(put(network, device), images, ScaleTranslation(1.0, shift))
    assert error.valid.max() < ROUNDING
    assert error.floor.max() < ROUNDING
    assert error.at_floor


@given(seed=SEEDS, shift=FRACTIONS, side=st.integers(16, 25))
def test_a_linear_circular_network_commutes_with_shifts_by_fractions(device, seed, shift, side):
    """The Fourier interpolant is shifted exactly, whatever the images, since nothing leaves the pixels' frequencies."""
    images = put(random_images(seed, (2, 1, side, side), 0.0), device)
    error = CIRCULAR.measure(put(circular(seed, 2), device), images, ScaleTranslation(1.0, shift))
    assert error.valid.max() < ROUNDING


@given(seed=SEEDS, shift=FRACTIONS)
def test_away_from_the_border_a_convolution_commutes_with_lanczos_shifts(device, seed, shift):
    images = put(random_images(seed, (2, 1, 48, 48)), device)
    error = equivariance_error(
        put(nn.Conv2d(1, 2, 5, padding=2).double(), device), images, ScaleTranslation(1.0, shift)
    )
    assert error.crop >= 2 + 3
    assert error.valid.max() < ROUNDING


@given(seed=SEEDS, shift=st.tuples(st.integers(-8, 8), st.integers(-8, 8)).filter(any), stride=st.sampled_from([1, 2]))
def test_what_a_long_shift_brings_in_does_not_count(seed, shift, stride):
    """Up to a quarter of the side. A second layer pads with zeros what the first one's bias has made of zeros."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Conv2d(1, 2, 3, stride, 1), nn.Conv2d(2, 2, 3, 1, 1)).double()
    down, right = (pixels * stride for pixels in shift)
    side = 32 * stride
    error = equivariance_error(network, random_images(seed, (2, 1, side, side)), ScaleTranslation(1.0, (down, right)))
    assert error.valid.max() < ROUNDING


@given(seed=SEEDS, first=FRACTIONS, whole=SHIFTS, side=st.sampled_from([21, 23]))
def test_two_fractions_of_a_shift_make_the_whole(seed, first, whole, side):
    """In the same direction, that is: an odd side has no frequency that a fraction cannot shift."""
    images, (down, right) = random_images(seed, (1, 1, side, side), 0.0), whole
    rest = ScaleTranslation(1.0, (down - first[0], right - first[1]))
    halfway = CIRCULAR.move(images, ScaleTranslation(1.0, first))
    assert relative(CIRCULAR.move(halfway, rest), sesn.translate(images, down, right, "circular")) < ROUNDING


@pytest.mark.parametrize("quarters", [-1, 1, 2, 3])
@given(seed=SEEDS)
def test_quarter_turns_are_exact(device, quarters, seed):
    image, turn = put(random_images(seed, (2, 3, 17, 17), 0.0), device), Rotation(90.0 * quarters)
    assert torch.equal(rotate(image, turn.degrees), torch.rot90(image, quarters, (-2, -1)))
    images = put(random_images(seed, (2, 1, 48, 48), 0.0), device)
    error = equivariance_error(put(blur(1.0), device), images, turn)
    assert error.valid.max() < ROUNDING
    assert error.floor.max() < ROUNDING


@given(seed=SEEDS, angle=ANGLES)
def test_a_wide_gaussian_commutes_with_rotations_up_to_the_floor(device, seed, angle):
    images = put(random_images(seed, (2, 1, 96, 96)), device)
    error = equivariance_error(put(blur(2.5), device), images, Rotation(angle))
    assert error.floor.max() < 2e-4
    assert (error.valid < 3 * error.floor.max() + ROUNDING).all()
    assert error.ceiling is not None
    assert error.ceiling.min() > 0.1


@given(angle=ANGLES, width=st.floats(3.0, 5.0), aspect=st.floats(1.2, 1.5))
def test_a_rotated_blob_is_the_blob_of_rotated_coordinates(angle, width, aspect):
    """Anticlockwise as one sees it, with rows that go down; as well as Lanczos interpolates smooth functions."""
    size, turn = 64, math.radians(angle)
    x = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    up, right = -x[:, None], x[None, :]

    def blob(right: Tensor, up: Tensor) -> Tensor:
        return torch.exp(-0.5 * ((right / (aspect * width)).square() + ((up - 1) / width).square()))

    back = right * math.cos(turn) + up * math.sin(turn), up * math.cos(turn) - right * math.sin(turn)
    assert relative(rotate(blob(right, up), angle), blob(*back)) < INTERPOLATED


@given(first=ANGLES, second=ANGLES)
def test_one_rotation_after_the_other_is_the_rotation_by_their_sum(first, second):
    blob = gaussian_blob(64, 4.0).roll((5, 3), (-2, -1))
    assert relative(rotate(rotate(blob, first), second), rotate(blob, first + second)) < INTERPOLATED


@given(seed=SEEDS, angle=st.floats(20, 70))
def test_the_corners_that_a_rotation_brings_in_do_not_count(seed, angle):
    """On bright images, beside which the empty corners are dark."""
    error = equivariance_error(blur(0.8), random_images(seed, (2, 1, 64, 64)) + 50, Rotation(angle))
    turn = math.radians(angle)
    assert error.crop >= 32 * (1 - 1 / (abs(math.sin(turn)) + abs(math.cos(turn)))) + 4
    assert error.valid.max() < 1e-6
    assert error.uncropped.max() > 1e-4


# --- violators: each far above the floor of its own action


VIOLATORS: dict[str, tuple[nn.Module, GroupElement]] = {
    "stride phase": (Does(lambda x: F.interpolate(x[..., ::2, ::2], scale_factor=2)), ScaleTranslation(1.0, (1, 1))),
    "a stride without a low-pass": (nn.Conv2d(1, 2, 3, 2, 1).double(), ScaleTranslation(1.0, (1, 1))),
    "a rectifier between pixels": (nn.ReLU(), ScaleTranslation(1.0, (0.5, 0.5))),
    "positions, shifted": (Placed(64), ScaleTranslation(1.0, (3, 3))),
    "positions, rotated": (Placed(64), Rotation(90)),
    "an oriented filter": (blur(1.5, 2.0), Rotation(30)),
    "an oriented filter, a quarter turn": (blur(1.5, 2.0), Rotation(90)),
    "a mirror": (Does(lambda x: x.flip(-1)), Rotation(30)),
}


@pytest.mark.parametrize("name", VIOLATORS)
@given(seed=SEEDS)
def test_a_violator_is_seen(device, name, seed):
    module, element = VIOLATORS[name]
    torch.manual_seed(seed)
    images = put(random_images(seed, (2, 1, 64, 64)), device)
    error = equivariance_error(put(module, device).eval(), images, element)
    assert (error.valid > SEEN * error.floor).all()  # each image above its own floor
    assert error.valid.min() > 1e-3


def test_what_only_looks_like_a_violation_is_none(device):
    """A shift by the stride moves whole pixels of the map; a filter twice as wide across commutes with half a turn."""
    images = put(random_images(0, (2, 1, 64, 64)), device)
    strided = put(nn.Conv2d(1, 2, 3, 2, 1).double(), device)
    assert equivariance_error(strided, images, ScaleTranslation(1.0, (2, 4))).valid.max() < ROUNDING
    assert equivariance_error(put(blur(1.5, 2.0), device), images, Rotation(180)).valid.max() < ROUNDING


# --- pairs of functions


FLIP = Transform(lambda x: x.flip(-1), lambda y: y.flip(-1), "flip")


def test_a_pair_of_functions_is_any_other_action():
    images = random_images(0, (2, 1, 48, 48))
    error = equivariance_error(blur(1.5, 2.0), images, FLIP)
    assert (error.kind, str(error.element), error.valid.max() < ROUNDING) == ("map", "transform flip", True)
    assert error.floor.isnan().all()
    assert not error.at_floor
    assert error.passes(1e-12)
    lopsided = blur(1.5)
    lopsided[1].weight.data[..., :3] += 0.05  # type: ignore[operator]
    assert not equivariance_error(lopsided, images, FLIP).passes(1e-2)


def test_a_failed_assertion_says_that_the_floor_of_a_pair_is_not_known():
    with pytest.raises(AssertionError, match="floor is not known, Delta itself"):
        sesn.assert_equivariant(nn.Conv2d(1, 2, 3, padding=1), random_images(0, (2, 1, 32, 32)), FLIP)


def test_brightness_by_a_power_is_an_action_too():
    """|x| to the power of gamma: a maximum commutes with it, a mean does not."""
    gamma = Transform(lambda x: x.abs() ** 0.5, lambda y: y.abs() ** 0.5, "gamma 0.5")
    images = random_images(0, (2, 1, 32, 32)).abs()
    assert equivariance_error(nn.MaxPool2d(3, 1, 1), images, gamma).valid.max() == 0
    assert equivariance_error(nn.AvgPool2d(3, 1, 1), images, gamma).valid.min() > 1e-3


def test_scores_are_held_against_what_the_pair_says_of_them():
    images, double = random_images(0, (3, 1, 32, 32)), Transform(lambda x: 2 * x, lambda y: 4 * y, "double")
    energy = Does(lambda x: x.square().mean((2, 3)))
    assert equivariance_error(energy, images, double).valid.max() < ROUNDING
    unnamed = equivariance_error(energy, images, Transform(lambda x: 2 * x))
    assert unnamed.valid.min() > 0.1
    assert str(unnamed.element) == "transform of your own"


# --- what is said of it


@given(seed=SEEDS, crop=st.integers(0, 4), value_range=st.floats(0.1, 10))
def test_decibels_psnr_and_the_largest_difference_are_as_defined(seed, crop, value_range):
    images, layer = random_images(seed, (3, 1, 32, 32)), nn.Conv2d(1, 2, 3, padding=1).double()
    meter = Meter(crop=crop)
    error, found = meter.measure(layer, images, 0.5), meter.branches(layer, images, 0.5)
    moved, direct = (interior(x, crop) for x in (found.moved, found.direct))
    square, difference = (moved - direct).square(), (moved - direct).abs()
    assert_same(error.decibels, 10 * (moved.square().flatten(1).sum(1) / square.flatten(1).sum(1)).log10())
    assert_same(error.largest, difference.flatten(1).amax(1))
    mean = square.flatten(1).mean(1)
    assert_same(error.psnr(value_range), 20 * math.log10(value_range) - 10 * mean.log10())
    assert_same(error.psnr(), 10 * ((moved.flatten(1).amax(1) - moved.flatten(1).amin(1)).square() / mean).log10())


def test_decibels_of_known_deltas_and_what_has_no_psnr():
    error = equivariance_error(nn.Identity(), random_images(0, (2, 1, 32, 32)), 0.5)
    known = replace(error, valid=torch.tensor([1e-5, 0.06], dtype=torch.float64))
    assert known.decibels.tolist() == pytest.approx([50.0, 12.218], abs=1e-3)
    assert error.decibels.tolist() == [math.inf, math.inf]
    with pytest.raises(ValueError, match=r"`value_range` \(=0\) must be a positive number"):
        error.psnr(0)
    with pytest.raises(ValueError, match="PSNR is defined for images"):
        replace(error, kind="invariant").psnr(2.0)


@pytest.mark.parametrize("levels", [(0.0, 0.0), (1.0, 1.0), (0.7, -3.0)])
def test_a_constant_map_has_no_psnr_by_its_own_range(levels):
    """Its range is that of its rounding, or of channels that show nothing."""
    layer, images = nn.Conv2d(1, 2, 3, padding=1).double(), random_images(0, (2, 1, 32, 32))
    nn.init.zeros_(layer.weight)
    layer.bias.data = torch.tensor(levels, dtype=torch.float64)
    error = equivariance_error(layer, images, 0.7)
    assert error.psnr().isnan().all()
    assert (error.psnr(1.0) > 250).all() or not any(levels)


def test_an_assertion_speaks_of_what_was_done():
    images = random_images(0, (2, 1, 48, 48))
    with pytest.raises(AssertionError, match="not equivariant under the rotation by 30 degrees: median relative Delta"):
        sesn.assert_equivariant(blur(1.5, 2.0), images, Rotation(30))


@pytest.mark.parametrize(
    ("element", "shape", "options", "words"),
    [
        (Rotation(30), (1, 1, 32, 24), {}, r"`images.shape` \(=\(1, 1, 32, 24\)\) must be square to be rotated"),
        (Rotation(30), (1, 1, 32, 32), {"resampler": "fourier"}, r"`resampler` \(='fourier'\) must be lanczos3, bicu"),
        (Rotation(30), (1, 1, 32, 32), {"action": sesn.rescale}, "`action`.*give a Transform with a function for out"),
        (Transform(lambda x: None), (1, 1, 8, 8), {}, "`images` must return a tensor, got NoneType"),
        (Transform(lambda x: x, lambda y: 1), (1, 1, 8, 8), {}, "`outputs` must return a tensor, got int"),
        (Transform(lambda x: x[..., 1:]), (1, 1, 8, 8), {}, "cannot be compared"),
        (Transform(lambda x: x[:1]), (2, 1, 8, 8), {}, r"`images` must return .*got \(1, 1, 8, 8\) for \(2, 1, 8, 8\)"),
        (Transform(lambda x: x, lambda y: y[:1]), (2, 1, 8, 8), {}, r"`outputs` must return .*got \(1, 1, 8, 8\) for"),
        (Transform(lambda x: x + 0j), (1, 1, 8, 8), {}, "`images` must return real numbers, got torch.complex128"),
        (Transform(lambda x: x, lambda y: y + 0j), (1, 1, 8, 8), {}, "`outputs` must return real numbers, got"),
        (
            Transform(lambda x: x.log() / 0),
            (1, 1, 8, 8),
            {},
            "`images` must return finite numbers, got NaN or infinity",
        ),
        (Transform(lambda x: x, lambda y: y / 0), (1, 1, 8, 8), {}, "`outputs` must return finite numbers, got NaN or"),
        (
            ScaleTranslation(1.0, (-4.0, 0.0)),
            (1, 1, 8, 8),
            {},
            r"`translation` \(=\(-4.0, 0.0\)\) must be less than half",
        ),
        ("turn", (1, 1, 8, 8), {}, r"`factor` \(='turn'\) must be a positive number"),
    ],
)
def test_what_cannot_be_done_is_refused(element, shape, options, words):
    with pytest.raises(ValueError, match=words):
        equivariance_error(nn.Identity(), torch.ones(shape), element, **options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Rotation(math.nan), r"`degrees` \(=nan\) must be a finite number"),
        (lambda: Rotation("30"), r"`degrees` \(='30'\) must be a finite number"),  # type: ignore[arg-type]
        (lambda: Transform(3), r"`images` \(=3\) must be a function"),  # type: ignore[arg-type]
        (lambda: ScaleTranslation(1.0, (1,)), r"`translation` \(=\(1,\)\) must be a tuple of two finite numbers"),  # type: ignore[arg-type]
        (lambda: ScaleTranslation(1.0, [1, 2]), r"`translation` \(=\[1, 2\]\) must be a tuple of two finite numbers"),  # type: ignore[arg-type]
        (lambda: rotate(torch.ones(4, 4).long(), 30), "`image.dtype`"),
        (lambda: rotate(torch.ones(4), 30), r"`image.shape` \(=\(4,\)\) must be \[..., n, n\]"),
        (lambda: rotate(3, 30), "`image` must be a torch tensor"),  # type: ignore[arg-type]
        (lambda: sesn.translate(3, 1, 0), "`image` must be a torch tensor"),  # type: ignore[arg-type]
        (lambda: sesn.translate(torch.ones(4), 1, 0), r"`image.shape` \(=\(4,\)\) must be \[..., h, w\]"),
        (
            lambda: sesn.translate(torch.ones(4, 4), 1.5, 0),
            r"`down` \(=1.5\) must be a whole number; .*ScaleTranslation",
        ),
        (lambda: sesn.translate(torch.ones(4, 4), 0, "1"), r"`right` \(='1'\) must be a whole number"),
        (lambda: sesn.translate(torch.ones(4, 4), 1, 0, "mean"), r"`ends` \(='mean'\) must be one of 'zeros', 'circ"),
    ],
)
def test_elements_that_are_none_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


class Halved(nn.Module):
    """Keeps the lowest frequencies only, which are cut out of the spectrum and padded with zeros again."""

    def forward(self, images: Tensor) -> Tensor:
        h, w = images.shape[-2:]
        spectrum = torch.fft.fftshift(torch.fft.fft2(images), dim=(-2, -1))
        kept = F.pad(spectrum[..., h // 2 - 3 : h // 2 + 4, w // 2 - 3 : w // 2 + 4], (w // 2 - 3, w // 2 - 4) * 2)
        return torch.fft.ifft2(torch.fft.ifftshift(kept, dim=(-2, -1))).real


@pytest.mark.parametrize("make", [Halved, lambda: sesn.NestedReLU(range(8, 33))], ids=["cut", "nested"])
def test_the_number_of_waves_is_not_taken_for_that_of_pixels(device, make):
    layer, images = make(), put(random_images(1, (2, 1, 32, 32)), device)
    shift = ScaleTranslation(1.0, (1.0, 2.0))
    for _ in range(2):  # what it keeps between calls must not matter
        assert CIRCULAR.measure(layer, images, shift, context=False).all.max() < ROUNDING
