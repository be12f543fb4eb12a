"""Where the benchmarks print their tables."""

from __future__ import annotations

from rich.console import Console

#: Columns of what is printed where there is no terminal to fit, as into a file.
WIDTH = 150


def table_console() -> Console:
    """A console that is wide enough for the tables, unless a terminal says how wide it is."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)
