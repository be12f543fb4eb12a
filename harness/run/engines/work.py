"""One cell, carried out where it lands: in a worker of this machine or of a cluster, the same way."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import torch

from harness.records import SOURCE, Cell, Measurement, Result, Scalar, Status
from harness.run.context import Context, Progress, Skip
from harness.run.runners import load_runner
from sesn.errors import UsageError, WrongTypeError
from sesn.methods import method
from sesn.tools.machine import provenance_with_code

#: A reason is one line of a table.
LONGEST_REASON = 300
#: No more often than this is progress told, in seconds.
TOLD_EVERY = 0.1


@dataclass(frozen=True)
class Task:
    """A cell, the "module:function" that carries it out, and whether nothing may run beside it."""

    cell: Cell
    runner: str
    alone: bool = False


@dataclass(frozen=True)
class Place:
    """Where and how cells are carried out; nothing of it changes their results.

    Attributes:
        device: "cpu", "cuda", "cuda:1".
        threads: of torch, in each worker.
        data_root: see Context.
        scratch: the folder in which each cell has a folder for its checkpoints, named by its id; None: none have.
    """

    device: str = "cpu"
    threads: int = 1
    data_root: Path | None = None
    scratch: Path | None = None


class Listener(Protocol):
    """Whom an engine tells; always from the process and thread that started it."""

    def started(self, cell: Cell) -> None:
        """A worker has begun the cell."""

    def progressed(self, cell: Cell, fraction: float, doing: str) -> None:
        """How much of the cell is done."""

    def finished(self, result: Result) -> None:
        """The cell has ended, well or badly. An error raised here stops the run."""


class Throttled:
    """Passes progress on, not too often."""

    def __init__(self, on_progress: Progress) -> None:
        self._on_progress = on_progress
        self._last = 0.0

    def __call__(self, fraction: float, doing: str) -> None:
        """Pass it on, unless the last was told a moment ago."""
        if time.monotonic() - self._last >= TOLD_EVERY:
            self._last = time.monotonic()
            self._on_progress(float(fraction), str(doing))


def carry_out(task: Task, place: Place, on_progress: Progress) -> Result:
    """Run a cell and say what became of it. Whatever goes wrong in it is a result, too."""
    scratch = place.scratch / task.cell.id if place.scratch else None
    earlier: list[float] = []
    context = Context(place.data_root, place.device, scratch, on_progress, earlier.append)
    started, clock = now(), time.perf_counter()
    status, measurements, reason = _attempt(task, context)
    seconds = round(time.perf_counter() - clock + sum(earlier), 4)
    return Result(task.cell, status, measurements, reason, provenance_with_code(place.device), started, seconds)


def _attempt(task: Task, context: Context) -> tuple[Status, tuple[Measurement, ...], str]:
    try:
        if context.scratch is not None:
            context.scratch.mkdir(parents=True, exist_ok=True)
        _check_source(task.cell)
        return "ok", _plain(load_runner(task.runner)(task.cell, context)), ""
    except Skip as skip:
        return "skipped", (), one_line(str(skip)) or "it has nothing to measure"
    # SystemExit: a library that gives up must not take the worker with it.
    except (Exception, SystemExit) as error:
        # To the worker's log.
        traceback.print_exc()
        reason = _reason(error)
    _let_go()
    return "failed", (), reason


def _check_source(cell: Cell) -> None:
    """A method from outside must be what it was when the cell was planned."""
    planned = cell.settings.get(SOURCE)
    if planned is not None and method(cell.method).digest != planned:
        raise UsageError(f"the source of the method {cell.method!r} has changed since the run began; run it again")


def _plain(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """In plain numbers, which every process can read and every file can hold."""
    if not measurements:
        raise UsageError("the cell returned no measurement; raise Skip with the reason instead")
    return tuple(
        Measurement(seen.metric, tuple(map(float, seen.values)), {name: _scalar(at) for name, at in seen.at.items()})
        for seen in measurements
    )


def _scalar(value: Any) -> Scalar:
    plain = value.item() if hasattr(value, "item") else value
    if not isinstance(plain, Scalar):
        raise WrongTypeError(f"a coordinate (={value!r}) must be text, a number or a truth value")
    return plain


def _reason(error: BaseException) -> str:
    said = one_line(str(error)) or ("out of memory" if isinstance(error, MemoryError) else "no message")
    return f"{type(error).__name__}: {said}"


def _let_go() -> None:
    """What the failed cell held must not fail the next."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def one_line(text: str) -> str:
    """Without line breaks, and not too long."""
    joined = " ".join(text.split())
    return joined if len(joined) <= LONGEST_REASON else joined[: LONGEST_REASON - 1] + "…"


def now() -> str:
    """The time, for people and machines."""
    return datetime.now(UTC).isoformat(timespec="seconds")
