"""STL-10 (Coates, Ng, Lee, AISTATS 2011), read from the official binary files `stl10_binary/{train,test}_{X,y}.bin`.

An image is 3 x 96 x 96 bytes: channels, then columns, then rows. A split may be a prefix of the official one: what was
read is named with its number of images.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.data import data_root
from harness.data.tensors import LabelledImages
from sesn.errors import UsageError
from sesn.tools.images import Wanted, fitted

SplitName = Literal["train", "test"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)
SHAPE = (3, 96, 96)
IMAGE_BYTES = 3 * 96 * 96
CLASSES = 10
FOLDER = "stl10_binary"
#: The images that the publishers' files hold.
OFFICIAL = {"train": 5000, "test": 8000}
#: MD5 of the publishers' files.
MD5 = {
    "train_X.bin": "918c2871b30a85fa023e0c44e0bee87f",
    "train_y.bin": "5a34089d4802c674881badbb80307741",
    "test_X.bin": "7f263ba9f9e0b06b93213547f721ac82",
    "test_y.bin": "36f9794fa4beb8a2c72628de14fa638e",
}


@dataclass(frozen=True)
class Split:
    """A split on disk: its images mapped as [n, 3, columns, rows], which are read when asked for."""

    name: SplitName
    path: Path
    stored: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.stored)

    def description(self, count: int | None = None) -> str:
        """What was read, all or the first images, for a row: "STL-10 test, 2000 of 8000 images"."""
        return f"STL-10 {self.name}, {len(self) if count is None else count} of {OFFICIAL[self.name]} images"

    def images(self, order: Tensor | None = None) -> Tensor:
        """Images as uint8 [n, 3, rows, columns]: all, or those numbered by `order`."""
        chosen = self.stored if order is None else self.stored[order.numpy()]
        return torch.from_numpy(np.array(chosen)).transpose(-1, -2).contiguous()

    def labels(self) -> Tensor:
        """Classes 0..9 as int64 [n] (one byte each in the file, from 1); as many as there are images, or an error."""
        path = self.path.with_name(f"{self.name}_y.bin")
        if (size := _size(path)) != len(self):
            raise UsageError(f"{path} has {size} labels, but there are {len(self)} images; take both from one source")
        labels = torch.from_numpy(np.fromfile(path, np.uint8)).to(torch.int64)
        wrong = labels[(labels < 1) | (labels > CLASSES)]
        if len(wrong):
            raise UsageError(f"{path} has a label {int(wrong[0])}, but labels are 1..{CLASSES}; it is no label file")
        return labels - 1


def stl10(split: SplitName = "train", root: Path | None = None) -> Split:
    """Open a split found under `root` or $SESN_DATA; its size must be a whole number of images."""
    if split not in SPLITS:
        raise UsageError(f"`split` (={split!r}) must be one of 'train', 'test'")
    path = data_root(root) / FOLDER / f"{split}_X.bin"
    size = _size(path)
    if size == 0 or size % IMAGE_BYTES:
        raise UsageError(
            f"{path} has {size} bytes, which is no whole number of images of {IMAGE_BYTES} bytes "
            f"({size // IMAGE_BYTES} and {size % IMAGE_BYTES} bytes over); it is not complete, fetch it again"
        )
    return Split(split, path, np.memmap(path, np.uint8, "r", shape=(size // IMAGE_BYTES, *SHAPE)))


def stl10_labelled(split: SplitName, root: Path | None = None, count: int | None = None) -> LabelledImages:
    """A split in memory for training or testing: images uint8 [n, 3, 96, 96] and classes; or its first `count`.

    Files that have the official size must have the official content.
    """
    found = stl10(split, root)
    wanted = len(found) if count is None else count
    if not 1 <= wanted <= len(found):
        raise UsageError(f"`count` (={count}) must be between 1 and {len(found)}, the images in {found.path}")
    labels = found.labels()
    for name in (f"{split}_X.bin", f"{split}_y.bin") if len(found) == OFFICIAL[split] else ():
        if (digest := md5_of(path := found.path.with_name(name))) != MD5[name]:
            raise UsageError(f"{path} has the MD5 {digest}, but the publishers' has {MD5[name]}; fetch it again")
    return LabelledImages(found.images(torch.arange(wanted)), labels[:wanted], found.description(wanted))


def md5_of(path: Path) -> str:
    """MD5 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _size(path: Path) -> int:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; unpack the publishers' stl10_binary.tar.gz into the folder of data sets"
        )
    return path.stat().st_size


def image_set(wanted: Wanted) -> tuple[Tensor, str]:
    """Images of the training split, as `sesn.tools.images.image_set` asks for them."""
    split = stl10("train", wanted.data_root)
    images = split.images(wanted.order(len(split), split.description())).to(torch.float64) / 255
    return fitted(images, split.description(), wanted)
