"""The benchmarks: what is compared, the goals, the published times, and that the commands print their tables."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from harness.bench.__main__ import arguments
from harness.bench.choices import ChoiceTimes, drawn_shapes, run_choices, shares
from harness.bench.layers import CASES, TARGETS, LayerCase, run_tables
from harness.bench.methods import RESOLUTIONS, MethodTimes, measure_methods, paper_seconds
from harness.bench.rectifiers import rectifier_table, rectifiers
from harness.stopwatch import StepTimes
from sesn import ScaleGrid, basis_b
from sesn.methods import METHODS, methods_on

OWN, REFERENCE = StepTimes([30.0, 50.0, 40.0], 0, 800), StepTimes([10.0, 10.0, 20.0], 0, 100)
RESULT = MethodTimes(METHODS["sesn-vector"], 28, OWN, REFERENCE)


def test_ratios_are_medians_of_the_ratios_within_rounds() -> None:
    assert RESULT.time_ratio == 3.0  # of 3, 5 and 2; the ratio of medians would be 4
    assert RESULT.work_ratio == 8.0
    assert RESULT.slowness == 3.0 / 8.0


def test_goals_are_met_or_missed() -> None:
    assert [met for _, met in RESULT.goals()] == [True, True]
    slow = replace(RESULT, own=OWN._replace(milliseconds=[95.0, 95.0, 190.0]))
    assert [met for _, met in slow.goals()] == [True, False]  # 9.5 x CNN, 1.19 per multiply-add
    assert [met for _, met in replace(slow, own=slow.own._replace(work=600)).goals()] == [False, False]
    assert len(replace(RESULT, resolution=56).goals()) == 1
    assert replace(RESULT, method=METHODS["cnn"]).goals() == []


def test_every_method_of_the_paper_has_published_times_and_every_one_but_the_reference_a_goal() -> None:
    rows = [row for row in methods_on("mnist") if row.in_paper]
    keys = {row.key for row in rows}
    assert set(paper_seconds()) == {(key, size) for key in keys for size in RESOLUTIONS}
    assert {row.key for row in rows if row.goals.work} == keys - {"cnn"}


def test_methods_are_measured_beside_the_cnn() -> None:
    results = measure_methods(rounds=1, device=torch.device("cpu"), only="dss-vector", batch=2)
    assert [(one.method.label, one.resolution) for one in results] == [
        (label, size) for size in RESOLUTIONS for label in ("CNN", "DSS Vector")
    ]
    for one in results:
        assert len(one.own.milliseconds) == 1
        assert one.own.memory > 0
        if one.method.key == "cnn":
            assert one.time_ratio == one.work_ratio == 1.0
        else:
            assert one.work_ratio == pytest.approx(4, rel=0.02)


def test_the_layer_tables_have_every_algorithm(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = LayerCase("MNIST", "conv", 1, 2, 2, 9, basis_b(ScaleGrid([1.7]), 7, 7))
    monkeypatch.setattr("harness.bench.layers.CASES", (small,))
    monkeypatch.setenv("COLUMNS", "160")
    threads = torch.get_num_threads()
    try:
        run_tables(rounds=1, threads=1, device="cpu", only="MNIST")
    finally:
        torch.set_num_threads(threads)
    printed = capsys.readouterr().out
    for word in ("auto", "dense", "separable", "spectral", "textbook", "bank", "auto / best algorithm"):
        assert word in printed
    assert "direct" not in printed


def test_the_rectifiers_are_timed_beside_each_other() -> None:
    table = rectifier_table(1, torch.device("cpu"), (48,))
    assert [str(column.header) for column in table.columns[1:]] == list(rectifiers(48))
    assert len(table.rows) == 1


def test_shapes_are_drawn_alike_and_are_as_networks_have_them() -> None:
    shapes = drawn_shapes(64)
    assert shapes == drawn_shapes(64)
    assert len(set(shapes)) == 64
    for field in ("kind", "basis_name", "interscale", "stride", "border", "mode"):
        assert len({getattr(each, field) for each in shapes}) >= 2
    assert {each.kind for each in shapes if each.mode == "weights"} == {"lift"}


def test_choices_are_judged_by_other_times_than_those_that_chose(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.bench.choices.LEAST_WORK", 1e4)
    monkeypatch.setattr("harness.bench.choices.MOST_WORK", 1e6)
    threads = torch.get_num_threads()
    try:
        results = run_choices(2, 1, threads, "cpu")
    finally:
        torch.set_num_threads(threads)
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("dense", "separable", "spectral", "measured / best", "model / best", "95%"))
    assert all(set(one.least) == {"dense", "separable", "spectral", "measured", "model"} for one in results)


def test_shares_count_the_shapes_within_the_bound() -> None:
    ways = ("dense", "separable")
    (shape,) = drawn_shapes(1)
    times = [
        ChoiceTimes(shape, ways, {"dense": 2.0, "separable": 3.0, "measured": mine, "model": 2.9}, {})
        for mine in (2.2, 2.21)
    ]
    assert shares(times) == {"measured": 0.5, "model": 1.0}


def test_the_cases_serve_the_targets() -> None:
    assert {case.group for case in CASES} == {"MNIST", "STL-10"}
    assert all(sense in ("<=", ">=") for sense, _ in TARGETS.values())


@pytest.mark.parametrize(
    ("given", "meant"),
    [([], ["layers"]), (["--rounds", "3"], ["layers", "--rounds", "3"]), (["methods"], ["methods"])],
)
def test_the_layers_are_meant_unless_said(given: list[str], meant: list[str]) -> None:
    assert arguments(given) == meant


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("methods", "--rounds", "0"), "rounds"),
        (("methods", "--methods", "nofile.py:MINE"), "nofile.py"),
        (("layers", "--device", "nope"), "`device` (='nope')"),
    ],
)
def test_bad_usage_is_said_without_a_traceback(given: tuple[str, ...], named: str) -> None:
    done = subprocess.run([sys.executable, "-m", "harness.bench", *given], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr
