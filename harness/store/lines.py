"""The format of a file of rows.

A cell is some lines of values, then the one line that closes it:

    {"cell":id,"metric":"delta","at":{"depth":3},"values":[0.1,0.2,"nan"]}
    {"format":2,"cell":id,"experiment":...,"status":"ok",...,"seconds":12.3,"lines":1,"digest":"0123456789abcdef"}

Nothing counts before its closing line. A later closing line of a cell replaces the earlier. `lines` is the number of
lines of values, `digest` a checksum of all that comes before it in the cell. Format 1 has neither.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.records import BUDGETS, CORE, SOURCES, STATUSES, Cell, Result
from sesn.errors import UsageError

#: Raised when lines change their meaning.
FORMAT = 2
FORMATS = (1, FORMAT)
#: What stands before the digest in a closing line.
SEAL = b',"digest":"'
#: What a closing line says beside its cell. Of a machine that vanished nothing is known.
FACTS = ("source", "status", "reason", "code", "machine", "torch", "device", "threads", "started", "seconds")
_UNKNOWN: dict[str, Any] = dict.fromkeys(FACTS, "") | {"source": "measured", "threads": 0}
#: A coordinate of such a name would replace the column.
_RESERVED = frozenset(CORE) - {"method"}
#: Strict JSON has no such numbers.
_NO_JSON = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class StoreError(UsageError):
    """A file of rows that cannot be read or written; the message says where, why, and what to do."""


class StoreWarning(UserWarning):
    """Something in a file of rows was left out, or is unknown."""


class Values(NamedTuple):
    """A line of values."""

    metric: str
    at: Mapping[str, Any]
    values: list[float]


class StoredCell(NamedTuple):
    """A stored cell: what it was, what became of it (FACTS), and what it saw."""

    cell: Cell
    facts: Mapping[str, Any]
    values: list[Values]

    @property
    def status(self) -> str:
        """One of STATUSES."""
        return str(self.facts["status"])


# --- writing


def encode(result: Result) -> bytes:
    """All lines of a cell."""
    name = result.cell.id
    lines: list[dict[str, Any]] = [
        {"cell": name, "metric": seen.metric, "at": dict(seen.at), "values": [_encoded(value) for value in seen.values]}
        for seen in result.measurements
    ]
    facts = _UNKNOWN | {name: fact for name, fact in result.provenance.items() if name in FACTS}
    facts |= {name: getattr(result, name) for name in ("status", "reason", "started", "seconds")}
    lines.append({"format": FORMAT, "cell": name, **result.cell.as_dict(), **facts, "lines": len(lines)})
    return sealed([json.dumps(line, separators=(",", ":"), allow_nan=False).encode() for line in lines])


def sealed(lines: Sequence[bytes]) -> bytes:
    """The lines of a cell as they are written: the last gets the digest of them all."""
    unsealed = b"\n".join(lines).removesuffix(b"}")
    return b"".join((unsealed, SEAL, _digest(unsealed), b'"}\n'))


def valid_digest(lines: Sequence[bytes]) -> str | None:
    """The digest of a cell, if its lines are those that were sealed; white space around them does not matter."""
    unsealed, _, seal = b"\n".join(line.strip() for line in lines).rpartition(SEAL)
    digest = _digest(unsealed)
    return digest.decode() if seal == digest + b'"}' else None


def _digest(unsealed: bytes) -> bytes:
    return hashlib.blake2b(unsealed, digest_size=8).hexdigest().encode()


def _encoded(value: float) -> float | str:
    return value if math.isfinite(value) else str(float(value))


# --- reading


def check_fields(fields: Any) -> None:
    """Refuse what is no line of rows. In a line of values the texts of numbers that JSON lacks become numbers."""
    if not isinstance(fields, dict):
        raise UsageError("it is no object")
    if "format" in fields:
        return
    metric, at, values = fields["metric"], fields["at"], fields["values"]
    if not isinstance(metric, str) or not isinstance(at, dict):
        raise UsageError("`metric` must be a text and `at` an object")
    if not _RESERVED.isdisjoint(at):
        raise UsageError(f"`at` must not have the names of columns: {', '.join(sorted(_RESERVED & at.keys()))}")
    if not isinstance(values, list) or not values:
        raise UsageError("`values` must be a list of numbers")
    if set(map(type, values)) != {float}:
        fields["values"] = [_decoded(value) for value in values]


def _decoded(value: Any) -> float:
    if type(value) in (float, int):
        return float(value)
    if isinstance(value, str) and value in _NO_JSON:
        return _NO_JSON[value]
    raise UsageError(f"{value!r} is no number")


def entry_of(path: Path, fields: dict[str, Any], lines: Sequence[dict[str, Any]]) -> StoredCell:
    """The cell of a closing line and of its lines of values."""
    if fields["format"] not in FORMATS:
        raise UsageError(f"`format` (={fields['format']!r}) must be one of {', '.join(map(str, FORMATS))}")
    if fields["format"] == FORMAT:
        _ = fields["lines"], fields["digest"]  # which must be there, and have been compared before
    values = [Values(line["metric"], line["at"], line["values"]) for line in lines]
    entry = StoredCell(Cell.from_dict(fields), {name: fields[name] for name in FACTS}, values)
    if entry.cell.id != fields["cell"]:
        raise UsageError(f"its settings are those of cell {entry.cell.id}")
    if entry.cell.experiment != path.stem:
        raise UsageError(f"it belongs in {entry.cell.experiment}{path.suffix}")
    for name, allowed in (("budget", BUDGETS), ("status", STATUSES), ("source", SOURCES)):
        if fields[name] not in allowed:
            raise UsageError(f"`{name}` must be one of {', '.join(allowed)}")
    return entry
