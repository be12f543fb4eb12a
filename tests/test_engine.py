"""The local engine: every way in which a cell can end is a result, and the others go on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import engine_sample
import numpy as np
import pytest
import torch

from harness.experiment import Context
from harness.records import Cell, Measurement, Planned, Result
from harness.run.engines import work as work_module
from harness.run.engines.local import FALSE_STARTS, Local
from harness.run.engines.work import LONGEST_REASON, carry_out, cores, devices, for_workers, throttled


def task(seed: int, *, alone: bool = False, **settings: str | float) -> Planned:
    cell = Cell("alone" if alone else "selftest", 1, "smoke", "", settings, seed)
    return Planned(cell, runner=engine_sample.RUNNER, alone=alone)


@dataclass
class Recorder:
    """Listens, and remembers in order."""

    events: list[tuple[str, Cell]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    heard: list[tuple[float, str]] = field(default_factory=list)

    def started(self, cell: Cell) -> None:
        self.events.append(("started", cell))

    def progressed(self, cell: Cell, fraction: float, doing: str) -> None:
        self.heard.append((fraction, doing))

    def finished(self, result: Result) -> None:
        self.events.append(("finished", result.cell))
        self.results.append(result)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, collected by its parent or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def all_gone(folder: Path, patience: float = 20.0) -> bool:
    """Whether the processes whose ids are the names of files are gone before long."""
    pids = [int(path.name) for path in folder.iterdir()]
    assert pids
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and not all(map(is_gone, pids)):
        time.sleep(0.05)
    return all(map(is_gone, pids))


def run(tasks: Sequence[Planned], folder: Path, *, jobs: int = 1, threads: int | None = None) -> Recorder:
    recorder = Recorder()
    Local(Context(scratch=folder), ["cpu"] * jobs, threads, folder).run(tasks, recorder)
    return recorder


ENDINGS = {
    "nothing": ("ok", ""),
    "raise": ("failed", "RuntimeError: as told, in two lines"),
    "skip": ("skipped", "there is nothing to see"),
    "exit": ("failed", "the worker exited with status 3"),
    "give up": ("failed", "SystemExit: a library gives up"),
    "be killed": ("failed", "the worker was killed (SIGKILL), as the system does when memory runs out"),
    "crash": ("failed", "the worker crashed (SIGSEGV)"),
    "crash without a name": ("failed", f"the worker crashed (signal {signal.SIGRTMIN + 1})"),
    "exhaust memory": ("failed", "MemoryError: out of memory"),
    "fill the disk": ("failed", "OSError: [Errno 28] No space left on device: 'checkpoint.safetensors'"),
    "bad values": ("failed", "UsageError: `values` of delta must not be empty; leave the measurement out instead"),
    "start a child and die": ("failed", "the worker exited with status 4"),
    "sleep": ("ok", ""),
}


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorder, Path]:
    """Every ending in one run, by two workers; the folder has their logs, and below it their ids."""
    folder = tmp_path_factory.mktemp("engine")
    (folder / "pids").mkdir()
    tasks = [task(seed, do=do, duration=0.4, steps=2) for seed, do in enumerate(ENDINGS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFTEST_PIDS", str(folder / "pids"))
        return run([*tasks, task(99, alone=True), task(98, alone=True)], folder, jobs=2), folder


@pytest.mark.parametrize("do", ENDINGS)
def test_however_a_cell_ends_it_is_a_result_with_a_reason(one_run: tuple[Recorder, Path], do: str) -> None:
    (result,) = [one for one in one_run[0].results if one.cell.settings.get("do") == do]
    assert (result.status, result.reason) == ENDINGS[do]
    assert bool(result.measurements) == (result.status == "ok")
    assert set(result.provenance) == {"code", "machine", "threads", "torch", "device"}
    assert result.started


def test_each_cell_is_started_and_finished_once(one_run: tuple[Recorder, Path]) -> None:
    events = one_run[0].events
    assert len(events) == len({(kind, cell.id) for kind, cell in events}) == 2 * (len(ENDINGS) + 2)


def test_progress_streams(one_run: tuple[Recorder, Path]) -> None:
    assert (0.5, "sleeping") in one_run[0].heard


def test_workers_share_the_cores_but_one_that_is_alone_has_all(one_run: tuple[Recorder, Path]) -> None:
    threads = {one.cell.experiment: one.provenance["threads"] for one in one_run[0].results}
    assert threads == {"alone": cores(), "selftest": max(1, cores() // 2)}


def test_what_runs_alone_runs_first_and_one_after_another(one_run: tuple[Recorder, Path]) -> None:
    kinds = [(kind, cell.experiment) for kind, cell in one_run[0].events]
    assert kinds[:4] == [("started", "alone"), ("finished", "alone")] * 2
    assert ("started", "alone") not in kinds[4:]


def test_nothing_that_a_run_started_outlives_it(one_run: tuple[Recorder, Path]) -> None:
    assert all_gone(one_run[1] / "pids")


def test_tracebacks_are_in_the_logs(one_run: tuple[Recorder, Path]) -> None:
    logs = "".join(path.read_text(encoding="utf-8") for path in one_run[1].glob("worker-*.log"))
    assert "RuntimeError: as told" in logs
    assert "Segmentation fault" in logs


def test_the_number_of_workers_does_not_change_the_numbers(one_run: tuple[Recorder, Path], tmp_path: Path) -> None:
    again = run([task(0, do="nothing", duration=0.4, steps=2)], tmp_path, threads=1)
    (before,) = [one for one in one_run[0].results if one.cell == again.results[0].cell]
    assert repr(again.results[0].measurements) == repr(before.measurements)
    assert again.results[0].provenance["threads"] == 1


def test_a_worker_that_cannot_start_is_an_error_not_a_failed_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ChildProcessError, match="a worker could not start: it exited with status 1"):
        run([task(0)], tmp_path)


def test_a_worker_that_died_before_it_was_spoken_to_is_the_same_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(subprocess.Popen[bytes]):
        def __init__(self, *command: Any, **options: Any) -> None:
            super().__init__(*command, **options)
            self.wait()

    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr("harness.run.engines.local.subprocess.Popen", Slow)
    with pytest.raises(ChildProcessError, match="a worker could not start: it exited with status 1"):
        run([task(0)], tmp_path)


KILLED_AT_THE_START = """
import os, pathlib, sys
left = pathlib.Path({left!r})
if "harness.run.engines.local" in sys.orig_argv and left.stat().st_size:
    os.truncate(left, left.stat().st_size - 1)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("times", [FALSE_STARTS, FALSE_STARTS + 1])
def test_a_worker_that_is_killed_while_it_starts_is_replaced_a_few_times(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "left").write_bytes(bytes(times))
    script = KILLED_AT_THE_START.format(left=str(tmp_path / "left"))
    (tmp_path / "sitecustomize.py").write_text(script, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    if times > FALSE_STARTS:
        with pytest.raises(ChildProcessError, match="a worker could not start: it was killed"):
            run([task(0)], tmp_path)
    else:
        assert [one.status for one in run([task(0)], tmp_path).results] == ["ok"]
    assert not (tmp_path / "left").stat().st_size


class Refusing(Recorder):
    def finished(self, result: Result) -> None:
        raise OSError("the disk is full")


def test_an_error_of_the_listener_stops_the_run_and_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pids").mkdir()
    monkeypatch.setenv("SELFTEST_PIDS", str(tmp_path / "pids"))
    with pytest.raises(OSError, match="the disk is full"):
        Local(Context(), ["cpu"], 1, tmp_path).run([task(0), task(1)], Refusing())
    assert all_gone(tmp_path / "pids")


# --- one cell, in this process


def odd_runner(cell: Cell, context: Context) -> list[Measurement]:
    """As carelessly as a runner may be written."""
    if cell.seed == 1:
        return []
    if cell.seed == 2:
        return [Measurement("delta", (1.0,), {"where": [1]})]  # type: ignore[dict-item]
    if cell.seed == 3:
        raise RuntimeError("long " * 1000)
    return [Measurement("delta", tuple(np.float32([0.5])), {"depth": np.int64(3), "on": torch.tensor(True)})]  # type: ignore[dict-item]


def odd(seed: int) -> Result:
    return carry_out(
        Planned(Cell("x", 1, "smoke", "", {}, seed), runner="test_engine:odd_runner"), Context(), lambda *_: None
    )


def test_numbers_of_numpy_and_torch_become_plain() -> None:
    (seen,) = odd(0).measurements
    assert type(seen.values[0]) is float
    assert {name: type(value) for name, value in seen.at.items()} == {"depth": int, "on": bool}


@pytest.mark.parametrize(
    ("seed", "word"), [(1, "returned no measurement; raise Skip"), (2, r"a coordinate \(=\[1\]\)"), (3, "long …|long…")]
)
def test_what_cannot_be_stored_is_a_failed_cell(seed: int, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = odd(seed)
    assert result.status == "failed"
    assert re.search(word, result.reason)
    assert len(result.reason) < LONGEST_REASON + 50
    assert "Traceback" in capsys.readouterr().err


def test_a_runner_that_is_not_there_is_a_failed_cell(capsys: pytest.CaptureFixture[str]) -> None:
    result = carry_out(Planned(CELL, runner="harness.run.nowhere:nothing"), Context(), lambda *_: None)
    assert result.reason == "ModuleNotFoundError: No module named 'harness.run.nowhere'"
    assert capsys.readouterr().err


CELL = Cell("x", 1, "smoke", "")


def test_progress_is_not_told_too_often() -> None:
    told: list[float] = []
    telling = throttled(lambda fraction, _: told.append(fraction))
    for step in range(1000):
        telling(step / 1000, "counting")
    assert 1 <= len(told) < 100


# --- devices


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_module.torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("two_gpus")
def test_every_gpu_gets_a_worker() -> None:
    assert devices("auto") == devices("cuda") == ["cuda:0", "cuda:1"]
    assert devices("cuda:1") == ["cuda:1"]
    assert devices("cpu") == ["cpu"]
    assert for_workers(devices("auto"), None) == ["cuda:0", "cuda:1"]
    assert for_workers(devices("auto"), 3) == ["cuda:0", "cuda:1", "cuda:0"]
    with pytest.raises(ValueError, match=r"`device` \(='cuda:2'\) must be one that torch sees \(cpu, cuda:0, cuda:1\)"):
        devices("cuda:2")


def test_without_a_gpu_there_is_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_module.torch.cuda, "device_count", lambda: 0)
    assert devices("auto") == ["cpu"]
    assert for_workers(["cpu"], None) == ["cpu"]
    assert for_workers(["cpu"], 3) == ["cpu"] * 3
    for name in ("cuda", "tpu", "cuda:x"):
        with pytest.raises(ValueError, match="`device`"):
            devices(name)
    assert 1 <= cores() <= (os.cpu_count() or 1)
