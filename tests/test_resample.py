"""The resamplers: against the continuous picture, against Pillow and torch, and the laws of composing them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from measures import ROUNDING, assert_same, interior, put, relative
from periodic_pictures import pictures
from PIL import Image

from sesn import resampling_matrix, rescale, translate
from sesn.algorithms.resample import ENDS, RESAMPLERS, resampler_line
from sesn.strategies import factors, images, integer_factors, random_images

REACH = {"lanczos3": 3, "bicubic": 2, "legacy": 2}
LOCAL = st.sampled_from(sorted(REACH))
ANY = st.sampled_from(RESAMPLERS)
SIZES = st.integers(20, 40)
SEEDS = st.integers(0, 999)

#: Lanczos3 is no ideal filter: below 0.15 cycles per pixel the gain of one pass along one axis is off by up to 1.2 % at
#: the worst phase and by 0.6 % in the mean. Three passes (two one way, one the other) on two axes: 6 (0.6 %)^2 = 2e-4.
LANCZOS_BAND = 0.15
LANCZOS_TOLERANCE = 2e-4


def border(resampler: str, factor: float) -> int:
    """Output pixels at each border that see past it."""
    return math.ceil(REACH[resampler] * max(1.0, factor)) + 1


@given(image=images(), resampler=ANY, ends=st.sampled_from(ENDS))
def test_factor_1_is_the_identity(device, image, resampler, ends):
    image = put(image, device)
    assert torch.equal(rescale(image, 1.0, resampler, ends), image)
    side = image.shape[-1]
    assert_same(resampling_matrix(side, 1.0, resampler, ends), torch.eye(side, dtype=torch.float64))


@given(picture=pictures(highest=9), before=SIZES, after=SIZES)
def test_fourier_samples_the_picture_itself(device, picture, before, after):
    """Shrinking or enlarging, the result is the continuous picture sampled at the new size."""
    image = put(picture.sample(before), device)
    rescaled = rescale(image, after / before, "fourier")
    assert_same(rescaled.cpu(), picture.sample(after))


@given(size=SIZES, factor=factors(0.3, 3.0), periods=st.integers(0, 2), phase=st.floats(0, 6))
def test_any_factor_is_sampled_exactly_about_the_centre(size, factor, periods, phase):
    """Also where the size is rounded: the sampling points do not move with the rounding."""
    matrix = resampling_matrix(size, factor, "fourier")
    outputs = round(size * factor)
    assert matrix.shape == (outputs, size)
    points = (torch.arange(outputs, dtype=torch.float64) + 0.5 - outputs / 2) / factor + size / 2 - 0.5
    pixels = torch.arange(size, dtype=torch.float64)
    wave, expected = ((2 * math.pi * periods * x / size + phase).cos() for x in (pixels, points))
    assert_same(matrix @ wave, expected)


@given(half=st.integers(2, 20), more=st.integers(1, 20), phase=st.floats(0, 6))
def test_fourier_drops_the_new_nyquist_frequency(half, more, phase):
    """An even size sees that wave in one of its phases only, and so a part of it would commute with nothing."""
    small, size = 2 * half, 2 * half + more
    matrix, pixels = resampling_matrix(size, small / size, "fourier"), torch.arange(size, dtype=torch.float64)
    at, below = ((2 * math.pi * waves * pixels / size + phase).cos() for waves in (half, half - 1))
    assert_same(matrix @ at, torch.zeros(small, dtype=torch.float64))
    assert_same((matrix @ below).square().mean(), torch.tensor(0.5, dtype=torch.float64))


@given(half=st.integers(1, 20), factor=factors(1.01, 3.0))
def test_fourier_keeps_the_old_one_when_it_enlarges(half, factor):
    """Nothing is cut off there, so the pixels are still those of the result at their places."""
    signs = (-1.0) ** torch.arange(2 * half, dtype=torch.float64)
    enlarged = resampling_matrix(2 * half, factor, "fourier") @ signs
    points = (torch.arange(len(enlarged), dtype=torch.float64) + 0.5 - len(enlarged) / 2) / factor + half - 0.5
    assert_same(enlarged, (math.pi * points).cos())


@given(size=SIZES, factor=factors(0.3, 3.0), resampler=ANY, ends=st.sampled_from(ENDS))
def test_no_side_is_preferred(size, factor, resampler, ends):
    matrix = resampling_matrix(size, factor, resampler, ends)
    assert_same(matrix.flip(0, 1), matrix)


@given(size=SIZES, factor=factors(0.1, 3.0), resampler=LOCAL, ends=st.sampled_from(("zeros", "inside")))
def test_a_row_reaches_no_further_than_its_line_says(size, factor, resampler, ends):
    matrix, line = resampling_matrix(size, factor, resampler, ends), resampler_line(size, factor, resampler, ends)
    spans = line.spans(len(matrix), size, 1) if line else [(0, 0, 0, size)] * len(matrix)
    for weights, (_, _, low, high) in zip(matrix, spans, strict=True):
        outside = torch.cat([weights[:low], weights[high:]])
        assert not outside.any()


def test_an_offset_past_the_image_is_refused_where_only_the_inside_counts():
    assert resampling_matrix(8, 2.0, ends="inside", offset=0.2).sum(1).allclose(torch.ones(16, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"`offset` \(=-3\) must be at most 0.25"):
        resampling_matrix(8, 2.0, ends="inside", offset=-3)


@given(size=SIZES, factor=factors(0.3, 3.0), resampler=ANY)
def test_a_constant_stays_a_constant(size, factor, resampler):
    """Rows sum to 1: everywhere with periodic ends or none, away from the border with zeros beyond it."""
    for ends in ("circular", "inside"):
        total = resampling_matrix(size, factor, resampler, ends).sum(1)
        assert_same(total, torch.ones_like(total))
    if resampler != "fourier":
        margin = border(resampler, factor)
        inner = resampling_matrix(size, factor, resampler, "zeros").sum(1)[margin:-margin]
        assert_same(inner, torch.ones_like(inner))


@given(image=images(24), factor=integer_factors(4), resampler=ANY, steps=st.tuples(*[st.integers(-3, 3)] * 2))
def test_a_shift_by_a_whole_number_of_output_pixels_passes(device, image, factor, resampler, steps):
    """L_s L_t = L_{s t} L_s on the grid: n pixels before shrinking n times are one pixel after."""
    image = put(image, device)
    before = translate(image, *(round(step / factor) for step in steps), "circular")
    after = translate(rescale(image, factor, resampler, "circular"), *steps, "circular")
    assert_same(rescale(before, factor, resampler, "circular"), after)


@given(data=st.data(), sizes=st.tuples(SIZES, SIZES, SIZES))
def test_fourier_twice_is_once(device, data, sizes):
    """Band-limited below the Nyquist frequency of the smallest size met, nothing is lost on the way."""
    first, middle, last = sizes
    image = put(data.draw(images(first, cutoff=min(sizes) / first / 2)), device)
    twice = rescale(rescale(image, middle / first, "fourier"), last / middle, "fourier")
    assert relative(twice, rescale(image, last / first, "fourier")) < ROUNDING


@given(data=st.data(), middle=st.integers(56, 80), last=st.integers(56, 80))
def test_lanczos_twice_is_nearly_once(device, data, middle, last):
    first = 64
    image = put(data.draw(images(first, cutoff=LANCZOS_BAND * min(1.0, middle / first, last / first))), device)
    twice = rescale(rescale(image, middle / first), last / middle)
    once = rescale(image, last / first)
    margin = 2 * border("lanczos3", 80 / 56)  # each of the two passes has a border
    assert relative(interior(twice, margin), interior(once, margin)) < LANCZOS_TOLERANCE


@given(data=st.data(), size=SIZES, fine=st.integers(40, 80))
def test_fourier_up_and_down_returns_the_image(device, data, size, fine):
    image = put(data.draw(images(size, cutoff=0.5)), device)
    assert relative(rescale(rescale(image, fine / size, "fourier"), size / fine, "fourier"), image) < ROUNDING


@given(image=images(64, cutoff=LANCZOS_BAND), fine=st.integers(64, 128))
def test_lanczos_up_and_down_nearly_returns_the_image(device, image, fine):
    image = put(image, device)
    returned = rescale(rescale(image, fine / 64), 64 / fine)
    margin = 2 * border("lanczos3", 1.0)
    assert relative(interior(returned, margin), interior(image, margin)) < LANCZOS_TOLERANCE


@given(seed=SEEDS, before=SIZES, after=SIZES)
def test_bicubic_is_torchs_antialiased_resize(device, seed, before, after):
    image = put(random_images(seed, (1, 1, before, before)), device)
    ours = rescale(image, after / before, "bicubic")
    theirs = F.interpolate(image, (after, after), mode="bicubic", antialias=True)
    margin = border("bicubic", after / before)
    # torch rounds the positions of the taps differently; float64 keeps that below 1e-9
    torch.testing.assert_close(interior(ours, margin), interior(theirs, margin), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("resampler", "filter"), [("bicubic", Image.BICUBIC), ("lanczos3", Image.LANCZOS)])
@given(seed=SEEDS, before=SIZES, after=SIZES)
def test_the_antialiased_ones_are_pillows(resampler, filter, seed, before, after):
    image = random_images(seed, (before, before))
    ours = rescale(image, after / before, resampler)
    pillow = Image.fromarray(image.numpy().astype(np.float32)).resize((after, after), filter)
    theirs = torch.from_numpy(np.asarray(pillow).astype(np.float64))
    margin = border(resampler, after / before)
    # Pillow keeps float32 images: 12 taps on each axis of values up to about 5, each rounded to 6e-8 of itself
    torch.testing.assert_close(interior(ours, margin), interior(theirs, margin), rtol=0, atol=1e-5)
    torch.testing.assert_close(rescale(image, after / before, resampler, "inside"), theirs, rtol=0, atol=1e-5)


@given(seed=SEEDS, before=SIZES, after=SIZES)
def test_legacy_is_torchs_plain_bicubic(device, seed, before, after):
    image = put(random_images(seed, (1, 1, before, before)), device)
    ours = rescale(image, after / before, "legacy")
    theirs = F.interpolate(image, (after, after), mode="bicubic", align_corners=False)
    margin = border("legacy", after / before)
    torch.testing.assert_close(interior(ours, margin), interior(theirs, margin), rtol=0, atol=1e-9)


def test_all_but_legacy_remove_what_the_new_size_cannot_hold(device):
    """0.4 cycles per pixel become 0.8 at half the size, which would alias."""
    image = put((2 * math.pi * 0.4 * torch.arange(60, dtype=torch.float64)).cos().expand(60, 60).contiguous(), device)
    left = {name: interior(rescale(image, 0.5, name), 4).square().mean().sqrt().item() for name in RESAMPLERS}
    # At 1.6 times the cut-off Fourier's gain is 0 and Lanczos' 1 %, Keys' cubic has 3 %; unstretched it has 52 %.
    assert left["fourier"] < 1e-12
    assert left["lanczos3"] < left["bicubic"] < 0.1 * left["legacy"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 0.5), r"`size` \(=0\) must be at least 1"),
        ((8, 0.0), r"`factor` \(=0.0\) must be a positive"),
        ((8, math.nan), r"`factor` \(=nan\) must be a positive, finite number"),
        ((8, 0.05), r"`factor` \(=0.05\) must be large enough to leave a pixel of 8"),
        ((8, 0.5, "nearest"), r"`resampler` \(='nearest'\) must be one of 'lanczos3'"),
        ((8, 0.5, "bicubic", "mirror"), r"`ends` \(='mirror'\) must be one of 'zeros'"),
    ],
)
def test_what_cannot_be_resampled_is_rejected(arguments, words):
    with pytest.raises(ValueError, match=words):
        resampling_matrix(*arguments)


def test_the_dtype_is_kept_and_the_matrix_is_the_callers(device):
    image = put(torch.ones(1, 1, 8, 8, dtype=torch.float32), device)
    assert rescale(image, 0.5).dtype == torch.float32
    resampling_matrix(8, 0.5).zero_()
    assert resampling_matrix(8, 0.5).abs().sum() > 0
