"""How every command prints and fails."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

import typer

from harness.commands.endings import READER_GONE, Output, Stopped, abandon, stoppable


@contextmanager
def consoles(quiet: bool) -> Iterator[tuple[Any, Any]]:
    """Where to print, and where to show progress (None if quiet); bad usage is said in one line, with status 2."""
    errors = _console(sys.stderr)

    def show(message: Warning | str, *_rest: Any, **_more: Any) -> None:
        errors.print(f"warning: {message}", style="yellow", markup=False, highlight=False, soft_wrap=True)

    try:
        with stoppable(), warnings.catch_warnings():
            warnings.showwarning = show
            yield _console(sys.stdout, quiet=quiet), None if quiet else errors
    except Stopped as stop:
        raise typer.Exit(stop.first().status) from None
    except BrokenPipeError:
        abandon(sys.stdout)
        raise typer.Exit(128 + READER_GONE) from None
    except (ValueError, TypeError, OSError, OverflowError) as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from error
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        said = f"error: out of memory ({error}); use smaller images, fewer of them or a smaller network"
        errors.print(said, style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from error


def _console(stream: TextIO, *, quiet: bool = False) -> Any:
    """A console that stops the command if nobody reads it any more, and on which text of the rows is only text."""
    from rich.console import Console, RenderHook
    from rich.segment import Segment

    from harness.report.escapes import visible

    class Plain:
        """Something to print without what a terminal would obey: of rich's own making are the styles alone."""

        def __init__(self, shown: Any) -> None:
            self.shown = shown

        def __rich_console__(self, console: Any, options: Any) -> Iterator[Segment]:
            for segment in console.render(self.shown, options):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

    class Cleaning(RenderHook):
        def process_renderables(self, renderables: list[Any]) -> list[Any]:
            return [Plain(one) for one in renderables]

    console = Console(file=cast(TextIO, Output(stream)), quiet=quiet)
    console.push_render_hook(Cleaning())
    return console


def _out_of_memory(error: Exception) -> bool:
    """Torch's allocators raise plain RuntimeErrors."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error)
