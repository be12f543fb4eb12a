"""Who is writing to a folder of rows, and what it is doing: the note in the lock that a writer holds."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

LOCK = ".lock"
#: Longer than any note.
_NOTE_BYTES = 1 << 20


class Doing(NamedTuple):
    """A cell that is being carried out: its name, how much of it is done (0..1), and what it does at the moment."""

    cell: str
    fraction: float
    doing: str


class Running(NamedTuple):
    """A run that is writing to a folder of rows."""

    pid: int
    host: str
    started: str
    cells: tuple[Doing, ...] = ()

    @classmethod
    def here(cls) -> Running:
        """This process."""
        return cls(os.getpid(), socket.gethostname(), f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")

    @property
    def words(self) -> str:
        """Which process it is."""
        return f"pid {self.pid} on {self.host}, started {self.started}"


def write_note(descriptor: int, running: Running, cells: Sequence[Doing] = ()) -> None:
    """Replace the note in a lock that is held."""
    note = json.dumps({**running._asdict(), "cells": [one._asdict() for one in cells]}).encode()
    os.pwrite(descriptor, note, 0)
    os.ftruncate(descriptor, len(note))


def read_note(descriptor: int) -> Running | None:
    """What the owner of a lock has said; None while it has said nothing that can be read."""
    try:
        fields = json.loads(os.pread(descriptor, _NOTE_BYTES, 0))
        cells = tuple(Doing(**one) for one in fields.pop("cells"))
        return Running(**fields)._replace(cells=cells)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def running(rows: Path) -> Running | None:
    """The run that is writing to a folder of rows, as far as it has said so; None where there is none."""
    try:
        descriptor = os.open(rows / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return read_note(descriptor)
    finally:
        os.close(descriptor)
    return None
