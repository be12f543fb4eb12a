"""From rows to rendered artefacts: selected, drawn or tabulated, captioned, with what they say. No file is written."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

import pandas as pd

from harness.experiment import Experiment
from harness.records import Budget
from harness.report import claims, gpu, own, times
from harness.report.artefacts import ARTEFACTS, Artefact, Selections, artefact
from harness.report.causes import causes_selection
from harness.report.findings import WORDS
from harness.report.select import Selection, cleaned, published_rows, reasons, select
from harness.report.tables import Table
from sesn._source import names_file
from sesn.methods import HOMES, METHODS
from sesn.tools.drawing import Drawing, Frame
from sesn.tools.machine import machine_words


@dataclass(frozen=True)
class Material:
    """All that the report is made of.

    Attributes:
        rows: measured, as the store loads them.
        paper: published.
        experiments: the record of each, by key.
        causes: the steps of `sesn causes`, or an empty frame.
        figures: those that another command draws, by the artefact's id.
        notes: what was odd about the rows when they were read.
        documents: where rows are that are not in the store, by experiment.
        methods: the keys of those that are shown; none: all.
        folders: the options of `sesn run` and of `sesn report` that name folders; none: those of the repository.
    """

    rows: Any
    paper: Any
    experiments: Mapping[str, Experiment]
    causes: Any
    figures: Mapping[str, Drawing] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    documents: Mapping[str, Path] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    folders: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Rendered:
    """An artefact with all that is shown of it; neither figure nor table where nothing has been measured."""

    artefact: Artefact
    frame: Any
    captions: tuple[str, ...]
    provenance: str
    facts: tuple[str, ...]
    notes: tuple[str, ...]
    statements: tuple[str, ...]
    regenerate: str
    drawing: Drawing | None = None
    table: Table | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show yet."""
        return self.drawing is None and self.table is None

    @property
    def animation(self) -> tuple[Frame, ...]:
        """The pictures that the page steps through; none: the figure stands still."""
        return self.drawing.frames if self.drawing is not None else ()


def rendered(material: Material, only: str | None = None) -> tuple[list[Rendered], list[str]]:
    """Every artefact, or one, and notes on rows that no artefact can show.

    Where some methods are named, the artefacts that have nothing on them are left out. So is one whose rows an earlier
    one shows in the same way: a table of short trainings, where there are no longer ones.
    """
    chosen = [artefact(only)] if only is not None else list(ARTEFACTS.values())
    rows, notes = cleaned(material.rows)
    if material.methods:
        rows = rows[rows["method"].isin(["", *material.methods])]
    read = cache(lambda key: _read(ARTEFACTS[key], material, rows))
    every = [_render(one, *_judged(one.id, read, material), material) for one in chosen]
    shown = [one for one in every if not (one.empty and (material.methods or one.artefact.id == own.KEY))]
    return [one for place, one in enumerate(shown) if not _repeats(one, shown[:place])], [*material.notes, *notes]


def _repeats(one: Rendered, before: Iterable[Rendered]) -> bool:
    """Whether one of those before makes the same of the same rows."""

    def shows(other: Rendered) -> tuple[Any, ...]:
        return other.artefact.frame, other.artefact.draw, other.artefact.table, other.facts

    return bool(one.facts) and any(shows(other) == shows(one) for other in before)


def _read(one: Artefact, material: Material, rows: Any) -> tuple[Selections, Any]:
    """What an artefact may show, and the frame that it makes of it."""
    selections = _selections(material, rows, one)
    own = [selections[key] for key in one.experiments]
    shown = not own or any(not chosen.empty for chosen in own)
    return selections, one.frame(selections) if shown else pd.DataFrame()


def _judged(key: str, read: Callable[[str], tuple[Selections, Any]], material: Material) -> tuple[Selections, Any]:
    """The same, of the scorecard too, which is made of the frames of others; some methods alone are not judged."""
    if key != claims.KEY:
        return read(key)
    evidence = {}
    for name in dict.fromkeys(claim["artefact"] for claim in claims.claims_of(material.paper)):
        selections, frame = read(name)
        evidence[name] = claims.Evidence(frame, selections, ARTEFACTS[name].budget)
    return {}, pd.DataFrame() if material.methods else claims.scorecard(material.paper, evidence)


def _selections(material: Material, rows: Any, one: Artefact) -> Selections:
    """What an artefact may show of each experiment that it is about, and of those that it shows beside them."""
    beside = {key: _selection(material, rows, key) for key in one.beside}
    return beside | {key: _selection(material, rows, key, one.budgets) for key in one.experiments}


def _selection(material: Material, rows: Any, key: str, budgets: tuple[Budget, ...] = ()) -> Selection:
    if key == "causes":
        return causes_selection(material.causes)
    if key == own.KEY:
        return own.selection(rows)
    if key == gpu.KEY and key in material.experiments:
        return gpu.selection(rows, material.experiments[key].version)
    if key not in material.experiments:  # published, and nothing that could be measured
        return Selection(key, rows[:0], rows[:0], published_rows(material.paper, key))
    rows = times.current(rows) if key == times.KEY else rows
    return select(rows, material.paper, material.experiments[key], budgets)


def _render(one: Artefact, selections: Selections, frame: Any, material: Material) -> Rendered:
    """The artefact with all that is shown of it."""
    own = [selections[key] for key in one.experiments]
    there = [chosen for chosen in own if not chosen.empty]
    notes = tuple(note for chosen in own for note in _notes(chosen))
    for_run, for_report = material.folders
    few = bool(one.budgets) or any(names_file(HOMES.get(key, key)) for key in material.methods)
    run = one.run_with({chosen.experiment: _options(chosen, one.budget, few=few) + for_run for chosen in own})
    again = " && ".join(filter(None, (run, f"sesn report --only {one.id}{for_report}")))
    if material.methods and "method" in frame:
        frame = frame[frame["method"].isin(material.methods)]
        again += f" --methods {_named(material.methods)}"
    if not len(frame):
        return Rendered(one, frame, (one.caption,), "", (), notes, (), again)
    captions = (one.caption, *one.notes, *one.extra(frame))
    provenance = "; ".join(dict.fromkeys(filter(None, map(_in_short, there)))) or WORDS["unmeasured"]
    facts = tuple(f"{chosen.experiment}: {'; '.join(_filled('context', _facts(chosen)))}" for chosen in there)
    table = one.table(frame) if one.table else None
    drawing = one.draw(frame) if one.draw else material.figures.get(one.id)
    return Rendered(one, frame, captions, provenance, facts, notes, tuple(one.says(frame)), again, drawing, table)


def _options(chosen: Selection, budget: Budget, *, few: bool) -> str:
    """What `sesn run` must be told to run the same cells; where few methods may have them, also which have."""
    words = [f"--budget {chosen.facts.get('budget', budget)}"]
    if few and not chosen.empty:
        there = [key for key in METHODS if key in set(chosen.rows["method"])]
        words += [f"--methods {_named(there)}"] if there else []
    return " ".join([*words, *(["--recipe released"] if chosen.facts.get("recipe") == "released" else [])])


def _named(methods: Iterable[str]) -> str:
    """As commands take them, wherever they come from."""
    return shlex.quote(",".join(home if names_file(home := HOMES.get(key, key)) else key for key in methods))


def _facts(chosen: Selection) -> dict[str, Any]:
    """Budget, repetitions, data, device and machine, from the rows."""
    facts = {**chosen.facts, "machine": machine_words(chosen.facts)}
    if chosen.seed:
        least, most = min(chosen.repeats), max(chosen.repeats)
        count = f"{least} {'to' if most > least + 1 else 'or'} {most}" if most > least else f"{most}"
        facts["seeds"] = f"{count} {chosen.seed}{'s' if most > 1 else ''}"
    if facts.get("epochs"):
        facts["epochs"] = f"{facts['epochs']} epoch{'s' * (str(facts['epochs']) != '1')}"
    if facts.get("images") and facts.get("image_count"):
        facts["images"] = f"{facts['image_count']} images of {facts['images']}"
    return facts


def _in_short(chosen: Selection) -> str:
    """How much was run, and where, in one line."""
    facts = _facts(chosen)
    images = f"{facts['image_count']} images" if facts.get("image_count") else ""
    amount = " × ".join(filter(None, (images, facts.get("seeds"))))
    return ", ".join(_filled("provenance", {**facts, "amount": amount, "machine": chosen.facts.get("machine")}))


def _filled(words: str, facts: Mapping[str, Any]) -> list[str]:
    """The texts of that list, without those that the rows have no fact for."""
    needed = {text: [name for _, name, *_ in Formatter().parse(text) if name] for text in WORDS[words]}
    return [text.format(**facts) for text, names in needed.items() if all(facts.get(name) for name in names)]


def _notes(chosen: Selection) -> Iterator[str]:
    yield from (f"Not shown: {line}." for line in chosen.left_out)
    if len(chosen.absent) and "status" in chosen.absent:
        # What was skipped has a footnote in the table; where there is none, its reason must stand somewhere.
        told = ("failed", "skipped") if chosen.empty else ("failed",)
        absent = chosen.absent[chosen.absent["status"].isin(told)]
        for (status, why), count in Counter(zip(absent["status"], reasons(absent), strict=True)).items():
            yield f"{chosen.experiment}: {count} {'cells' if count > 1 else 'cell'} {status}: {why}"
