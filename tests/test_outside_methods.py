"""Methods from outside: named as FILE.py:NAME or registered by a package, and then treated like the others."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_methods import lab
from torch import nn
from typer.testing import CliRunner

import sesn
from harness.bench.methods import measure_methods
from harness.experiment import Context, Request
from harness.experiments import EXPERIMENTS, plan
from harness.experiments.properties import FAMILIES, properties
from harness.records import SOURCE
from harness.run.engines import work
from harness.store.frame import load
from sesn.methods import HOMES, METHODS, PASSED_ON, SPARE_COLOURS, discover, method, methods_on, outside, scales_of
from sesn.methods.method import OWN_STEPS
from sesn.networks import NETWORKS
from sesn.tools.app import app

pytestmark = pytest.mark.usefixtures("own_methods")
EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "method.py"
TINY = """
import torch
from torch import nn
import sesn

def mnist(resolution, **_):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, {outputs}))

MINE = sesn.Method("mine", "My Method", networks={{"mnist": mnist}}, layer=lambda step: nn.Conv2d(3, 8, 7, padding=3))
OTHER = sesn.Method("cnn", "Another", networks={{"mnist": mnist}})
LAYER = sesn.Method("only-layer", "Only Layer", layer=lambda step: nn.Flatten())
NUMBER = 3

def rooted(step):
    if abs(step - 2 ** 0.5) > 1e-9:
        raise sesn.Inadmissible(f"`step` (={{step:.4g}}) must be the square root of 2")
    return sesn.ScaleLift(3, 8, sesn.basis_a(sesn.ScaleGrid.geometric(1.0, step, 2), 7, 3))

class Ten(nn.Module):
    def forward(self, x):
        return x.mean((2, 3)).expand(-1, 10)

def none(step):
    raise sesn.Inadmissible(f"`step` (={{step:.4g}}) is never right")

ROOTED = sesn.Method("rooted", "Rooted", layer=rooted)
FIXED = sesn.Method("fixed", "Fixed", networks={{"mnist": lambda **_: Ten()}})
NO_STEP = sesn.Method("no-step", "No Step", layer=none)
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(TINY.format(outputs=10), encoding="utf-8")
    return path


def invoke(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [str(one) for one in arguments])


# Named


def test_a_file_and_a_name_is_a_method(mine: Path) -> None:
    row = method(f"{mine}:MINE")
    assert METHODS["mine"] is row is method("mine")
    assert sesn.list_methods("mnist")[-1] == "mine"
    assert sesn.build(f"{mine}:MINE", "mnist")(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert row.lacks("stl10")
    assert re.fullmatch("[0-9a-f]{16}", row.digest)


def test_its_colour_stays_apart_from_the_others(mine: Path) -> None:
    colour = method(f"{mine}:MINE").colour
    assert colour == SPARE_COLOURS[0]
    for network in NETWORKS:
        for other in methods_on(network):
            if other.key != "mine":
                assert float((lab(colour) - lab(other.colour)).norm(dim=1).min()) > 20, other.key


def test_eight_spare_colours_stay_apart_from_the_methods_and_from_each_other() -> None:
    """By more than 30 in CIELAB (2 can just be seen), and by more than 16 in every kind of colour vision."""
    assert len(SPARE_COLOURS) >= 8
    used = [row.colour for key, row in METHODS.items() if key not in HOMES]
    for place, colour in enumerate(SPARE_COLOURS):
        for other in (*used, *SPARE_COLOURS[:place]):
            distances = (lab(colour) - lab(other)).norm(dim=1)
            assert (float(distances[0]) > 30, float(distances.min()) > 16) == (True, True), (colour, other, distances)


def test_a_changed_file_is_another_cell_and_the_others_keep_theirs(mine: Path) -> None:
    def ids() -> dict[str, set[str]]:
        planned = plan(
            Request(methods=("cnn", f"{mine}:MINE")), ["parameters", "mnist-scale", "epoch-time", "properties"]
        )
        keys = {one.cell.method for one in planned}
        return {key: {one.cell.id for one in planned if one.cell.method == key} for key in keys}

    before = ids()
    mine.write_text(mine.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    after = ids()
    assert before.keys() == after.keys() == {"cnn", "mine"}
    assert before["cnn"] == after["cnn"]
    assert not before["mine"] & after["mine"]
    assert not any(SOURCE in one.cell.settings for one in plan(Request(methods=("cnn",))))


def test_processes_that_are_started_find_it_wherever_they_are(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mine.parent)
    digest = method("mine.py:MINE").digest
    environment = work.environment()
    assert environment[PASSED_ON] == f"{mine.resolve()}:MINE"
    del METHODS["mine"], HOMES["mine"]
    discover.cache_clear()
    monkeypatch.chdir("/")
    monkeypatch.setenv(PASSED_ON, environment[PASSED_ON])
    assert method("mine").digest == digest


def register(folder: Path, monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    """Have a package in the folder register its methods."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "mine", raising=False)

    def entry(value: str) -> Any:
        found = outside.EntryPoint("any", value, outside.GROUP)
        vars(found).update(dist=SimpleNamespace(version="1.0"))
        return found

    monkeypatch.setattr(outside, "entry_points", lambda group: [entry(value) for value in values])
    discover.cache_clear()


def test_a_bad_method_of_a_package_stops_nobody_who_did_not_name_it(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(mine.parent, monkeypatch, "mine:OTHER", "mine:LAYER", "mine:MINE")
    with pytest.warns(UserWarning, match=r"mine:OTHER.*left out: `key` \(='cnn'\) must be a key that no other"):
        assert sesn.list_methods()[-2:] == ["only-layer", "mine"]
    assert METHODS["cnn"].label == "CNN"
    with pytest.raises(sesn.UsageError, match=r"must return maps"):
        Request(methods=("only-layer",))
    Request(methods=("cnn",))
    with pytest.warns(UserWarning, match=r"'only-layer' \(mine:LAYER.*is left out: .*must return maps"):
        planned = plan(Request(), ["properties"])
    assert {"cnn", "mine"} <= {one.cell.method for one in planned}
    assert "only-layer" not in METHODS


def test_installed_packages_register_methods(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(mine.parent, monkeypatch, "mine:MINE", "mine:NUMBER")
    with pytest.warns(UserWarning, match=r"mine:NUMBER.*must be a sesn.Method, but is of type int"):
        assert sesn.list_methods()[-1] == "mine"
    assert METHODS["mine"].digest
    assert PASSED_ON not in work.environment()


# Bad input


BAD = {
    "no file": ("{folder}/none.py:MINE", "there is no file"),
    "no name": ("{folder}/mine.py:YOURS", "mine.py has no name `YOURS`"),
    "no name at all": ("{folder}/mine.py", "must be a key or FILE.py:NAME"),
    "not a method": ("{folder}/mine.py:NUMBER", "must be a sesn.Method, but is of type int"),
    "a key that is taken": ("{folder}/mine.py:OTHER", "`key` (='cnn')"),
    "unknown": ("mien", "must be one of cnn"),
    "wrong outputs": ("{folder}/wrong.py:MINE", "must map [2, 1, 28, 28] to [2, 10]; it returned [2, 9]"),
    "wrong inputs": ("{folder}/narrow.py:MINE", "(resolution=28) failed: RuntimeError"),
    "nothing to train": ("{folder}/mine.py:FIXED", "must have parameters that can be trained, but has none"),
    "a layer without steps": ("{folder}/mine.py:NO_STEP", "must have one of the steps 2, 3, 4"),
    "wrong layer": ("{folder}/mine.py:LAYER", "must return maps [b, c, h, w]"),
    "broken": (
        "{folder}/broken.py:MINE",
        "broken.py failed: ZeroDivisionError: division by zero (broken.py, line 1)",
    ),
}


@pytest.mark.parametrize(("name", "words"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("command", ["plan", "run", "status"])
def test_bad_input_is_one_line_before_anything_runs(command: str, name: str, words: str, mine: Path) -> None:
    mine.with_name("wrong.py").write_text(TINY.format(outputs=9), encoding="utf-8")
    mine.with_name("narrow.py").write_text(TINY.format(outputs=10).replace("784", "100"), encoding="utf-8")
    mine.with_name("broken.py").write_text("1 / 0\n", encoding="utf-8")
    rows = mine.parent / "rows"
    result = invoke(command, "mnist-scale", "--methods", name.format(folder=mine.parent), "--rows", rows)
    assert result.exit_code == 2, result.output
    assert words in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert not rows.exists()


def test_a_network_that_it_lacks(mine: Path) -> None:
    result = invoke("run", "stl10-reduced", "--methods", f"{mine}:MINE", "--rows", mine.parent / "rows")
    assert result.exit_code == 2
    assert "no cell was asked for" in result.output


# Listed


def test_methods_of_ones_own_are_listed_beside_the_others() -> None:
    assert "`sesn methods FILE.py:NAME` lists a method of your own" in invoke("methods").stdout
    ended = invoke("methods", f"{EXAMPLE}:MINE")
    assert ended.exit_code == 0, ended.output
    assert re.search(r"two-sizes +● Two Sizes +[\d,]{6}", ended.stdout)
    assert "Input Rescaling: Me 2026" in ended.stdout
    assert "sesn-vector" in ended.stdout
    refused = invoke("methods", f"{EXAMPLE}:NONE")
    assert refused.exit_code == 2
    assert "has no name `NONE`" in refused.stderr


# From the plan to the page


def test_the_report_says_how_to_run_it_again_where_it_was_run(mine: Path, tmp_path: Path) -> None:
    rows, out, home = tmp_path / "rows", tmp_path / "out", f"{mine}:MINE"
    for named in ("cnn", home):
        assert invoke("run", "parameters", "--methods", named, "--rows", rows).exit_code == 0
    chosen = ("--rows", rows, "--out", out, "--causes", tmp_path / "none.json", "--methods", f"cnn,{home}")
    assert invoke("report", *chosen).exit_code == 0
    text = (out / "README.md").read_text(encoding="utf-8")
    again = next(line for line in text.splitlines() if line.startswith("Regenerate") and "configuration-mnist" in line)
    run = f"sesn run parameters --budget smoke --methods cnn,{home} --rows {rows}"
    report = f"sesn report --only configuration-mnist --rows {rows} --out {out} --methods cnn,{home}"
    assert again == f"Regenerate with `{run} && {report}`."


def test_what_its_file_prints_is_kept_apart_from_json(mine: Path, tmp_path: Path) -> None:
    mine.write_text(mine.read_text(encoding="utf-8") + "\nprint('from the file')\n", encoding="utf-8")
    for command in ("plan", "status"):
        ended = invoke(command, "parameters", "--methods", f"{mine}:MINE", "--rows", tmp_path / "rows", "--json")
        assert "experiments" in json.loads(ended.stdout)
    assert "from the file" in invoke("plan", "parameters", "--methods", f"{mine}:MINE", "--json").stderr


def test_a_method_without_a_source_has_a_dash(mine: Path) -> None:
    told = invoke("methods", f"{mine}:MINE").stdout
    (line,) = [line for line in told.splitlines() if "My Method" in line]
    assert line.rstrip().endswith("—")
    assert not re.search(r"\(\d+\)\s*$", told)


@pytest.mark.slow
def test_it_is_timed_trained_counted_tabled_and_drawn(mine: Path, tmp_path: Path) -> None:
    rows, out = tmp_path / "rows", tmp_path / "out"
    chosen = ("parameters", "epoch-time", "--methods", f"cnn,{mine}:MINE", "--rows", rows)
    planned = json.loads(invoke("plan", *chosen, "--json", "--cells").stdout)
    assert sum(one["cells"] for one in planned["experiments"]) == 12
    training = ("mnist-scale", "--methods", f"{mine}:MINE", "--rows", rows, "--where", "augmented=False")
    for asked in (chosen, training):
        done = invoke("run", *asked, "--threads", "1")
        assert done.exit_code == 0, done.output
    status = json.loads(invoke("status", *chosen, "--json").stdout)
    assert sum(one["remaining"] + one["failed"] for one in status["experiments"]) == 0
    frame = load(rows)
    ours = frame[frame["method"].eq("mine")]
    assert {"parameters", "time_ratio", "test_error", "delta"} <= set(ours["metric"])
    assert set(ours[SOURCE]) == {METHODS["mine"].digest}
    assert frame[frame["experiment"].eq("epoch-time") & frame["method"].eq("cnn")]["cell"].nunique() == 2

    none = tmp_path / "none.json"
    report = invoke("report", "--rows", rows, "--out", out, "--causes", none, "--methods", f"{mine}:MINE")
    assert report.exit_code == 0, report.output
    for table in ("epoch-time", "configuration-mnist"):
        text = (out / "tables" / f"{table}.md").read_text(encoding="utf-8")
        assert re.search(r"\| My Method \|.*\d", text), text
    assert "My Method" in (out / "figures" / "learning-curves.svg").read_text(encoding="utf-8")
    assert (
        METHODS["mine"].colour.lower() in (out / "figures" / "learning-curves.svg").read_text(encoding="utf-8").lower()
    )

    mine.write_text(mine.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    report = invoke("report", "--rows", rows, "--out", out, "--causes", none, "--methods", f"{mine}:MINE")
    assert "its source has changed since" in (out / "README.md").read_text(encoding="utf-8") + report.output


@pytest.mark.slow
def test_table_1_and_the_benchmark(mine: Path) -> None:
    request = Request(methods=(f"{mine}:MINE",))
    (planned,) = EXPERIMENTS["properties"].plan(request)
    found = properties(planned.cell, Context())
    assert {"delta", "delta_cnn", "translation_error", "interscale_reach"} <= {one.metric for one in found}
    results = measure_methods(1, torch.device("cpu"), "", 2, methods=[f"{mine}:MINE"])
    assert [one.method.key for one in results] == ["cnn", "mine"] * 2


@pytest.mark.slow
def test_a_layer_that_cannot_have_the_step_2_is_in_table_1(mine: Path) -> None:
    (planned,) = EXPERIMENTS["properties"].plan(Request(methods=(f"{mine}:ROOTED",)))
    found = properties(planned.cell, Context())
    refused = {one.at["downscale"] for one in found if "refused" in one.at}
    assert len(refused) == 8
    assert math.sqrt(2) not in refused


def test_a_layer_stands_for_its_method_at_the_first_step_that_it_can_have(mine: Path) -> None:
    assert tuple(step for steps in FAMILIES.values() for step in steps) == OWN_STEPS
    row = method(f"{mine}:ROOTED")
    outside.check(row)
    grid = scales_of(row.first_layer(3, 8))
    assert grid is not None
    assert grid.ratio == pytest.approx(math.sqrt(2))


@pytest.mark.slow
def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 40
    name = f"{EXAMPLE}:MINE"
    (planned, _) = (one for one in plan(Request(methods=(name,)), ["parameters"]) if one.state != "skipped")
    assert planned.cell.method == "two-sizes"
    layer = method(name).at_step(2.0)
    assert isinstance(layer, nn.Module)
    assert layer(torch.randn(1, 3, 48, 48)).shape == (1, 8, 48, 48)
    assert invoke("run", "parameters", "--methods", name, "--rows", tmp_path).exit_code == 0
