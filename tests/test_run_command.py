"""`sesn plan`, `run`, `status` and `data`: nothing is lost, bad usage is one line, and the numbers add up."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import engine_sample
import pandas as pd
import pytest
from test_engine import all_gone
from typer.testing import CliRunner

from harness.experiments import EXPERIMENTS
from harness.records import Cell, Measurement, Result
from harness.store.frame import load
from harness.store.reading import finished, read, stored
from harness.store.writing import Writer
from sesn.methods import methods_on
from sesn.tools.app import app

runner = CliRunner()
COMMAND = [sys.executable, engine_sample.__file__, "run", "selftest"]


def invoke(*arguments: str | Path) -> Any:
    return runner.invoke(app, [str(one) for one in arguments])


def cells(*settings: dict[str, Any]) -> str:
    return json.dumps(settings)


# --- a run from beginning to end


def test_a_run_stores_retries_and_reports(selftest: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    selftest.setenv(
        "SELFTEST",
        cells({}, {"do": "be killed once"}, {"do": "skip"}, {"plan": "no data"}, {"do": "count", "steps": 2}),
    )
    first = invoke("run", "selftest", "--rows", rows, "--threads", "1")
    assert first.exit_code == 1, first.output
    assert "4 cells in" in first.stdout
    assert "2 ok, 1 failed, 1 skipped" in first.stdout
    assert "[1/4] ok, " in first.stderr
    assert "(the worker was killed (SIGKILL)" in first.stderr
    assert "worker-*.log" in first.stderr
    # A failed cell keeps its checkpoint, the others have none left.
    (kept,) = [path for path in (rows / ".checkpoints").iterdir() if path.is_dir()]
    assert stored(rows)[kept.name].status == "failed"
    lines = len(read(rows / "selftest.jsonl").entries)

    second = invoke("run", "selftest", "--rows", rows, "--quiet", "--threads", "1")
    assert second.exit_code == 0, second.output
    assert second.stdout.startswith("2 cells in")
    assert second.stderr == ""
    assert not kept.exists()
    assert len(finished(rows)) == 3
    # The failed one again; neither of the skipped.
    assert len(read(rows / "selftest.jsonl").entries) == lines + 1

    overview = invoke("status", "selftest", "--rows", rows)
    assert overview.exit_code == 0, overview.output
    assert "smoke" in overview.stdout
    assert "1 skipped: no data" in overview.stdout
    (counted,) = json.loads(invoke("status", "selftest", "--rows", rows, "--json").stdout)["experiments"]
    assert {name: counted[name] for name in ("cells", "done", "failed", "skipped", "remaining")} == {
        **{"cells": 5, "done": 3, "failed": 0, "skipped": 1, "remaining": 1}
    }
    assert counted["seconds_left"] > 0
    assert counted["cells_of_unknown_length"] == 0


def test_a_run_of_nothing_says_so(selftest: pytest.MonkeyPatch, tmp_path: Path) -> None:
    selftest.setenv("SELFTEST", cells({"plan": "no data"}))
    ended = invoke("run", "selftest", "--rows", tmp_path)
    assert ended.exit_code == 0, ended.output
    assert "nothing can be run here; 1 cell is skipped: no data; rows in" in ended.stdout
    assert "sesn report" not in ended.stdout
    assert load(tmp_path)["reason"].tolist() == ["no data"]
    planned = invoke("plan", "selftest", "--rows", tmp_path).stdout
    assert "nothing can be run here, as all cells are skipped" in planned
    assert "sesn report" not in planned


def test_checkpoints_of_stored_cells_are_removed_by_the_next_run(selftest: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are there if a run was killed after it had stored the rows."""
    selftest.setenv("SELFTEST", cells({"plan": "no data"}))
    done, unknown = Cell("selftest", 1, "smoke", "", {"number": 7}), tmp_path / ".checkpoints" / "0123456789abcdef"
    with Writer(tmp_path) as writer:
        writer.append(Result(done, "ok", (Measurement("delta", (1.0,)),)))
    for folder in (left := tmp_path / ".checkpoints" / done.id, unknown):
        folder.mkdir(parents=True)
        (folder / "training.safetensors").write_bytes(b"")
    assert invoke("run", "selftest", "--rows", tmp_path).exit_code == 0
    assert not left.exists()
    assert unknown.exists()


# --- kill -9, Ctrl-C


def started(rows: Path, settings: str, *options: str, pids: Path | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, "SELFTEST": settings} | ({"SELFTEST_PIDS": str(pids)} if pids else {})
    command = [*COMMAND, "--rows", str(rows), *options]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists() and process.poll() is None:
        time.sleep(0.01)


def comparable(rows: Path) -> pd.DataFrame:
    """All but what a second run may change: when, how long, and the commit it was run at."""
    frame = load(rows).drop(columns=["started", "seconds", "code"])
    return frame.astype(str).sort_values(["cell", "metric", "repeat"]).reset_index(drop=True)


MANY = cells(*({"do": "sleep", "duration": 0.03} for _ in range(30)), {"do": "count", "steps": 20}, {"do": "skip"})


@pytest.mark.parametrize("kills", [2, pytest.param(15, marks=pytest.mark.slow)])
def test_killed_at_any_moment_the_same_command_ends_with_the_same_rows(tmp_path: Path, kills: int) -> None:
    rows, calm, pids = (tmp_path / name for name in ("rows", "calm", "pids"))
    pids.mkdir()
    moments = random.Random(kills)
    for _ in range(kills):
        process = started(rows, MANY, "--jobs", "2", pids=pids)
        wait_for(rows / ".checkpoints" / "worker-0.log", process)
        # From before the workers are up to after the last cell.
        time.sleep(moments.uniform(0, 10))
        process.kill()
        process.communicate()
    for folder in (rows, calm):
        process = started(folder, MANY, "--jobs", "2", "--quiet")
        assert (process.communicate()[1], process.returncode) == ("", 0)
    # A torn end would still warn here, and warnings are errors.
    pd.testing.assert_frame_equal(comparable(rows), comparable(calm))
    ended = [entry.cell.id for entry in read(rows / "selftest.jsonl").entries if entry.status == "ok"]
    assert len(ended) == len(set(ended)) == 31
    if any(pids.iterdir()):
        assert all_gone(pids)


def test_the_workers_of_a_killed_run_die_and_its_checkpoint_is_continued(tmp_path: Path) -> None:
    rows, pids = tmp_path / "rows", tmp_path / "pids"
    pids.mkdir()
    settings = cells({"do": "count", "steps": 400})
    cell = Cell("selftest", 1, "smoke", "", {"do": "count", "steps": 400})
    process = started(rows, settings, pids=pids)
    wait_for(rows / ".checkpoints" / cell.id / "3", process)
    process.kill()
    process.communicate()
    assert all_gone(pids)
    done = list((rows / ".checkpoints" / cell.id).iterdir())
    assert 3 < len(done) < 400
    again = started(rows, settings)
    wait_for(rows / ".checkpoints" / cell.id / str(len(done)), again)
    # It went on where it was: the first steps were not made again.
    assert all(path.exists() for path in done)
    again.send_signal(signal.SIGINT)
    again.communicate()


def test_ctrl_c_stops_cleanly_and_keeps_what_is_finished(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    process = started(tmp_path / "rows", cells({}, {"do": "sleep", "duration": 100}), pids=pids)
    wait_for(tmp_path / "rows" / "selftest.jsonl", process)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "stopped; all that finished is stored, and the same command continues where it stopped" in errors
    assert "Traceback" not in errors
    assert len(finished(tmp_path / "rows")) == 1
    assert all_gone(pids)


def test_a_full_disk_stops_the_run_with_a_remedy(selftest: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def append(_writer: Writer, _result: Result) -> None:
        raise OSError(28, "No space left on device")

    selftest.setenv("SELFTEST", cells({}))
    selftest.setattr(Writer, "append", append)
    ended = invoke("run", "selftest", "--rows", tmp_path)
    assert ended.exit_code == 2
    assert "No space left on device" in ended.stderr


# --- bad usage

BAD = {
    "rows that are a file": (
        ("run", "--rows", __file__),
        f"`rows` (={__file__!r}) must be a folder that may be written to; cannot write {__file__}/.lock: {__file__} is "
        "no directory that may be written to; name another place",
    ),
    "checkpoints in a file": (("run", "--scratch", __file__), f"`scratch` (={__file__!r}) must be a folder that"),
    "a report in a file": (("reproduce", "--out", __file__), f"`out` (={__file__!r}) must be a folder that"),
    "experiment": (("run", "mnist"), "did you mean 'mnist-scale'?"),
    "method": (("run", "--methods", "cnn,resnet"), "`method` (='resnet')"),
    "budget": (("run", "--budget", "full"), "`budget` (='full')"),
    "engine": (("run", "--engine", "slurm"), "`engine` (='slurm')"),
    "jobs": (("run", "--jobs", "0"), "`jobs` (=0) must be at least 1"),
    "threads": (("run", "--threads", "0"), "`threads` (=0) must be at least 1"),
    "too many jobs": (("run", "--jobs", "1000000"), "`jobs` (=1000000) must be at most"),
    "too many jobs to plan": (("plan", "--jobs", "1000000"), "`jobs` (=1000000) must be at most 1024"),
    "too many threads": (("run", "--threads", "1000000"), "cores; more threads would only wait for one another"),
    "too many threads to plan": (("plan", "--threads", "1000000"), "`threads` (=1000000) must be at most 1024"),
    "too many ranks": (("run", "--ranks", "1000"), "`ranks` (=1000) must be at most 64; each needs two images"),
    "too many ranks to plan": (("plan", "--ranks", "1000"), "`ranks` (=1000) must be at most 64"),
    "more ranks than cores": (("run", "--device", "cpu", "--ranks", "64"), "one for each core"),
    "device": (("run", "--device", "tpu"), "`device` (='tpu')"),
    "recipe": (("run", "--recipe", "mine"), "`recipe` (='mine')"),
    "precision": (("run", "--precision", "fp8"), "`precision` (='fp8')"),
    "amp without a GPU": (("run", "--precision", "amp", "--device", "cpu"), "`precision` (='amp')"),
    "amp on a cluster's processors": (
        ("run", "--precision", "amp", "--device", "cpu", "--engine", "ray"),
        "`precision` (='amp')",
    ),
    "methods without a key": (("run", "--methods", ","), "`methods` (=',') must be keys of methods"),
    "ranks": (("run", "--ranks", "0"), "`ranks` (=0)"),
    "images": (("run", "--images", "cats"), "`images` (='cats')"),
    "images that are not there": (("run", "--images", "stl10"), "no folder of data sets"),
    "data": (("run", "--data", "/no/such/folder"), "/no/such/folder does not exist"),
    "no cell": (("run", "mnist-scale", "--methods", "wrn"), "no cell was asked for"),
    "address without a cluster": (("run", "--address", "auto"), "use --engine ray"),
    "a GPU for Ray": (("run", "parameters", "--engine", "ray", "--device", "cuda:1"), "Ray chooses which GPU"),
    "plan": (("plan", "--budget", "full"), "`budget` (='full')"),
    "status": (("status", "nothing"), "`experiment` (='nothing')"),
    "fetch": (("data", "--fetch", "cifar"), "`fetch` (='cifar')"),
}


@pytest.mark.parametrize(("arguments", "word"), BAD.values(), ids=BAD)
def test_bad_usage_is_one_line_and_status_2_before_anything_is_made(
    arguments: Sequence[str], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SESN_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    ended = invoke(*arguments)
    assert ended.exit_code == 2
    assert word in ended.stderr
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_a_store_that_cannot_be_written_is_bad_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = invoke("run", "parameters", "--rows", tmp_path / "file")
    assert ended.exit_code == 2
    assert "cannot write" in ended.stderr


def test_a_second_run_on_one_store_is_refused(tmp_path: Path) -> None:
    with Writer(tmp_path):
        ended = invoke("run", "parameters", "--rows", tmp_path)
    assert ended.exit_code == 2
    assert f"another run (pid {os.getpid()} on " in ended.stderr


@pytest.mark.parametrize("command", ["run", "plan", "status"])
def test_a_corrupt_store_is_bad_usage(tmp_path: Path, command: str) -> None:
    (tmp_path / "parameters.jsonl").write_text("nonsense\n{}\n")
    ended = invoke(command, "parameters", "--rows", tmp_path)
    assert ended.exit_code == 2
    assert "parameters.jsonl:1: " in ended.stderr


def test_a_torn_store_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "parameters.jsonl").write_text('{"cell":"12')
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        ended = invoke("status", "--rows", tmp_path)
    assert ended.exit_code == 0, ended.output
    assert "warning: " in ended.stderr
    assert "torn" in ended.stderr


# --- plans and estimates


def test_the_plan_lists_experiments_cells_and_why_some_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SESN_DATA", raising=False)
    text = invoke("plan", "--budget", "paper", "--rows", tmp_path).stdout
    assert all(key in text for key in EXPERIMENTS)
    assert "--verbose lists them" in text
    every = invoke("plan", "--budget", "paper", "--rows", tmp_path, "--verbose").stdout
    skipped = len(methods_on("stl10"))
    assert f"{skipped} skipped: no folder of data sets with STL-10 was named" in every
    document = json.loads(
        invoke("plan", "mnist-scale", "--budget", "paper", "--rows", tmp_path, "--cells", "--json").stdout
    )
    assert len(document["cells"]) == document["experiments"][0]["remaining"] == 24 * len(methods_on("mnist"))
    listed = invoke("plan", "parameters", "--methods", "cnn", "--rows", tmp_path, "--cells").stdout
    assert "parameters, all cells: seed=0\n" in listed
    assert " parameters cnn, network=mnist, recipe=paper (takes " in listed


# --- data


def test_data_lists_what_is_found_and_what_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SESN_DATA", raising=False)
    ended = invoke("data")
    assert ended.exit_code == 0
    assert all(word in ended.stdout for word in ("mnist", "stl10", "embedded"))


def test_data_names_the_folder_once_however_narrow_the_terminal(tmp_path: Path) -> None:
    ended = invoke("data", "--data", tmp_path)
    assert f"The folders are in {tmp_path}.\n" in ended.stdout
    assert ended.stdout.count(str(tmp_path)) == 1
