"""Writing a file all or nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give errors of the system the name of the file, where they came from an open one and have none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise
