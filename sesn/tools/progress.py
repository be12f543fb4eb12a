"""A bar for long work, with the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TimeRemainingColumn


@contextmanager
def progress_bar(console: Console | None, total: int, doing: str = "measuring Δ") -> Iterator[Callable[[int], None]]:
    """A progress bar with the time left, or nothing at all; yields the function that advances it."""
    columns = (SpinnerColumn(), *Progress.get_default_columns()[:-1], TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=console is None) as progress:
        task = progress.add_task(doing, total=total)
        yield lambda done: progress.advance(task, done)
