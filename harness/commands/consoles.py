"""How every command prints and fails."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from harness.files import os_error_words


@contextmanager
def consoles(quiet: bool) -> Iterator[tuple[Any, Any]]:
    """Where to print, and where to show progress (None if quiet); bad usage is said in one line, with status 2."""
    from rich.console import Console

    errors = Console(stderr=True)

    def show(message: Warning | str, *_rest: Any, **_more: Any) -> None:
        errors.print(f"warning: {message}", style="yellow", markup=False, highlight=False, soft_wrap=True)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield Console(quiet=quiet), None if quiet else errors
    except (ValueError, TypeError, OSError, OverflowError) as error:
        said = os_error_words(error) if isinstance(error, OSError) else str(error)
        errors.print(f"error: {said}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from error
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        said = f"error: out of memory ({error}); use smaller images, fewer of them or a smaller network"
        errors.print(said, style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from error


def _out_of_memory(error: Exception) -> bool:
    """Torch's allocators raise plain RuntimeErrors."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error)
