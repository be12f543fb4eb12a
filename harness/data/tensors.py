"""Images with their classes in memory, and tensors in files.

A file holds tensors and notes as safetensors: written whole or not at all, checked when read, and never unpickled.
Checkpoints are such files, and what took seconds to make is cached in them. A cache only saves time: a file that is
damaged is made anew, and where none can be written the work is done each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from sesn._files import replacing
from sesn.errors import UsageError, WrongTypeError
from sesn.tools.files import sync_folder


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images and classes in memory.

    Args:
        images: uint8, [n, h, w] or [n, c, h, w], values 0..255.
        labels: int64 [n], classes from 0.
        name: what they are and how many of how many; rows carry it.
    """

    images: Tensor
    labels: Tensor
    name: str

    def __post_init__(self) -> None:
        for name, value, dtype in (("images", self.images, torch.uint8), ("labels", self.labels, torch.int64)):
            if value.dtype != dtype:
                raise WrongTypeError(f"`{name}.dtype` (={value.dtype}) must be {dtype}")
        if len(self.images) != len(self.labels):
            raise UsageError(f"`labels` (={len(self.labels)} of them) must be as many as the {len(self.images)} images")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def digest(self) -> str:
        """SHA-256 of shape, images and labels, in hexadecimal."""
        return sha256(self.images, self.labels)

    def __getitem__(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """The images and labels numbered by `chosen`: a batch."""
        return self.images[chosen], self.labels[chosen]


# --- files


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
