"""What a cell is run with: where data lie, which device, where checkpoints may go, and whom to tell about progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Told how much of the cell is done (0..1), and in a word what is being done.
Progress = Callable[[float, str], None]


class Skip(Exception):
    """Raised by a cell that has nothing to measure; the text is the reason that its row carries."""


def _nobody(_fraction: float, _doing: str) -> None:
    pass


def _no_matter(_seconds: float) -> None:
    pass


@dataclass(frozen=True)
class Context:
    """None of this may change a result, only where and how it is computed.

    Attributes:
        data_root: the folder of downloaded data sets; None: $SESN_DATA, or what comes with the installed packages.
        device: "cpu", "cuda", "cuda:1".
        scratch: a folder for this cell's checkpoints, emptied once its rows are stored; None keeps nothing.
        on_progress: told how far the cell is.
        on_resume: told how many seconds an earlier attempt spent on what is not done again.
    """

    data_root: Path | None = None
    device: str = "cpu"
    scratch: Path | None = None
    on_progress: Progress = _nobody
    on_resume: Callable[[float], None] = _no_matter
