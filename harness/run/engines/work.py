"""What engines share: devices, what workers import, who is told, and how one cell is carried out wherever it lands."""

from __future__ import annotations

import gc
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

import torch

from harness.experiment import Context, Progress, Skip
from harness.records import EXPERIMENT_SOURCE, SOURCE, Cell, Measurement, Planned, Result, Scalar, Status
from sesn._checks import complaint, numbers
from sesn._source import named
from sesn.errors import UsageError, WrongTypeError
from sesn.methods import method, passed_on
from sesn.tools.machine import provenance_with_code

Runner = Callable[[Cell, Context], Sequence[Measurement]]
#: A reason is one line of a table.
LONGEST_REASON = 300
#: No more often than this is progress told, in seconds.
TOLD_EVERY = 0.1


class Listener(Protocol):
    """Whom an engine tells; always from the process and thread that started it."""

    def started(self, cell: Cell) -> None:
        """A worker has begun the cell."""

    def progressed(self, cell: Cell, fraction: float, doing: str) -> None:
        """How much of the cell is done."""

    def finished(self, result: Result) -> None:
        """The cell has ended, well or badly. An error raised here stops the run."""


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_of_each(workers: int) -> int:
    """Its share of the cores."""
    return max(1, cores() // workers)


def devices(name: str) -> list[str]:
    """The devices of "auto" (all GPUs, else the processor), "cpu", "cuda" (all GPUs) or "cuda:N"."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise UsageError(complaint("device", name, "auto, cpu, cuda or cuda:N"))
    count = torch.cuda.device_count() if name != "cpu" else 0
    every = [f"cuda:{index}" for index in range(count)]
    if name == "cpu" or (name == "auto" and not every):
        return ["cpu"]
    chosen = every if name in ("auto", "cuda") else [device for device in every if device == name]
    if not chosen:
        raise UsageError(complaint("device", name, f"one that torch sees ({', '.join(['cpu', *every])})"))
    return chosen


def for_workers(found: list[str], jobs: int | None) -> list[str]:
    """A device for each worker: `jobs` of them, by default one a GPU, or one for the processor with all its threads.

    One, because two networks in training need twice the memory, and the first numbers come sooner.
    """
    count = len(found) if jobs is None else jobs
    return [found[index % len(found)] for index in range(count)]


# --- what the processes that a run starts import: exactly what this one does, and never from the current directory


def environment() -> dict[str, str]:
    """Variables that have a process, and those that it starts, import as this one does, methods of files included."""
    return paths() | passed_on()


def paths() -> dict[str, str]:
    """Variables that have a Python process, and those that it starts, import from where this process does.

    The whole path is named, with Python's own folders in their order, so that a module of the same name further down
    cannot take their place. `python -m`, which starts workers, would put the current directory before all of them.
    """
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}


# --- one cell


def carry_out(planned: Planned, place: Context, on_progress: Progress) -> Result:
    """Run a cell and say what became of it. Whatever goes wrong in it is a result, too."""
    cell = planned.cell
    earlier: list[float] = []
    scratch = place.scratch / cell.id if place.scratch else None
    context = replace(place, scratch=scratch, on_progress=throttled(on_progress), on_resume=earlier.append)
    started, clock = now(), time.perf_counter()
    status: Status = "ok"
    measurements: tuple[Measurement, ...] = ()
    reason = ""
    try:
        if scratch is not None:
            scratch.mkdir(parents=True, exist_ok=True)
        measurements = _plain(_runner(planned)(cell, context))
    except Skip as skip:
        status, reason = "skipped", one_line(str(skip)) or "it has nothing to measure"
    # SystemExit: a library that gives up must not take the worker with it.
    except (Exception, SystemExit) as error:
        # To the worker's log.
        traceback.print_exc()
        status, reason = "failed", _reason(error)
    seconds = round(time.perf_counter() - clock + sum(earlier), 4)
    if status == "failed":
        # What the failed cell held must not fail the next.
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return Result(cell, status, measurements, reason, provenance_with_code(place.device), started, seconds)


def throttled(on_progress: Progress) -> Progress:
    """Passes progress on, unless the last was told a moment ago."""
    last = -TOLD_EVERY

    def tell(fraction: float, doing: str) -> None:
        nonlocal last
        if time.monotonic() - last >= TOLD_EVERY:
            last = time.monotonic()
            on_progress(float(fraction), str(doing))

    return tell


def _runner(planned: Planned) -> Runner:
    """What carries out a cell. A method or an experiment from outside must be what it was when the cell was planned."""
    cell, changed = planned.cell, "has changed since the run began; run it again"
    if (source := cell.settings.get(SOURCE)) and method(cell.method).digest != source:
        raise UsageError(f"the source of the method {cell.method!r} {changed}")
    home, _, name = planned.runner.rpartition(":")
    if not home.endswith(".py"):
        return cast(Runner, getattr(import_module(home), name))
    run, digest = _from_file(planned.runner)
    if digest != cell.settings.get(EXPERIMENT_SOURCE):
        raise UsageError(f"the source of the experiment {cell.experiment!r} {changed}")
    return run


@cache
def _from_file(home: str) -> tuple[Runner, str]:
    """What carries out the cells of an experiment from outside, and the digest of its file; a worker runs it once."""
    found = named(home, f"`experiment` (={home!r})", "FILE.py:NAME", "mine.py:MINE")
    return found.value.run, found.digest


def _plain(measurements: Any) -> tuple[Measurement, ...]:
    """In plain numbers, which every process can read and every file can hold."""
    seen = list(measurements) if isinstance(measurements, Iterable) else [measurements]
    if not isinstance(measurements, Iterable) or not all(isinstance(one, Measurement) for one in seen):
        odd = next((one for one in seen if not isinstance(one, Measurement)), measurements)
        raise WrongTypeError(f"the cell's function `run` must return a list of Measurement, but returned {odd!r}")
    if not seen:
        raise UsageError("the cell returned no measurement; raise Skip with the reason instead")
    return tuple(
        Measurement(
            one.metric, numbers(f"values of {one.metric}", one.values), {k: _scalar(at) for k, at in one.at.items()}
        )
        for one in seen
    )


def _scalar(value: Any) -> Scalar:
    plain = value.item() if hasattr(value, "item") else value
    if not isinstance(plain, Scalar):
        raise WrongTypeError(f"a coordinate (={value!r}) must be text, a number or a truth value")
    return plain


def _reason(error: BaseException) -> str:
    said = one_line(str(error)) or ("out of memory" if isinstance(error, MemoryError) else "no message")
    return f"{type(error).__name__}: {said}"


def one_line(text: str) -> str:
    """Without line breaks, and not too long."""
    joined = " ".join(text.split())
    return joined if len(joined) <= LONGEST_REASON else joined[: LONGEST_REASON - 1] + "…"


def now() -> str:
    """The time, for people and machines."""
    return datetime.now(UTC).isoformat(timespec="seconds")
