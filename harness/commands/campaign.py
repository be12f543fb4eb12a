"""`sesn run`, behind its options: the cells that are to do go through an engine, and their rows into the store."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from harness.commands.asked import Asked
from harness.commands.engines import Where
from harness.commands.ledger import Ledger, Total
from harness.records import Cell, Planned, Result
from harness.run.engines.display import Bars, Display, Lines, short_names, spoken
from harness.run.engines.work import now
from harness.store.lines import StoredCell
from harness.store.writing import Doing, Writer
from sesn.tools.endings import Stopped
from sesn.tools.machine import provenance_with_code

#: No more often than this is it said how far cells are, in seconds.
TOLD_EVERY = 2.0


def campaign(asked: Asked, where: Where, console: Console, errors: Console, *, quiet: bool) -> Campaign:
    """Run what is to do, telling of it on `errors`, and say on `console` how it went; a stopped run says so, too."""
    where.check_training(asked.training)
    workers = where.workers
    # Whatever is wrong with what was asked for is said before anything is made.
    asked.planned(asked.budget)
    engine = where.build()
    begun = time.monotonic()
    try:
        with Writer(asked.rows) as writer:
            ledger = asked.ledger(len(workers), workers[0], where.threads_each)
            store_skips(ledger.standings, asked.entries, writer)
            sweep(where.scratch_folder, asked.entries)
            run = Campaign(ledger, asked.entries, writer, where.scratch_folder)
            with run.shown(errors, quiet=quiet) as run.display:
                if ledger.to_do:
                    engine.run(ledger.to_do, run)
    except KeyboardInterrupt:  # Stopped is one
        with suppress(Stopped):
            errors.print(
                "stopped; all that finished is stored, and the same command continues where it stopped", soft_wrap=True
            )
        raise
    told = run.summary(time.monotonic() - begun)
    console.print(f"{told}; rows in {asked.rows}", highlight=False, soft_wrap=True)
    if run.counts["failed"]:
        errors.print(f"tracebacks are in {where.logs}", highlight=False, soft_wrap=True)
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
    display: Display = field(default_factory=Display)
    counts: Counter[str] = field(default_factory=Counter)
    _running: dict[str, Doing] = field(default_factory=dict)
    _told: float = 0.0
    _waiting: dict[str, Planned] = field(init=False)
    _names: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._waiting = {one.cell.id: one for one in self.ledger.to_do}
        self._names = short_names([one.cell for one in self.ledger.to_do])

    def shown(self, errors: Console, *, quiet: bool) -> Display:
        """The display that shows the run: bars on a terminal, lines elsewhere or if it is to be quiet."""
        if errors.is_terminal and not quiet:
            return Bars(errors, len(self._names), self.left, self._names)
        return Lines(errors, len(self._names), self.left, quiet=quiet)

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
        seconds = unknown = 0.0
        for name, planned in self._waiting.items():
            expected = self.ledger.estimates.seconds(planned)
            unknown += expected is None
            done = self._running[name].fraction if name in self._running else 0.0
            seconds += (expected or 0.0) * (1 - done)
        return Total(seconds / max(len(self._running), 1), int(unknown)).words(spoken)

    def summary(self, seconds: float) -> str:
        """The last line."""
        if not self.counts:
            return "nothing is left to do"
        told = ", ".join(f"{self.counts[status]} {status}" for status in ("ok", "failed", "skipped"))
        total = sum(self.counts.values())
        return f"{total} cell{'s' * (total != 1)} in {spoken(seconds)}: {told}"
