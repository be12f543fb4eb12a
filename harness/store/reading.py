"""What is stored in a folder of rows, `<experiment>.jsonl`: every cell that is whole, and what is wrong with the rest.

- What follows the last closing line may be torn, as a killed writer leaves it. It is ignored with a warning.
- Lines that differ from the digest of their cell are damaged. They are left out with a warning, the others count.
- Anything else is an error, as is all damage to the lines of format 1, which have no digest.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.store.lines import FORMAT, SEAL, StoredCell, StoreError, StoreWarning, check_fields, entry_of, valid_digest
from sesn.tools.files import read_regular

SUFFIX = ".jsonl"
#: What a torn end is moved to, beside the file.
CUT = ".cut"
#: json.loads would look for the encoding of every line.
_decoder = json.JSONDecoder()
#: What reading a line that is none may raise.
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


def files(rows: Path, experiments: Iterable[str] | None = None) -> list[Path]:
    """The files of the experiments, or of all; those that are not there are left out."""
    if rows.exists() and not rows.is_dir():
        raise StoreError(f"`rows` (={str(rows)!r}) must be a folder, but is a file; name the folder that it is in")
    if experiments is None:
        return sorted(rows.glob(f"*{SUFFIX}"))
    return [path for key in experiments if (path := rows / f"{key}{SUFFIX}").exists()]


def stored(rows: Path, experiments: Iterable[str] | None = None) -> dict[str, StoredCell]:
    """Each cell by its id; where one was run again, its last entry that was measured, or its last."""
    found: dict[str, StoredCell] = {}
    for path in files(rows, experiments):
        for entry in read(path).entries:
            if entry.status == "ok" or found.get(entry.cell.id, entry).status != "ok":
                # At the place of the entry that counts: so it does not matter whether earlier ones can be read.
                found.pop(entry.cell.id, None)
                found[entry.cell.id] = entry
    return found


def finished(rows: Path, experiments: Iterable[str] | None = None) -> set[str]:
    """The ids of the cells that are done and measured."""
    return {name for name, entry in stored(rows, experiments).items() if entry.status == "ok"}


def size(rows: Path) -> int:
    """Bytes of all files of rows."""
    return sum(path.stat().st_size for path in files(rows))


# --- one file


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


def read(path: Path) -> Contents:
    """The cells of a file. What is torn or damaged is left out, with a warning."""
    data = read_regular(path)
    contents = parse(path, data)
    if contents.damages:
        warnings.warn(_words(path, contents.damages), StoreWarning, stacklevel=2)
    if data[contents.end :].strip():
        warnings.warn(
            f"{_place(path, data, contents.end)}: the end is incomplete, as a killed run leaves it; it is ignored, and "
            f"its cell runs again (the next run that adds a cell moves it to {path.name}{CUT})",
            StoreWarning,
            stacklevel=2,
        )
    return contents


def parse(path: Path, data: bytes) -> Contents:
    """The cells in what was read of a file; what is torn or damaged is left out in silence."""
    # Before anything else is read: the other lines of a newer format may look like anything. Searched for without the
    # line's beginning, which would be tried at every line: that takes ten times as long.
    for match in re.finditer(rb'\{"format": ?(\d+)', data):
        begins_a_line = data[max(match.start() - 1, 0) : match.start()] in (b"", b"\n")
        if begins_a_line and int(match[1]) > FORMAT:
            raise StoreError(
                f"{_place(path, data, match.start())}: format {int(match[1])} was written by a newer sesn, and this "
                f"one reads up to {FORMAT}; upgrade sesn"
            )
    # Many cells would be one long line, which looks like a torn end.
    if (place := data.find(b"\r{")) >= 0:
        raise StoreError(
            f"{_place(path, data, place)}: this line ends with a carriage return (CR) and no line feed, as some "
            "editors save it; nothing was changed: restore the file from version control, or turn them into line feeds "
            "(tr '\\r' '\\n')"
        )
    return _Parser(path).parse(data)


def _place(path: Path, data: bytes, position: int) -> str:
    line = data.count(b"\n", 0, position) + 1
    return f"{path}:{line}"


def _words(path: Path, damages: Sequence[Damage]) -> str:
    places = [f"{one.first}" if one.first == one.last else f"{one.first} to {one.last}" for one in damages]
    names = sorted(frozenset[str]().union(*(one.cells for one in damages)))
    return (
        f"{path}:{damages[0].first}: damaged, by the digests of its cells: line {', '.join(places)}; these lines are "
        f"left out, and what they belonged to (they name {', '.join(names) or 'no cell'}) counts as not done: "
        "restore the file from version control, or run the same command again and delete these lines"
    )


class Line(NamedTuple):
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

    def parse(self, data: bytes) -> Contents:
        lines = data.split(b"\n")
        unclosed: list[Line] = []
        end = position = 0
        for number, raw in enumerate(lines, 1):
            position += len(raw) + (number < len(lines))
            if not raw.strip():
                continue
            unclosed.append(line := line_of(number, raw))
            if "format" in line.fields:
                self._close(unclosed)
                unclosed, end = [], position
        if unclosed and not self._is_torn(unclosed, ends=unclosed[-1].number < len(lines)):
            self._leave_out(unclosed)
            end = position
        unended = data[end - 1 : end] not in (b"", b"\n")
        return Contents(self._entries, self._digests, self._still_missing(), end, unended)

    def _close(self, lines: list[Line]) -> None:
        fields = lines[-1].fields
        # Both stand in every sealed cell, and a changed byte spoils one of them at most.
        if fields.keys().isdisjoint(("lines", "digest")):
            self._entries.append(self._entry(lines))
            return
        before, count = len(lines) - 1, fields.get("lines")
        own = lines[before - count :] if type(count) is int and 0 <= count <= before else []
        digest = valid_digest([line.raw for line in own])
        if digest is None:
            self._leave_out(lines)
            return
        # What comes before may be a cell that has lost its closing line.
        self._leave_out(lines[: len(lines) - len(own)])
        self._entries.append(self._entry(own))
        self._digests.add(digest)

    def _entry(self, lines: Sequence[Line]) -> StoredCell:
        """A cell of lines that must be in order."""
        self._check(lines)
        *values, closing = lines
        try:
            return entry_of(self._path, closing.fields, [line.fields for line in values])
        except UNREADABLE as error:
            raise self._corrupt(closing, error) from error

    def _check(self, lines: Sequence[Line]) -> None:
        """Refuse lines that cannot be read, or that are of several cells."""
        for line in lines:
            error, cell = line.error, lines[0].fields.get("cell")
            if error is None and line.fields.get("cell") != cell:
                error = ValueError(f"cell {line.fields.get('cell')} begins before cell {cell} is closed")
            if error is not None:
                raise self._corrupt(line, error) from error

    def _corrupt(self, line: Line, error: Exception) -> StoreError:
        said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        return StoreError(
            f"{self._path}:{line.number}: this line cannot be read ({said}); restore the file from version control, "
            "or delete the lines of this cell, and it will run again"
        )

    def _is_torn(self, lines: list[Line], *, ends: bool) -> bool:
        """Whether a killed writer can have left the lines: all are whole, but for a last one that does not end."""
        try:
            self._check(lines[:-1] if not ends and _is_cut_short(lines[-1]) else lines)
        except StoreError:
            if any(SEAL in line.raw for line in lines):
                return False
            raise
        return True

    def _leave_out(self, lines: Sequence[Line]) -> None:
        if lines:
            names = re.findall(r'"cell":"([^"]*)"', b"\n".join(line.raw for line in lines).decode(errors="replace"))
            self._damages.append(Damage(lines[0].number, lines[-1].number, frozenset(names), len(self._entries)))

    def _still_missing(self) -> list[Damage]:
        """Without the damages whose cells have all been measured again since."""

        def again(damage: Damage) -> set[str]:
            return {entry.cell.id for entry in self._entries[damage.after :] if entry.status == "ok"}

        return [one for one in self._damages if not one.cells or not one.cells <= again(one)]


def line_of(number: int, raw: bytes) -> Line:
    """A line of a file, read or with the reason why it cannot be."""
    try:
        text = raw.strip().decode()
        fields, end = _decoder.raw_decode(text)
        if end < len(text):
            raise json.JSONDecodeError("Extra data", text, end)
        check_fields(fields)
    except UNREADABLE as error:
        return Line(number, raw, {}, error)
    return Line(number, raw, fields)


def _is_cut_short(line: Line) -> bool:
    """Whether it is the beginning of a line and nothing else: no other object begins in it, least a closing line."""
    if not isinstance(line.error, json.JSONDecodeError | UnicodeDecodeError) or b'{"format":' in line.raw[1:]:
        return False
    try:
        _decoder.raw_decode(line.raw.decode(errors="replace").lstrip())
    except ValueError:
        return True
    return False
