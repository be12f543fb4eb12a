"""Rows as a frame: one number a row, the columns of CORE, then one column per setting and coordinate."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.records import CORE, METRICS
from harness.store.lines import FACTS, StoredCell, StoreWarning, Values
from harness.store.reading import stored
from sesn.methods import METHODS

_CELL = ("experiment", "seed", "budget", "version")
#: A failed or skipped cell is one row without a metric.
_NOTHING = Values("", {}, [float("nan")])


def load(rows: Path, experiments: Iterable[str] | None = None) -> pd.DataFrame:
    """The tidy frame of a folder of rows, of some experiments or of all.

    A failed or skipped cell is one row, whose metric is "" and whose value is NaN. Unknown metrics and methods are
    kept, with a warning. Texts are categories. A setting that some cells lack is NaN or None there.
    """
    with _no_garbage():
        return frame_of(list(stored(rows, experiments).values()))


@contextmanager
def _no_garbage() -> Iterator[None]:
    """A million small objects and no cycles: looking for some again and again would take as long as all the rest."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def frame_of(entries: Sequence[StoredCell]) -> pd.DataFrame:
    """The same of entries at hand."""
    owners, lines = _lines(entries)
    lengths = np.array([len(line.values) for line in lines], dtype=np.int64)
    of_line = np.repeat(np.arange(len(lines)), lengths)
    of_cell = np.array(owners, dtype=np.int64)[of_line]

    def by_cell(values: Iterable[Any]) -> Any:
        return _column(list(values), of_cell)

    def by_line(values: Iterable[Any]) -> Any:
        return _column(list(values), of_line)

    columns = {name: by_cell(getattr(entry.cell, name) for entry in entries) for name in _CELL}
    columns |= {name: by_cell(entry.facts[name] for entry in entries) for name in FACTS}
    columns["cell"] = by_cell(entry.cell.id for entry in entries)
    methods = [line.at.get("method", entries[owner].cell.method) for owner, line in zip(owners, lines, strict=True)]
    columns["method"], columns["metric"] = by_line(methods), by_line(line.metric for line in lines)
    columns["unit"] = by_line(METRICS.get(line.metric, "") for line in lines)
    columns["value"] = np.fromiter((value for line in lines for value in line.values), np.float64)
    columns["repeat"] = _counting(lengths)
    _warn_of_unknown("metric", {line.metric for line in lines} - METRICS.keys() - {""})
    _warn_of_unknown("method", set(methods) - METHODS.keys() - {""})
    ordered = {name: columns[name] for name in CORE}
    return pd.DataFrame(ordered | _extra_columns(entries, owners, lines, of_line))


def _lines(entries: Sequence[StoredCell]) -> tuple[list[int], list[Values]]:
    """All lines of values, and beside each the index of its cell."""
    pairs = [(index, line) for index, entry in enumerate(entries) for line in entry.values or [_NOTHING]]
    return [owner for owner, _ in pairs], [line for _, line in pairs]


def _extra_columns(
    entries: Sequence[StoredCell], owners: Sequence[int], lines: Sequence[Values], of_line: np.ndarray
) -> dict[str, Any]:
    """Settings and coordinates. A coordinate of a setting's name wins: it says where in the cell the value was seen."""
    settings = {name: None for entry in entries for name in entry.cell.settings}
    places = {name: None for line in lines for name in line.at if name != "method"}

    def values(name: str) -> list[Any]:
        of_cells = [entry.cell.settings.get(name) for entry in entries]
        if name not in places:
            return [of_cells[owner] for owner in owners]
        return [line.at.get(name, of_cells[owner]) for owner, line in zip(owners, lines, strict=True)]

    return {name: _column(values(name), of_line) for name in settings | places}


def _column(values: list[Any], index: np.ndarray) -> Any:
    """The values, each as often as the index says: of the narrowest type that holds them, texts as categories."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {str}:
        # Of objects: the categories of pandas' own texts would be slower to make, and of another type without pandas 3.
        codes, categories = pd.factorize(np.array(values, dtype=object))
        return pd.Categorical.from_codes(codes[index], categories=categories)
    if kinds <= {int, float} and kinds:
        dtype = np.int64 if kinds == {int} and None not in values else np.float64
        return np.array([np.nan if value is None else value for value in values], dtype=dtype)[index]
    if kinds == {bool} and None not in values:
        return np.array(values, dtype=bool)[index]
    return np.array(values, dtype=object)[index]


def _counting(lengths: np.ndarray) -> np.ndarray:
    """0, 1, ... within each line."""
    starts = np.cumsum(lengths) - lengths
    counted: np.ndarray = np.arange(lengths.sum()) - np.repeat(starts, lengths)
    return counted


def _warn_of_unknown(what: str, names: set[str]) -> None:
    if names:
        listed = ", ".join(sorted(map(str, names)))
        warnings.warn(f"the rows have a {what} that this sesn does not know: {listed}", StoreWarning, stacklevel=4)
