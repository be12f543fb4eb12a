"""What took seconds to make, kept between runs: tensors in an npz file with their checksum, never unpickled.

A cache only saves time. A file that is damaged is made anew, and where none can be written the work is done each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.data.labelled import sha256
from sesn.tools.files import replacing

#: Raised when the layout of the files changes.
FORMAT = 1
CHECKSUM = "sha256"


def cache_folder() -> Path:
    """The platform's folder for what can be made again (on Linux that of $XDG_CACHE_HOME)."""
    import pooch  # type: ignore[import-untyped]

    return Path(pooch.os_cache("sesn"))


def cached(
    key: Mapping[str, object], make: Callable[[], dict[str, Tensor]], folder: Path | None = None
) -> dict[str, Tensor]:
    """The tensors that `make` makes, read from the folder if they are there in good order.

    Args:
        key: everything that they depend on.
        make: gives them by name.
        folder: by default cache_folder().
    """
    label = json.dumps({"format": FORMAT, **key}, sort_keys=True)
    path = (folder or cache_folder()) / f"{hashlib.sha256(label.encode()).hexdigest()[:24]}.npz"
    found = _read(path, label)
    if found is not None:
        return found
    made = make()
    with contextlib.suppress(OSError):  # a folder that cannot be written to
        _write(path, label, made)
    return made


def _checksum(label: str, tensors: Mapping[str, Tensor]) -> str:
    names = sorted(tensors)
    return hashlib.sha256(f"{label} {names} {sha256(*(tensors[name] for name in names))}".encode()).hexdigest()


def _read(path: Path, label: str) -> dict[str, Tensor] | None:
    """The tensors of a file, or None if it is missing, damaged or made for another key."""
    try:
        # Opened here: numpy leaves a file open that is no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            checksum = str(stored[CHECKSUM])
            tensors = {name: torch.from_numpy(stored[name]) for name in stored.files if name != CHECKSUM}
    # Whatever a damaged file makes zipfile, zlib and numpy say.
    except (OSError, EOFError, KeyError, ValueError, TypeError, NotImplementedError, zipfile.BadZipFile, zlib.error):
        return None
    return tensors if checksum == _checksum(label, tensors) else None


def _write(path: Path, label: str, tensors: Mapping[str, Tensor]) -> None:
    """All or nothing: another process may be reading or writing the same."""
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
    arrays[CHECKSUM] = np.array(_checksum(label, tensors))
    with replacing(path) as partial:
        np.savez_compressed(partial, **arrays)
