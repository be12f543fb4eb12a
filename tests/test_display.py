"""What a run shows: bars on a terminal, lines elsewhere, failures always."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given
from rich.console import Console

from harness.experiment import Request
from harness.experiments import plan
from harness.records import Cell, Result, Scalar
from harness.run.engines.display import Bars, Lines, names, shared

CELLS = [Cell("selftest", 1, "smoke", "", {"do": "[bold]"}, seed) for seed in range(2)]


NAMES = names(CELLS)


def bars(console: Console, cells: Sequence[Cell], *, draws: bool = False) -> Bars:
    return Bars(console, names(cells), lambda: "≥ 3.5 days", {cell.id: 1.0 for cell in cells}, draws=draws)


def shown(*, quiet: bool = False, terminal: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=200)
    lines = Lines(console, NAMES, lambda: "≥ 3.5 days", quiet=quiet)
    with bars(console, CELLS, draws=True) if terminal else lines as view:
        for cell in CELLS:
            view.started(cell)
            view.progressed(cell, 0.5, "epoch 3")
        if isinstance(view, Bars):
            view._progress.refresh()
        view.finished(Result(CELLS[0], "ok", seconds=12.0))
        view.finished(Result(CELLS[1], "failed", (), "RuntimeError: [red]", seconds=0.5))
        # One that began and ended between two looks was never announced.
        view.progressed(CELLS[0], 0.5, "late")
        view.drawing()
        if isinstance(view, Bars):
            view._progress.refresh()
    return file.getvalue()


def test_a_terminal_shows_each_running_cell_and_all_of_them() -> None:
    text = shown(terminal=True)
    for word in ("all ", "0/2 cells, left: ≥ 3.5 days", "selftest seed=1", " 50%", "epoch 3"):
        assert word in text
    assert "failed, 0.5 s: selftest seed=1 (RuntimeError: [red])" in text


def test_one_bar_is_over_all_cells_by_their_length_and_over_the_report() -> None:
    view = Bars(Console(file=io.StringIO()), NAMES, lambda: "?", dict(zip(NAMES, (1.0, 7.0), strict=True)), draws=True)
    whole = view._progress.tasks[0]
    done = []
    for cell in CELLS:
        view.started(cell)
        view.progressed(cell, 0.5, "")
        done.append(whole.completed)
        view.finished(Result(cell, "ok"))
        done.append(whole.completed)
    view.drawing()
    assert done == [0.5, 1.0, 4.5, 8.0]
    assert whole.total == 12.0
    assert whole.fields["note"] == "2/2 cells, drawing the report"


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_longest_names_leave_room_for_bars_and_the_time_left(width: int) -> None:
    file = io.StringIO()
    cells = [one.cell for one in plan(Request("paper"), ["mnist-scale", "delta-depth"])]
    with bars(Console(file=file, force_terminal=True, width=width), cells) as view:
        for cell in cells[:1] + cells[-1:]:
            view.started(cell)
            view.progressed(cell, 0.5, "epoch 12/60, loss 0.123")
        view._progress.refresh()
    last = file.getvalue().rpartition("all ")[2]
    for word in (f"0/{len(cells)} cells, left: ≥ 3.5 days", "50%", "epoch 12/60, loss 0.123"):
        assert word in last


def test_cells_are_named_by_what_differs_and_the_rest_is_told_once() -> None:
    cells = [one.cell for one in plan(Request("lite", methods=("cnn", "dss-vector")), ["mnist-scale"])]
    assert names(cells)[cells[-1].id] == "mnist-scale dss-vector, resolution=56, augmented=True, seed=1"
    same = "data=embedded, recipe=paper, epochs=12, batch=128, rate=0.01, train_images=10000, test_images=50000, "
    assert shared(cells) == {"mnist-scale": f"{same}delta_images=16"}


def test_what_follows_from_a_told_setting_is_not_told() -> None:
    cells = [one.cell for one in plan(Request("smoke"), ["delta-interscale"])]
    assert names(cells)[cells[0].id] == "delta-interscale window=published, nonlinearity=linear, scales=5, extent=1"
    assert len(set(names(cells).values())) == len(cells)


SETTINGS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2) | st.booleans() | st.sampled_from(["x", "y"]))
DRAWN = st.builds(Cell, st.sampled_from(["one", "two"]), st.just(1), st.just("smoke"), st.sampled_from(["", "cnn"]))


@given(st.lists(st.tuples(DRAWN, SETTINGS, st.integers(0, 2)), max_size=12))
def test_no_two_cells_have_one_name(drawn: list[tuple[Cell, dict[str, Scalar], int]]) -> None:
    cells = {cell.id: cell for cell in (replace(one, settings=given, seed=seed) for one, given, seed in drawn)}
    called = names(list(cells.values()))
    assert called.keys() == cells.keys()
    assert len(set(called.values())) == len(called)


def test_elsewhere_there_is_a_line_for_each_cell_and_nothing_that_a_terminal_obeys() -> None:
    assert shown().splitlines() == [
        "[1/2] ok, 12 s: selftest seed=0 (left: ≥ 3.5 days)",
        "[2/2] failed, 0.5 s: selftest seed=1 (RuntimeError: [red])",
        "drawing the report",
    ]


def test_quiet_tells_of_failures_only() -> None:
    (line,) = shown(quiet=True).splitlines()
    assert line.startswith("[2/2] failed")
