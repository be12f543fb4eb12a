"""What a run shows while it goes on: bars on a terminal, else a line for each cell; little if quiet."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TaskProgressColumn, TextColumn
from rich.table import Column

from harness.records import Cell, Result

#: The time left, in words.
Left = Callable[[], str]
COLOURS = {"ok": "green", "failed": "red", "skipped": "yellow"}
#: Seconds for which the time left is not worked out anew.
FRESH = 1.0
#: Widths in characters: of a bar, of the shortest name of a cell, and of everything beside the name. Of that, text such
#: as "epoch 12/60, loss 0.123" takes the most.
BAR, LEAST_NAME, BESIDE_NAME = 16, 12, 60


def spoken(seconds: float | None) -> str:
    """A duration: 0.8 s, 12 s, 3 min, 2.5 h, 4.1 days; a question mark if unknown."""
    if seconds is None:
        return "?"
    for least, unit, name in ((2 * 86400, 86400, "days"), (3600, 3600, "h"), (100, 60, "min")):
        if seconds >= least:
            count = seconds / unit
            return f"{count:.1f} {name}" if name != "min" and count < 10 else f"{count:.0f} {name}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def short_names(cells: Sequence[Cell]) -> dict[str, str]:
    """For a bar: the method and those settings in which a cell differs from others of its experiment."""
    seen: dict[tuple[str, str], set[object]] = defaultdict(set)
    for cell in cells:
        for name, value in (*cell.settings.items(), ("seed", cell.seed)):
            seen[cell.experiment, name].add(value)

    def short(cell: Cell) -> str:
        told = [f"{name}={value}" for name, value in cell.settings.items() if len(seen[cell.experiment, name]) > 1]
        told += [f"seed={cell.seed}"] if len(seen[cell.experiment, "seed"]) > 1 else []
        return ", ".join(filter(None, (f"{cell.experiment} {cell.method}".strip(), *told)))

    return {cell.id: short(cell) for cell in cells}


class Display:
    """What a run tells the people who wait for it; a context, for as long as it runs. This one says nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def started(self, cell: Cell) -> None:
        """A cell began."""

    def progressed(self, cell: Cell, fraction: float, doing: str) -> None:
        """A cell is so far."""

    def finished(self, result: Result) -> None:
        """A cell ended."""


class Lines(Display):
    """A line for each finished cell, for a log that is read afterwards; for failed ones only, if quiet."""

    def __init__(self, console: Console, total: int, left: Left, *, quiet: bool = False) -> None:
        self._console, self._total, self._left, self._quiet = console, total, _Fresh(left), quiet
        self._count = 0

    def finished(self, result: Result) -> None:
        """Print what became of it."""
        self._count += 1
        if self._quiet and result.status != "failed":
            return
        left = f" (left: {self._left()})" if self._count < self._total else ""
        _print(self._console, result, f"[{self._count}/{self._total}] ", left)


class Bars(Display):
    """A bar for all cells, with the time left, and one for each that runs; failures are printed above.

    `names` are what running cells are called, by id.
    """

    def __init__(self, console: Console, total: int, left: Left, names: Mapping[str, str]) -> None:
        # The only column that gives way: a title would push the bars and the time left off the screen.
        name = Column(no_wrap=True, overflow="ellipsis", max_width=max(LEAST_NAME, console.width - BESIDE_NAME))
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False, table_column=name))
        others = (BarColumn(BAR), TaskProgressColumn(), _Count(), TextColumn("{task.fields[note]}"))
        self._progress = Progress(*columns, *others, console=console, transient=True)
        self._left, self._names = _Fresh(left), names
        self._bars: dict[str, TaskID] = {}
        self._all = self._progress.add_task("all cells", total=total, note="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()

    def started(self, cell: Cell) -> None:
        """Add its bar."""
        self._bars[cell.id] = self._progress.add_task(self._names[cell.id], total=1.0, note="")

    def progressed(self, cell: Cell, fraction: float, doing: str) -> None:
        """Move its bar."""
        if cell.id in self._bars:
            self._progress.update(self._bars[cell.id], completed=fraction, note=doing)
        self._progress.update(self._all, note=f"left: {self._left()}")

    def finished(self, result: Result) -> None:
        """Take its bar away."""
        if result.cell.id in self._bars:
            self._progress.remove_task(self._bars.pop(result.cell.id))
        self._progress.update(self._all, advance=1, note=f"left: {self._left()}")
        if result.status == "failed":
            _print(self._progress.console, result)


class _Count(MofNCompleteColumn):
    """How many of how many, for the bar of all cells; the others are fractions."""

    def render(self, task):  # type: ignore[no-untyped-def]
        return super().render(task) if task.total != 1.0 else ""


class _Fresh:
    """A text that is expensive to make, made at most once a second."""

    def __init__(self, make: Left) -> None:
        self._make, self._made, self._text = make, -FRESH, ""

    def __call__(self) -> str:
        if time.monotonic() - self._made >= FRESH:
            self._text, self._made = self._make(), time.monotonic()
        return self._text


def _print(console: Console, result: Result, before: str = "", after: str = "") -> None:
    reason = f" ({result.reason})" if result.reason else ""
    told = f"{before}{result.status}, {spoken(result.seconds)}: {result.cell.title}{reason}{after}"
    console.print(told, style=COLOURS[result.status], markup=False, highlight=False, soft_wrap=True)
