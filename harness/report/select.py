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
from typing import Any, NamedTuple

import pandas as pd

from harness.experiment import Experiment
from harness.records import BUDGETS, CORE, DIGESTS, METRICS, SOURCE, Budget
from sesn.methods import METHODS, Method, methods_on
from sesn.tools.machine import device_kind

#: Places inside a cell; they may look like settings where a cell has only one of them.
COORDINATES = frozenset(
    {
        "data_name",
        "epoch",
        "downscale",
        "factor",
        "pixels",
        "speedups",
        "digit_size",
        "digits",
        "scale",
        "trained",
        "pictures",
        *DIGESTS,
    }
)
#: What rows must share to stand together; those that measure time share the machine, too.
RUN, MACHINE = ("version", "budget", "device"), "machine"
#: Settings that never vary within an artefact, whatever decides them.
ALWAYS = ("data", "images", "recipe")
#: Data that came with the installation stand behind the data of the paper.
DATA_SETTINGS, EMBEDDED = ("data", "images"), "embedded"
EXTRA = ("standard_deviation", "realisations")
#: What rows must share with the paper to be compared with it, as far as both say it.
CONDITIONS = ("epochs", "data", "images", "train_images", "test_images")
FAILED = "it did not run to its end, and `sesn status` says why"


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
        repeats: how many seeds there are, at each place of the experiment's axes.
    """

    experiment: str
    rows: Any
    absent: Any
    paper: Any
    facts: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    seed: str = ""
    repeats: tuple[int, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing was measured."""
        return len(self.rows) == 0

    @property
    def conditions(self) -> dict[str, Any]:
        """What the paper says of how it ran the experiment."""
        stated = {name: self.paper[name].dropna() for name in CONDITIONS if name in self.paper}
        return {name: values.iloc[0] for name, values in stated.items() if len(values)}

    @property
    def unlike(self) -> str:
        """What keeps the rows from being compared with the paper's: "smoke", or a condition; empty if nothing does."""
        if self.facts.get("budget") == BUDGETS[0]:
            return BUDGETS[0]
        others = (name for name, value in self.conditions.items() if self.facts.get(name) not in ("", None, value))
        return next(others, "")

    def metric(self, name: str) -> Any:
        """The rows of one metric."""
        return where(self.rows, metric=name)

    def reason(self, method: str, **axes: Any) -> str:
        """Why there is no number for a method at a place: it was skipped for a reason, it failed, or was not run."""
        found = where(self.absent, method=method, **{name: axes[name] for name in axes if name in self.absent})
        return reasons(found)[0] if len(found) else "not run"


def reasons(absent: Any) -> list[str]:
    """Why cells have no number. What was skipped says so in words; the text of an exception stays in the rows."""
    pairs = zip(absent["status"], absent["reason"], strict=True)
    return [str(reason) if status == "skipped" else FAILED for status, reason in pairs]


def where(rows: Any, **wanted: Any) -> Any:
    """The rows that have these values. An empty frame may lack the columns."""
    for name, value in wanted.items():
        rows = rows[rows[name].eq(value)] if len(rows) else rows
    return rows


def lines_of(network: str, *selections: Selection) -> list[Method]:
    """The methods that have a line in a table of this network: a later one only if it was measured."""
    measured = {key for chosen in selections for key in chosen.rows["method"].unique()}
    return [row for row in methods_on(network) if not row.later or row.key in measured]


def first(rows: Any, column: str) -> float:
    """The first number of a column, or NaN if there are no rows."""
    return float(rows[column].iloc[0]) if len(rows) else math.nan


def cleaned(rows: Any) -> tuple[Any, list[str]]:
    """Leave out rows that nothing here knows how to show, and say which."""
    measured = rows["status"].eq("ok")
    known = {
        "metric": ~measured | rows["metric"].isin(list(METRICS)),
        "method": rows["method"].isin(["", *METHODS]),
        "budget": rows["budget"].isin(list(BUDGETS)),
    }
    notes: list[str] = []

    def note(words: str, left_out: Any) -> None:
        counts = left_out.astype(str).value_counts(sort=False).sort_index()
        notes.extend(f"{count:,} rows of {words.format(value)}" for value, count in counts.items() if count)

    for what, good in known.items():
        note(f"the unknown {what} {{!r}} are left out", rows[what][~good])
    rows = rows[known["metric"] & known["method"] & known["budget"]]
    if SOURCE in rows:
        digests = rows["method"].astype(object).map(lambda key: METHODS[key].digest if key else "")
        current = rows[SOURCE].astype(object).fillna("").eq(digests)
        note("the method {!r} are left out: its source has changed since", rows["method"][~current])
        rows = rows[current]
    return rows, notes


def select(rows: Any, paper: Any, record: Experiment, budgets: Sequence[Budget] = ()) -> Selection:
    """The rows of one experiment that may stand together, of its current version.

    With `budgets`, those of the first of them that has rows, however few methods have them.
    """
    published = published_rows(paper, record.key)
    rows = where(rows, experiment=record.key).dropna(axis="columns", how="all")
    rows = rows.reindex(columns=[*dict.fromkeys([*CORE, *rows.columns])])
    rows = rows.assign(device=rows["device"].astype(object).map(device_kind, na_action="ignore"))
    measured = rows["status"].eq("ok")
    good, bad = rows[measured], rows[~measured & rows["version"].eq(record.version)]
    groups = _ranked(_groups(good, record), good, record)
    current = [group for group in groups if group.facts["version"] == record.version]
    if budgets:  # the first that has any
        by_budget = ([group for group in current if group.facts["budget"] == budget] for budget in budgets)
        current = next(filter(None, by_budget), [])
    if not current:
        left_out = tuple(_describe(group, {}) for group in groups)
        return Selection(record.key, good[:0], bad, published, left_out=left_out)
    chosen = current[0]
    left_out = tuple(_describe(group, chosen.facts) for group in groups if group is not chosen)
    shown = good[good["cell"].isin(chosen.cells)]
    facts = {name: _only(shown[name]) for name in ("torch", "threads", "code", MACHINE, *_settings(shown))}
    absent = where(bad, budget=chosen.facts["budget"])
    repeats = _repeats(shown, record.axes)
    return Selection(record.key, shown, absent, published, facts | chosen.facts, left_out, record.seed, repeats)


def _repeats(rows: Any, axes: tuple[str, ...]) -> tuple[int, ...]:
    """The different numbers of seeds of a method at a place; one number if all have been run equally often."""
    place = ["method", *(name for name in axes if name in rows)]
    cells = rows.drop_duplicates("cell")[[*place, "seed"]].astype(object)
    return tuple(sorted({int(count) for count in cells.groupby(place, dropna=False)["seed"].nunique()}))


def published_rows(paper: Any, experiment: str) -> Any:
    """What the paper has of an experiment."""
    rows = paper[paper["experiment"].eq(experiment)].dropna(axis="columns", how="all")
    return rows.reindex(columns=[*dict.fromkeys([*CORE, *EXTRA, *rows.columns])])


class Group(NamedTuple):
    """Cells that may stand together, and the facts that keep them apart from others."""

    facts: dict[str, Any]
    cells: list[str]


def _groups(rows: Any, record: Experiment) -> list[Group]:
    """Cells stand together if version, budget, device and settings agree, and the machine where time counts."""
    base, settings = [*RUN, *([MACHINE] if record.alone else [])], _settings(rows)
    groups: dict[Any, Group] = {}
    cells = rows.drop_duplicates("cell")[["cell", *base, *settings]].astype(object)
    for _, part in cells.groupby(base, sort=True, dropna=False):
        names = [*base, *_splitting(part, settings, record.axes)]
        for cell in part.to_dict("records"):
            facts = {name: _plain(cell[name]) for name in names}
            groups.setdefault(tuple(facts.items()), Group(facts, [])).cells.append(cell["cell"])
    return list(groups.values())


def _settings(rows: Any) -> list[str]:
    """The settings of the cells: constant in every cell, unlike a coordinate."""
    others = [name for name in rows.columns if name not in CORE and name not in COORDINATES]
    cells = rows.groupby("cell", sort=False, observed=True)
    return [name for name in others if len(rows) and int(cells[name].nunique(dropna=False).max()) == 1]


def _splitting(cells: Any, settings: list[str], axes: tuple[str, ...]) -> list[str]:
    """The settings that keep cells apart: those of the data, and all that the axes do not decide."""
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


def _ranked(groups: list[Group], rows: Any, record: Experiment) -> list[Group]:
    """The groups in the order in which an artefact prefers them."""

    def many(same: dict[str, Any]) -> int:
        return sum(len(group.cells) for group in groups if same.items() <= group.facts.items())

    def rank(group: Group) -> tuple[Any, ...]:
        facts, filled = group.facts, rows[rows["cell"].isin(group.cells)]
        return (
            facts["version"] != record.version,
            facts["budget"] == BUDGETS[0],
            any(str(facts.get(name)) == EMBEDDED for name in DATA_SETTINGS),
            # The places of an artefact that they fill: methods, and what is laid out side by side.
            -len(filled.drop_duplicates(["method", *(name for name in record.axes if name in rows)])),
            -BUDGETS.index(facts["budget"]),
            -many({name: facts[name] for name in (*RUN, MACHINE) if name in facts}),
            -many(facts),
            str(sorted(facts.items(), key=str)),
        )

    return sorted(groups, key=rank)


def _describe(group: Group, shown: dict[str, Any]) -> str:
    """Where the cells were run, on which data, and the settings that keep them apart from those that are shown."""
    facts, cells = group.facts, len(group.cells)
    place = f"version {facts['version']}, {facts['budget']} budget"
    place += f", {facts[MACHINE]} ({facts['device']})" if MACHINE in facts else f", {facts['device']}"
    apart = {name for name, value in facts.items() if shown.get(name, value) != value} - {*RUN, MACHINE}
    settings = [f"{name}={value}" for name, value in facts.items() if name in ALWAYS or name in apart]
    return f"{cells:,} {'cells' if cells > 1 else 'cell'} of {', '.join([place, *settings])}"


def _only(column: Any) -> Any:
    """The only value of a column, or all of them as text."""
    values = sorted({_plain(value) for value in column.dropna().unique()})
    return values[0] if len(values) == 1 else " and ".join(map(str, values))
