"""The format of a file of rows.

A cell is some lines of values, then the one line that closes it:

    {"cell": id, "metric": "delta", "at": {"depth": 3}, "values": [0.1, 0.2, "nan"]}
    {"format": 1, "cell": id, "experiment": ..., "status": "ok", ..., "seconds": 12.3}

Nothing counts before its closing line. What follows the last closing line is what a killed writer left: it is ignored
with a warning. Anything else that is wrong is an error. A later closing line of a cell replaces the earlier.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harness.records import BUDGETS, CORE, SOURCES, STATUSES, Cell, Result

#: Raised when lines change their meaning; READERS then keeps the reader of the older ones.
FORMAT = 1
#: What a closing line says beside its cell.
FACTS = ("source", "status", "reason", "code", "machine", "torch", "device", "threads", "started", "seconds")
#: json.loads would look for the encoding of every line.
_decode = json.JSONDecoder().decode
#: A coordinate of such a name would replace the column.
_RESERVED = frozenset(CORE) - {"method"}
#: Strict JSON has no such numbers.
_NO_JSON = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class StoreError(ValueError):
    """A file of rows that cannot be read or written; the message says where, why, and what to do."""


class StoreWarning(UserWarning):
    """Something in a file of rows was left out, or is unknown."""


class Values(NamedTuple):
    """A line of values."""

    metric: str
    at: Mapping[str, Any]
    values: list[float]


class Entry(NamedTuple):
    """A stored cell: what it was, what became of it (FACTS), and what it saw."""

    cell: Cell
    facts: Mapping[str, Any]
    values: list[Values]

    @property
    def status(self) -> str:
        """One of STATUSES."""
        return str(self.facts["status"])


class Contents(NamedTuple):
    """A file of rows: its cells, how many bytes of it count, and whether a line break is missing at their end."""

    entries: list[Entry]
    end: int
    unended: bool


# --- writing


def encode(result: Result) -> bytes:
    """All lines of a cell."""
    name = result.cell.id
    lines: list[dict[str, Any]] = [
        {"cell": name, "metric": seen.metric, "at": dict(seen.at), "values": [_encoded(value) for value in seen.values]}
        for seen in result.measurements
    ]
    # Of a machine that vanished nothing is known.
    facts: dict[str, Any] = {"code": "", "machine": "", "torch": "", "device": "", "threads": 0, **result.provenance}
    facts |= {"source": "measured", "status": result.status, "reason": result.reason}
    facts |= {"started": result.started, "seconds": result.seconds}
    lines.append({"format": FORMAT, "cell": name, **result.cell.as_dict(), **{key: facts[key] for key in FACTS}})
    return b"".join(json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n" for line in lines)


def _encoded(value: float) -> float | str:
    return value if math.isfinite(value) else str(float(value))


# --- reading


def read(path: Path, *, complain: bool = True) -> Contents:
    """The cells of a file. A torn end is left out, with a warning if `complain`."""
    data = path.read_bytes()
    _refuse_newer(path, data)
    contents = _parse(path, data)
    if complain and data[contents.end :].strip():
        line = data.count(b"\n", 0, contents.end) + 1
        warnings.warn(
            f"{path}:{line}: the end is torn, as a killed run leaves it; it is ignored, and its cell runs again",
            StoreWarning,
            stacklevel=2,
        )
    return contents


def _refuse_newer(path: Path, data: bytes) -> None:
    """Before anything else is read: the other lines of a newer format may look like anything."""
    # Searched for without the line's beginning, which would be tried at every line: that takes ten times as long.
    for match in re.finditer(rb'\{"format": ?(\d+)', data):
        begins_a_line = data[max(match.start() - 1, 0) : match.start()] in (b"", b"\n")
        if begins_a_line and int(match[1]) > FORMAT:
            line = data.count(b"\n", 0, match.start()) + 1
            raise StoreError(
                f"{path}:{line}: format {int(match[1])} was written by a newer sesn, and this one reads up to "
                f"{FORMAT}; upgrade sesn"
            )


def _parse(path: Path, data: bytes) -> Contents:
    entries: list[Entry] = []
    pending: list[dict[str, Any]] = []
    end = position = 0
    lines = data.split(b"\n")
    objects = _all_at_once(lines)
    for number, line in enumerate(lines, 1):
        is_last = number == len(lines)
        position += len(line) + (not is_last)
        if not line.strip():
            continue
        try:
            fields = objects[number - 1] if objects else _decode(line.decode())
            _check(fields, pending)
            if "format" in fields:
                entries.append(_entry(path, fields, pending))
                pending, end = [], position
            else:
                pending.append(fields)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            if is_last and isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
                break
            raise _corrupt(path, number, error) from error
    return Contents(entries, end, unended=end > 0 and data[end - 1 : end] != b"\n")


def _corrupt(path: Path, number: int, error: Exception) -> StoreError:
    said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    return StoreError(
        f"{path}:{number}: this line cannot be read ({said}); restore the file from version control, "
        "or delete the lines of this cell, and it will run again"
    )


def _all_at_once(lines: list[bytes]) -> list[Any] | None:
    """What every line says, in half the time; None where one cannot be read, and which one will be found out."""
    try:
        joined = b"\n,".join(line if line.strip() else b"0" for line in lines)
        objects: list[Any] = _decode(f"[{joined.decode()}]")
    except (ValueError, RecursionError):
        return None
    return objects if len(objects) == len(lines) else None


def _check(fields: Any, pending: list[dict[str, Any]]) -> None:
    if not isinstance(fields, dict):
        raise ValueError("it is no object")
    if pending and fields["cell"] != pending[0]["cell"]:
        raise ValueError(f"cell {fields['cell']} begins before cell {pending[0]['cell']} is closed")
    if "format" not in fields:
        _check_values(fields)


def _check_values(fields: dict[str, Any]) -> None:
    """Convert a line of values in place; the texts of numbers that JSON lacks become numbers."""
    metric, at, values = fields["metric"], fields["at"], fields["values"]
    if not isinstance(metric, str) or not isinstance(at, dict):
        raise ValueError("`metric` must be a text and `at` an object")
    if not _RESERVED.isdisjoint(at):
        raise ValueError(f"`at` must not have the names of columns: {', '.join(sorted(_RESERVED & at.keys()))}")
    if not isinstance(values, list) or not values:
        raise ValueError("`values` must be a list of numbers")
    if set(map(type, values)) != {float}:
        fields["values"] = [_decoded(value) for value in values]


def _decoded(value: Any) -> float:
    if type(value) in (float, int):
        return float(value)
    if isinstance(value, str) and value in _NO_JSON:
        return _NO_JSON[value]
    raise ValueError(f"{value!r} is no number")


def _entry(path: Path, fields: dict[str, Any], pending: list[dict[str, Any]]) -> Entry:
    if fields["format"] not in tuple(READERS):
        raise ValueError(f"`format` (={fields['format']!r}) must be one of {', '.join(map(str, READERS))}")
    entry = READERS[fields["format"]](fields, pending)
    checks: tuple[tuple[bool, str], ...] = (
        (entry.cell.id == fields["cell"], f"its settings are those of cell {entry.cell.id}"),
        (entry.cell.experiment == path.stem, f"it belongs into {entry.cell.experiment}{path.suffix}"),
        (entry.cell.budget in BUDGETS, f"`budget` must be one of {', '.join(BUDGETS)}"),
        (entry.facts["status"] in STATUSES, f"`status` must be one of {', '.join(STATUSES)}"),
        (entry.facts["source"] in SOURCES, f"`source` must be one of {', '.join(SOURCES)}"),
    )
    for holds, rule in checks:
        if not holds:
            raise ValueError(rule)
    return entry


def _format_1(fields: dict[str, Any], pending: list[dict[str, Any]]) -> Entry:
    values = [Values(line["metric"], line["at"], line["values"]) for line in pending]
    return Entry(Cell.from_dict(fields), {name: fields[name] for name in FACTS}, values)


def _format_0(fields: dict[str, Any], _pending: list[dict[str, Any]]) -> Entry:
    """The layout before format 1: one line a cell, its values and its provenance inside; no `source`, no `code`."""
    facts = {"source": "measured", "code": "", **fields["provenance"]}
    facts |= {name: fields[name] for name in ("status", "reason", "started", "seconds")}
    for line in fields["measurements"]:
        _check_values(line)
    values = [Values(line["metric"], line["at"], line["values"]) for line in fields["measurements"]]
    return Entry(Cell.from_dict(fields), {name: facts[name] for name in FACTS}, values)


READERS: dict[int, Callable[[dict[str, Any], list[dict[str, Any]]], Entry]] = {0: _format_0, 1: _format_1}
