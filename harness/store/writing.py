"""Writing rows: one writer a folder, and a cell is on the disk whole or not at all."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from harness.files import check_writable
from harness.records import Result
from harness.store.lines import StoreError, encode, read
from harness.store.reading import SUFFIX
from harness.store.running import LOCK, Doing, Running, read_note, write_note

#: Who asks what is running holds the lock for a moment: so often, and so many seconds apart, it is tried to be taken.
LOCK_ATTEMPTS, LOCK_PAUSE = 5, 0.02


class Writer:
    """The only writer of a folder of rows, as a context; a second one is refused.

    The lock is the system's (flock): it vanishes with the process, however that ends.
    """

    def __init__(self, rows: Path) -> None:
        self._rows = rows
        self._lock = -1
        self._open: dict[str, int] = {}
        self.written = 0

    def __enter__(self) -> Writer:
        check_writable(self._rows / LOCK)
        self._rows.mkdir(parents=True, exist_ok=True)
        self._lock = _take_lock(self._rows)
        self._running = Running.here()
        self.tell(())
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for descriptor in (*self._open.values(), self._lock):
            os.close(descriptor)
        self._open.clear()

    def tell(self, cells: Sequence[Doing]) -> None:
        """Say to whoever asks which cells are being carried out."""
        write_note(self._lock, self._running, cells)

    def append(self, result: Result) -> None:
        """Put a cell on the disk. After an error the file is as it was before."""
        path = self._rows / f"{result.cell.experiment}{SUFFIX}"
        try:
            descriptor = self._file(path)
            _append(descriptor, encode(result))
        except OSError as error:
            raise StoreError(
                f"cannot write to {path} ({error.strerror or error}); nothing that finished before is lost: "
                "make room, and give the same command again"
            ) from error
        self.written += 1

    def _file(self, path: Path) -> int:
        """The open file; what a killed writer left at its end is cut off first."""
        if path.name not in self._open:
            is_new = not path.exists()
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            self._open[path.name] = descriptor
            _repair(path, descriptor)
            if is_new:
                _sync_folder(path.parent)
        return self._open[path.name]


def _repair(path: Path, descriptor: int) -> None:
    contents = read(path, complain=False)
    os.ftruncate(descriptor, contents.end)
    if contents.unended:
        _append(descriptor, b"\n")


def _append(descriptor: int, block: bytes) -> None:
    """All of the block, in one write, and on the disk; or none of it."""
    before = os.fstat(descriptor).st_size
    try:
        written = os.write(descriptor, block)
        while written < len(block):
            # A short write is the disk running full: the next says so.
            written += os.write(descriptor, block[written:])
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, before)
        raise


def _sync_folder(folder: Path) -> None:
    """A new file is safe once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _take_lock(rows: Path) -> int:
    descriptor = os.open(rows / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    for _ in range(LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(LOCK_PAUSE)
        else:
            return descriptor
    owner = read_note(descriptor)
    os.close(descriptor)
    told = f"({owner.words}) " if owner else ""
    raise StoreError(f"another run {told}is writing to {rows}; wait for it, or use --rows")
