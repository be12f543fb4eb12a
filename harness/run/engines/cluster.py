"""The engine for many machines: cells as tasks of a Ray cluster. The driver alone hears of results, and writes them.

A task whose worker or machine dies is given out once more, because on a cluster that is seldom the cell's fault; after
that it is a failed cell, as it is locally.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from harness.experiment import Context
from harness.records import Planned, Result
from harness.run.engines.work import Listener, carry_out, cores, now, one_line, paths
from sesn._checks import complaint, require
from sesn._source import digest
from sesn.errors import UsageError
from sesn.methods import PASSED_ON, passed_on

#: Seconds between looks at the board.
PATIENCE = 0.5
ATTEMPTS = 2
#: Bytes. Results are small; by default Ray would take a third of the memory.
OBJECT_STORE = 100_000_000


@dataclass(frozen=True)
class Cluster:
    """The Ray engine.

    Attributes:
        place: what every cell has in common; its device is chosen by `device`.
        device: "auto" (a GPU for each cell if the cluster has any), "cpu" or "cuda".
        address: of the cluster; None starts one on this machine, for this machine alone, which ends with the run.
        threads: processor cores for each cell; None: a machine's share for each of its GPUs or, without any, of `jobs`.
        jobs: how many cells a machine without GPUs runs at a time.
    """

    place: Context
    device: str = "auto"
    address: str | None = None
    threads: int | None = None
    jobs: int = 1

    def __post_init__(self) -> None:
        if self.device not in ("auto", "cpu", "cuda"):
            raise UsageError(complaint("device", self.device, "auto, cpu or cuda", "Ray chooses which GPU"))

    def run(self, cells: Sequence[Planned], listener: Listener) -> None:
        """Carry out all cells: first those that must be alone, each on a whole machine, then the others."""
        with _connected(self.address, (self.threads or 1) * self.jobs, shipped(cells)) as ray:
            machine = self._machine(ray)
            for planned in cells:
                if planned.alone:
                    _Batch(ray, self._place(machine, int(machine["CPU"])), listener).run([planned])
            shared = self.threads or int(machine["CPU"] / (machine.get("GPU") or self.jobs))
            if rest := [one for one in cells if not one.alone]:
                _Batch(ray, self._place(machine, shared), listener).run(rest)

    def _machine(self, ray: Any) -> Mapping[str, float]:
        """What the smallest machine of those that will be used has: what fits there fits everywhere."""
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        with_gpu = [machine for machine in alive if machine.get("GPU", 0) >= 1]
        if self.device == "cuda" and not with_gpu:
            raise UsageError(complaint("device", self.device, "one that the cluster has", "it has no GPU; use cpu"))
        used = with_gpu if with_gpu and self.device != "cpu" else [{**machine, "GPU": 0.0} for machine in alive]
        if not used:
            raise UsageError(complaint("address", self.address, "a cluster with at least one free processor core"))
        return min(used, key=lambda machine: machine["CPU"])

    def _place(self, machine: Mapping[str, float], threads: int) -> Context:
        # Ray would wait for a machine that has so many, for ever.
        rule = f"at most {machine['CPU']:g}, the cores of the cluster's smallest machine"
        require(threads <= machine["CPU"], "threads", threads, rule)
        return replace(self.place, device="cuda" if machine.get("GPU") else "cpu", threads=max(1, threads))


@contextmanager
def _connected(address: str | None, least_cores: int, files: Mapping[str, Path]) -> Iterator[Any]:
    """Ray, connected to a cluster, or to one that is started here; every worker gets the files in a folder."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # As Ray will do it from some version on; until that is said it warns.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address is None:
        _stay_on_this_machine()
    try:
        import ray
    except ImportError as error:
        raise UsageError("`engine` (='ray') needs Ray: pip install -e '.[cluster]' in the clone") from error
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    # A folder to work in with nothing else: without one Ray has workers import from the current directory first.
    with tempfile.TemporaryDirectory(prefix="sesn-ray-") as folder:
        for name, path in files.items():
            shutil.copyfile(path, Path(folder) / name)
        options["runtime_env"] = {"working_dir": folder, "env_vars": shipped_methods()}
        if address is None:
            # "local": never one that happens to run here.
            options |= {"address": "local", "include_dashboard": False, "object_store_memory": OBJECT_STORE}
            options |= {"num_cpus": max(cores(), least_cores)}
            # Cells may come from wherever this process imports.
            options["runtime_env"]["env_vars"] |= paths()
        try:
            _knock(address)
            ray.init(**options)
        except (OSError, ValueError, RuntimeError) as error:
            raise ConnectionError(f"no Ray cluster at `address` (={address!r}): {one_line(str(error))}") from error
    try:
        if address is None:
            check_loopback(ray)
        yield ray
    finally:
        ray.shutdown()


def _stay_on_this_machine() -> None:
    """Have the Ray that is about to be imported listen on the loopback alone, and ask for a token even there.

    On other systems than Linux that is Ray's own default, which this variable chooses. No option of `ray.init` does: if
    it is told that the node's address is 127.0.0.1, Ray takes the machine's address on the network instead.
    """
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ.setdefault("RAY_AUTH_MODE", "token")


def check_loopback(ray: Any) -> None:
    """Refuse a cluster of this machine that other machines could reach: who reaches it may run anything."""
    addresses = {node["NodeManagerAddress"] for node in ray.nodes()} - {"127.0.0.1", "::1"}
    if addresses:
        listening = (
            f"the Ray that was started here listens on {', '.join(sorted(addresses))}, not on the loopback alone"
        )
        remedy = "start a cluster with `ray start` and name it, or use Ray 2.60"
        raise UsageError(complaint("address", None, f"given: {listening}", remedy))


def _knock(address: str | None) -> None:
    """See whether anybody listens at host:port or ray://host:port. Ray itself would try for minutes, then abort."""
    host, colon, port = (address or "").rpartition("://")[2].rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


# --- files of methods and experiments from outside, which other machines do not have


def shipped(cells: Iterable[Planned]) -> dict[str, Path]:
    """The files that the cells and the methods come from, by the names under which workers of a cluster find them."""
    homes = {*passed_on().get(PASSED_ON, "").split(","), *(planned.runner for planned in cells)}
    return {shipped_name(home).rpartition(":")[0]: path for home in homes if (path := _file(home))}


def shipped_methods() -> dict[str, str]:
    """The variable that names the files of methods, as those workers find them."""
    return {name: ",".join(map(shipped_name, homes.split(","))) for name, homes in passed_on().items()}


def shipped_name(home: str) -> str:
    """FILE.py:NAME as a worker finds it in its folder, where no module can be called like the file; else unchanged."""
    path = _file(home)
    return f"sesn_file_{digest(str(path).encode())}.py:{home.rpartition(':')[2]}" if path else home


def _file(home: str) -> Path | None:
    path = Path(home.rpartition(":")[0])
    return path if path.suffix == ".py" else None


class _Board:
    """Where tasks write how far they are, and the driver reads it."""

    def __init__(self) -> None:
        self._news: dict[str, tuple[float, str]] = {}

    def tell(self, name: str, fraction: float, doing: str) -> None:
        self._news[name] = (fraction, doing)

    def take(self) -> dict[str, tuple[float, str]]:
        news, self._news = self._news, {}
        return news


def _carry_out(planned: Planned, place: Context, board: Any) -> Result:
    """What a worker of the cluster does."""
    torch.set_num_threads(place.threads)

    def tell(fraction: float, doing: str) -> None:
        board.tell.remote(planned.cell.id, fraction, doing)

    tell(0.0, "")
    return carry_out(planned, place, tell)


@dataclass
class _Batch:
    """Tasks that run side by side."""

    ray: Any
    place: Context
    listener: Listener
    _given: dict[Any, Planned] = field(default_factory=dict)
    _attempts: Counter[str] = field(default_factory=Counter)
    _begun: dict[str, str] = field(default_factory=dict)

    def run(self, cells: Sequence[Planned]) -> None:
        board = self.ray.remote(num_cpus=0)(_Board).remote()
        # Retries are counted here, so that they are the same for every kind of death.
        options = {"num_cpus": self.place.threads, "num_gpus": int(self.place.device == "cuda"), "max_retries": 0}
        remote = self.ray.remote(**options)(_carry_out)

        def give_out(planned: Planned) -> None:
            sent = planned._replace(runner=shipped_name(planned.runner))
            self._given[remote.remote(sent, self.place, board)] = planned

        for planned in cells:
            give_out(planned)
        looked = time.monotonic()
        while self._given:
            ready, _ = self.ray.wait(list(self._given), timeout=PATIENCE)
            for reference in ready:
                planned = self._given.pop(reference)
                if not self._ended(reference, planned):
                    give_out(planned)
            if time.monotonic() - looked >= PATIENCE:
                self._look_at(board)
                looked = time.monotonic()

    def _ended(self, reference: Any, planned: Planned) -> bool:
        """Pass the result on; False if the cell is to be given out again."""
        name = planned.cell.id
        self._attempts[name] += 1
        try:
            result = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            if self._attempts[name] < ATTEMPTS:
                return False
            reason = f"{type(error).__name__}, {ATTEMPTS} times: {one_line(str(error))}"
            result = Result(planned.cell, "failed", (), reason, {}, self._begun.get(name, now()))
        self.listener.finished(result)
        return True

    def _look_at(self, board: Any) -> None:
        """Tell the listener what the board says. It may have died with its machine: then nothing is told."""
        try:
            news = self.ray.get(board.take.remote(), timeout=10 * PATIENCE)
        except self.ray.exceptions.RayError:
            return
        cells = {planned.cell.id: planned.cell for planned in self._given.values()}
        for name, (fraction, doing) in news.items():
            if name in cells:
                if name not in self._begun:
                    self._begun[name] = now()
                    self.listener.started(cells[name])
                self.listener.progressed(cells[name], fraction, doing)
