"""Rows as a frame: one number a row, the columns of CORE, then one column per setting and coordinate."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.records import CORE, METRICS
from harness.store.lines import FACTS, StoredCell, StoreWarning, Values
from harness.store.reading import stored
from sesn.methods import METHODS

#: A failed or skipped cell is one row without a metric.
_NOTHING = Values("", {}, [float("nan")])


def load(rows: Path, experiments: Iterable[str] | None = None) -> pd.DataFrame:
    """The tidy frame of a folder of rows, of some experiments or of all.

    A failed or skipped cell is one row, whose metric is "" and whose value is NaN. Unknown metrics and methods are
    kept, with a warning. Texts are categories. A setting that some cells lack is NaN or None there.
    """
    # A million small objects and no cycles: looking for some again and again would take as long as all the rest.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return frame_of(list(stored(rows, experiments).values()))
    finally:
        if was_enabled:
            gc.enable()


def frame_of(entries: Sequence[StoredCell]) -> pd.DataFrame:
    """The same of entries at hand."""
    lines = [(entry, line) for entry in entries for line in entry.values or [_NOTHING]]
    lengths = np.array([len(line.values) for _, line in lines], dtype=np.int64)
    of_line = np.repeat(np.arange(len(lines)), lengths)
    of_cell = np.repeat(np.arange(len(entries)), [len(entry.values) or 1 for entry in entries])[of_line]

    by_cell: dict[str, list[Any]] = {"cell": [entry.cell.id for entry in entries]}
    for name in ("experiment", "seed", "budget", "version"):
        by_cell[name] = [getattr(entry.cell, name) for entry in entries]
    by_cell |= {name: [entry.facts[name] for entry in entries] for name in FACTS}
    by_line: dict[str, list[Any]] = {
        "method": [line.at.get("method", entry.cell.method) for entry, line in lines],
        "metric": [line.metric for _, line in lines],
        "unit": [METRICS.get(line.metric, "") for _, line in lines],
    }
    _warn_of_unknown("metric", set(by_line["metric"]) - METRICS.keys() - {""})
    _warn_of_unknown("method", set(by_line["method"]) - METHODS.keys() - {""})
    settings = dict.fromkeys(name for entry in entries for name in entry.cell.settings)
    places = dict.fromkeys(name for _, line in lines for name in line.at if name != "method")
    by_cell |= {name: [entry.cell.settings.get(name) for entry in entries] for name in settings if name not in places}
    # A coordinate of a setting's name wins: it says where in the cell the value was seen.
    by_line |= {name: [line.at.get(name, entry.cell.settings.get(name)) for entry, line in lines] for name in places}

    frame = {name: _column(values, of_cell) for name, values in by_cell.items()}
    frame |= {name: _column(values, of_line) for name, values in by_line.items()}
    frame["value"] = np.fromiter((value for _, line in lines for value in line.values), np.float64)
    frame["repeat"] = np.arange(len(of_line)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return pd.DataFrame({name: frame[name] for name in (*CORE, *(settings | places))})


def _column(values: list[Any], index: np.ndarray) -> Any:
    """The values, each as often as the index says: of the narrowest type that holds them, texts as categories."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds != {str}:
        return pd.Series(values, dtype=None if kinds else object).to_numpy()[index]
    # Of objects: the categories of pandas' own texts would be slower to make, and of another type without pandas 3.
    codes, categories = pd.factorize(np.array(values, dtype=object))
    return pd.Categorical.from_codes(codes[index], categories=categories)


def _warn_of_unknown(what: str, names: set[str]) -> None:
    if names:
        listed = ", ".join(sorted(map(str, names)))
        warnings.warn(f"the rows have a {what} that this sesn does not know: {listed}", StoreWarning, stacklevel=4)
