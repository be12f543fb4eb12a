"""The Ray engine, on a real Ray instance: the same rows as locally, and a killed worker loses nothing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import engine_sample
import pandas as pd
import pytest
from test_engine import ENDINGS, Recorder, run, task
from test_run_command import cells, comparable

from harness.experiment import Context
from harness.run.engines.cluster import Cluster, check_loopback
from harness.store.frame import load

# Not imported: what Ray listens on is decided when it is.
if importlib.util.find_spec("ray") is None:
    pytest.skip("the extra `cluster` is not installed", allow_module_level=True)

COMMAND = [sys.executable, engine_sample.__file__, "run", "selftest"]


def sesn(rows: Path, settings: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "--rows", str(rows), *options]
    return subprocess.run(
        command, env={**os.environ, "SELFTEST": settings}, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_two_workers_of_which_one_is_killed_give_the_rows_of_a_local_run(tmp_path: Path) -> None:
    """The cell whose worker is killed is given out again, and goes on from what it left in its scratch folder."""
    settings = cells(*({"do": "sleep", "duration": 0.1} for _ in range(12)), {"do": "be killed once"}, {"do": "skip"})
    ended = sesn(tmp_path / "ray", settings, "--engine", "ray", "--jobs", "2", "--threads", "1")
    assert ended.returncode == 0, ended.stderr
    # Ray itself tells of the death before.
    assert "14 cells in" in ended.stdout.splitlines()[-1]
    assert "13 ok, 0 failed, 1 skipped" in ended.stdout.splitlines()[-1]
    assert sesn(tmp_path / "local", settings.replace("be killed once", "nothing"), "--threads", "1").returncode == 0
    ignored = ["cell", "do"]
    left, right = (comparable(tmp_path / name).drop(columns=ignored) for name in ("ray", "local"))
    order = ["seed", "metric", "repeat"]
    pd.testing.assert_frame_equal(
        left.sort_values(order).reset_index(drop=True), right.sort_values(order).reset_index(drop=True)
    )


@pytest.mark.slow
def test_every_ending_is_a_result_and_all_cells_are_heard_of(tmp_path: Path) -> None:
    recorder = Recorder()
    tasks = [task(seed, do=do, duration=2, steps=4) for seed, do in enumerate(ENDINGS) if do != "start a child and die"]
    tasks.append(task(99, alone=True))
    Cluster(Context(scratch=tmp_path), jobs=2, threads=1).run(tasks, recorder)
    assert len(recorder.results) == len(tasks)
    by_action = {str(one.cell.settings.get("do", "alone")): one for one in recorder.results}
    assert by_action.pop("alone").cell.experiment == recorder.results[0].cell.experiment == "alone"
    assert {do: one.status for do, one in by_action.items()} == {do: ENDINGS[do][0] for do in by_action}
    # What Python says is told word for word; of a dead worker, that it died twice.
    for do in ("raise", "skip", "give up", "exhaust memory", "fill the disk"):
        assert by_action[do].reason == ENDINGS[do][1]
    for do in ("be killed", "crash", "exit"):
        assert "Crashed" in by_action[do].reason or "Died" in by_action[do].reason
        assert ", 2 times: " in by_action[do].reason
    assert any(doing == "sleeping" for _, doing in recorder.heard)
    local = run([tasks[0]], tmp_path / "local", threads=1)
    assert repr(local.results[0].measurements) == repr(by_action["nothing"].measurements)


def test_no_cluster_at_the_address_is_bad_usage(tmp_path: Path) -> None:
    ended = sesn(tmp_path, cells({}), "--engine", "ray", "--address", "127.0.0.1:1")
    assert ended.returncode == 2
    assert "no Ray cluster at `address` (='127.0.0.1:1')" in ended.stderr
    assert load(tmp_path).empty


# --- who can reach it


def listening(mark: str) -> set[str]:
    """The addresses, as Linux writes them, on which processes listen that have the mark in their environment."""
    own: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (process / "environ").read_bytes():
                own |= {str(one.readlink()) for one in (process / "fd").iterdir()}
    tables = [Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:] for name in ("tcp", "tcp6")]
    fields = [line.split() for table in tables for line in table]
    return {field[1].split(":")[0] for field in fields if field[3] == "0A" and f"socket:[{field[9]}]" in own}


#: 127.0.0.1 and the same as an address of IPv6, in the order of bytes of Linux's tables.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="sockets are looked up as Linux lists them")
def test_a_cluster_that_is_started_here_listens_on_the_loopback_alone(tmp_path: Path) -> None:
    mark = f"SESN_MARK={tmp_path}"
    command = [*COMMAND, "--rows", str(tmp_path), "--engine", "ray", "--threads", "1"]
    settings = cells({"do": "sleep", "duration": 4, "steps": 8})
    environment = {**os.environ, "SELFTEST": settings, "SESN_MARK": str(tmp_path)}
    seen: set[str] = set()
    with (tmp_path / "errors").open("w+") as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        while process.poll() is None:
            seen |= listening(mark)
            time.sleep(0.2)
        assert process.returncode == 0, (tmp_path / "errors").read_text(encoding="utf-8")
    assert seen
    assert seen <= LOOPBACK


def ray_at(address: str) -> SimpleNamespace:
    return SimpleNamespace(nodes=lambda: [{"Alive": True, "NodeManagerAddress": address}])


def test_a_ray_that_would_listen_elsewhere_is_refused() -> None:
    check_loopback(ray_at("127.0.0.1"))
    with pytest.raises(ValueError, match=r"`address` \(=None\) must be given: .* listens on 192\.0\.2\.2"):
        check_loopback(ray_at("192.0.2.2"))


# --- without a cluster


def nodes(*resources: dict[str, float]) -> SimpleNamespace:
    return SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": one} for one in resources])


def test_cells_take_a_gpu_each_and_its_share_of_the_cores() -> None:
    cluster = Cluster(Context())
    machine = cluster._machine(nodes({"CPU": 0.0}, {"CPU": 64.0}, {"CPU": 32.0, "GPU": 4.0}))
    assert machine == {"CPU": 32.0, "GPU": 4.0}
    assert cluster._place(machine, 8).device == "cuda"


def test_without_gpus_the_smallest_machine_decides() -> None:
    for device in ("auto", "cpu"):
        cluster = Cluster(Context(), device)
        machine = cluster._machine(nodes({"CPU": 64.0}, {"CPU": 8.0}))
        assert machine["CPU"] == 8.0
        assert cluster._place(machine, 8).device == "cpu"


def test_gpus_are_left_alone_if_the_processor_was_asked_for() -> None:
    cluster = Cluster(Context(), "cpu")
    assert cluster._place(cluster._machine(nodes({"CPU": 8.0, "GPU": 1.0})), 8).device == "cpu"


def test_what_the_cluster_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="it has no GPU; use cpu"):
        Cluster(Context(), "cuda")._machine(nodes({"CPU": 8.0}))
    with pytest.raises(ValueError, match="at least one free processor core"):
        Cluster(Context())._machine(nodes({"CPU": 0.0}))
    with pytest.raises(
        ValueError, match=r"`threads` \(=9\) must be at most 8, the cores of the cluster's smallest machine"
    ):
        Cluster(Context())._place({"CPU": 8.0}, 9)
