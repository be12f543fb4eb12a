"""Rows that somebody has sent: one file of one experiment, of which every line must be in order.

What a run has stored is trusted, and what is damaged in it is left out. Here nothing is left out: a file that has one
wrong line is refused as a whole, with the number of that line and what is wrong with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from harness.records import Measurement, Result
from harness.store.lines import FORMAT, StoredCell, StoreError, Values, entry_of, valid_digest
from harness.store.reading import UNREADABLE, Line, line_of
from sesn._checks import complaint
from sesn.errors import UsageError
from sesn.tools.files import read_regular

#: No experiment has rows of such a size: a thousand cells take a few megabytes.
MOST_BYTES = 1 << 28
#: What must be known of the place where a number was measured.
PROVENANCE = ("code", "machine", "torch", "device")


class SentCell(NamedTuple):
    """A cell of the file, and the number of the line that closes it."""

    line: int
    result: Result


def read_sent(path: Path) -> list[SentCell]:
    """Every cell of a file of rows; it must be whole, of this format and of one experiment.

    A cell that failed or was left out may come again, as when a run was continued: what became of it last counts.
    """
    cells: dict[str, SentCell] = {}
    for block in _blocks(path, _text(path)):
        number = block[-1].number
        try:
            result = _result(block)
            _check_order(result, cells)
        except UNREADABLE as error:
            raise refused(path, number, error) from error
        cells[result.cell.id] = SentCell(number, result)
    return list(cells.values())


def _check_order(result: Result, cells: Mapping[str, SentCell]) -> None:
    """A cell may not come again that was measured before, nor one of another experiment."""
    before = cells.get(result.cell.id)
    if before is not None and before.result.status == "ok":
        raise UsageError(f"its cell {result.cell.id} was measured before, in line {before.line}")
    first = next(iter(cells.values())).result.cell.experiment if cells else result.cell.experiment
    if result.cell.experiment != first:
        raise UsageError(f"it is of {result.cell.experiment}, but the lines before are of {first}; send one file each")


def refused(path: Path, line: int, error: Exception) -> StoreError:
    """What is said of a file, of which nothing is taken."""
    said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    return StoreError(f"{path}:{line}: {said}; nothing of this file was added")


def _text(path: Path) -> bytes:
    if not path.exists():
        raise UsageError(complaint("file", str(path), "a file of rows", "there is no such file"))
    if path.is_dir():
        raise UsageError(complaint("file", str(path), "a file of rows, such as gpu.jsonl", "it is a folder"))
    if (size := path.stat().st_size) > MOST_BYTES:
        rule = f"at most {MOST_BYTES >> 20} MB, more than any experiment gives"
        raise UsageError(complaint("file", str(path), rule, f"it has {size >> 20} MB"))
    data = read_regular(path)
    if not data.strip():
        raise UsageError(complaint("file", str(path), "a file of rows", "it is empty"))
    return data


def _blocks(path: Path, data: bytes) -> Iterator[list[Line]]:
    """The lines of each cell, the last of which closes it."""
    block: list[Line] = []
    for number, raw in enumerate(data.split(b"\n"), 1):
        if not raw.strip():
            continue
        block.append(line := line_of(number, raw))
        if isinstance(line.error, UnicodeDecodeError):
            raise refused(path, number, ValueError("this is not text in UTF-8, as files of rows are"))
        if line.error is not None:
            raise refused(path, number, ValueError(f"this line cannot be read ({line.error}), it may be cut off"))
        if "format" in line.fields:
            yield block
            block = []
    if block:
        raise refused(
            path, block[-1].number, ValueError("the line that closes the last cell is missing; send it again")
        )


def _result(block: Sequence[Line]) -> Result:
    """The cell of these lines, as a run would have given it."""
    *lines, closing = block
    fields = closing.fields
    if fields["format"] != FORMAT:
        raise UsageError(f"`format` (={fields['format']!r}) must be {FORMAT}, which this sesn writes")
    if fields.get("lines") != len(lines) or any(line.fields.get("cell") != fields["cell"] for line in lines):
        raise UsageError("the lines before it are not those of its cell")
    if valid_digest([line.raw for line in block]) is None:
        raise UsageError("its digest is another, so the lines of the cell were changed after they were measured")
    entry = entry_of(Path(f"{fields['experiment']}.jsonl"), fields, [line.fields for line in lines])
    _check_facts(entry.facts)
    measurements = tuple(_measurement(line, values) for line, values in zip(lines, entry.values, strict=True))
    if bool(measurements) != (entry.status == "ok"):
        raise UsageError(f"a cell that is {entry.status!r} must {'' if entry.status == 'ok' else 'not '}have values")
    return _made(entry, measurements)


def _made(entry: StoredCell, measurements: tuple[Measurement, ...]) -> Result:
    facts: Mapping[str, Any] = entry.facts
    return Result(entry.cell, facts["status"], measurements, facts["reason"], facts, facts["started"], facts["seconds"])


def _measurement(line: Line, values: Values) -> Measurement:
    if not all(map(math.isfinite, values.values)):
        raise UsageError(f"line {line.number} has a value that is not a finite number")
    for name, value in values.at.items():
        finite = not isinstance(value, float) or math.isfinite(value)
        if not isinstance(value, str | int | float | bool) or not finite:
            raise UsageError(f"line {line.number}: `at` has {name}={value!r}, neither text nor a finite number")
    return Measurement(values.metric, tuple(values.values), values.at)


def _check_facts(facts: Mapping[str, Any]) -> None:
    """Where, when and with what a cell was measured must be known."""
    for name in PROVENANCE:
        if not isinstance(facts[name], str) or not facts[name].strip():
            raise UsageError(complaint(name, facts[name], "text that says where it was measured"))
    for name, least in (("threads", 1), ("seconds", 0)):
        value = facts[name]
        if type(value) not in (int, float) or not math.isfinite(value) or value < least:
            raise UsageError(complaint(name, value, f"a number of at least {least}"))
    if facts["source"] != "measured":
        raise UsageError(complaint("source", facts["source"], "'measured'", "published numbers are not sent"))
    if not isinstance(facts["reason"], str):
        raise UsageError(complaint("reason", facts["reason"], "text"))
    try:
        datetime.fromisoformat(facts["started"])
    except (TypeError, ValueError):
        rule = "a date and time, such as 2026-01-31T12:00:00+00:00"
        raise UsageError(complaint("started", facts["started"], rule)) from None
