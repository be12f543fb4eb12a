"""`sesn run`, behind its options: the cells that are to do go through an engine, and their rows into the store."""

from __future__ import annotations

import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from harness.commands.asked import Asked
from harness.commands.engines import Where
from harness.commands.ledger import Ledger
from harness.records import Cell, Planned, Result
from harness.run.engines.display import Bars, Lines, names, say, shared, spoken
from harness.run.engines.work import now
from harness.store.lines import StoredCell
from harness.store.writing import Doing, Writer
from sesn.tools.consoles import Stopped
from sesn.tools.machine import provenance_with_code

#: No more often than this is it said how far cells are, in seconds.
TOLD_EVERY = 2.0


def campaign(
    asked: Asked,
    where: Where,
    console: Console,
    errors: Console,
    *,
    quiet: bool,
    draw: Callable[[], object] | None = None,
) -> Campaign:
    """Run what is to do, telling of it on `errors`, and say on `console` how it went; a stopped run says so, too.

    `draw` makes the report of a run that has one, while the run is still shown.
    """
    where.check_training(asked.training)
    # Whatever is wrong with what was asked for is said before anything is made.
    asked.planned(asked.budget)
    engine = where.build()
    begun = time.monotonic()
    try:
        with ExitStack() as shown:
            with Writer(asked.choice.rows) as writer:
                ledger = asked.ledger(where)
                store_skips(ledger.standings, asked.entries, writer)
                sweep(where.scratch_folder, asked.entries)
                run = Campaign(ledger, asked.entries, writer, where.scratch_folder)
                if not quiet:
                    run.announce(errors, draws=draw is not None)
                run.display = shown.enter_context(run.shown(errors, quiet=quiet, draws=draw is not None))
                if ledger.to_do:
                    engine.run(ledger.to_do, run)
            if draw is not None:
                run.display.drawing()
                draw()
    except KeyboardInterrupt:  # Stopped is one
        with suppress(Stopped):
            say(errors, "stopped; all that finished is stored, and the same command continues where it stopped")
        raise
    say(console, f"{run.summary(time.monotonic() - begun)}; rows in {asked.choice.rows}")
    if run.counts["failed"]:
        say(errors, f"tracebacks are in {where.logs}")
    return run


def store_skips(standings: Sequence[Planned], entries: Mapping[str, StoredCell], writer: Writer) -> None:
    """A row for every cell that the plan leaves out, unless it is there already."""
    facts = provenance_with_code()
    for one in standings:
        cell = one.cell
        if one.state == "skipped" and not _said(entries.get(cell.id), one.reason):
            writer.append(Result(cell, "skipped", (), one.reason, facts, now()))


def _said(entry: StoredCell | None, reason: str) -> bool:
    return entry is not None and entry.status == "skipped" and entry.facts["reason"] == reason


def sweep(scratch: Path, entries: Mapping[str, StoredCell]) -> None:
    """Remove the checkpoints of cells whose rows are stored: a run that was killed between the two leaves them."""
    for folder in scratch.iterdir() if scratch.is_dir() else ():
        if folder.name in entries and entries[folder.name].status != "failed":
            shutil.rmtree(folder, ignore_errors=True)


def _tidy(scratch: Path, result: Result) -> None:
    """Remove a cell's checkpoints. A failed one keeps them, if it has any: run again, it may go on from there."""
    if result.status != "failed":
        shutil.rmtree(scratch, ignore_errors=True)
    else:
        with suppress(OSError):
            scratch.rmdir()


@dataclass
class Campaign:
    """A run: hears of cells, stores their rows, counts, and passes on what is to be shown."""

    ledger: Ledger
    entries: Mapping[str, StoredCell]
    writer: Writer
    scratch: Path
    counts: Counter[str] = field(default_factory=Counter)
    _running: dict[str, Doing] = field(default_factory=dict)
    _told: float = 0.0
    display: Lines = field(init=False)
    _waiting: dict[str, Planned] = field(init=False)
    _names: Mapping[str, str] = field(init=False)
    _cells: list[Cell] = field(init=False)

    def __post_init__(self) -> None:
        self._waiting = {one.cell.id: one for one in self.ledger.to_do}
        self._cells = [one.cell for one in self.ledger.standings if one.state != "skipped"]
        every = names(self._cells)
        self._names = {name: every[name] for name in self._waiting}

    def announce(self, errors: Console, *, draws: bool) -> None:
        """Say how much there is to do, how long it takes, and what all cells of an experiment have in common."""
        if not self._waiting:
            return
        left, count, jobs = self.ledger.left(self.ledger.to_do), len(self._waiting), self.ledger.jobs
        told = f"{left.words}, as similar cells took" if left.seconds else "unknown, as no similar cell has finished"
        then = "; then the report is drawn" if draws else ""
        lines = [f"{count} cell{'s' * (count != 1)} to run, {jobs} at a time; time: {told}{then}"]
        if begun := sum((self.scratch / name).is_dir() for name in self._waiting):
            lines.append(f"{begun} of them {'continues' if begun == 1 else 'continue'} where an earlier run stopped")
        if not draws:
            lines += [f"{key}, all cells: {told}" for key, told in shared(self._cells).items() if told]
        for line in lines:
            say(errors, line)

    def shown(self, errors: Console, *, quiet: bool, draws: bool) -> Lines:
        """The display that shows the run: bars on a terminal, lines elsewhere or if it is to be quiet."""
        if not errors.is_terminal or errors.is_dumb_terminal or quiet:
            return Lines(errors, self._names, self.left, quiet=quiet)
        seconds = {name: self.ledger.estimates.seconds(one) for name, one in self._waiting.items()}
        usual = statistics.median([known for known in seconds.values() if known] or [1.0])
        weights = {name: known or usual for name, known in seconds.items()}
        return Bars(errors, self._names, self.left, weights, draws=draws)

    def started(self, cell: Cell) -> None:
        """Note it."""
        self._running[cell.id] = Doing(self._names[cell.id], 0.0, "")
        self._tell()
        self.display.started(cell)

    def progressed(self, cell: Cell, fraction: float, doing: str) -> None:
        """Note it."""
        self._running[cell.id] = Doing(self._names[cell.id], min(max(fraction, 0.0), 1.0), doing)
        if time.monotonic() - self._told > TOLD_EVERY:
            self._tell()
        self.display.progressed(cell, fraction, doing)

    def finished(self, result: Result) -> None:
        """Store its rows first; then all else."""
        name = result.cell.id
        if result.status != "skipped" or not _said(self.entries.get(name), result.reason):
            self.writer.append(result)
        _tidy(self.scratch / name, result)
        self.counts[result.status] += 1
        self._running.pop(name, None)
        self._tell()
        planned = self._waiting.pop(name)
        if result.status == "ok":
            facts = result.provenance
            place = str(facts["machine"]), str(facts["device"]), int(facts["threads"])
            self.ledger.estimates.learn(planned, result.seconds, *place)
        self.display.finished(result)

    def _tell(self) -> None:
        """For `sesn status` in another terminal."""
        self._told = time.monotonic()
        self.writer.tell(list(self._running.values()))

    def left(self) -> str:
        """The time left, in words."""
        done = {name: one.fraction for name, one in self._running.items()}
        # On a cluster more may run at a time than this machine would take.
        return replace(self.ledger, jobs=max(len(done), 1)).left(self._waiting.values(), done).words

    def summary(self, seconds: float) -> str:
        """The last line."""
        if not self.counts:
            return self.ledger.nothing
        told = ", ".join(f"{self.counts[status]} {status}" for status in ("ok", "failed", "skipped"))
        total = sum(self.counts.values())
        return f"{total} cell{'s' * (total != 1)} in {spoken(seconds)}: {told}"
