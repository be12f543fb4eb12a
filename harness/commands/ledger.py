"""The plan beside the store: which cells are done, which are to do, and how long they will take."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from harness.experiments import EXPERIMENTS, Experiment
from harness.records import Cell, Planned, State
from harness.run.engines.display import spoken
from harness.store.lines import StoredCell
from sesn.tools.machine import device_kind

STATES: tuple[State, ...] = ("done", "failed", "skipped", "remaining")
#: Marks a kind of cell whose time is predicted from the time of one epoch, because no such cell has finished.
PREDICTED = "predicted"


def standing(planned: Planned, entries: Mapping[str, StoredCell]) -> Planned:
    """The cell with how it stands. What was skipped and is no longer planned to be is done like any other."""
    entry = entries.get(planned.cell.id)
    if entry is not None and entry.status == "ok":
        return planned._replace(state="done", reason="")
    if entry is not None and entry.status == "failed" and planned.state != "skipped":
        return planned._replace(state="failed", reason=entry.facts["reason"])
    return planned


class Estimates:
    """Seconds of cells, from those that are done: in proportion to their work, by experiment, method and size.

    Of the finished cells of a kind those count whose work is nearest: what a cell costs beside its work weighs most in
    the smallest, and would be multiplied. On the processor a cell is taken to be as much faster as it has threads.
    The machine, the device and the threads are those of the cells that are to be estimated.
    """

    def __init__(self, machine: str, device: str, threads: int = 1) -> None:
        self._here = (machine, device_kind(device))
        self._threads = threads if device_kind(device) == "cpu" else 1
        #: seconds of one thread, of each kind, by work
        self._seen: dict[tuple[str, ...], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
        #: asked for all cells each second, while there is news once in a while
        self._medians: dict[tuple[tuple[str, ...], float], float] = {}

    def learn(
        self, planned: Planned, seconds: float, machine: str, device: str, threads: int = 1, *, predicted: bool = False
    ) -> None:
        """Take a finished cell into account, or a measured rate for as long as no cell of this kind has finished."""
        kind = (PREDICTED, *_kind(planned.cell)) if predicted else _kind(planned.cell)
        alone = seconds * threads if device_kind(device) == "cpu" else seconds
        for key in (kind, (*kind, machine, device_kind(device))):
            self._seen[key][planned.work].append(alone)
            self._medians.pop((key, planned.work), None)

    def seconds(self, planned: Planned) -> float | None:
        """Of a cell, by those of its kind on this machine, else on any, else by measured rates; None without any."""
        kind = _kind(planned.cell)
        kinds = ((*kind, *self._here), kind, (PREDICTED, *kind, *self._here), (PREDICTED, *kind))
        key = next((key for key in kinds if key in self._seen), None)
        if key is None:
            return None
        nearest = min(self._seen[key], key=lambda work: abs(math.log(work / planned.work)))
        if (key, nearest) not in self._medians:
            self._medians[key, nearest] = statistics.median(self._seen[key][nearest])
        return self._medians[key, nearest] * planned.work / nearest / self._threads


class Total(NamedTuple):
    """Seconds of the cells that can be estimated, and how many cannot."""

    seconds: float
    unknown: int

    @property
    def words(self) -> str:
        """For people: at least so long, where some are unknown."""
        if self.unknown and not self.seconds:
            return "?"
        return ("≥ " if self.unknown else "") + spoken(self.seconds)


def is_begun(standings: Iterable[Planned]) -> bool:
    """Whether anything of it was run."""
    return any(one.state in ("done", "failed") for one in standings)


def _kind(cell: Cell) -> tuple[str, ...]:
    sizes = EXPERIMENTS[cell.experiment].sizes
    return (cell.experiment, cell.method, *(str(cell.settings.get(name, "")) for name in sizes))


def _column(cell: Cell) -> str:
    """What the cells of one column of a table share: all but the method and the seed."""
    return f"{cell.experiment} {cell.budget} {sorted(cell.settings.items())}"


def estimates(entries: Mapping[str, StoredCell], machine: str, device: str, threads: int = 1) -> Estimates:
    """What the stored cells teach, at every budget and on whatever data: the time hardly depends on those."""
    known = Estimates(machine, device, threads)
    for entry in entries.values():
        row = EXPERIMENTS.get(entry.cell.experiment)
        if row is None or entry.status != "ok" or not row.knows(entry.cell):
            continue
        facts = entry.facts
        where = (facts["machine"], facts["device"], facts["threads"])
        known.learn(Planned(entry.cell, row.work(row.settings.of(entry.cell))), facts["seconds"], *where)
        for trained in EXPERIMENTS.values():
            if trained.timed_by == row.key:
                for planned, seconds in _predictions(trained, entry):
                    known.learn(planned, seconds, *where, predicted=True)
    return known


def _predictions(trained: Experiment, timed: StoredCell) -> Iterator[tuple[Planned, float]]:
    """Of each method that was timed, a cell of one epoch, and the seconds that it takes."""
    cell = timed.cell
    side, images = (float(cell.settings[name]) for name in ("resolution", "epoch_images"))
    sizes = {name: cell.settings[name] for name in trained.sizes if name in cell.settings}
    for line in timed.values:
        if line.metric == "epoch_time":
            method = str(line.at.get("method", cell.method))
            epoch = Cell(trained.key, trained.version, cell.budget, method, sizes)
            yield Planned(epoch, images * side**2), statistics.median(line.values)


@dataclass(frozen=True)
class Ledger:
    """All planned cells as they stand, and the estimates."""

    standings: Sequence[Planned]
    estimates: Estimates
    #: how many cells run at a time
    jobs: int = 1

    def by_worth(self) -> Ledger:
        """The same with what tells most first.

        One realisation of every method comes before the second of any, one column of a table before the next, and the
        quick cells of a column before the slow ones.
        """
        places: dict[str, int] = {}
        for one in self.standings:
            for name in (one.cell.experiment, _column(one.cell)):
                places.setdefault(name, len(places))

        def worth(one: Planned) -> tuple[int, int, int, float]:
            cell, seconds = one.cell, self.estimates.seconds(one)
            return places[cell.experiment], cell.seed, places[_column(cell)], math.inf if seconds is None else seconds

        return replace(self, standings=sorted(self.standings, key=worth))

    @property
    def to_do(self) -> list[Planned]:
        """What a run would carry out."""
        return [one for one in self.standings if one.to_do]

    @property
    def all_skipped(self) -> bool:
        """Whether nothing of it can be run."""
        return all(one.state == "skipped" for one in self.standings)

    @property
    def nothing(self) -> str:
        """Why there is nothing to do, in words."""
        if not self.all_skipped:
            return "nothing is left to do"
        reasons = dict.fromkeys(one.reason for one in self.standings)
        count = len(self.standings)
        return f"nothing can be run here; {count} cell{'s are' if count != 1 else ' is'} skipped: {'; '.join(reasons)}"

    def experiments(self) -> dict[str, list[Planned]]:
        """The cells of each experiment."""
        groups: dict[str, list[Planned]] = {}
        for one in self.standings:
            groups.setdefault(one.cell.experiment, []).append(one)
        return groups

    def begun(self) -> dict[str, list[Planned]]:
        """The same, with those of which nothing was run taken together."""
        every = self.experiments()
        rest = {key: of for key, of in every.items() if not is_begun(of)}
        if len(rest) < 2:
            return every
        together = {f"{len(rest)} not begun": [one for of in rest.values() for one in of]}
        return {key: of for key, of in every.items() if key not in rest} | together

    def left(self, standings: Iterable[Planned], done: Mapping[str, float] | None = None) -> Total:
        """How long a run of the cells that are to do takes, of some of which a part (0..1, by id) is done."""
        total = Total(0.0, 0)
        for one in (one for one in standings if one.to_do):
            seconds = self.estimates.seconds(one)
            rest = (1 - (done or {}).get(one.cell.id, 0.0)) / (1 if one.alone else self.jobs)
            total = Total(total.seconds + rest * (seconds or 0.0), total.unknown + (seconds is None))
        return total

    def summary(self, key: str, standings: Sequence[Planned]) -> dict[str, Any]:
        """An experiment as plain data."""
        left, counts = self.left(standings), Counter(one.state for one in standings)
        return {
            "experiment": key,
            "budget": standings[0].cell.budget,
            "cells": len(standings),
            **{state: counts[state] for state in STATES},
            "reasons": dict(Counter(one.reason for one in standings if one.reason)),
            "seconds_left": left.seconds,
            "cells_of_unknown_length": left.unknown,
        }

    def cell(self, one: Planned) -> dict[str, Any]:
        """A cell as plain data."""
        seconds = self.estimates.seconds(one) if one.to_do else None
        told = {"state": one.state, "reason": one.reason, "seconds": seconds}
        return {"cell": one.cell.id, **one.cell.as_dict(), **told}
