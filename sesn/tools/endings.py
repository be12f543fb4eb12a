"""How a command is made to stop: by Ctrl-C or another signal, or because nobody is left who reads what it prints."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TextIO

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
