"""Tables of the plan and of what is done of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.commands.asked import Asked
from harness.commands.ledger import Ledger, Total
from harness.data.sources import DataSetStatus
from harness.experiments import EXPERIMENTS
from harness.records import Cell, Planned, State
from harness.run.engines.display import spoken
from harness.store.reading import size
from harness.store.writing import running

STATES: tuple[State, ...] = ("done", "failed", "skipped", "remaining")
#: What git and those who clone should not be asked to carry.
LARGEST_STORE = 50e6


def print_plan(ledger: Ledger, asked: Asked, console: Console, *, cells: bool) -> None:
    """The cells of each experiment and how long they take; every cell, if asked."""
    if cells:
        for one in ledger.standings:
            console.print(_line(one, ledger), markup=False, highlight=False, soft_wrap=True)
    print_overview([ledger], console)
    _print_other_data([ledger], asked, console)


def _line(one: Planned, ledger: Ledger) -> str:
    cell = one.cell
    told = one.reason or (f"takes {spoken(ledger.estimates.seconds(one))}" if one.to_do else "")
    return f"{one.state:9} {cell.id} {cell.title}" + (f" ({told})" if told else "")


def print_overview(ledgers: Sequence[Ledger], console: Console) -> None:
    """A line for each experiment and budget; below, why cells failed or were left out, and what the estimate means."""
    table = Table(box=None, padding=(0, 1))
    for name in ("experiment", "budget"):
        table.add_column(name, no_wrap=True)
    for name in ("cells", *STATES, "time left"):
        table.add_column(name, justify="right", no_wrap=True)
    for ledger in ledgers:
        for key, standings in ledger.experiments().items():
            counts = Counter(one.state for one in standings)
            numbers = [str(len(standings)), *(str(counts[state]) for state in STATES)]
            left = ledger.left(standings).words(spoken) if counts["failed"] or counts["remaining"] else "–"
            table.add_row(key, standings[0].cell.budget, *numbers, left)
    console.print(table)
    for ledger in ledgers:
        _print_reasons(ledger, console)
    _print_total(ledgers, console)


def _print_reasons(ledger: Ledger, console: Console) -> None:
    for key, standings in ledger.experiments().items():
        counts = Counter((one.state, one.reason) for one in standings if one.reason)
        for (state, reason), count in counts.most_common():
            told = f"{key}, {standings[0].cell.budget}: {count} {state}: {reason}"
            console.print(told, style="red" if state == "failed" else "", markup=False, highlight=False, soft_wrap=True)


def _print_total(ledgers: Sequence[Ledger], console: Console) -> None:
    totals = [ledger.left(ledger.standings) for ledger in ledgers]
    total = Total(sum(total.seconds for total in totals), sum(total.unknown for total in totals))
    if not any(ledger.to_do for ledger in ledgers):
        console.print("nothing is left to do")
        return
    console.print(f"time left, {ledgers[0].jobs} at a time: {total.words(spoken)}")
    if total.unknown:
        console.print(
            f"the time does not include {total.unknown} cell{'s' * (total.unknown != 1)}, because no similar cell has "
            "finished yet",
            soft_wrap=True,
        )


def as_dict(ledgers: Sequence[Ledger], *, cells: bool) -> dict[str, Any]:
    """The same as plain data."""
    experiments = [ledger.summary(key, of) for ledger in ledgers for key, of in ledger.experiments().items()]
    every = [ledger.cell(one) for ledger in ledgers for one in ledger.standings] if cells else []
    return {"experiments": experiments, **({"cells": every} if cells else {})}


def running_as_dict(rows: Path) -> dict[str, Any] | None:
    """The run that is going on, as plain data."""
    active = running(rows)
    return {**active._asdict(), "cells": [one._asdict() for one in active.cells]} if active else None


def print_status(ledgers: Sequence[Ledger], asked: Asked, console: Console) -> None:
    """What is done, and remarks on what else lies in the store."""
    if active := running(asked.rows):
        console.print(f"a run is going on ({active.words}):", highlight=False, markup=False, soft_wrap=True)
        for one in active.cells:
            told = f"  {one.cell}: {one.fraction:.0%}" + (f", {one.doing}" if one.doing else "")
            console.print(told, highlight=False, markup=False, soft_wrap=True)
    if ledgers:
        print_overview(ledgers, console)
        _print_other_data(ledgers, asked, console)
    else:
        console.print(f"nothing is stored in {asked.rows} yet; `sesn plan` lists what can be run", soft_wrap=True)
    stale = _retired(asked)
    if stale:
        console.print(
            f"{stale} stored cells are of older versions of their experiment: nothing uses them", soft_wrap=True
        )
    bytes_stored = size(asked.rows)
    if bytes_stored > LARGEST_STORE:
        most = f"{LARGEST_STORE / 1e6:.0f} MB"
        console.print(f"{asked.rows} holds {bytes_stored / 1e6:.0f} MB; do not commit more than {most}", soft_wrap=True)


def _print_other_data(ledgers: Sequence[Ledger], asked: Asked, console: Console) -> None:
    """What is stored of the same experiments and budgets on other data than the plan's: nothing of it counts here."""
    for ledger in ledgers:
        for key, standings in ledger.experiments().items():
            planned = [one.cell for one in standings]
            ids, budget = {cell.id for cell in planned}, planned[0].budget
            others = [
                entry.cell
                for entry in asked.entries.values()
                if (entry.cell.experiment, entry.cell.budget, entry.status) == (key, budget, "ok")
                and entry.cell.version == planned[0].version
                and entry.cell.id not in ids
                and _data(entry.cell) not in set(map(_data, planned))
            ]
            if others:
                names = " or ".join(sorted(set(map(_data, others))))
                console.print(
                    f"{key}, {budget}: {len(others)} stored cells are on other data ({names}) than the data found here "
                    f"({_data(planned[0])}); to count them, name the folder of those data by --data or $SESN_DATA",
                    highlight=False,
                    markup=False,
                    soft_wrap=True,
                )


def _data(cell: Cell) -> str:
    """Which images a cell is about, and how many to train and to test on."""
    name = str(cell.settings.get("data") or cell.settings.get("images") or "none")
    counts = [f"{cell.settings[key]:,}" for key in ("train_images", "test_images") if key in cell.settings]
    return f"{name}, {' and '.join(counts)} images" if counts else name


def _retired(asked: Asked) -> int:
    cells = [entry.cell for entry in asked.entries.values() if entry.cell.experiment in EXPERIMENTS]
    return sum(not EXPERIMENTS[cell.experiment].knows(cell) for cell in cells)


def data_table(sets: Sequence[DataSetStatus]) -> Table:
    """The data sets, where they are, and what is missing."""
    table = Table(box=None, padding=(0, 1))
    for name in ("data set", "found", "images", "where", "remark"):
        table.add_column(name, justify="right" if name == "images" else "left", overflow="fold")
    for one in sets:
        where = str(one.path) if one.path else "–"
        table.add_row(one.name, "yes" if one.found else "no", str(one.images), where, one.remark)
    return table
