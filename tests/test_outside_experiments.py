"""Experiments from outside: named as FILE.py:NAME, run into the same store, and listed by the report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Optional

import pytest
from PIL import Image
from typer.testing import CliRunner

from harness.commands.asked import Asked
from harness.commands.options import Choice
from harness.experiment import CellSettings, Context, Experiment, Request
from harness.experiments import EXPERIMENTS, experiment, plan
from harness.experiments.delta import images_of
from harness.records import EXPERIMENT_SOURCE, Cell, Measurement, Planned
from harness.report import own
from harness.run.engines.cluster import shipped, shipped_name
from harness.run.engines.work import carry_out
from harness.store.frame import load
from harness.store.writing import Writer
from sesn.tools.app import app

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLE = DOCS / "examples" / "experiment.py"
TINY = """
from dataclasses import dataclass, replace
from harness.experiments import CellSettings, EXPERIMENTS, Experiment, Measurement

@dataclass(frozen=True, kw_only=True)
class Settings(CellSettings):
    size: int

def cells(request):
    return [("", Settings(size=size), seed, "") for size in (1, 2) for seed in (0, 1)]

def run(cell, context):
    return [Measurement("delta", (float(Settings.of(cell).size + cell.seed),) * 3)]

MINE = Experiment(
    key="mine", title="Mine.", version=1, settings=Settings, cells=cells, run=run, axes=(), seed="start", alone=False
)
TAKEN = replace(MINE, key="parameters")
BROKEN = replace(MINE, key="broken", cells=lambda request: [("", Settings(size=1 // 0), 0, "")])
SHORT = replace(MINE, key="short", cells=lambda request: [("", Settings(size=1))])
TEXT = replace(MINE, key="text", cells=lambda request: [("", Settings(size=float("nan")), 0, "")])
TWICE = replace(MINE, key="twice", cells=lambda request: cells(request) + cells(request)[:1])
PLAIN = replace(MINE, key="plain", cells=lambda request: [("", {"size": 1}, 0, "")])
UNKNOWN = replace(MINE, key="unknown", cells=lambda request: [("sesn-scaler", Settings(size=1), 0, "")])
SEEDLESS = replace(MINE, key="seedless", cells=lambda request: [("", Settings(size=1), 0.5, "")])
EMPTY = replace(MINE, key="empty", cells=lambda request: [])
NOTHING = replace(MINE, key="nothing", cells=lambda request: None)
IDLE = replace(MINE, key="idle", work=lambda settings: 0)
NUMBER = 3
"""


@pytest.fixture(autouse=True)
def own_table() -> Iterator[None]:
    """What a test has join the table leaves it again."""
    rows = dict(EXPERIMENTS)
    yield
    EXPERIMENTS.clear()
    EXPERIMENTS.update(rows)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(TINY, encoding="utf-8")
    return path


def invoke(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [str(one) for one in arguments])


# The record


@dataclass(frozen=True, kw_only=True)
class Sized(CellSettings):
    size: int
    half: float = 0.5
    word: str | None = None
    other: Optional[int] = None  # noqa: UP045 - users write this, too


def nothing(_cell: Cell, _context: Context) -> list[Measurement]:
    return []


PARTS: dict[str, Any] = {
    **{"key": "sized", "title": "Sized.", "version": 1, "settings": Sized, "cells": lambda _request: []},
    **{"run": nothing, "axes": ("size",), "seed": "weight draw", "alone": False},
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_forgotten_is_an_error_at_import(part: str) -> None:
    with pytest.raises(TypeError, match=f"missing 1 required keyword-only argument: '{part}'"):
        Experiment(**{name: value for name, value in PARTS.items() if name != part})
    assert {one.name for one in fields(Experiment)} - PARTS.keys() == {"work", "sizes", "timed_by", "home", "digest"}


@dataclass(frozen=True, kw_only=True)
class Listed(CellSettings):
    sizes: list[int]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "key": ({"key": "My Sweep"}, r"`key` \(='My Sweep'\) must be small letters"),
    "version": ({"version": 0}, r"`version` \(=0\) must be a whole number"),
    "version that is a truth value": ({"version": True}, r"`version` \(=True\) must be a whole number"),
    "title": ({"title": 3}, r"`title` \(=3\) must be a sentence"),
    "no title": ({"title": ""}, r"`title` \(=''\) must be a sentence"),
    "alone": ({"alone": "yes"}, r"`alone` \(='yes'\) must be True or False"),
    "timed_by": ({"timed_by": 3}, r"`timed_by` \(=3\) must be the key of an experiment"),
    "no axes": ({"axes": None}, r"`axes` \(=None\) must be a tuple of names"),
    "axes that are text": ({"axes": "size"}, r"`axes` \(='size'\) must be a tuple of names"),
    "sizes that are a number": ({"sizes": 3}, r"`sizes` \(=3\) must be a tuple of names"),
    "seed": ({"seed": "dice"}, r"`seed of experiment 'sized'` \(='dice'\) must be one of"),
    "axes": ({"axes": ("colour",)}, r"`axes` \(='colour'\) must be a field of its settings"),
    "sizes": ({"sizes": ("colour",)}, r"`sizes` \(='colour'\) must be a field"),
    "run": ({"run": None}, r"`run` \(=None\) must be a function"),
    "settings": ({"settings": dict}, "must be a frozen dataclass derived from CellSettings"),
    "settings that are not plain": ({"settings": Listed, "axes": ()}, "must be text, a number or a truth value"),
}


@pytest.mark.parametrize(("change", "words"), WRONG.values(), ids=WRONG)
def test_a_part_that_is_wrong_is_an_error_at_import(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Experiment(**{**PARTS, **change})


def test_settings_are_read_back_with_their_types() -> None:
    cell = Cell("sized", 1, "smoke", "", {"size": 3, "half": 1, EXPERIMENT_SOURCE: "0"})
    assert Sized.of(cell) == Sized(size=3, half=1)
    assert Sized(size=3).as_dict() == {"size": 3, "half": 0.5}
    for settings, words in (
        ({}, "look at size"),
        ({"size": 3, "colour": "red"}, "look at colour"),
        ({"size": "3"}, r"`size` \(='3'\) must be of type int"),
        ({"size": True}, r"`size` \(=True\) must be of type int"),
        ({"size": 3, "word": 1}, r"`word` \(=1\) must be of type str"),
    ):
        with pytest.raises(ValueError, match=words):
            Sized.of(replace(cell, settings=settings))


@pytest.mark.parametrize("key", EXPERIMENTS)
def test_every_planned_cell_of_every_experiment_reads_back(key: str) -> None:
    row = EXPERIMENTS[key]
    for one in row.plan(Request("lite", training={"ranks": 2})):
        assert row.settings.of(one.cell).as_dict() == one.cell.settings
        assert row.knows(one.cell)


RETURNED: dict[str, tuple[Any, str]] = {
    "a number": (lambda: 0.5, "must return a list of Measurement, but returned 0.5"),
    "nothing": (lambda: None, "must return a list of Measurement, but returned None"),
    "a plain tuple": (lambda: [("delta", (0.5,))], "must return a list of Measurement, but returned ('delta', (0.5,))"),
    "one value": (lambda: [Measurement("delta", 0.5)], "`values` of delta (=0.5) must be a tuple of numbers"),  # type: ignore[arg-type]
    "words": (lambda: [Measurement("delta", ("a",))], "`values of delta` (=('a',)) must be a sequence of numbers"),  # type: ignore[arg-type]
    "a place": (lambda: [Measurement("delta", (0.5,), 3)], "`at` of delta (=3) must be names and values"),  # type: ignore[arg-type]
    "an empty list": (list, "the cell returned no measurement"),
}


@pytest.mark.parametrize(("returned", "words"), RETURNED.values(), ids=RETURNED)
def test_wrong_measurements_are_named_in_the_reason(
    returned: Callable[[], Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.nothing", lambda _cell, _context: returned())
    result = carry_out(Planned(Cell("sized", 1, "smoke", ""), runner=f"{__name__}:nothing"), Context(), lambda *_: None)
    assert result.status == "failed"
    assert words in result.reason


# From outside


def test_a_file_and_a_name_is_an_experiment_and_a_changed_file_makes_other_cells(mine: Path) -> None:
    planned = plan(Request(), [f"{mine}:MINE"])
    assert EXPERIMENTS["mine"].home == f"{mine.resolve()}:MINE"
    assert {one.cell.settings[EXPERIMENT_SOURCE] for one in planned} == {EXPERIMENTS["mine"].digest}
    assert [one.cell for one in plan(Request(), [f"{mine}:MINE"])] == [one.cell for one in planned]
    mine.write_text(TINY + "\n# changed\n", encoding="utf-8")
    assert not {one.cell.id for one in planned} & {one.cell.id for one in plan(Request(), [f"{mine}:MINE"])}
    failed = carry_out(planned[0], Context(), lambda *_: None)
    assert (
        failed.reason == "UsageError: the source of the experiment 'mine' has changed since the run began; run it again"
    )


BAD = {
    "no file": ("{folder}/none.py:MINE", "there is no file"),
    "no name": ("{folder}/mine.py:YOURS", "mine.py has no name `YOURS`"),
    "no name at all": ("{folder}/mine.py", "must be a key or FILE.py:NAME"),
    "not an experiment": ("{folder}/mine.py:NUMBER", "must be a harness.experiments.Experiment, but is of type int"),
    "a key that is taken": (
        "{folder}/mine.py:TAKEN",
        "`key` (='parameters') must be a key that no other experiment has",
    ),
    "unknown": ("delta-dept", "did you mean 'delta-depth'?"),
    "cells that fail": ("{folder}/mine.py:BROKEN", "making its cells failed: ZeroDivisionError"),
    "cells that lack a part": ("{folder}/mine.py:SHORT", "(=('', Settings(size=1))) must be a tuple of four"),
    "a cell twice": ("{folder}/mine.py:TWICE", "must return each cell once, but returned one twice: twice: size=1"),
    "settings of another kind": ("{folder}/mine.py:PLAIN", "(={'size': 1}) must be of type Settings"),
    "an unknown method": ("{folder}/mine.py:UNKNOWN", "`method of a cell of experiment 'unknown'` (='sesn-scaler')"),
    "a seed that is no number": (
        "{folder}/mine.py:SEEDLESS",
        "`seed of a cell of experiment 'seedless'` (=0.5) must be a whole number",
    ),
    "no cells": ("{folder}/mine.py:EMPTY", "experiment 'empty': `cells` returned no cell at budget smoke"),
    "no list of cells": ("{folder}/mine.py:NOTHING", "(=None) must be a function that returns a list of cells"),
    "no work": ("{folder}/mine.py:IDLE", "`work of a cell of experiment 'idle'` (=0) must be a positive number"),
    "settings that are no numbers": (
        "{folder}/mine.py:TEXT",
        "a cell of experiment 'text': `settings['size']` (=nan) must be",
    ),
    "a file that fails": ("{folder}/broken.py:MINE", "ZeroDivisionError: division by zero (broken.py, line 1)"),
}


@pytest.mark.parametrize(("name", "words"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("command", ["plan", "run", "status"])
def test_bad_input_is_one_line_before_anything_runs(command: str, name: str, words: str, mine: Path) -> None:
    mine.with_name("broken.py").write_text("1 / 0\n", encoding="utf-8")
    rows = mine.parent / "rows"
    result = invoke(command, name.format(folder=mine.parent), "--rows", rows)
    assert result.exit_code == 2, result.output
    assert words in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert not rows.exists()


@pytest.mark.parametrize(("where", "words"), [("size=1,seed=0", "include 1 cell, "), ("size=1", "include 2 cells, ")])
def test_the_plan_says_how_many_cells_it_cannot_estimate(where: str, words: str, mine: Path) -> None:
    result = invoke("plan", f"{mine}:MINE", "--rows", mine.parent / "rows", "--where", where)
    assert f"the time does not {words}because no similar cell has finished yet" in result.output


def test_two_files_with_one_key_are_refused(mine: Path) -> None:
    other = mine.with_name("other.py")
    other.write_text(TINY, encoding="utf-8")
    result = invoke("plan", f"{mine}:MINE", f"{other}:MINE", "--rows", mine.parent / "rows")
    assert result.exit_code == 2
    assert "must be a key that no other experiment has" in " ".join(result.output.split())


def test_the_file_is_sent_to_machines_that_lack_it(mine: Path) -> None:
    (one, *_) = plan(Request(), [f"{mine}:MINE"])
    files = shipped([one, Planned(one.cell, runner="harness.experiments.delta:delta_depth")])
    assert list(files.values()) == [mine.resolve()]
    (name,) = files
    assert shipped_name(one.runner) == f"{name}:MINE"
    assert shipped_name("harness.experiments.delta:delta_depth") == "harness.experiments.delta:delta_depth"


def test_it_is_run_by_workers_into_the_store_and_listed_by_the_report(mine: Path, tmp_path: Path) -> None:
    rows, out, name = tmp_path / "rows", tmp_path / "out", f"{mine}:MINE"
    done = invoke("run", name, "--rows", rows, "--threads", "1")
    assert done.exit_code == 0, done.output
    status = json.loads(invoke("status", name, "--rows", rows, "--json").stdout)
    assert [(one["experiment"], one["done"], one["remaining"]) for one in status["experiments"]] == [("mine", 4, 0)]
    frame = load(rows)
    assert sorted(frame["value"]) == [1.0] * 3 + [2.0] * 6 + [3.0] * 3
    assert set(frame[EXPERIMENT_SOURCE]) == {EXPERIMENTS["mine"].digest}
    EXPERIMENTS.pop("mine")
    report = invoke("report", "--rows", rows, "--out", out, "--causes", tmp_path / "none.json")
    assert report.exit_code == 0, report.output
    listed = (out / "tables" / "own-experiments.md").read_text(encoding="utf-8")
    assert "| mine | smoke |  | delta | size=1 | 1.5 | 0.55 | 6 |" in listed
    assert "Experiments of your own" in (out / "README.md").read_text(encoding="utf-8")
    mine.write_text(TINY.replace("* 3)", "* 2)"), encoding="utf-8")
    assert invoke("run", name, "--rows", rows, "--threads", "1", "--where", "size=2").exit_code == 0
    invoke("report", "--rows", rows, "--out", out, "--causes", tmp_path / "none.json")
    listed = (out / "tables" / "own-experiments.md").read_text(encoding="utf-8")
    assert "size=1" not in listed
    assert "12 rows of mine, whose file has changed since" in listed


OPTIONAL = """
@dataclass(frozen=True, kw_only=True)
class Optionally(CellSettings):
    width: int | None = None
    word: str | None = None

def optional_cells(request):
    given = [{}, {"width": 3}, {"word": "a"}]
    return [("", Optionally(**one), 0, "") for one in given]

def optional_run(cell, context):
    settings = Optionally.of(cell)
    value = 1.0 + 10 * (settings.width is not None) + 100 * (settings.word is not None)
    return [Measurement("delta", (value,) * 2), Measurement("energy", (value,) * 2, {"depth": 1})]

OPTIONAL = replace(MINE, key="optional", settings=Optionally, cells=optional_cells, run=optional_run)
"""


def test_cells_that_lack_a_setting_are_not_averaged_with_those_that_have_it(mine: Path, tmp_path: Path) -> None:
    mine.write_text(TINY + OPTIONAL, encoding="utf-8")
    with Writer(tmp_path / "rows") as writer:
        for one in plan(Request(), [f"{mine}:OPTIONAL"]):
            writer.append(carry_out(one, Context(), lambda *_: None))
    lines = own.frame({own.KEY: own.selection(load(tmp_path / "rows"))})
    listed = {(line["metric"], line["settings"]): (line["mean"], line["values"]) for line in lines.to_dict("records")}
    assert listed == {
        ("delta", "width=none, word=none"): (1, 2),
        ("delta", "width=3, word=none"): (11, 2),
        ("delta", "width=none, word=a"): (101, 2),
        ("energy", "width=none, word=none, depth=1"): (1, 2),
        ("energy", "width=3, word=none, depth=1"): (11, 2),
        ("energy", "width=none, word=a, depth=1"): (101, 2),
    }


@pytest.mark.parametrize("name", [f"{EXAMPLE}:MINE", "delta-downscale"])
def test_the_images_may_be_a_folder_of_pictures(name: str, tmp_path: Path) -> None:
    folder, rows = tmp_path / "pictures", tmp_path / "rows"
    folder.mkdir()
    refused = invoke("plan", name, "--rows", rows, "--images", folder)
    assert refused.exit_code == 2
    assert "holds no pictures" in " ".join(refused.output.split())
    for index in range(4):
        Image.linear_gradient("L").convert("RGB").rotate(90 * index).save(folder / f"{index}.png")
    planned = Asked(Choice(experiments=[name], images=str(folder), rows=rows)).planned("smoke")
    assert {one.cell.settings["images"] for one in planned} == {str(folder)}
    if name == "delta-downscale":
        images, label = images_of(EXPERIMENTS[name].settings.of(planned[0].cell), Context())  # type: ignore[arg-type]
        assert len(images) == 4
        assert label.startswith("directory pictures")


@pytest.mark.slow
def test_the_example_of_the_documentation_runs_as_the_documentation_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 40
    text = (DOCS / "your-own-experiment.md").read_text(encoding="utf-8")
    commands = [line.split() for line in re.findall(r"^    sesn (.*)$", text, re.M)]
    assert [words[0] for words in commands] == ["plan", "run", "status", "report"]
    (tmp_path / "docs" / "examples").mkdir(parents=True)
    (tmp_path / "docs" / "examples" / "experiment.py").write_bytes(EXAMPLE.read_bytes())
    monkeypatch.chdir(tmp_path)
    for words in commands:
        done = invoke(*words)
        assert done.exit_code == 0, done.output
    assert not (tmp_path / "reports").exists()  # in a clone these are the committed rows
    listed = (tmp_path / "own" / "tables" / "own-experiments.md").read_text(encoding="utf-8")
    assert len(re.findall(r"\| my-depth \| smoke \|  \| delta \| window=(7|13), depth=[123] \|", listed)) == 6
    assert experiment("my-depth").title.startswith("Delta against depth")
