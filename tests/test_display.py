"""What a run shows: bars on a terminal, lines elsewhere, failures always."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harness.experiment import Request
from harness.experiments import plan
from harness.records import Cell, Result
from harness.run.engines.display import Bars, Lines, short_names

CELLS = [Cell("selftest", 1, "smoke", "", {"do": "[bold]"}, seed) for seed in range(2)]


def shown(display: type[Bars | Lines], *, quiet: bool = False, terminal: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=200)
    names = {cell.id: cell.title for cell in CELLS}
    bars = Bars(console, len(CELLS), lambda: "3 min", names)
    with bars if display is Bars else Lines(console, len(CELLS), lambda: "3 min", quiet=quiet) as view:
        for cell in CELLS:
            view.started(cell)
            view.progressed(cell, 0.5, "epoch 3")
        if isinstance(view, Bars):
            view._progress.refresh()
        view.finished(Result(CELLS[0], "ok", seconds=12.0))
        view.finished(Result(CELLS[1], "failed", (), "RuntimeError: [red]", seconds=0.5))
        # One that began and ended between two looks was never announced.
        view.progressed(CELLS[0], 0.5, "late")
    return file.getvalue()


def test_a_terminal_shows_each_running_cell_and_all_of_them() -> None:
    text = shown(Bars, terminal=True)
    for word in ("all cells", "0/2", "left: 3 min", "selftest: do=[bold], seed=1", "50%", "epoch 3"):
        assert word in text
    assert "failed, 0.5 s: selftest: do=[bold], seed=1 (RuntimeError: [red])" in text


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_longest_names_leave_room_for_bars_and_the_time_left(width: int) -> None:
    file = io.StringIO()
    cells = [one.cell for one in plan(Request("lite"), ["mnist-scale", "delta-depth"])]
    bars = Bars(
        Console(file=file, force_terminal=True, width=width),
        1234,
        lambda: "≥ 3.5 days",
        {cell.id: cell.title for cell in cells},
    )
    with bars as view:
        for cell in cells[:1] + cells[-1:]:
            view.started(cell)
            view.progressed(cell, 0.5, "epoch 12/60, loss 0.123")
        view._progress.refresh()
    last = file.getvalue().rpartition("all cells")[2]
    for word in ("0/1234", "left: ≥ 3.5 days", "50%", "epoch 12/60, loss 0.123"):
        assert word in last


def test_short_names_say_what_distinguishes_a_cell() -> None:
    common = {"data": "mnist", "epochs": 3}
    two = [Cell("mnist-scale", 1, "lite", "cnn", {**common, "augmented": augmented}) for augmented in (False, True)]
    other = Cell("parameters", 1, "lite", "wrn", {"network": "stl10"}, seed=4)
    assert list(short_names([*two, other]).values()) == [
        "mnist-scale cnn, augmented=False",
        "mnist-scale cnn, augmented=True",
        "parameters wrn",
    ]


def test_elsewhere_there_is_a_line_for_each_cell() -> None:
    assert shown(Lines).splitlines() == [
        "[1/2] ok, 12 s: selftest: do=[bold], seed=0 (left: 3 min)",
        "[2/2] failed, 0.5 s: selftest: do=[bold], seed=1 (RuntimeError: [red])",
    ]


def test_quiet_tells_of_failures_only() -> None:
    (line,) = shown(Lines, quiet=True).splitlines()
    assert line.startswith("[2/2] failed")
