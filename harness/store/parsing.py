"""Reading a file of rows: every cell that is whole, and what is wrong with the rest.

- What follows the last closing line may be torn, as a killed writer leaves it. It is ignored with a warning.
- Lines that differ from the digest of their cell are damaged. They are left out with a warning, the others count.
- Anything else is an error, as is all damage to the lines of format 1, which have no digest.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.store.lines import FORMAT, SEAL, StoredCell, StoreError, StoreWarning, check_fields, entry_of, valid_digest
from sesn.tools.files import read_regular

#: What a torn end is moved to, beside the file.
CUT = ".cut"
#: How a closing line begins.
CLOSING = b'{"format":'
#: json.loads would look for the encoding of every line.
_decoder = json.JSONDecoder()


class Damage(NamedTuple):
    """Lines that are left out: their numbers, the cells that they name, and how many whole cells come before them."""

    first: int
    last: int
    cells: frozenset[str]
    after: int


class Contents(NamedTuple):
    """What a file of rows holds.

    Attributes:
        entries: its whole cells.
        digests: of those of them that have one.
        damages: what is left out, unless it was run again since.
        end: how many bytes there are before a torn end.
        unended: whether a line break is missing there.
    """

    entries: list[StoredCell]
    digests: set[str]
    damages: list[Damage]
    end: int
    unended: bool


def parse(path: Path, data: bytes) -> Contents:
    """The cells in what was read of a file; what is torn or damaged is left out in silence."""
    _refuse_newer(path, data)
    _refuse_carriage_returns(path, data)
    return _Parser(path).parse(data)


def read(path: Path) -> Contents:
    """The cells of a file. What is torn or damaged is left out, with a warning."""
    data = read_regular(path)
    contents = parse(path, data)
    if contents.damages:
        warnings.warn(_words(path, contents.damages), StoreWarning, stacklevel=2)
    if data[contents.end :].strip():
        line = data.count(b"\n", 0, contents.end) + 1
        warnings.warn(
            f"{path}:{line}: the end is torn, as a killed run leaves it; it is ignored, and its cell runs again "
            f"(the next run that adds a cell moves it to {path.name}{CUT})",
            StoreWarning,
            stacklevel=2,
        )
    return contents


def _words(path: Path, damages: Sequence[Damage]) -> str:
    places = [f"{one.first}" if one.first == one.last else f"{one.first} to {one.last}" for one in damages]
    names = sorted(frozenset[str]().union(*(one.cells for one in damages)))
    return (
        f"{path}:{damages[0].first}: damaged, by the digests of its cells: line {', '.join(places)}; these lines are "
        f"left out, and what they belonged to (they name {', '.join(names) or 'no cell'}) counts as not done: "
        "restore the file from version control, or run the same command again and delete these lines"
    )


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


def _refuse_carriage_returns(path: Path, data: bytes) -> None:
    """Many cells would be one long line, which looks like a torn end."""
    place = data.find(b"\r{")
    if place >= 0:
        line = data.count(b"\n", 0, place) + 1
        raise StoreError(
            f"{path}:{line}: this line ends with a carriage return (CR) and no line feed, as some editors save it; "
            "nothing was changed: restore the file from version control, or make line feeds of them (tr '\\r' '\\n')"
        )


class _RawLine(NamedTuple):
    """A line, and what it says or why it cannot be read."""

    number: int
    raw: bytes
    fields: dict[str, Any]
    error: Exception | None = None


class _Parser:
    """Takes lines until one closes a cell: only that one says whether a digest decides what becomes of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: list[StoredCell] = []
        self._digests: set[str] = set()
        self._damages: list[Damage] = []
        #: The lines since the last closing line.
        self._open: list[_RawLine] = []

    def parse(self, data: bytes) -> Contents:
        lines = data.split(b"\n")
        objects = _all_at_once(lines)
        end = position = 0
        for number, raw in enumerate(lines, 1):
            position += len(raw) + (number < len(lines))
            if not raw.strip():
                continue
            line = _line(number, raw, objects)
            self._open.append(line)
            if "format" in line.fields:
                self._close(line)
                self._open, end = [], position
        if self._open and not self._is_torn(ends=self._open[-1].number < len(lines)):
            self._leave_out(self._open)
            end = position
        return Contents(
            self._entries, self._digests, self._still_missing(), end, unended=data[end - 1 : end] not in (b"", b"\n")
        )

    def _close(self, closing: _RawLine) -> None:
        # Both stand in every sealed cell, and a changed byte spoils one of them at most.
        if closing.fields.keys().isdisjoint(("lines", "digest")):
            self._entries.append(self._entry(self._open))
            return
        before, count = len(self._open) - 1, closing.fields.get("lines")
        own = self._open[before - count :] if type(count) is int and 0 <= count <= before else []
        digest = valid_digest([line.raw for line in own])
        if digest is None:
            self._leave_out(self._open)
            return
        # What comes before may be a cell that has lost its closing line.
        self._leave_out(self._open[: before - len(own) + 1])
        self._entries.append(self._entry(own))
        self._digests.add(digest)

    def _entry(self, lines: Sequence[_RawLine]) -> StoredCell:
        """A cell of lines that must be in order."""
        self._check(lines)
        *values, closing = lines
        try:
            return entry_of(self._path, closing.fields, [line.fields for line in values])
        except _UNREADABLE as error:
            raise _corrupt(self._path, closing.number, error) from error

    def _check(self, lines: Sequence[_RawLine]) -> None:
        """Refuse lines that cannot be read, or that are of several cells."""
        cell = lines[0].fields.get("cell") if lines else None
        for line in lines:
            error = line.error
            if error is None and line.fields.get("cell") != cell:
                error = ValueError(f"cell {line.fields.get('cell')} begins before cell {cell} is closed")
            if error is not None:
                raise _corrupt(self._path, line.number, error) from error

    def _is_torn(self, *, ends: bool) -> bool:
        """Whether a killed writer can have left the open lines: all are whole, but for a last one that does not end."""
        whole = self._open[:-1] if not ends and _is_cut_short(self._open[-1]) else self._open
        try:
            self._check(whole)
        except StoreError:
            if any(SEAL in line.raw for line in self._open):
                return False
            raise
        return True

    def _leave_out(self, lines: Sequence[_RawLine]) -> None:
        if lines:
            names = re.findall(r'"cell":"([^"]*)"', b"\n".join(line.raw for line in lines).decode(errors="replace"))
            self._damages.append(Damage(lines[0].number, lines[-1].number, frozenset(names), len(self._entries)))

    def _still_missing(self) -> list[Damage]:
        """Without the damages whose cells have all been measured again since."""

        def again(damage: Damage) -> set[str]:
            return {entry.cell.id for entry in self._entries[damage.after :] if entry.status == "ok"}

        return [one for one in self._damages if not one.cells or not one.cells <= again(one)]


_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


def _line(number: int, raw: bytes, objects: list[Any] | None) -> _RawLine:
    try:
        fields = objects[number - 1] if objects else _decoder.decode(raw.decode())
        check_fields(fields)
    except _UNREADABLE as error:
        return _RawLine(number, raw, {}, error)
    return _RawLine(number, raw, fields)


def _is_cut_short(line: _RawLine) -> bool:
    """Whether it is the beginning of a line and nothing else: no other object begins in it, least a closing line."""
    if not isinstance(line.error, json.JSONDecodeError | UnicodeDecodeError) or CLOSING in line.raw[1:]:
        return False
    try:
        _decoder.raw_decode(line.raw.decode(errors="replace").lstrip())
    except ValueError:
        return True
    return False


def _all_at_once(lines: list[bytes]) -> list[Any] | None:
    """What every line says, in half the time; None where one cannot be read, and which one will be found out."""
    try:
        joined = b"\n,".join(line if line.strip() else b"0" for line in lines)
        objects: list[Any] = _decoder.decode(f"[{joined.decode()}]")
    except (ValueError, RecursionError):
        return None
    return objects if len(objects) == len(lines) else None


def _corrupt(path: Path, number: int, error: Exception) -> StoreError:
    said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    return StoreError(
        f"{path}:{number}: this line cannot be read ({said}); restore the file from version control, "
        "or delete the lines of this cell, and it will run again"
    )
