"""Which rows an artefact shows: one version, one budget, one kind of device, one set of settings; never a mixture.

The current version of the experiment; anything rather than a smoke test; the paper's own data rather than embedded
ones; then the group that fills most of the artefact's places, so that one long run does not hide a full table; then
the highest budget, and the settings with most cells. An artefact of some `budgets` shows the first of them that has
rows. An error or a Delta depends on the machine by rounding alone, so the rows of several machines stand together and
the caption names the machines; rows that measure time never do. What is left out is listed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from harness.experiment import Experiment
from harness.records import BUDGETS, CORE, DIGESTS, METRICS, SOURCE, Budget
from sesn.methods import METHODS
from sesn.tools.machine import device_kind

#: Places inside a cell; they may look like settings where a cell has only one of them.
COORDINATES = frozenset({"data_name", "epoch", "downscale", "factor", "pixels", "speedups", *DIGESTS})
#: What rows must share to stand together; those that measure time share the machine, too.
RUN, MACHINE = ("version", "budget", "device"), "machine"
#: Settings that never vary within an artefact, whatever decides them.
ALWAYS = ("data", "images", "recipe")
#: Data that came with the installation stand behind the data of the paper.
DATA_SETTINGS, EMBEDDED = ("data", "images"), "embedded"
EXTRA = ("standard_deviation", "realisations")


@dataclass(frozen=True)
class Selection:
    """What one artefact may show of one experiment.

    Attributes:
        rows: measured, all of one group.
        absent: failed and skipped cells of the same version and budget, with their reasons.
        paper: the published rows.
        facts: what all rows share: budget, version, machine, device, torch, threads and the settings.
        left_out: a line for each group that is not shown.
        seed: what the seeds number; empty if nothing is random.
    """

    experiment: str
    rows: Any
    absent: Any
    paper: Any
    facts: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    seed: str = ""

    @property
    def empty(self) -> bool:
        """Whether nothing was measured."""
        return len(self.rows) == 0

    @property
    def cells(self) -> set[str]:
        """What its rows were measured in."""
        return set(self.rows["cell"])

    def metric(self, name: str) -> Any:
        """The rows of one metric."""
        return where(self.rows, metric=name)

    def reason(self, method: str, **axes: Any) -> str:
        """Why there is no number for a method at a place: the row's words, or that it has not been run."""
        found = where(self.absent, method=method, **{name: axes[name] for name in axes if name in self.absent})
        return str(found["reason"].iloc[0]) if len(found) else "not run"


def where(rows: Any, **wanted: Any) -> Any:
    """The rows that have these values; of no rows none, whatever columns they lack."""
    for name, value in wanted.items():
        rows = rows[rows[name].eq(value)] if len(rows) else rows
    return rows


def first(rows: Any, column: str) -> float:
    """The first number of a column; NaN of no rows."""
    return float(rows[column].iloc[0]) if len(rows) else math.nan


def cleaned(rows: Any) -> tuple[Any, list[str]]:
    """Leave out rows that nothing here knows how to show, and say which."""
    measured = rows["status"].eq("ok")
    known = {
        "metric": ~measured | rows["metric"].isin(list(METRICS)),
        "method": rows["method"].isin(["", *METHODS]),
        "budget": rows["budget"].isin(list(BUDGETS)),
    }
    notes = []
    for what, good in known.items():
        for value, count in rows[what][~good].astype(str).value_counts(sort=False).sort_index().items():
            if count:
                notes.append(f"{count:,} rows of the unknown {what} {value!r} are left out")
    rows = rows[known["metric"] & known["method"] & known["budget"]]
    if SOURCE not in rows:
        return rows, notes
    digests = rows["method"].astype(object).map(lambda key: METHODS[key].digest if key else "")
    current = rows[SOURCE].astype(object).fillna("").eq(digests)
    for key, count in rows["method"][~current].astype(str).value_counts(sort=False).sort_index().items():
        if count:
            notes.append(f"{count:,} rows of the method {key!r} are left out: its source has changed since")
    return rows[current], notes


def select(rows: Any, paper: Any, record: Experiment, budgets: Sequence[Budget] = ()) -> Selection:
    """The rows of one experiment that may stand together, of its current version.

    With `budgets`, those of the first of them that has rows, however few methods have them.
    """
    experiment, wanted = record.key, record.version
    published = published_rows(paper, experiment)
    rows = rows[rows["experiment"].eq(experiment)].dropna(axis="columns", how="all")
    rows = rows.reindex(columns=[*dict.fromkeys([*CORE, *rows.columns])])
    rows = rows.assign(device=rows["device"].astype(object).map(device_kind, na_action="ignore"))
    good, bad = rows[rows["status"].eq("ok")], rows[~rows["status"].eq("ok")]
    bad = bad[bad["version"].eq(wanted)]
    base = (*RUN, MACHINE) if record.alone else RUN
    groups = _groups(good, record.axes, base)
    places = {key: _places(good[good["cell"].isin(cells)], record.axes) for key, cells in groups.items()}
    ranked = sorted(groups, key=lambda key: _rank(dict(key), groups, wanted, places[key], base))
    current = [key for key in ranked if dict(key)["version"] == wanted]
    chosen = _of_first(budgets, current)[:1] if budgets else current[:1]
    shown_key = dict(chosen[0]) if chosen else {}
    left_out = tuple(_describe(dict(key), len(groups[key]), shown_key) for key in ranked if key not in chosen)
    if not chosen:
        return Selection(experiment, good[:0], bad, published, left_out=left_out)
    shown = good[good["cell"].isin(groups[chosen[0]])]
    every = {name: _only(shown[name]) for name in ("torch", "threads", "code", MACHINE, *_settings(shown))}
    facts = {**every, **dict(chosen[0])}
    absent = bad[bad["budget"].eq(facts["budget"])]
    return Selection(experiment, shown, absent, published, facts, left_out, record.seed)


def published_rows(paper: Any, experiment: str) -> Any:
    """What the paper has of an experiment."""
    rows = paper[paper["experiment"].eq(experiment)].dropna(axis="columns", how="all")
    return rows.reindex(columns=[*dict.fromkeys([*CORE, *EXTRA, *rows.columns])])


def _of_first(budgets: Sequence[Budget], groups: list[Any]) -> list[Any]:
    """The groups of the first budget that has any."""
    by_budget = ([key for key in groups if dict(key)["budget"] == budget] for budget in budgets)
    return next(filter(None, by_budget), [])


def _groups(rows: Any, axes: tuple[str, ...], base: tuple[str, ...]) -> dict[tuple[tuple[str, Any], ...], list[str]]:
    """The cells that may stand together: of one version, budget and whatever else is in `base`, and same settings."""
    groups: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    settings = _settings(rows)
    cells = rows.drop_duplicates("cell")[["cell", *base, *settings]].astype(object)
    for _, part in cells.groupby(list(base), sort=True, dropna=False):
        names = [*base, *_splitting(part, settings, axes)]
        for cell in part.to_dict("records"):
            groups.setdefault(tuple((name, _plain(cell[name])) for name in names), []).append(cell["cell"])
    return groups


def _settings(rows: Any) -> list[str]:
    """The settings of the cells: constant in every cell, unlike a coordinate."""
    others = [name for name in rows.columns if name not in CORE and name not in COORDINATES]
    cells = rows.groupby("cell", sort=False, observed=True)
    return [name for name in others if len(rows) and int(cells[name].nunique(dropna=False).max()) == 1]


def _splitting(cells: Any, settings: list[str], axes: tuple[str, ...]) -> list[str]:
    """The settings that would be mixed: those of the data, and all that what is laid out does not decide."""
    laid_out = [name for name in axes if name in settings]
    places = cells.groupby(laid_out, dropna=False) if laid_out else cells.groupby(lambda _: 0)
    free = [name for name in settings if name not in axes]
    # A timing cell of one method has no list of methods, and stands beside those that have the same one.
    apart = {name: int(places[name].nunique(dropna=name == "methods").max()) for name in free}
    return [name for name in free if name in ALWAYS or apart[name] > 1]


def _plain(value: Any) -> Any:
    """A setting that a cell lacks is empty text; a whole number is one."""
    if pd.isna(value):
        return ""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _places(rows: Any, axes: tuple[str, ...]) -> int:
    """How many places of an artefact some rows fill: methods, and what is laid out side by side."""
    return len(rows.drop_duplicates(["method", *(name for name in axes if name in rows)]))


def _rank(
    key: dict[str, Any], groups: dict[Any, Any], wanted: int, places: int, base: tuple[str, ...]
) -> tuple[Any, ...]:
    """The best first."""

    def many(*names: str) -> int:
        same = {name: key[name] for name in names}
        return sum(len(part) for other, part in groups.items() if same.items() <= dict(other).items())

    return (
        key["version"] != wanted,
        key["budget"] == BUDGETS[0],
        any(str(key.get(name)) == EMBEDDED for name in DATA_SETTINGS),
        -places,
        -BUDGETS.index(key["budget"]),
        -many(*base),
        -many(*key),
        str(sorted(key.items(), key=str)),
    )


def _describe(key: dict[str, Any], cells: int, shown: dict[str, Any]) -> str:
    """Where the cells were run, on which data, and the settings that keep them apart from those that are shown."""
    place = f"version {key['version']}, {key['budget']} budget"
    place += f", {key[MACHINE]} ({key['device']})" if MACHINE in key else f", {key['device']}"
    base = (*RUN, MACHINE)
    apart = {name for name, value in key.items() if name in shown and shown[name] != value and name not in base}
    settings = [f"{name}={value}" for name, value in key.items() if name in ALWAYS or name in apart]
    return f"{cells:,} {'cells' if cells > 1 else 'cell'} of {', '.join([place, *settings])}"


def _only(column: Any) -> Any:
    """The value, or all of them as text."""
    values = sorted({_plain(value) for value in column.dropna().unique()})
    return values[0] if len(values) == 1 else " and ".join(map(str, values))
