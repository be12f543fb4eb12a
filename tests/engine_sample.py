"""Cells that do as they are told, for tests of the engines; `python tests/engine_sample.py` is `sesn` with them.

The experiment "selftest" has one cell for each object of the JSON list in $SELFTEST: its settings.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness.experiment import CellSettings, Context, Draft, Experiment, Request, Skip
from harness.experiments import EXPERIMENTS
from harness.records import Cell, Measurement

RUNNER = "engine_sample:cell"


def cell(cell: Cell, context: Context) -> list[Measurement]:
    """Do what the setting `do` says, then return numbers that depend on the cell alone."""
    if folder := os.environ.get("SELFTEST_PIDS"):
        (Path(folder) / str(os.getpid())).touch()
    ACTIONS[str(cell.settings.get("do", "nothing"))](cell, context)
    first = Measurement("delta", (float(cell.seed), 0.1 * cell.seed, float("nan")), {"depth": 1})
    return [first, Measurement("step_time", (float("inf"),), {"method": "cnn"})]


def _nothing(_cell: Cell, _context: Context) -> None:
    pass


def _sleep(cell: Cell, context: Context) -> None:
    steps = int(cell.settings.get("steps", 1))
    for step in range(steps):
        context.on_progress(step / steps, "sleeping")
        time.sleep(float(cell.settings["duration"]) / steps)


def _raise(_cell: Cell, _context: Context) -> None:
    raise RuntimeError("as told,\nin two lines")


def _skip(_cell: Cell, _context: Context) -> None:
    raise Skip("there is nothing to see")


def _exit(_cell: Cell, _context: Context) -> None:
    os._exit(3)


def _give_up(_cell: Cell, _context: Context) -> None:
    sys.exit("a library gives up")


def _be_killed(_cell: Cell, _context: Context) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _be_killed_once(_cell: Cell, context: Context) -> None:
    assert context.scratch is not None
    marker = context.scratch / "was-here"
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def _crash(_cell: Cell, _context: Context) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _crash_without_a_name(_cell: Cell, _context: Context) -> None:
    """By a signal for which Python has no name."""
    os.kill(os.getpid(), signal.SIGRTMIN + 1)


def _exhaust_memory(_cell: Cell, _context: Context) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (10 << 30, hard))
    try:
        bytearray(1 << 40)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _fill_the_disk(_cell: Cell, _context: Context) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "checkpoint.safetensors")


def _bad_values(_cell: Cell, _context: Context) -> None:
    Measurement("delta", ())


def _start_a_child_and_die(_cell: Cell, _context: Context) -> None:
    """The child holds the pipe open, as forked workers of a data loader do."""
    child = subprocess.Popen(["sleep", "100"], close_fds=False)
    if folder := os.environ.get("SELFTEST_PIDS"):
        (Path(folder) / str(child.pid)).touch()
    os._exit(4)


def _count(cell: Cell, context: Context) -> None:
    """Slow steps; each is kept, so that a cell that begins again goes on where it was."""
    assert context.scratch is not None
    done = context.scratch / "done"
    for step in range(int(cell.settings["steps"])):
        if not (context.scratch / f"{step}").exists():
            time.sleep(0.05)
            (context.scratch / f"{step}").touch()
    done.touch()


ACTIONS: dict[str, Callable[[Cell, Context], None]] = {
    "nothing": _nothing,
    "sleep": _sleep,
    "raise": _raise,
    "skip": _skip,
    "exit": _exit,
    "give up": _give_up,
    "be killed": _be_killed,
    "be killed once": _be_killed_once,
    "crash": _crash,
    "crash without a name": _crash_without_a_name,
    "exhaust memory": _exhaust_memory,
    "fill the disk": _fill_the_disk,
    "bad values": _bad_values,
    "start a child and die": _start_a_child_and_die,
    "count": _count,
}


@dataclass(frozen=True, kw_only=True)
class Told(CellSettings):
    do: str | None = None
    duration: float | None = None
    steps: int | None = None
    number: int | None = None


def _drafts(_request: Request) -> Iterator[Draft]:
    for seed, settings in enumerate(json.loads(os.environ.get("SELFTEST", "[]"))):
        reason = settings.pop("plan", "")
        yield "", Told(**settings), seed, reason


SELFTEST = Experiment(
    key="selftest",
    title="Cells that do as they are told.",
    version=1,
    settings=Told,
    cells=_drafts,
    run=cell,
    axes=(),
    seed="",
    alone=False,
)


def register() -> None:
    """Make the experiment known."""
    EXPERIMENTS["selftest"] = SELFTEST
    EXPERIMENTS["alone"] = replace(SELFTEST, key="alone", title="The same, each alone.", alone=True)


if __name__ == "__main__":
    from sesn.tools.command import main

    # Tests that run in the background of a shell have Ctrl-C switched off, and hand that on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # By its name, under which workers find it.
    import engine_sample

    engine_sample.register()
    main()
