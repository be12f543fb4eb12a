"""What a run shows while it goes on, with cells named by what differs: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TaskProgressColumn, TextColumn
from rich.table import Column

from harness.records import DIGESTS, Cell, Result, Scalar

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


def say(console: Console, text: str, style: str = "") -> None:
    """Print a line as it is."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def names(cells: Sequence[Cell]) -> dict[str, str]:
    """Each cell by its experiment, its method and the settings that tell it from the others of its experiment.

    A setting that follows from those before it, such as the size of a window from its kind, is not told.
    """
    told = {cell.id: (cell.method,) if cell.method else () for cell in cells}
    for every in _by_experiment(cells).values():
        for name in dict.fromkeys(name for cell in every for name in _settings(cell)):
            values: dict[tuple[str, ...], set[str]] = defaultdict(set)
            texts = {cell.id: f"{name}={_settings(cell)[name]}" for cell in every if name in _settings(cell)}
            for cell in every:
                values[told[cell.id]].add(texts.get(cell.id, ""))
            if any(len(different) > 1 for different in values.values()):
                told |= {key: (*told[key], text) for key, text in texts.items()}
    return {cell.id: " ".join([cell.experiment, ", ".join(told[cell.id])]).strip() for cell in cells}


def shared(cells: Sequence[Cell]) -> dict[str, str]:
    """The settings that all cells of an experiment have in common, by experiment."""
    found = {}
    for key, every in _by_experiment(cells).items():
        first, *others = [_settings(cell) for cell in every]
        same = {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}
        told = (f"{value:g}" if isinstance(value, float) else f"{value}" for value in same.values())
        found[key] = ", ".join(f"{name}={value}" for name, value in zip(same, told, strict=True))
    return found


def _settings(cell: Cell) -> dict[str, Scalar]:
    """Those that mean something to people, and the seed."""
    return {name: value for name, value in {**cell.settings, "seed": cell.seed}.items() if name not in DIGESTS}


def _by_experiment(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    groups: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[cell.experiment].append(cell)
    return groups


class Lines:
    """What a run tells the people who wait for it: a line for each finished cell; for failed ones only, if quiet.

    A context, for as long as it runs. `names` are what cells are called, by id.
    """

    def __init__(self, console: Console, names: Mapping[str, str], left: Left, *, quiet: bool = False) -> None:
        self._console, self._names, self._left, self._quiet = console, names, left, quiet
        self._count, self._made, self._text = 0, -FRESH, ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def started(self, cell: Cell) -> None:
        """A cell began."""

    def progressed(self, cell: Cell, fraction: float, doing: str) -> None:
        """A cell is so far."""

    def finished(self, result: Result) -> None:
        """Print what became of a cell."""
        self._count += 1
        if not self._quiet or result.status == "failed":
            left = f" ({self._time_left()})" if self._count < len(self._names) else ""
            self._print(result, f"[{self._count}/{len(self._names)}] ", left)

    def _time_left(self) -> str:
        """It is expensive to work out, so that is done at most once a second."""
        if time.monotonic() - self._made >= FRESH:
            self._text, self._made = f"left: {self._left()}", time.monotonic()
        return self._text

    def drawing(self) -> None:
        """All cells have ended, and the report is being drawn."""
        if not self._quiet:
            self._console.print("drawing the report")

    def _print(self, result: Result, before: str = "", after: str = "") -> None:
        reason = f" ({result.reason})" if result.reason else ""
        told = f"{before}{result.status}, {spoken(result.seconds)}: {self._names[result.cell.id]}{reason}{after}"
        say(self._console, told, COLOURS[result.status])


class Bars(Lines):
    """A bar for all that is to do, with the time left, and one for each cell that runs; failures are printed above.

    `weights` are how much of the whole each cell is, by id; the report, if one is drawn, counts as a cell.
    """

    def __init__(
        self, console: Console, names: Mapping[str, str], left: Left, weights: Mapping[str, float], *, draws: bool
    ) -> None:
        super().__init__(console, names, left)
        # The only column that gives way: a title would push the bars and the time left off the screen.
        name = Column(no_wrap=True, overflow="ellipsis", max_width=max(LEAST_NAME, console.width - BESIDE_NAME))
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False, table_column=name))
        others = (BarColumn(BAR), TaskProgressColumn(), TextColumn("{task.fields[note]}"))
        self._progress = Progress(*columns, *others, console=console, transient=True)
        self._weights, self._running, self._ended = weights, dict[str, float](), 0.0
        self._bars: dict[str, TaskID] = {}
        total = sum(weights.values()) * (1 + draws / max(len(weights), 1))
        self._all = self._progress.add_task("all", total=total or 1.0, note="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()

    def started(self, cell: Cell) -> None:
        """Add its bar."""
        self._bars[cell.id] = self._progress.add_task(self._names[cell.id], total=1.0, note="")
        self._show(self._time_left())

    def progressed(self, cell: Cell, fraction: float, doing: str) -> None:
        """Move its bar."""
        if cell.id in self._bars:
            self._running[cell.id] = self._weights[cell.id] * fraction
            self._progress.update(self._bars[cell.id], completed=fraction, note=doing)
        self._show(self._time_left())

    def finished(self, result: Result) -> None:
        """Take its bar away."""
        name = result.cell.id
        if name in self._bars:
            self._progress.remove_task(self._bars.pop(name))
        self._running.pop(name, None)
        self._count += 1
        self._ended += self._weights[name]
        self._show(self._time_left())
        if result.status == "failed":
            self._print(result)

    def drawing(self) -> None:
        """All cells have ended, and the report is being drawn."""
        self._show("drawing the report")

    def _show(self, note: str) -> None:
        done, told = self._ended + sum(self._running.values()), f"{self._count}/{len(self._names)} cells, {note}"
        self._progress.update(self._all, completed=done, note=told)
