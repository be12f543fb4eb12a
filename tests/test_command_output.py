"""What `plan`, `status`, `run` and `reproduce` print: a screenful, the time, and what to do next."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from test_run_command import cells, invoke

from harness.commands import asked, reproduce
from harness.commands.options import Choice
from harness.commands.overview import print_next
from harness.experiment import Request
from harness.experiments import EXPERIMENTS, plan
from harness.records import Measurement, Result
from harness.store.writing import Writer
from sesn.tools.machine import provenance

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "reports" / "rows"
#: A usual terminal.
LINES, COLUMNS = 24, 80


@pytest.fixture(autouse=True)
def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SESN_DATA", raising=False)


def height(text: str) -> int:
    return sum(max(1, math.ceil(len(line.rstrip()) / COLUMNS)) for line in text.splitlines())


@pytest.mark.parametrize(
    "words", [("plan",), ("plan", "--budget", "paper"), ("status",), ("status", "--budget", "lite")]
)
def test_the_usual_commands_fit_a_screen_and_end_with_what_to_do(words: tuple[str, ...]) -> None:
    ended = invoke(*words, "--rows", ROWS)
    assert ended.exit_code == 0, ended.output
    assert height(ended.stdout) <= LINES
    budget = "" if words == ("plan",) else f" --budget {'lite' if 'status' in words else 'paper'}"
    place = f"{budget} --rows {ROWS}"
    assert re.fullmatch(rf"Run (them|the rest) with `sesn run{re.escape(place)}`\.", ended.stdout.splitlines()[-1])
    assert len(re.findall(r"cells skipped, for \d+ reasons; --verbose lists them", ended.stdout)) == 1
    assert invoke(*words, "--rows", ROWS, "--verbose").stdout.count("skipped: ") >= 10


def test_other_data_are_told_of_once_and_their_times_predict() -> None:
    text = invoke("plan", "--budget", "lite", "--rows", ROWS).stdout
    assert text.count("stored cells on other data (mnist, stl10) than the planned ones (embedded)") == 1
    (line,) = [line for line in text.splitlines() if line.strip().startswith("delta-depth")]
    assert line.split()[3] == "0"
    assert line.split()[-1] in ("s", "min", "h")


def test_status_does_not_call_a_store_empty_whose_rows_are_on_other_data() -> None:
    text = invoke("status", "mnist-scale", "--rows", ROWS).stdout
    assert "nothing is stored" not in text
    assert "stored cells on other data (mnist) than the planned ones (embedded)" in text


def test_committed_rows_predict_the_time_of_a_run_into_another_folder(tmp_path: Path) -> None:
    ledger = asked.Asked(Choice(rows=tmp_path)).ledger(asked.Where("local", 1, "cpu", 2))
    assert {one.cell.experiment for one in ledger.standings} == EXPERIMENTS.keys()
    assert 60 < ledger.left(ledger.to_do).seconds < 20 * 60


def test_failures_are_told_with_their_reasons_and_what_runs_them_again(
    selftest: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    selftest.setenv("SELFTEST", cells({"do": "raise"}, {"plan": "no data"}, {"plan": "no time"}))
    ended = invoke("run", "selftest", "--rows", tmp_path, "--threads", "1")
    assert ended.exit_code == 1
    assert ended.stdout.splitlines()[-1] == "The same command runs the 1 failed cell again."
    told = invoke("status", "selftest", "--rows", tmp_path).stdout
    assert "selftest, smoke: 1 failed: RuntimeError: as told, in two lines" in told
    assert "2 cells skipped, for 2 reasons; --verbose lists them" in told
    assert "no data" not in told
    assert "1 skipped: no data" in invoke("status", "selftest", "--rows", tmp_path, "--verbose").stdout
    assert told.splitlines()[-1] == f"Run the rest with `sesn run selftest --budget smoke --rows {tmp_path}`."


def test_the_commonest_of_many_failures_are_told(selftest: pytest.MonkeyPatch, tmp_path: Path) -> None:
    selftest.setenv("SELFTEST", cells(*({"number": number} for number in range(6))))
    with Writer(tmp_path) as writer:
        for one in plan(Request(), ["selftest"]):
            writer.append(Result(one.cell, "failed", (), f"reason {max(one.cell.seed, 1)}", provenance()))
    told = invoke("status", "selftest", "--rows", tmp_path).stdout
    assert "selftest, smoke: 2 failed: reason 1\n" in told
    assert told.count("1 failed: reason ") == 2
    assert "6 cells failed, for 5 reasons; --verbose lists them" in told
    verbose = invoke("status", "selftest", "--rows", tmp_path, "--verbose").stdout
    assert verbose.count("1 failed: reason ") == 4


def test_a_run_says_what_all_cells_share_once_and_each_by_what_differs(
    selftest: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    selftest.setenv("SELFTEST", cells({"number": 1, "steps": 5}, {"number": 2, "steps": 5}))
    ended = invoke("run", "selftest", "--rows", tmp_path, "--threads", "1")
    assert ended.exit_code == 0, ended.output
    first, common, *finished = ended.stderr.splitlines()
    assert first == "2 cells to run, 1 at a time; time: unknown, as no similar cell has finished"
    assert common == "selftest, all cells: steps=5"
    assert [re.sub(r"\d\.\d s", "T", line) for line in finished] == [
        "[1/2] ok, T: selftest number=1 (left: T)",
        "[2/2] ok, T: selftest number=2",
    ]
    assert "\x1b" not in ended.output
    assert (
        ended.stdout.splitlines()[-1] == f"Draw figures and tables with `sesn report --rows {tmp_path} --out FOLDER`."
    )
    again = invoke("plan", "selftest", "--rows", tmp_path).stdout.splitlines()
    assert again[-2:] == ["nothing is left to do", ended.stdout.splitlines()[-1]]


def test_the_next_command_repeats_the_options(tmp_path: Path) -> None:
    options = ("--methods", "cnn", "--where", "seed=0", "--where", "resolution=28", "--jobs", "2", "--order", "worth")
    text = invoke("plan", "mnist-scale", "--budget", "lite", "--rows", tmp_path / "a b", *options).stdout
    command = f"sesn run mnist-scale --budget lite --methods cnn --rows '{tmp_path}/a b' --jobs 2 --where seed=0"
    assert f"Run them with `{command} --where resolution=28 --order worth`." in text


def test_plan_and_status_estimate_for_the_threads_that_a_run_is_to_have(tmp_path: Path) -> None:
    for command in ("plan", "status"):
        words = (command, "mnist-scale", "--budget", "lite", "--rows", ROWS, "--device", "cpu")
        found = {
            threads: json.loads(invoke(*words, "--threads", threads, "--json").stdout)["experiments"][0]
            for threads in ("1", "2")
        }
        assert found["1"]["seconds_left"] == pytest.approx(2 * found["2"]["seconds_left"])
        assert "--threads 1" in invoke(*words, "--threads", "1").stdout.splitlines()[-1]


def test_the_report_of_an_outside_method_is_told_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for methods, told in ((["cnn"], ""), (["a b.py:MINE"], " --methods 'a b.py:MINE'")):
        print_next(Console(width=200), Choice(rows=tmp_path, methods=methods))
        assert capsys.readouterr().out == (
            f"Draw figures and tables with `sesn report --rows {tmp_path}{told} --out FOLDER`.\n"
        )


def test_a_folder_with_too_few_pictures_is_refused_by_the_plan(tmp_path: Path) -> None:
    from PIL import Image

    Image.linear_gradient("L").save(tmp_path / "one.png")
    ended = invoke("plan", "delta-depth", "--images", tmp_path, "--rows", tmp_path / "rows")
    assert ended.exit_code == 2, ended.output
    rule = "must be a folder of at least 4 pictures for delta-depth at the smoke budget; it holds 1"
    assert rule in ended.stderr


# --- reproduce


def test_reproduce_says_how_long_it_takes_and_where_the_page_is(selftest: pytest.MonkeyPatch, tmp_path: Path) -> None:
    selftest.setenv("SELFTEST", cells({"number": 1}, {"number": 2}))
    rows: list[Any] = []
    selftest.setattr(asked, "plan", lambda request, _keys: plan(request, ["selftest"]))
    selftest.setattr(reproduce, "render", lambda *given, **_more: rows.extend(given))
    selftest.setattr(asked, "COMMITTED", tmp_path / "committed")
    with Writer(tmp_path / "committed") as writer:
        for one in plan(Request("lite"), ["selftest"]):
            writer.append(Result(one.cell, "ok", (Measurement("delta", (1.0,)),), "", provenance("cpu"), "", 200.0))
    ended = invoke("reproduce", "--out", tmp_path / "out")
    assert ended.exit_code == 0, ended.output
    assert re.match(
        r"2 cells to run, 1 at a time; time: \d+ min, as similar cells took; then the report is drawn\n", ended.stderr
    )
    assert "all cells:" not in ended.stderr
    assert ended.stderr.endswith("drawing the report\n")
    assert rows[:2] == [tmp_path / "out", tmp_path / "out" / "rows"]
    page = tmp_path / "out" / "index.html"
    assert ended.stdout.splitlines()[-1] == f"the page is {page}; open {page.as_uri()} in a browser"
