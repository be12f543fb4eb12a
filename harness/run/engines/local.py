"""The local engine: cells on this machine, a process for each that runs at a time.

Processes of our own rather than a pool of joblib or concurrent.futures: those lose the whole pool when one worker dies
and do not say on which task; and nothing comes out of them before a task ends. Here a dead worker is one failed cell,
progress streams, and the workers die with their parent.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self

from harness.experiment import Context
from harness.records import Planned, Result
from harness.run import imports
from harness.run.engines.devices import threads_of_each
from harness.run.engines.work import Listener, now

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
            places = [replace(self.place, device=device, threads=threads) for device in devices]
            with _Pool(places[: len(waiting)], self.logs, listener) as pool:
                while waiting or pool.is_busy:
                    for worker in pool.idle():
                        if waiting:
                            listener.started(waiting[0].cell)
                            worker.begin(waiting.popleft())
                    pool.hear()
                    pool.bury(needed=bool(waiting))


class _Pool:
    """As many workers as places, for as long as the context lasts."""

    def __init__(self, places: Sequence[Context], logs: Path, listener: Listener) -> None:
        self._listener = listener
        self._workers: list[_Worker] = []
        self._started = [(place, logs / f"worker-{index}.log") for index, place in enumerate(places)]
        self._false_starts = 0

    def __enter__(self) -> Self:
        try:
            for place, log in self._started:
                self._workers.append(_Worker(place, log))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        for worker in self._workers:
            worker.kill()

    @property
    def is_busy(self) -> bool:
        return any(worker.planned for worker in self._workers)

    def idle(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.is_ready and worker.planned is None]

    def hear(self) -> None:
        by_connection: dict[Any, _Worker] = {worker.connection: worker for worker in self._workers if worker.is_open}
        if not by_connection:
            return
        for connection in wait(list(by_connection), PATIENCE):
            worker = by_connection[connection]
            for kind, *content in worker.messages():
                self._heard(worker, kind, content)

    def _heard(self, worker: _Worker, kind: str, content: list[Any]) -> None:
        if kind == "ready":
            worker.facts = content[0]
        elif kind == "progress" and worker.planned is not None:
            self._listener.progressed(worker.planned.cell, *content)
        elif kind == "result":
            worker.planned = None
            self._listener.finished(content[0])

    def bury(self, *, needed: bool) -> None:
        """Turn the cell of each dead worker into a failed one, and replace the worker if there is work for it."""
        for worker in [one for one in self._workers if not one.is_alive]:
            self._workers = [other for other in self._workers if other is not worker]
            # Its last words may still be in the pipe.
            for kind, *content in worker.messages():
                self._heard(worker, kind, content)
            worker.kill()
            if not worker.is_ready:
                self._count_false_start(worker)
            if worker.planned is not None:
                self._listener.finished(worker.obituary())
            if needed:
                self._workers.append(_Worker(worker.place, worker.log))

    def _count_false_start(self, worker: _Worker) -> None:
        """Count a worker that ended before it was ready.

        One that was killed is replaced, up to FALSE_STARTS times. One that ended by itself would do so again, so the
        run ends.
        """
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
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", "harness.run.engines.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                # A session of its own: Ctrl-C reaches the parent alone, and what the cell starts can be ended with it.
                start_new_session=True,
            )
        theirs.close()
        # A worker that is dead already is noticed by `bury`.
        with suppress(OSError):
            ours.send(self.place)

    def _environment(self) -> dict[str, str]:
        """Threads are set before torch and numpy load; cells may come from wherever the parent imports."""
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(self.place.threads))
        return {**os.environ, **threads, **imports.environment()}

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
            return "was killed (SIGKILL), as the system does where memory runs out"
        if code < 0:
            return f"crashed ({_signal_name(-code)})"
        return f"exited with status {code}"

    def obituary(self) -> Result:
        """The failed cell of a dead worker."""
        assert self.planned is not None
        seconds = round(time.monotonic() - self._clock, 4)
        return Result(self.planned.cell, "failed", (), f"the worker {self.fate}", self.facts, self._started, seconds)


def _signal_name(number: int) -> str:
    """Python has no names for most signals of Linux's real-time range."""
    known = {one.value: one.name for one in signal.Signals}
    return known.get(number, f"signal {number}")


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
