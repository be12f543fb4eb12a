"""Checkpoints: a file that is damaged, cut off or another run's is not used.

The run then starts from the beginning, which is slower and never wrong.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harness.data import tensors
from harness.data.tensors import Unusable

#: Raised when the layout of the files or the meaning of the notes changes.
FORMAT = 1


class Snapshot(NamedTuple):
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
        tensors.write(self.path, snapshot.tensors, self._marks(), json.dumps(snapshot.notes))

    def read(self) -> Snapshot | None:
        """What was written last; None if there is nothing, or nothing that can be used, which is warned of."""
        # What killed writers left.
        for partial in self.path.parent.glob(f".{self.path.stem}.*.partial{self.path.suffix}"):
            partial.unlink(missing_ok=True)
        if not self.path.exists():
            return None
        try:
            found, notes = tensors.read(self.path, self._marks())
        except Unusable as reason:
            self.refuse(reason)
            return None
        return Snapshot(found, json.loads(notes))

    def refuse(self, reason: Exception) -> None:
        """Say that the file is not used, and why."""
        warnings.warn(f"{self.path.name} is not used, training starts anew: {reason}", stacklevel=2)

    def _marks(self) -> dict[str, str]:
        # Another torch may round otherwise, and a run is to be of one piece.
        return {"format": str(FORMAT), "run": self.run, "torch": str(torch.__version__)}
