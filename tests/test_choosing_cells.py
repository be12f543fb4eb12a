"""Which cells `plan`, `run` and `status` are about, in which order, and which of them are being carried out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from test_run_command import cells, invoke

from harness.experiment import Request
from harness.experiments import plan
from harness.records import Measurement, Result
from harness.store.writing import Doing, Writer
from sesn.methods import methods_on
from sesn.tools.machine import provenance


def test_cells_can_be_chosen_by_their_settings_and_seed(tmp_path: Path) -> None:
    def planned(*where: str) -> list[dict[str, Any]]:
        options = [word for text in where for word in ("--where", text)]
        told = invoke("plan", "mnist-scale", "--budget", "paper", "--rows", tmp_path, "--cells", "--json", *options)
        assert told.exit_code == 0, told.output
        cells: list[dict[str, Any]] = json.loads(told.stdout)["cells"]
        return cells

    methods = len(methods_on("mnist"))
    assert len(planned()) == 24 * methods
    some = planned("resolution=28, augmented=False", "seed=1")
    assert len(some) == methods
    assert {(one["seed"], one["settings"]["resolution"], one["settings"]["augmented"]) for one in some} == {
        (1, 28, False)
    }


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("resolution=29", "`where` (='resolution=29') must be one of resolution=28, 56"),
        ("colour=red", "`where` (='colour=red') must be about one of data, recipe, epochs"),
        ("resolution", "`where` (='resolution') must be NAME=VALUE; such as resolution=28 or seed=0"),
        ("", "`where` (='') must be NAME=VALUE; leave it out for every cell"),
        ("seed=1,seed=2", "must be one value of seed; it was given 1 too"),
    ],
)
def test_settings_that_no_cell_has_are_refused_with_what_there_is(tmp_path: Path, where: str, said: str) -> None:
    ended = invoke("plan", "mnist-scale", "--budget", "paper", "--rows", tmp_path, "--where", where)
    assert ended.exit_code == 2
    assert said in ended.stderr


def test_a_run_takes_the_order_that_was_asked_for(selftest: pytest.MonkeyPatch, tmp_path: Path) -> None:
    selftest.setenv("SELFTEST", cells({"number": 1}, {"number": 2}))
    assert invoke("run", "selftest", "--rows", tmp_path, "--order", "worth", "--threads", "1").exit_code == 0
    ended = invoke("run", "selftest", "--rows", tmp_path, "--order", "cheap")
    assert ended.exit_code == 2
    assert "`order` (='cheap') must be one of" in ended.stderr


def test_rows_on_other_data_are_named_by_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SESN_DATA", raising=False)
    (one, *_) = plan(Request("lite", digits="mnist"), ["mnist-scale"])
    with Writer(tmp_path) as writer:
        writer.append(Result(one.cell, "ok", (Measurement("test_error", (1.0,)),), "", provenance()))
    for command in ("plan", "status"):
        told = invoke(command, "mnist-scale", "--budget", "lite", "--rows", tmp_path).stdout
        assert (
            "stored cells on other data (mnist) than the planned ones (embedded): 1; they tell how long cells take"
            in told
        )
        assert "count as done if --data FOLDER or $SESN_DATA names the folder with those data" in told


def test_status_names_what_is_running(tmp_path: Path) -> None:
    assert "a run is in progress" not in invoke("status", "--rows", tmp_path).stdout
    with Writer(tmp_path) as writer:
        writer.tell([Doing("mnist-scale cnn, seed=0", 0.25, "epoch 15/60, loss 0.020")])
        told = invoke("status", "--rows", tmp_path).stdout
        assert f"a run is in progress (pid {os.getpid()} on " in told
        assert "  mnist-scale cnn, seed=0: 25%, epoch 15/60, loss 0.020" in told
        as_json = json.loads(invoke("status", "--rows", tmp_path, "--json").stdout)
        assert as_json["running"]["cells"][0]["fraction"] == 0.25
    assert "a run is in progress" not in invoke("status", "--rows", tmp_path).stdout


def test_a_run_tells_which_cell_it_is_at(selftest: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[list[str]] = []
    original = Writer.tell

    def tell(self: Writer, running: Any) -> None:
        told.append([one.cell for one in running])
        original(self, running)

    selftest.setattr(Writer, "tell", tell)
    selftest.setenv("SELFTEST", cells({"number": 1}, {"number": 2}))
    assert invoke("run", "selftest", "--rows", tmp_path, "--threads", "1").exit_code == 0
    assert any(names and names[0].startswith("selftest") for names in told)
    assert told[-1] == []
