"""A worker of the local engine: `python -m harness.run.engines.worker DESCRIPTOR`, talking over a pipe it inherits."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


def main() -> None:
    """Carry out cells one after another, until the other end closes."""
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    _volunteer_for_the_oom_killer()
    place = connection.recv()

    # Late: torch takes seconds, and the pipe's end must be noticed meanwhile.
    cells: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, cells), daemon=True).start()
    import torch

    from harness.run.engines.work import Throttled, carry_out
    from sesn.tools.machine import provenance_with_code

    torch.set_num_threads(place.threads)
    connection.send(("ready", provenance_with_code(place.device)))
    while True:
        planned = cells.get()
        telling = Throttled(lambda fraction, doing: connection.send(("progress", fraction, doing)))
        connection.send(("result", carry_out(planned, place, telling)))


def _listen(connection: Connection[Any, Any], cells: queue.SimpleQueue[Any]) -> None:
    """Pass cells on; when the parent is gone, however it went, end this worker and all that it started."""
    with suppress(EOFError, OSError):
        while True:
            cells.put(connection.recv())
    os.killpg(0, signal.SIGKILL)


def _volunteer_for_the_oom_killer() -> None:
    """Where memory runs out, Linux should end a worker, which costs one cell, rather than the parent."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


if __name__ == "__main__":
    main()
