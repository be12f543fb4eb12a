"""The command `add-rows`: rows that somebody else has measured, checked line by line before any is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands.options import ROWS
from sesn.tools.consoles import consoles

if TYPE_CHECKING:
    from harness.records import Cell, Result, Scalar
    from harness.store.lines import StoredCell
    from harness.store.sent import SentCell


def add_rows(
    file: Annotated[Path, typer.Argument(help="File of rows of one experiment, such as the gpu.jsonl of `sesn gpu`.")],
    rows: Annotated[Path, typer.Option(help="Folder where results are stored as rows.")] = ROWS,
) -> None:
    """Add rows that were measured on another machine, after checking every line of them.

    A file with anything wrong in it is refused as a whole, and the line that is wrong is named. What is stored already
    is not added again. Exit status: 0 if all rows of the file are now stored, 2 if it was refused.
    """
    with consoles(quiet=False) as (console, _):
        from harness.store.reading import stored
        from harness.store.sent import read_sent
        from harness.store.writing import Writer

        sent = read_sent(file)
        _check_cells(file, sent)
        key = sent[0].result.cell.experiment
        with Writer(rows) as writer:
            if new := _new(file, sent, stored(rows, [key])):
                writer.append(*new)
        for line in _summary(new, len(sent) - len(new), rows / f"{key}.jsonl"):
            console.print(line, highlight=False, soft_wrap=True)


def _check_cells(file: Path, sent: Sequence[SentCell]) -> None:
    """Every cell must be one that this version of its experiment could have been asked for."""
    from harness.store.sent import refused
    from sesn.errors import UsageError

    planned: dict[str, set[str]] = {}
    for line, result in sent:
        try:
            _check_cell(result.cell, planned)
        except UsageError as error:
            raise refused(file, line, error) from error


def _check_cell(cell: Cell, planned: dict[str, set[str]]) -> None:
    """Known experiment and version, settings of the right names and types, and a method that its plan has."""
    from harness.experiments import EXPERIMENTS, Request
    from harness.records import DIGESTS
    from sesn._checks import complaint, looked_up, whole
    from sesn.errors import UsageError

    row = looked_up("experiment", cell.experiment, EXPERIMENTS)
    if cell.version != row.version:
        rule = f"{row.version}, that of {row.key} here"
        raise UsageError(complaint("version", cell.version, rule, "measure it again with this version"))
    if own := [name for name in DIGESTS if name in cell.settings]:
        raise UsageError(f"`settings` has {own[0]}: rows of methods or experiments of one's own cannot be added")
    row.settings.of(cell)
    whole("seed", cell.seed, 0)
    if cell.budget not in planned:
        planned[cell.budget] = {one.cell.method for one in row.plan(Request(cell.budget))}
    if cell.method not in planned[cell.budget]:
        rule = f"one that {row.key} has at the budget {cell.budget}"
        raise UsageError(complaint("method", cell.method, rule, "`sesn methods` lists them"))


def _new(file: Path, sent: Sequence[SentCell], there: Mapping[str, StoredCell]) -> list[Result]:
    """What is not stored yet. A cell with other numbers is refused: nobody could tell which of the two are right."""
    from harness.store.sent import refused
    from sesn.errors import UsageError

    new = []
    for line, result in sent:
        before = there.get(result.cell.id)
        if before is not None and before.facts == result.provenance and _values(before) == _measured(result):
            continue
        if before is not None and before.status == "ok":
            same = "the same" if _values(before) == _measured(result) else "other"
            where = f"{before.facts['machine']}, {before.facts['started']}"
            said = f"cell {result.cell.id} is stored already ({before.status}, {where}) with {same} numbers"
            raise refused(file, line, UsageError(f"{said}; take it out of the file"))
        new.append(result)
    return new


def _measured(result: Result) -> list[tuple[str, Mapping[str, Scalar], list[float]]]:
    return [(one.metric, one.at, list(one.values)) for one in result.measurements]


def _values(entry: StoredCell) -> list[tuple[str, Mapping[str, Scalar], list[float]]]:
    return [(line.metric, line.at, line.values) for line in entry.values]


def _summary(new: Sequence[Result], old: int, path: Path) -> list[str]:
    """What was added."""
    if not new:
        return [f"nothing to add: all {old} cells are stored already in {path}"]
    numbers = sum(len(one.values) for result in new for one in result.measurements)
    of = {name: sorted({str(result.provenance[name]) for result in new}) for name in ("machine", "device", "code")}
    counts = {status: sum(result.status == status for result in new) for status in ("ok", "failed", "skipped")}
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    return [
        f"added {len(new)} cells ({told}) with {numbers} numbers to {path}",
        *([f"{old} cells were stored already"] if old else []),
        f"measured on {' and '.join(of['machine'])} ({', '.join(of['device'])}) with sesn {' and '.join(of['code'])}",
        "run `sesn report` to show them",
    ]
