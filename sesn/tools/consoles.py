"""How every command prints and fails, and is made to stop: by a signal, or because nobody reads what it prints."""

from __future__ import annotations

import codecs
import errno
import io
import os
import signal
import sys
import threading
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from types import FrameType
from typing import Any, TextIO, cast

import typer

from sesn._source import line_of
from sesn.errors import UsageError
from sesn.tools.wording import in_options

#: What stands for a mark on a terminal that does not have it.
PLAIN = {
    "Δ": "Delta", "Φ": "Phi", "σ": "sigma", "×": "x", "→": "->", "–": "-", "—": "-", "−": "-", "‖": "||", "²": "^2",
    "≤": "<=", "≥": ">=", "±": "+-", "●": "*", "₀": "0", "…": "...",
}  # fmt: skip
#: The longest line that an error may have: what stands in the middle of a longer one is left out.
LONGEST = 1500
#: Control characters, marks that turn the direction of text, and others that show nothing but have an effect.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Ctrl-C, the system's or an administrator's wish, and a terminal that vanished. Windows lacks the last.
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
#: SIGPIPE's number wherever there is one: what a shell reports of a program whose reader is gone.
READER_GONE = 13


class Stopped(KeyboardInterrupt):
    """The command is to end now, in order; `status` is what shells give a program that a signal ended."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number

    def first(self) -> Stopped:
        """What stopped the command before, if this came about by tidying up."""
        found, earlier = self, self.__context__
        while earlier is not None:
            found, earlier = earlier if isinstance(earlier, Stopped) else found, earlier.__context__
        return found


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn the first signal into `Stopped`; those after it do not disturb the tidying up, to the end of the process."""
    before: dict[int, Any] = {}
    stopped = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        raise Stopped(number)

    if threading.current_thread() is threading.main_thread():
        # A signal that is switched off, as nohup and background jobs have it, stays so.
        before |= {one: found for one in SIGNALS if (found := signal.getsignal(one)) not in (signal.SIG_IGN, None)}
    for one in before:
        signal.signal(one, stop)
    try:
        yield
    finally:
        if not stopped:
            for one, handler in before.items():
                signal.signal(one, handler)


class WatchedStream:
    """A stream for a console. If what reads it is gone, the command stops."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or stop."""
        with self._read():
            return self._stream.write(text)

    def flush(self) -> None:
        """Flush, or stop."""
        with self._read():
            self._stream.flush()

    @contextmanager
    def _read(self) -> Iterator[None]:
        if self._stream.closed:  # by the code that the command runs
            raise OSError(errno.EBADF, "the program's output is a closed file; do not close sys.stdout or sys.stderr")
        try:
            yield
        except OSError as error:
            abandon(self._stream)
            raise Stopped(READER_GONE) from error


def abandon(stream: TextIO) -> None:
    """Let what is still written to a stream vanish: the interpreter flushes it at its end, and would complain."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


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


def visible(text: str) -> str:
    """The text with a mark in place of each character that shows nothing: <U+202E>. Line ends and tabs are kept."""
    return "".join(
        f"<U+{ord(c):04X}>" if unicodedata.category(c) in _INVISIBLE and c not in "\n\t" else c for c in text
    )


@contextmanager
def consoles(quiet: bool, data_on_stdout: bool = False) -> Iterator[tuple[Any, Any]]:
    """Where to print, and where to show progress (None if quiet); bad usage is said in one line, with status 2.

    What is printed is plain text, however much the name of a file looks like markup. Where the standard output is
    for data, all words go to the standard error, also what a user's own code prints. `data` of the first console is
    where to write the data.
    """
    errors = _console(sys.stderr)

    def say(what: str, style: str) -> None:
        errors.print(what, style=style, highlight=False, soft_wrap=True)

    def show(message: Warning | str, *_rest: Any, **_more: Any) -> None:
        say(f"warning: {_one_line(message)}", "yellow")

    try:
        words = _console(sys.stderr if data_on_stdout else sys.stdout, quiet=quiet)
        words.data = sys.stdout
        apart = redirect_stdout(sys.stderr) if data_on_stdout else nullcontext()
        with stoppable(), warnings.catch_warnings(), apart:
            warnings.showwarning = show
            yield words, None if quiet else errors
    except Stopped as stop:
        raise typer.Exit(stop.first().status) from None
    except BrokenPipeError:
        abandon(sys.stdout)
        raise typer.Exit(128 + READER_GONE) from None
    except (Exception, SystemExit) as error:
        reason = _words(error)
        if reason is None:
            raise
        with suppress(OSError, Stopped):  # nobody may be left to read it
            say(f"error: {reason}", "red")
        raise typer.Exit(2) from error


def _console(stream: TextIO, *, quiet: bool = False) -> Any:
    """A console that stops the command if nobody reads it any more, and on which text of the rows is only text."""
    from rich.console import Console, RenderHook
    from rich.segment import Segment

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

    console = Console(file=cast(TextIO, WatchedStream(stream)), quiet=quiet, markup=False, emoji=False)
    console.push_render_hook(Cleaning())
    return console


def _words(error: BaseException) -> str | None:
    """What went wrong, if it is bad usage or the machine's fault; None for what is a bug, and for a command's end."""
    if isinstance(error, OSError):
        from sesn.tools.files import os_error_words

        return _one_line(os_error_words(error))
    if isinstance(error, UsageError):
        # What the user's own code was told of its arguments is left in Python.
        return _one_line(error if line_of(error) else in_options(str(error)))
    if isinstance(error, SystemExit):  # no command of ours ends like this: only code that it runs
        return f"the program was left by sys.exit({error.code!r})"
    if _out_of_memory(error):
        return f"out of memory ({_one_line(error)}); use smaller images, fewer of them or a smaller network"
    return None


def _one_line(error: object) -> str:
    """The message without line breaks, and not longer than a reader takes."""
    line = " ".join(part.strip() for part in str(error).splitlines() if part.strip())
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} [cut] {line[-LONGEST // 2 :]}"


def _out_of_memory(error: BaseException) -> bool:
    """Torch's allocators raise plain RuntimeErrors."""
    words = str(error)
    plain = isinstance(error, RuntimeError) and ("allocate memory" in words or "out of memory" in words)
    return isinstance(error, MemoryError) or plain


@contextmanager
def progress_bar(console: Any, total: float = 1, doing: str = "measuring Δ") -> Iterator[Callable[[float], None]]:
    """A progress bar with the time left, or nothing at all if there is no console; yields what advances it."""
    from rich.progress import Progress, SpinnerColumn, TimeRemainingColumn

    columns = (SpinnerColumn(), *Progress.get_default_columns()[:-1], TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=console is None) as progress:
        task = progress.add_task(doing, total=total)
        yield lambda done: progress.advance(task, done)
