"""What took seconds to make, kept between runs: a digest and then tensors as an npz file, never unpickled.

A cache only saves time. A file that is damaged is made anew, and where none can be written the work is done each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sesn.tools.files import replacing

#: Raised when the layout of the files changes.
FORMAT = 2
#: Bytes of SHA-256 before the rest of a file.
DIGEST = 32


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
    path = (folder or cache_folder()) / f"{hashlib.sha256(label.encode()).hexdigest()[:24]}.tensors"
    found = _read(path, label)
    if found is not None:
        return found
    made = make()
    with contextlib.suppress(OSError):  # a folder that cannot be written to
        _write(path, label, made)
    return made


def _digest(label: str, content: bytes) -> bytes:
    return hashlib.sha256(label.encode() + b"\n" + content).digest()


def _read(path: Path, label: str) -> dict[str, Tensor] | None:
    """The tensors of a file, or None if it is missing, damaged or made for another key."""
    try:
        digest, content = (whole := path.read_bytes())[:DIGEST], whole[DIGEST:]
    except OSError:
        return None
    if digest != _digest(label, content):
        return None
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files}


def _write(path: Path, label: str, tensors: Mapping[str, Tensor]) -> None:
    """All or nothing: another process may be reading or writing the same."""
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    with replacing(path) as partial:
        partial.write_bytes(_digest(label, content.getvalue()) + content.getvalue())
