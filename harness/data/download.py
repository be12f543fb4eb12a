"""MNIST and STL-10 from their publishers into the folder of data sets: checked before they take their names."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from harness.data import REMEDY, mnist, named_root, stl10
from sesn.errors import UsageError
from sesn.tools.files import replacing

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
STL10_ARCHIVE = "stl10_binary.tar.gz"
STL10_URLS = ("http://ai.stanford.edu/~acoates/stl10/",)
STL10_MD5 = "91f7769df0f17e558f3565bffb0c7dfb"


def fetch(name: str, root: Path | None = None) -> Path:
    """Download a data set, unless it is there already, and return its folder.

    Args:
        name: "mnist" (12 MB) or "stl10" (2.6 GB, of which 0.4 GB are kept).
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


def _fetch_stl10(root: Path) -> Path:
    folder = root / stl10.FOLDER
    if all((folder / file).is_file() and stl10.md5_of(folder / file) == md5 for file, md5 in stl10.MD5.items()):
        return folder
    archive = _download(STL10_URLS, STL10_ARCHIVE, f"md5:{STL10_MD5}", root)
    extract(archive, {f"{stl10.FOLDER}/{file}": md5 for file, md5 in stl10.MD5.items()}, root)
    archive.unlink()
    return folder


#: What can be fetched.
FETCHERS: dict[str, Callable[[Path], Path]] = {"mnist": _fetch_mnist, "stl10": _fetch_stl10}


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
        raise UsageError(f"{path.name} is no plain file in the archive; delete it and fetch it again")
    with source, replacing(path) as partial:
        with partial.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        found = stl10.md5_of(partial)
        if found != md5:
            raise UsageError(f"{path.name} has the MD5 {found} in the archive, but {md5} is expected; fetch it again")
