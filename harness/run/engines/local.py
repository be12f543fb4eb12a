"""The local engine: cells on this machine, a process for each that runs at a time (`python -m` this module).

Processes of our own rather than a pool of joblib or concurrent.futures: those lose the whole pool when one worker dies
and do not say on which task; and nothing comes out of them before a task ends. Here a dead worker is one failed cell,
progress streams, and the workers die with their parent.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from harness.experiment import Context
from harness.records import Planned, Result
from harness.run.engines.work import Listener, carry_out, environment, now, threads_of_each
from sesn.tools.machine import provenance_with_code

#: Seconds between looks at workers that say nothing.
PATIENCE = 0.5
#: How many workers of a run may be killed before they are up: importing torch takes long enough for it to happen.
FALSE_STARTS = 3


@dataclass(frozen=True)
class Local:
    """The local engine.

    Attributes:
        place: what every worker has in common.
        devices: one for each worker; several on one device share it.
        threads: of each worker; None gives each its share of the cores, and all to a cell that runs alone.
        logs: the folder for what workers print, tracebacks among it.
    """

    place: Context
    devices: Sequence[str]
    threads: int | None
    logs: Path

    def run(self, cells: Sequence[Planned], listener: Listener) -> None:
        """Carry out all cells: first those that must be alone, with all threads, then the others."""
        self.logs.mkdir(parents=True, exist_ok=True)
        for old in self.logs.glob("worker-*.log"):
            old.unlink()
        for alone, devices in ((True, self.devices[:1]), (False, self.devices)):
            waiting = deque(planned for planned in cells if planned.alone == alone)
            threads = self.threads or threads_of_each(len(devices))
            places = [replace(self.place, device=device, threads=threads) for device in devices[: len(waiting)]]
            logs = [self.logs / f"worker-{index}.log" for index in range(len(places))]
            with closing(_Pool(dict(zip(logs, places, strict=True)), listener)) as pool:
                pool.run(waiting)


class _Pool:
    """A worker for each place, known by its log."""

    def __init__(self, places: Mapping[Path, Context], listener: Listener) -> None:
        self._places, self._listener = places, listener
        self._workers: dict[Path, _Worker] = {}
        self._false_starts = 0

    def close(self) -> None:
        for worker in self._workers.values():
            worker.kill()

    def run(self, waiting: deque[Planned]) -> None:
        while waiting or any(worker.planned for worker in self._workers.values()):
            for log, place in self._places.items() if waiting else ():
                if log not in self._workers:
                    self._workers[log] = _Worker(place, log)
            for worker in self._workers.values():
                if waiting and worker.is_ready and worker.planned is None:
                    self._listener.started(waiting[0].cell)
                    worker.begin(waiting.popleft())
            self._hear()
            self._bury()

    def _hear(self) -> None:
        by_connection: dict[Any, _Worker] = {one.connection: one for one in self._workers.values() if one.is_open}
        for connection in wait(list(by_connection), PATIENCE) if by_connection else ():
            self._take_messages(by_connection[connection])

    def _take_messages(self, worker: _Worker) -> None:
        for kind, *content in worker.messages():
            if kind == "ready":
                worker.facts = content[0]
            elif kind == "progress" and worker.planned is not None:
                self._listener.progressed(worker.planned.cell, *content)
            elif kind == "result":
                worker.planned = None
                self._listener.finished(content[0])

    def _bury(self) -> None:
        """Turn the cell of each dead worker into a failed one; where there is work for it, another takes its place."""
        for worker in [one for one in self._workers.values() if not one.is_alive]:
            del self._workers[worker.log]
            # Its last words may still be in the pipe.
            self._take_messages(worker)
            worker.kill()
            if not worker.is_ready:
                self._count_false_start(worker)
            if worker.planned is not None:
                self._listener.finished(worker.obituary())

    def _count_false_start(self, worker: _Worker) -> None:
        """One that was killed is replaced, up to FALSE_STARTS times; one that ended by itself would do so again."""
        self._false_starts += 1
        if worker.process.returncode >= 0 or self._false_starts > FALSE_STARTS:
            raise ChildProcessError(
                f"a worker could not start: it {worker.fate}; its last line is {_last_line(worker.log)!r}, "
                f"the rest is in {worker.log}"
            )


@dataclass
class _Worker:
    """A worker process, as its parent sees it."""

    place: Context
    log: Path
    planned: Planned | None = None
    facts: Mapping[str, str | int] = field(default_factory=dict)
    is_open: bool = True
    _started: str = ""
    _clock: float = 0.0

    def __post_init__(self) -> None:
        ours, theirs = Pipe()
        self.connection: Connection[Any, Any] = ours
        # Set before torch and numpy load.
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(self.place.threads))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", "harness.run.engines.local", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **threads, **environment()},
                # A session of its own: Ctrl-C reaches the parent alone, and what the cell starts can be ended with it.
                start_new_session=True,
            )
        theirs.close()
        # A worker that is dead already is noticed by `bury`.
        with suppress(OSError):
            ours.send(self.place)

    @property
    def is_alive(self) -> bool:
        """Whether it runs and can be heard."""
        return self.is_open and self.process.poll() is None

    @property
    def is_ready(self) -> bool:
        """Whether it has said which machine it is on."""
        return bool(self.facts)

    def begin(self, planned: Planned) -> None:
        self.planned = planned
        self._started, self._clock = now(), time.monotonic()
        # A worker that died meanwhile is noticed by `bury`.
        with suppress(OSError):
            self.connection.send(planned)

    def messages(self) -> list[Any]:
        """What has arrived; the end of the pipe closes it."""
        arrived = []
        try:
            while self.is_open and self.connection.poll():
                arrived.append(self.connection.recv())
        except (EOFError, OSError):
            self.is_open = False
        return arrived

    def kill(self) -> None:
        """End it and whatever it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.connection.close()
        self.is_open = False

    @property
    def fate(self) -> str:
        """How it ended."""
        code = self.process.returncode
        if code == -signal.SIGKILL:
            return "was killed (SIGKILL), as the system does when memory runs out"
        # Python has no names for most signals of Linux's real-time range.
        names = {-one.value: one.name for one in signal.Signals}
        return f"crashed ({names.get(code, f'signal {-code}')})" if code < 0 else f"exited with status {code}"

    def obituary(self) -> Result:
        """The failed cell of a dead worker."""
        assert self.planned is not None
        seconds = round(time.monotonic() - self._clock, 4)
        return Result(self.planned.cell, "failed", (), f"the worker {self.fate}", self.facts, self._started, seconds)


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


# --- inside a worker


def main() -> None:
    """Carry out cells one after another, until the other end closes."""
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    # Where memory runs out, Linux should end a worker, which costs one cell, rather than the parent.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    place = connection.recv()
    cells: queue.SimpleQueue[Planned] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, cells), daemon=True).start()
    torch.set_num_threads(place.threads)
    connection.send(("ready", provenance_with_code(place.device)))
    while True:
        result = carry_out(cells.get(), place, lambda *progress: connection.send(("progress", *progress)))
        connection.send(("result", result))


def _listen(connection: Connection[Any, Any], cells: queue.SimpleQueue[Planned]) -> None:
    """Pass cells on; when the parent is gone, however it went, end this worker and all that it started."""
    with suppress(EOFError, OSError):
        while True:
            cells.put(connection.recv())
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
