"""How every command prints and fails."""

from __future__ import annotations

import codecs
import io
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

#: What stands for a mark on a terminal that does not have it.
PLAIN = {
    "Δ": "Delta", "Φ": "Phi", "σ": "sigma", "×": "x", "→": "->", "–": "-", "—": "-", "−": "-", "‖": "||", "²": "^2",
    "≤": "<=", "≥": ">=", "±": "+-", "●": "*", "₀": "0", "…": "...",
}  # fmt: skip
#: The longest line that an error may have: what stands in the middle of a longer one is left out.
LONGEST = 1500


def degrade_marks() -> None:
    """Let the standard streams write what their encoding lacks in plain letters, instead of failing."""
    codecs.register_error("sesn-plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="sesn-plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)  # the streams only write
    mark = error.object[error.start]
    return PLAIN.get(mark, mark.encode("ascii", "backslashreplace").decode()), error.start + 1


@contextmanager
def consoles(quiet: bool, data_on_stdout: bool = False) -> Iterator[tuple[Any, Any]]:
    """Where to print, and where to show progress (None if quiet); bad usage is said in one line, with status 2.

    What is printed is plain text, however much the name of a file looks like markup. Where the standard output is
    for data, all words go to the standard error.
    """
    from rich.console import Console

    plain: Any = {"markup": False, "emoji": False}
    errors = Console(stderr=True, **plain)

    def say(what: str, style: str) -> None:
        errors.print(what, style=style, highlight=False, soft_wrap=True)

    def show(message: Warning | str, *_rest: Any, **_more: Any) -> None:
        say(f"warning: {_one_line(message)}", "yellow")

    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield Console(quiet=quiet, stderr=data_on_stdout, **plain), None if quiet else errors
    except (Exception, SystemExit) as error:
        words = _words(error)
        if words is None:
            raise
        with suppress(OSError, SystemExit):  # nobody may be left to read it
            say(f"error: {words}", "red")
        raise typer.Exit(2) from error


def _words(error: BaseException) -> str | None:
    """What went wrong, if it is bad usage or the machine's fault; None for what is a bug, and for a command's end."""
    if isinstance(error, ValueError | TypeError | OSError | OverflowError):
        return _one_line(error)
    if isinstance(error, SystemExit):  # no command of ours ends like this: only code that it runs, or Rich
        gone = isinstance(error.__context__, BrokenPipeError)
        return "nobody reads the output any more" if gone else f"the program was left by sys.exit({error.code!r})"
    if _out_of_memory(error):
        return f"out of memory ({_one_line(error)}); use smaller images, fewer of them or a smaller network"
    return None


def _one_line(error: object) -> str:
    """The message without line breaks and control characters, and not longer than a reader takes."""
    joined = " ".join(part.strip() for part in str(error).splitlines() if part.strip())
    # What a terminal would obey rather than show is escaped.
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} [cut] {line[-LONGEST // 2 :]}"


def _out_of_memory(error: BaseException) -> bool:
    """Torch's allocators raise plain RuntimeErrors."""
    words = str(error)
    plain = isinstance(error, RuntimeError) and ("allocate memory" in words or "out of memory" in words)
    return isinstance(error, MemoryError) or plain
