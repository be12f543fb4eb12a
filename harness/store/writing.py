"""Writing rows: one writer a folder, and a cell is on the disk whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from harness.files import check_writable
from harness.records import Result
from harness.store.lines import StoreError, encode, read
from harness.store.reading import SUFFIX

LOCK = ".lock"


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
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for descriptor in (*self._open.values(), self._lock):
            os.close(descriptor)
        self._open.clear()

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
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.read(descriptor, 4096)
        os.close(descriptor)
        raise StoreError(f"another run {_owner(owner)}is writing to {rows}; wait for it, or use --rows") from error
    os.ftruncate(descriptor, 0)
    note = {"pid": os.getpid(), "host": socket.gethostname(), "started": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"}
    os.write(descriptor, json.dumps(note).encode())
    return descriptor


def _owner(note: bytes) -> str:
    """Who holds the lock, as far as it has said so yet."""
    try:
        fields = json.loads(note)
        return f"(pid {fields['pid']} on {fields['host']}, started {fields['started']}) "
    except (ValueError, KeyError, TypeError):
        return ""
