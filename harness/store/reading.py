"""What is stored in a folder of rows: `<experiment>.jsonl`, one file an experiment."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.store.lines import StoredCell, StoreError
from harness.store.parsing import read

SUFFIX = ".jsonl"


def files(rows: Path, experiments: Iterable[str] | None = None) -> list[Path]:
    """The files of the experiments, or of all; those that are not there are left out."""
    if rows.exists() and not rows.is_dir():
        raise StoreError(f"`rows` (={str(rows)!r}) must be a folder, and is a file; name the folder that it is in")
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
