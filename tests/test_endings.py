"""However a run is made to stop, it ends at once and in order, and the same command continues where it stopped."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import engine_sample
import pytest
from test_engine import all_gone
from test_run_command import cells, wait_for

from harness.store.reading import finished

COMMAND = [sys.executable, engine_sample.__file__, "run", "selftest", "--threads", "1"]
#: One that is done when the other has just begun.
TWO = ({}, {"do": "sleep", "duration": 1000})


class Run:
    """A run of two cells, of which the second is not meant to end."""

    def __init__(self, folder: Path, **streams: int) -> None:
        self.rows, self.pids = folder / "rows", folder / "pids"
        self.pids.mkdir()
        environment = {**os.environ, "SELFTEST": cells(*TWO), "SELFTEST_PIDS": str(self.pids)}
        command = [*COMMAND, "--rows", str(self.rows)]
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.DEVNULL, start_new_session=True, **streams
        )
        wait_for(self.rows / "selftest.jsonl", self.process)
        time.sleep(0.3)

    def ended_in_order(self) -> None:
        """Its workers are gone, what finished is stored, and another run is not kept out."""
        assert all_gone(self.pids)
        assert len(finished(self.rows)) == 1
        environment = {**os.environ, "SELFTEST": cells({})}
        command = [*COMMAND, "--rows", str(self.rows)]
        again = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (again.returncode, again.stderr) == (0, "")
        assert "nothing is left to do" in again.stdout


PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


LONG = [pytest.param(name, times, marks=pytest.mark.slow) for name, times in (("SIGTERM", 50), ("SIGHUP", 1))]


@pytest.mark.parametrize(("name", "times"), [("SIGINT", 5), *LONG])
def test_signals_stop_a_run_in_order(tmp_path: Path, name: str, times: int) -> None:
    run, number = Run(tmp_path, **PIPES), signal.Signals[name]
    for _ in range(times):
        if run.process.poll() is None:
            run.process.send_signal(number)
        time.sleep(0.005)
    _, errors = run.process.communicate(timeout=30)
    assert run.process.returncode == 128 + number, errors
    plan, finished_cell, *rest = errors.splitlines()
    assert plan.startswith("2 cells to run")
    assert finished_cell.startswith("[1/2] ok")
    assert rest == ["stopped; all that finished is stored, and the same command continues where it stopped"]
    run.ended_in_order()


@pytest.mark.slow
def test_a_terminal_that_vanishes_stops_a_run_in_order(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    run = Run(tmp_path, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.close(ours)
    run.process.send_signal(signal.SIGHUP)  # as the terminal's driver does for its foreground processes
    assert run.process.wait(30) == 128 + signal.SIGHUP
    run.ended_in_order()


@pytest.mark.slow
def test_a_hangup_that_is_switched_off_does_not_stop_a_run(tmp_path: Path) -> None:
    """As `nohup` does it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = Run(tmp_path, **PIPES)
    finally:
        signal.signal(signal.SIGHUP, before)
    run.process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert run.process.poll() is None
    run.process.send_signal(signal.SIGINT)
    run.process.communicate(timeout=30)
    run.ended_in_order()


def test_a_reader_that_has_enough_stops_a_run_in_order(tmp_path: Path) -> None:
    """As `sesn run 2>&1 | head -3` does it."""
    pids = tmp_path / "pids"
    pids.mkdir()
    settings = cells(*({"do": "sleep", "duration": 0.4} for _ in range(100)))
    environment = {**os.environ, "SELFTEST": settings, "SELFTEST_PIDS": str(pids)}
    command = [*COMMAND, "--rows", str(tmp_path / "rows")]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("100 cells to run")
    assert process.stdout.readline().startswith("selftest, all cells")
    assert process.stdout.readline().startswith("[1/100] ok")
    process.stdout.close()
    assert process.wait(60) == 128 + signal.SIGPIPE
    assert all_gone(pids)
    assert 1 < len(finished(tmp_path / "rows")) < 100


@pytest.mark.slow
@pytest.mark.parametrize("command", ["plan", "status"])
def test_a_reader_that_has_enough_is_no_error_of_other_commands(tmp_path: Path, command: str) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    words = [sys.executable, engine_sample.__file__, command, "--rows", str(tmp_path)]
    ended = subprocess.run(words, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False)
    os.close(theirs)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")
