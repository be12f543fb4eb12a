"""Writing rows: one writer a folder, and a cell is on the disk whole or not at all.

Other programs may replace the files meanwhile: git, an editor, `rm`. A writer notices before and after each cell and at
its end, and writes all that it has appended to a file again where that is missing. Its lock carries a note that says
who is writing, and what it is doing.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from harness.records import Result
from harness.store.lines import SEAL, StoreError, StoreWarning, encode
from harness.store.reading import CUT, SUFFIX, Contents, parse
from sesn._files import naming
from sesn.tools.files import advice, check_regular, check_writable, open_own, sync_folder

LOCK = ".lock"
#: Longer than any note.
_NOTE_BYTES = 1 << 20
#: Who asks what is running holds the lock for a moment: so often, and so many seconds apart, it is tried to be taken.
LOCK_ATTEMPTS, LOCK_PAUSE = 5, 0.02
#: What could not be put into a file goes beside it.
RESCUED = ".rescued"
#: How often a file is written again that is replaced at the same moment.
ATTEMPTS = 5


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

    @property
    def words(self) -> str:
        """Which process it is."""
        return f"pid {self.pid} on {self.host}, started {self.started}"


def running(rows: Path) -> Running | None:
    """The run that is writing to a folder of rows, as far as it has said so; None where there is none."""
    try:
        descriptor = os.open(rows / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _read_note(descriptor)
    finally:
        os.close(descriptor)
    return None


def _write_note(descriptor: int, started: str, cells: Sequence[Doing] = ()) -> None:
    note = {"pid": os.getpid(), "host": socket.gethostname(), "started": started}
    written = json.dumps({**note, "cells": [one._asdict() for one in cells]}).encode()
    os.pwrite(descriptor, written, 0)
    os.ftruncate(descriptor, len(written))


def _read_note(descriptor: int) -> Running | None:
    """None while the owner of the lock has said nothing that can be read."""
    try:
        fields = json.loads(os.pread(descriptor, _NOTE_BYTES, 0))
        return Running(**{**fields, "cells": tuple(Doing(**one) for one in fields["cells"])})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class Writer:
    """The only writer of a folder of rows, as a context; a second one is refused.

    The lock is the system's (flock): it vanishes with the process, however that ends.
    """

    def __init__(self, rows: Path) -> None:
        self._rows = rows
        self._lock = -1
        self._files: dict[str, _File] = {}

    def __enter__(self) -> Writer:
        check_writable(self._rows / LOCK)
        self._rows.mkdir(parents=True, exist_ok=True)
        self._lock = _take_lock(self._rows)
        self._started = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        with naming(self._rows / LOCK):
            _write_note(self._lock, self._started)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            # Who stops a run is told that all that finished is stored. Of two errors the first is told.
            if kind is None or issubclass(kind, KeyboardInterrupt):
                self._confirm()
            else:
                with suppress(StoreError):
                    self._confirm()
        finally:
            os.close(self._lock)

    def tell(self, cells: Sequence[Doing]) -> None:
        """Say to whoever asks which cells are being carried out; a note that cannot be written stops no run."""
        with suppress(OSError):
            _write_note(self._lock, self._started, cells)

    def append(self, *results: Result) -> None:
        """Put a cell on the disk, or several of one experiment; on return they are at their path.

        After an error the file is as it was before.
        """
        (experiment,) = {result.cell.experiment for result in results}
        path = self._rows / f"{experiment}{SUFFIX}"
        file = self._files.setdefault(path.name, _File(path))
        with file.errors_told():
            self._keep_lock()
            file.add(*results)

    def _confirm(self) -> None:
        """Read back all that was appended, and write again what is missing; of all errors the first is raised."""
        failures = []
        for file in self._files.values():
            try:
                with file.errors_told():
                    self._keep_lock()
                    file.settle(read_back=True)
            except StoreError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _keep_lock(self) -> None:
        """Take it again where it was removed, since another run could have taken a new one."""
        if _state(os.fstat(self._lock))[:2] != _state_at(self._rows / LOCK)[:2]:
            self._rows.mkdir(parents=True, exist_ok=True)
            lock = _take_lock(self._rows)
            os.close(self._lock)
            self._lock = lock
            self.tell(())


class _File:
    """A file of rows that this run appends to, and all that it has appended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        #: What the file was when we last read it or wrote to it, and the digests and the cells of others in it.
        self._known: tuple[int, ...] = ()
        self._there: set[str] = set()
        self._others: set[str] = set()
        #: The cells of this run, and their lines by digest.
        self._own: set[str] = set()
        self._blocks: dict[str, bytes] = {}

    @property
    def _missing(self) -> dict[str, bytes]:
        return {digest: block for digest, block in self._blocks.items() if digest not in self._there}

    def add(self, *results: Result) -> None:
        """Append cells. Those that cannot be written are not kept here: their checkpoints are."""
        blocks = [encode(result) for result in results]
        new = {block.rpartition(SEAL)[2].removesuffix(b'"}\n').decode(): block for block in blocks}
        self._blocks |= new
        try:
            self.settle()
        except BaseException:
            for digest in new:
                self._blocks.pop(digest, None)
            raise
        self._own |= {result.cell.id for result in results}

    def settle(self, *, read_back: bool = False) -> None:
        """Write what is missing, until the path leads to a file that lacks nothing; read it in any case, if asked."""
        for _ in range(ATTEMPTS):
            # The folder may be removed at any moment.
            with suppress(FileNotFoundError), self._opened() as descriptor:
                if read_back or self._known != _state(os.fstat(descriptor)):
                    self._look(descriptor)
                    read_back = False
                if missing := self._missing:
                    _append(descriptor, b"".join(missing.values()))
                    self._there |= missing.keys()
                self._known = _state(os.fstat(descriptor))
                if self._known == _state_at(self._path):
                    return
        raise StoreError(f"{self._path} is being replaced again and again; end the program that does so")

    @contextmanager
    def _opened(self) -> Iterator[int]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not (is_new := not self._path.exists()):
            check_regular(self._path, through_links=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if is_new:
                sync_folder(self._path.parent)
            yield descriptor
        finally:
            os.close(descriptor)

    def _look(self, descriptor: int) -> None:
        """Read what is there, repair its end, and tell of the cells that were taken away."""
        # By its number: the path may lead elsewhere already, and what is cut off must be what was read.
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read()
        contents = parse(self._path, data)
        _repair(self._path, descriptor, contents, data)
        cells = {entry.cell.id for entry in contents.entries}
        again = len((self._there & self._blocks.keys()) - contents.digests)
        gone = len(self._others - cells - self._own)
        self._there, self._others = contents.digests, cells - self._own
        if again or gone:
            warnings.warn(
                f"{self._path} was replaced during the run; cells of this run that it lacked, written again: {again}; "
                f"cells from before that it lacks, which count as not done: {gone}",
                StoreWarning,
                stacklevel=2,
            )

    @contextmanager
    def errors_told(self) -> Iterator[None]:
        """Say which file it is, what became of the cells that finished before, and what helps."""
        try:
            yield
        except OSError as error:
            fate = self._rescue() or "nothing that finished before is lost"
            raise StoreError(
                f"cannot write to {self._path} ({error.strerror or error}); {fate}: "
                f"{advice(error)}, and give the same command again"
            ) from error
        except ValueError as error:
            raise StoreError("; ".join(filter(None, (str(error), self._rescue())))) from error

    def _rescue(self) -> str:
        """Keep the cells of this run that are not at the path elsewhere, and say where; empty if there are none."""
        is_ours = self._known[:3] == _state_at(self._path)[:3]
        blocks = self._missing if is_ours else self._blocks
        if not blocks:
            return ""
        said = f"cells that this run finished and that it may lack: {len(blocks)}"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            kept = _keep_beside(self._path, RESCUED, b"".join(blocks.values()))
        except (OSError, ValueError):
            return f"{said}, which could not be written elsewhere"
        self._blocks = {}
        return f"{said}, kept in {kept}; append that to it once it is in order"


def _state(found: os.stat_result) -> tuple[int, ...]:
    """Which file it is, and what it was when it was last written to."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _state_at(path: Path) -> tuple[int, ...]:
    try:
        return _state(path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _repair(path: Path, descriptor: int, contents: Contents, data: bytes) -> None:
    """Move a torn end out of the way, to a file beside it, and end the last line."""
    torn = data[contents.end :]
    if torn.strip():
        _keep_beside(path, CUT, torn)
    if torn:
        if os.fstat(descriptor).st_size != len(data):
            raise StoreError(f"{path} is being written by another program; end it, and give the same command again")
        os.ftruncate(descriptor, contents.end)
    if contents.unended:
        _append(descriptor, b"\n")


def _keep_beside(path: Path, suffix: str, content: bytes) -> Path:
    """Append something to a file beside `path` that nobody takes for rows."""
    beside = path.with_name(path.name + suffix)
    descriptor = open_own(beside, os.O_APPEND)
    try:
        _append(descriptor, content if content.endswith(b"\n") else content + b"\n")
    finally:
        os.close(descriptor)
    sync_folder(beside.parent)
    return beside


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


def _take_lock(rows: Path) -> int:
    descriptor = open_own(rows / LOCK)
    for _ in range(LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(LOCK_PAUSE)
        else:
            return descriptor
    owner = _read_note(descriptor)
    os.close(descriptor)
    told = f"({owner.words}) " if owner else ""
    raise StoreError(f"another run {told}is writing to {rows}; wait for it, or use --rows")
