"""The plan, what is done of it and what to do next, in a screenful of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.commands.asked import ORDERS, Asked
from harness.commands.ledger import STATES, Ledger
from harness.commands.options import ROWS, Choice
from harness.data.sources import DataSetStatus
from harness.experiments import EXPERIMENTS
from harness.records import Cell, Planned
from harness.run.engines.display import names, say, shared, spoken
from harness.store.reading import size
from harness.store.writing import running

#: What git and those who clone should not be asked to carry.
LARGEST_STORE = 50e6
#: So many reasons for failures are told before the rest is folded.
FAILURES = 3


def print_plan(ledger: Ledger, asked: Asked, console: Console, *, cells: bool, verbose: bool) -> None:
    """The cells of each experiment and how long they take; every cell, if asked."""
    if cells:
        every = [one.cell for one in ledger.standings]
        for key, told in shared(every).items():
            say(console, f"{key}, all cells: {told}")
        called = names(every)
        for one in ledger.standings:
            reason = one.reason or (f"takes {spoken(ledger.estimates.seconds(one))}" if one.to_do else "")
            told = f"{one.state:9} {one.cell.id} {called[one.cell.id]}"
            say(console, told + (f" ({reason})" if reason else ""))
    _print_overview([ledger], asked, console, verbose=verbose, every=True)
    if ledger.to_do:
        order = () if asked.order == ORDERS[0] else ("--order", asked.order)
        say(console, f"Run them with `{asked.choice.command('run', *order)}`.")
    elif not ledger.all_skipped:
        print_next(console, asked.choice)


def print_status(ledgers: Sequence[Ledger], asked: Asked, console: Console, *, verbose: bool) -> None:
    """What is running, what is done, and what to do next."""
    choice, active = asked.choice, running(asked.choice.rows)
    if active:
        say(console, f"a run is in progress ({active.words}):")
        for one in active.cells:
            say(console, f"  {one.cell}: {one.fraction:.0%}" + (f", {one.doing}" if one.doing else ""))
    if ledgers:
        _print_overview(ledgers, asked, console, verbose=verbose, every=verbose or bool(choice.budget))
    _print_oddities(asked, console)
    waiting = next((ledger.to_do[0].cell.budget for ledger in ledgers if ledger.to_do), None)
    if active:
        say(console, "Run the same command again to see its progress.")
    elif not ledgers:
        say(console, f"nothing is stored in {choice.rows.resolve()} yet; `sesn plan` lists what can be run")
    elif waiting:
        say(console, f"Run the rest with `{replace(choice, budget=waiting).command('run')}`.")
    else:
        print_next(console, choice)


def _print_oddities(asked: Asked, console: Console) -> None:
    """What in the store is of no use, or too much."""
    rows, cells = asked.choice.rows, [entry.cell for entry in asked.entries.values()]
    known = [cell for cell in cells if cell.experiment in EXPERIMENTS]
    if stale := sum(not EXPERIMENTS[cell.experiment].knows(cell) for cell in known):
        say(console, f"{stale} stored cells come from older versions of their experiment and are not used")
    if (stored := size(rows)) > LARGEST_STORE:
        say(console, f"{rows} holds {stored / 1e6:.0f} MB; do not commit more than {LARGEST_STORE / 1e6:.0f} MB")


def print_next(console: Console, choice: Choice, failed: int = 0) -> None:
    """What to do when nothing is left to run."""
    if failed:
        say(console, f"The same command runs the {failed} failed cell{'s' * (failed != 1)} again.")
    else:
        # The report knows a method of another file only by that file's name.
        named = choice.methods or [] if any(":" in name for name in choice.methods or ()) else []
        options = ["" if choice.rows == ROWS else f" --rows {quote(str(choice.rows))}"]
        options += [f" --methods {quote(name)}" for name in named]
        told = "".join(options)
        say(console, f"Draw figures and tables with `sesn report{told}{' --out FOLDER' if told else ''}`.")


def _print_overview(ledgers: Sequence[Ledger], asked: Asked, console: Console, *, verbose: bool, every: bool) -> None:
    """A line for each experiment and budget; below, why cells failed or were left out, and what the estimate means."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)  # narrow, so that 80 columns hold it whole
    for name in ("experiment", "budget"):
        table.add_column(name, no_wrap=True)
    for name in ("cells", *STATES, "time left"):
        table.add_column(name, justify="right", no_wrap=True)
    for ledger in ledgers:
        for key, standings in (ledger.experiments() if every else ledger.begun()).items():
            counts = Counter(one.state for one in standings)
            numbers = [str(len(standings)), *(str(counts[state]) for state in STATES)]
            left = ledger.left(standings).words if counts["failed"] or counts["remaining"] else "–"
            table.add_row(key, standings[0].cell.budget, *numbers, left)
    console.print(table)
    _print_reasons([one for ledger in ledgers for one in ledger.standings], console, verbose=verbose)
    _print_other_data(ledgers, asked, console)
    _print_time(ledgers, console)


def _print_reasons(standings: Sequence[Planned], console: Console, *, verbose: bool) -> None:
    """Every reason if asked; else the commonest of failures, and how many cells are skipped."""
    for state, most, kept, style in (("failed", FAILURES, FAILURES, "red"), ("skipped", 1, 0, "")):
        of_state = [one for one in standings if one.state == state]
        where = Counter((one.cell.experiment, one.cell.budget, one.reason) for one in of_state)
        reasons = {one.reason for one in of_state}
        folded = len(reasons) > most and not verbose
        for (key, budget, reason), count in where.most_common(kept if folded else None):
            say(console, f"{key}, {budget}: {count} {state}: {reason}", style)
        if folded:
            say(console, f"{len(of_state)} cells {state}, for {len(reasons)} reasons; --verbose lists them", style)


def _print_time(ledgers: Sequence[Ledger], console: Console) -> None:
    """How long it takes, in one line."""
    totals = {ledger.standings[0].cell.budget: ledger.left(ledger.to_do) for ledger in ledgers if ledger.to_do}
    if not totals:
        skipped = all(ledger.all_skipped for ledger in ledgers)
        say(console, "nothing can be run here, as all cells are skipped" if skipped else "nothing is left to do")
        return
    several = len(ledgers) > 1
    told = ", ".join(f"{budget} {left.words}" if several else left.words for budget, left in totals.items())
    say(console, f"time left, {ledgers[0].jobs} at a time: {told}")
    if unknown := sum(left.unknown for left in totals.values()):
        cells = f"{unknown} cell{'s' * (unknown != 1)}"
        say(console, f"the time does not include {cells}, because no similar cell has finished yet")


def as_dict(ledgers: Sequence[Ledger], *, cells: bool) -> dict[str, Any]:
    """The same as plain data."""
    experiments = [ledger.summary(key, of) for ledger in ledgers for key, of in ledger.experiments().items()]
    every = [ledger.cell(one) for ledger in ledgers for one in ledger.standings] if cells else []
    return {"experiments": experiments, **({"cells": every} if cells else {})}


def running_as_dict(rows: Path) -> dict[str, Any] | None:
    """The run that is going on, as plain data."""
    active = running(rows)
    return {**active._asdict(), "cells": [one._asdict() for one in active.cells]} if active else None


def _print_other_data(ledgers: Sequence[Ledger], asked: Asked, console: Console) -> None:
    """Say once what is stored of the same experiments and budgets on other data than the plan's."""
    planned: dict[tuple[str, str, int], set[tuple[str, str]]] = {}
    for cell in (one.cell for ledger in ledgers for one in ledger.standings):
        planned.setdefault((cell.experiment, cell.budget, cell.version), set()).add(_data(cell))
    there: dict[str, str] = {}
    here: set[str] = set()
    count = 0
    for cell in (entry.cell for entry in asked.entries.values() if entry.status == "ok"):
        data = planned.get((cell.experiment, cell.budget, cell.version), {_data(cell)})
        if _data(cell) not in data:
            name, images = _data(cell)
            there.setdefault(name, images if name in dict(data) else "")
            here |= dict(data).keys()
            count += 1
    if count:
        told = ", ".join(sorted(name + images for name, images in there.items()))
        found = ", ".join(sorted(here - there.keys() or here))
        say(
            console,
            f"stored cells on other data ({told}) than the planned ones ({found}): {count}; they tell how long cells "
            "take, and count as done if --data FOLDER or $SESN_DATA names the folder with those data",
        )


def _data(cell: Cell) -> tuple[str, str]:
    """Which images a cell is about, and how many to train and to test on."""
    name = str(cell.settings.get("data") or cell.settings.get("images") or "none")
    counts = [f"{cell.settings[key]:,}" for key in ("train_images", "test_images") if key in cell.settings]
    return name, f", {' and '.join(counts)} images" if counts else ""


def data_table(sets: Sequence[DataSetStatus]) -> Table:
    """The data sets, where they are, and what is missing."""
    table = Table(box=None, padding=(0, 1))
    for name in ("data set", "found", "images", "folder", "remark"):
        table.add_column(name, justify="right" if name == "images" else "left", overflow="fold")
    for one in sets:
        folder = one.path.name if one.path else "–"
        table.add_row(one.name, "yes" if one.found else "no", str(one.images), folder, one.remark)
    return table


def data_folders(sets: Sequence[DataSetStatus]) -> str:
    """Where the folders of the data sets are, in a line; nothing where no folder was named."""
    parents = dict.fromkeys(str(one.path.parent) for one in sets if one.path)
    return f"The folders are in {' and '.join(parents)}." if parents else ""
