"""Writing a file all or nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: Windows has none.
fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a partial file to write beside `path`; it takes the name of `path` at the end, or vanishes on an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_of(path)
    partial.unlink(missing_ok=True)  # a link of that name would be written through
    try:
        with naming(path):
            yield partial
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def partial_of(path: Path) -> Path:
    """The file to write first: of the same suffix, by which some writers choose the format, and of this process."""
    return path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")


def may_write(path: Path) -> bool:
    """Whether a file could be written there: the nearest folder above it that exists must be one, and be writable."""
    folder = next(each for each in path.absolute().parents if each.exists())
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes that ask for the same out of a folder, on systems that have such locks."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give errors of the system the name of the file, where they came from an open one and have none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise
