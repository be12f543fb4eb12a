"""Writing files all or nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a partial file to write beside `path`; it takes the name of `path` at the end, or vanishes on an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The same suffix, for writers that choose the format by it; the process id, for two that write the same file.
    partial = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Say before a long run that its result could not be written at the end."""
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a directory; give the name of a file")
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise PermissionError(f"cannot write {path}: {folder} is no directory that may be written to")
