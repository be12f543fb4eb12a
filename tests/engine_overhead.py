"""What an engine costs beyond the cells: `python tests/engine_overhead.py [--engine ray] [--cells 2000] [--jobs 1]`.

Runs trivial cells through the engine into a store on the disk, as `sesn run` does, and prints milliseconds a cell.
The start of the workers (torch, Ray) is timed apart.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import engine_sample

from harness.commands.engines import Where
from harness.records import Cell, Planned, Result
from harness.store.writing import Writer
from sesn.tools.machine import machine_line


class Timing:
    """Stores results and notes when the first and the last came."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.first = self.last = 0.0

    def started(self, cell: Cell) -> None:
        pass

    def progressed(self, cell: Cell, fraction: float, doing: str) -> None:
        pass

    def finished(self, result: Result) -> None:
        assert result.status == "ok", result.reason
        self._writer.append(result)
        self.last = time.perf_counter()
        self.first = self.first or self.last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="local")
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    tasks = [
        Planned(Cell("selftest", 1, "smoke", "", {}, seed), runner=engine_sample.RUNNER) for seed in range(given.cells)
    ]
    with tempfile.TemporaryDirectory() as folder, Writer(Path(folder)) as writer:
        timing, begun = Timing(writer), time.perf_counter()
        Where(given.engine, given.jobs, "cpu", 1, scratch=Path(folder) / ".checkpoints").build().run(tasks, timing)
    start, rest = timing.first - begun, timing.last - timing.first
    print(f"{given.engine}, {given.jobs} at a time, {given.cells} trivial cells ({machine_line()})")
    print(f"{1000 * rest / (given.cells - 1):.2f} ms a cell, {start:.1f} s until the first")


if __name__ == "__main__":
    main()
