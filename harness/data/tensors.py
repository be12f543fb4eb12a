"""Tensors and notes in one safetensors file, written whole or not at all, checked when read, and never unpickled.

Checkpoints are such files, and what took seconds to make is cached in them. A cache only saves time: a file that is
damaged is made anew, and where none can be written the work is done each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from sesn.tools.files import replacing, sync_folder


class Unusable(Exception):
    """Why a file cannot be used."""


def write(path: Path, tensors: Mapping[str, Tensor], marks: Mapping[str, str], notes: str = "") -> None:
    """Replace the file; after a crash or a power cut there is the old one or the new one."""
    # Copies in memory of their own: safetensors refuses shared and strided ones.
    kept = {name: one.detach().cpu().clone(memory_format=torch.contiguous_format) for name, one in tensors.items()}
    content = save(kept, {**marks, "notes": notes, "checksum": _checksum(kept, notes)})
    with replacing(path) as partial, partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def read(path: Path, marks: Mapping[str, str]) -> tuple[dict[str, Tensor], str]:
    """The tensors and notes of a file that has these marks."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (SafetensorError, OSError) as error:
        raise Unusable(f"it is damaged ({error})") from error
    for name, expected in marks.items():
        if metadata.get(name) != expected:
            raise Unusable(f"its {name} is {metadata.get(name)!r}, this run's is {expected!r}")
    if metadata.get("checksum") != _checksum(tensors, metadata.get("notes", "")):
        raise Unusable("it is damaged (its checksum differs)")
    return tensors, metadata["notes"]


def _checksum(tensors: Mapping[str, Tensor], notes: str) -> str:
    names = sorted(tensors)
    last = torch.frombuffer(bytearray(f"{names} {notes}".encode()), dtype=torch.uint8)
    return sha256(*(tensors[name] for name in names), last)


def sha256(*tensors: Tensor) -> str:
    """Of the shapes and contents of tensors, in hexadecimal."""
    summary = hashlib.sha256()
    for tensor in tensors:
        summary.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        summary.update(tensor.contiguous().numpy().tobytes())
    return summary.hexdigest()


def cached(
    key: Mapping[str, object], make: Callable[[], dict[str, Tensor]], folder: Path | None = None
) -> dict[str, Tensor]:
    """The tensors that `make` makes, read from the folder if they are there in good order.

    Args:
        key: everything that they depend on.
        make: gives them by name.
        folder: by default the platform's for what can be made again (on Linux that of $XDG_CACHE_HOME).
    """
    import pooch  # type: ignore[import-untyped]

    marks = {"key": json.dumps(key, sort_keys=True)}
    name = f"{hashlib.sha256(marks['key'].encode()).hexdigest()[:24]}.safetensors"
    path = (folder or Path(pooch.os_cache("sesn"))) / name
    with contextlib.suppress(Unusable):
        return read(path, marks)[0]
    made = make()
    with contextlib.suppress(OSError):  # a folder that cannot be written to
        write(path, made, marks)
    return made
