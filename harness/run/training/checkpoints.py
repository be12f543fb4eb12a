"""Checkpoints: tensors and plain notes in one safetensors file, written whole or not at all, and never unpickled.

A file that is damaged, cut off or another run's is not used: the run starts from the beginning, which is slower and
never wrong.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from harness.data.labelled import sha256
from sesn.tools.files import replacing, sync_folder

#: Raised when the layout of the files or the meaning of the notes changes.
FORMAT = 1


class Unusable(Exception):
    """Why a checkpoint cannot be used."""


@dataclass(frozen=True)
class Snapshot:
    """The state of a run: tensors by name, and everything else as plain JSON."""

    tensors: Mapping[str, Tensor]
    notes: Mapping[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """The one checkpoint of a run.

    Attributes:
        path: the file; it need not exist.
        run: whose it is, such as a cell's id. Other runs' files are not used.
    """

    path: Path
    run: str

    def write(self, snapshot: Snapshot) -> None:
        """Replace the file; after a crash or a power cut there is the old one or the new one."""
        tensors = {name: _storable(tensor) for name, tensor in snapshot.tensors.items()}
        notes = json.dumps(snapshot.notes)
        metadata = {**self._marks(), "notes": notes, "checksum": _checksum(tensors, notes)}
        with replacing(self.path) as partial:
            _write_through(partial, save(tensors, metadata))
        sync_folder(self.path.parent)

    def read(self) -> Snapshot | None:
        """What was written last; None if there is nothing, or nothing that can be used, which is warned of."""
        self._sweep()
        if not self.path.exists():
            return None
        try:
            return self._read()
        except Unusable as reason:
            self.refuse(reason)
            return None

    def refuse(self, reason: Exception) -> None:
        """Say that the file is not used, and why."""
        warnings.warn(f"{self.path.name} is not used, training starts anew: {reason}", stacklevel=2)

    def _read(self) -> Snapshot:
        try:
            with safe_open(self.path, "pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
        except (SafetensorError, OSError) as error:
            raise Unusable(f"it is damaged ({error})") from error
        for name, expected in self._marks().items():
            if metadata.get(name) != expected:
                raise Unusable(f"its {name} is {metadata.get(name)!r}, this run's is {expected!r}")
        if metadata.get("checksum") != _checksum(tensors, metadata.get("notes", "")):
            raise Unusable("it is damaged (its checksum differs)")
        return Snapshot(tensors, json.loads(metadata["notes"]))

    def _marks(self) -> dict[str, str]:
        # Another torch may round otherwise, and a run is to be of one piece.
        return {"format": str(FORMAT), "run": self.run, "torch": str(torch.__version__)}

    def _sweep(self) -> None:
        """Remove what killed writers left."""
        for partial in self.path.parent.glob(f".{self.path.stem}.*.partial{self.path.suffix}"):
            partial.unlink(missing_ok=True)


def _storable(tensor: Tensor) -> Tensor:
    """A copy in memory of its own: safetensors refuses shared and strided ones."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def _checksum(tensors: Mapping[str, Tensor], notes: str) -> str:
    names = sorted(tensors)
    return sha256(
        *(tensors[name] for name in names), torch.frombuffer(bytearray(f"{names} {notes}".encode()), dtype=torch.uint8)
    )


def _write_through(path: Path, content: bytes) -> None:
    """Onto the disk, not only into the system's memory."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
