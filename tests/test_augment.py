"""Augmentation: the digits' rescaling is Pillow's, STL-10's crop, mirror and hole are what they are said to be."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_mnist_scale import generate
from torch import Tensor

from harness.data.augment import (
    MNIST_MEAN,
    MNIST_STD,
    STL10_MEAN,
    STL10_STD,
    cutout,
    mnist_batch,
    normalised,
    random_crop,
    random_flip,
    random_rescale,
    rescale_digits,
    stl10_batch,
)
from harness.data.mnist import embedded_digits, pool
from harness.data.mnist_scale import shrunk, sizes_for
from harness.data.stl10 import stl10

SEEDS = st.integers(0, 2**31)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, generator=seeded(seed), dtype=torch.uint8)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Tensor:
    return embedded_digits(tmp_path_factory.mktemp("cache")).images


# --- digits


def assert_pillows(images: Tensor, factors: Tensor) -> None:
    """Pixel for pixel; where Pillow's compiler may fuse products and sums, a level on one pixel in a thousand."""
    ours, pillows = rescale_digits(images, factors), shrunk(images, factors.tolist())
    differences = (ours.int() - pillows.int()).abs()
    if platform.machine() in {"x86_64", "AMD64"}:
        assert int(differences.max()) == 0
    assert int(differences.max()) <= 1
    assert float((differences > 0).double().mean()) <= 1e-3


def test_rescaling_is_pillows_on_every_embedded_digit(digits: Tensor) -> None:
    assert_pillows(digits, torch.empty(len(digits), dtype=torch.float64).uniform_(0.3, 2.0, generator=seeded()))


@given(SEEDS, st.lists(st.floats(0.1, 8.0), min_size=1, max_size=4))
def test_rescaling_is_pillows_on_noise(seed: int, factors: list[float]) -> None:
    assert_pillows(noise(len(factors), 28, 28, seed=seed), torch.tensor(factors, dtype=torch.float64))


@pytest.mark.parametrize("factor", [0.3, 0.5, 1.0, 2.0, 14.5, 29.0])
def test_rescaling_is_pillows_at_the_edges_of_the_image(factor: float) -> None:
    """Factors at which source positions fall on the border itself, where the image ends."""
    assert_pillows(torch.full((1, 28, 28), 255, dtype=torch.uint8), torch.tensor([factor], dtype=torch.float64))
    assert_pillows(noise(1, 28, 28), torch.tensor([factor], dtype=torch.float64))


def test_images_that_are_not_square_keep_their_shape() -> None:
    assert_pillows(noise(3, 20, 36), torch.tensor([0.5, 1.0, 1.7], dtype=torch.float64))


def test_factors_are_uniform_between_the_bounds() -> None:
    """From the widths of shrunk white images, against the expectation of a uniform draw."""
    white = torch.full((4000, 28, 28), 255, dtype=torch.uint8)
    widths = (random_rescale(white, seeded(), (0.5, 1.0))[:, 14] > 0).sum(dim=1).double()
    assert float(widths.min()) in {14, 15}
    assert float(widths.max()) in {27, 28}
    assert float(widths.mean()) == pytest.approx(0.75 * 28, abs=0.5)
    quarter = float((widths < 0.625 * 28).double().mean())
    assert quarter == pytest.approx(0.25, abs=0.05)


def test_one_factor_for_each_image() -> None:
    with pytest.raises(ValueError, match=r"`factors.shape` \(=\(2,\)\) must be \(3,\)"):
        rescale_digits(noise(3, 28, 28), torch.ones(2))


def test_digits_are_normalised_with_and_without_the_plus_regime(device: torch.device) -> None:
    images = noise(5, 28, 28).to(device)
    plain = mnist_batch(images)
    assert plain.shape == (5, 1, 28, 28)
    assert plain.dtype == torch.float32
    assert plain.device == images.device
    assert torch.allclose(plain[:, 0] * 0.2161 + 0.0607, images / 255, atol=1e-6)
    augmented = mnist_batch(images, seeded(3))
    assert torch.equal(augmented, mnist_batch(random_rescale(images, seeded(3))))
    assert not torch.equal(augmented, plain)
    assert float(mnist_batch(torch.zeros(1, 28, 28, dtype=torch.uint8)).max()) == pytest.approx(-0.281, abs=5e-4)


@pytest.mark.realdata
def test_the_constants_are_near_the_means_of_the_real_sets(real_mnist: Path, real_stl10: Path) -> None:
    """The published constants, for all realisations alike: each within 3 % of what a part of the data has."""
    made = generate(pool("mnist", real_mnist), sizes_for(20_000), 0).train.images.double() / 255
    assert float(made.mean()) == pytest.approx(MNIST_MEAN[0], rel=0.03)
    assert float(made.std()) == pytest.approx(MNIST_STD[0], rel=0.03)
    photographs = stl10("train", real_stl10).images(torch.arange(0, 5000, 5)).double() / 255
    assert photographs.mean(dim=(0, 2, 3)).tolist() == pytest.approx(STL10_MEAN, rel=0.03)
    assert photographs.transpose(0, 1).flatten(1).std(dim=1).tolist() == pytest.approx(STL10_STD, rel=0.03)


# --- photographs


@given(SEEDS, st.integers(0, 4))
def test_a_crop_is_a_window_of_the_padded_image(seed: int, padding: int) -> None:
    images = noise(3, 2, 6, 7, seed=seed)
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    cropped = random_crop(images, padding, seeded(seed))
    assert cropped.shape == images.shape
    for number, crop in enumerate(cropped.numpy()):
        windows = [
            padded[number, :, top : top + 6, left : left + 7]
            for top in range(2 * padding + 1)
            for left in range(2 * padding + 1)
        ]
        assert any(np.array_equal(crop, window) for window in windows)


def test_every_move_occurs_about_as_often() -> None:
    """The places of one bright pixel, over 25 x 25 moves of up to 12 pixels."""
    images = torch.zeros(25_000, 1, 25, 25, dtype=torch.uint8)
    images[:, :, 12, 12] = 1
    places = random_crop(images, 12, seeded()).sum(dim=(0, 1))
    assert int(places.sum()) == 25_000
    rows, columns = places.sum(dim=1), places.sum(dim=0)
    assert min(int(rows.min()), int(columns.min())) > 850  # 1000 expected, standard deviation 31
    assert max(int(rows.max()), int(columns.max())) < 1150


def test_half_the_images_are_mirrored_and_the_others_are_left_alone() -> None:
    images = noise(2000, 1, 2, 3)
    images[:, :, :, 0], images[:, :, :, 2] = 1, 2
    flipped = random_flip(images, seeded())
    mirrored = flipped[:, 0, 0, 0] == 2
    assert torch.equal(flipped[mirrored], images[mirrored].flip(-1))
    assert torch.equal(flipped[~mirrored], images[~mirrored])
    assert 900 < int(mirrored.sum()) < 1100


@given(SEEDS, st.integers(1, 6))
def test_a_hole_is_a_square_clipped_at_the_border(seed: int, half: int) -> None:
    holes = cutout(torch.ones(4, 2, 9, 11), 2 * half, seeded(seed)) == 0
    possible = {
        (max(0, y - half), min(9, y + half), max(0, x - half), min(11, x + half)) for y in range(9) for x in range(11)
    }
    for hole in holes:
        rows, columns = hole[0].any(dim=1).nonzero(), hole[0].any(dim=0).nonzero()
        box = (int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1)
        assert box in possible
        assert int(hole[0].sum()) == (box[1] - box[0]) * (box[3] - box[2])
        assert torch.equal(hole[0], hole[1])


def test_hole_centres_are_uniform_over_all_pixels() -> None:
    """With a hole of 2 pixels, [y - 1, y + 1), its last row is its centre."""
    holes = cutout(torch.ones(3200, 1, 32, 32), 2, seeded())[:, 0] == 0
    centres = 31 - holes.any(dim=2).flip(1).int().argmax(dim=1)
    counts = centres.bincount(minlength=32)
    assert len(counts) == 32
    assert 50 < int(counts.min()) < int(counts.max()) < 150  # 100 expected, standard deviation 10


def test_the_frame_is_black_and_the_hole_is_the_mean_colour() -> None:
    """The order of things: padding before the normalisation, the hole after it."""
    white = torch.full((64, 3, 96, 96), 255, dtype=torch.uint8)
    batch = stl10_batch(white, seeded())
    assert (batch.shape, batch.dtype) == (white.shape, torch.float32)
    for channel, (mean, std) in enumerate(zip(STL10_MEAN, STL10_STD, strict=True)):
        expected = torch.tensor([-mean / std, 0.0, (1 - mean) / std])
        assert torch.allclose(batch[:, channel].unique(), expected, atol=1e-6)
    assert int((batch[:, 0] == 0).flatten(1).sum(dim=1).max()) == 32 * 32


def test_a_smaller_picture_has_a_smaller_frame_and_hole() -> None:
    batch = stl10_batch(torch.full((64, 3, 48, 48), 255, dtype=torch.uint8), seeded())
    assert int((batch[:, 0] == 0).flatten(1).sum(dim=1).max()) == 16 * 16
    frames = (batch[:, 0] < -0.5).all(dim=2).sum(dim=1)
    assert int(frames.max()) == 6


def test_test_images_are_only_normalised() -> None:
    images = noise(2, 3, 96, 96)
    assert torch.equal(stl10_batch(images), normalised(images, STL10_MEAN, STL10_STD))


# --- seeds


@pytest.mark.parametrize(("change", "shape"), [(mnist_batch, (6, 28, 28)), (stl10_batch, (6, 3, 96, 96))])
def test_a_run_can_be_repeated_and_resumed(change, shape: tuple[int, ...], device: torch.device) -> None:  # type: ignore[no-untyped-def]
    images = noise(*shape).to(device)
    generator, before = seeded(7), torch.get_rng_state()
    first = change(images, generator)
    kept = generator.get_state()
    second = change(images, generator)
    resumed = torch.Generator()
    resumed.set_state(kept)
    assert torch.equal(change(images, resumed), second)
    assert torch.equal(change(images, seeded(7)), first)
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(images.cpu(), noise(*shape))


def test_an_empty_batch_stays_empty() -> None:
    assert mnist_batch(noise(0, 28, 28), seeded()).shape == (0, 1, 28, 28)
    assert stl10_batch(noise(0, 3, 96, 96), seeded()).shape == (0, 3, 96, 96)
