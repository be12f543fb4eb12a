"""The experiment about rectifiers: what it plans and measures, and the table of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.experiment import Context, Request
from harness.experiments import EXPERIMENTS, Cell
from harness.experiments.rectifiers import LISTED, RECTIFIERS, SIDE, WIDTHS, delta_rectifier, smoothed
from harness.paper import published
from harness.report import rectifiers
from harness.report.rectifiers import MAPS, NAMES, frame, table
from harness.report.select import select
from harness.store.frame import load
from sesn.layers.nested import NestedReLU

ROWS = Path(__file__).resolve().parents[1] / "reports" / "rows"


def planned() -> list[Cell]:
    return [one.cell for one in EXPERIMENTS["delta-rectifier"].plan(Request())]


def test_every_rectifier_is_planned_and_has_a_line_in_the_table():
    assert {str(cell.settings["rectifier"]) for cell in planned()} == {*RECTIFIERS} == {*NAMES}
    assert {cell.settings["width"] for cell in planned()} == {*WIDTHS} == {*MAPS}
    assert rectifiers.LISTED == LISTED
    made = {name: make() for name, make in RECTIFIERS.items()}
    listed = {name: {pair[0] for pair in one.sizes} for name, one in made.items() if isinstance(one, NestedReLU)}
    assert all({SIDE, LISTED} <= sizes for sizes in listed.values())
    assert {name: one.oversample for name, one in made.items() if isinstance(one, NestedReLU)} == {
        name: 1 if name.endswith("oversample 1") else 2 for name in listed
    }


@pytest.mark.parametrize("name", ["relu", "bandlimited", "nested", "nested, oversample 1"])
def test_scaling_and_translation_are_measured_apart(name):
    cell = next(one for one in planned() if one.settings["rectifier"] == name and one.settings["width"] == 0)
    cell = replace(cell, settings={**cell.settings, "image_count": 1})
    found = {
        (one.at["action"], one.at["pixels"], one.at["shift"]): one.values[0] for one in delta_rectifier(cell, Context())
    }
    exact_between_sizes, exact_between_pixels = name.startswith("nested"), "oversample" not in name
    assert (found["scaling", LISTED, 0.0] < 1e-27) == exact_between_sizes
    assert (found["translation", SIDE, 1.0] < 1e-27) == exact_between_pixels
    assert found["scaling", 48, 0.0] > 1e-4


def test_maps_are_smoothed_by_a_gaussian():
    impulse = torch.zeros(64, 64, dtype=torch.float64)
    impulse[32, 32] = 1
    places = torch.arange(64, dtype=torch.float64) - 32
    line = torch.exp(-0.5 * (places / 1.5).square())
    expected = torch.outer(line, line) / line.sum() ** 2
    torch.testing.assert_close(smoothed(impulse, 1.5), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(smoothed(impulse, 0.0), impulse)


def test_what_the_docs_promise_of_the_nested_relu_holds_in_the_rows():
    rows = load(ROWS, ["delta-rectifier"])
    measured = frame({"delta-rectifier": select(rows, published(), EXPERIMENTS["delta-rectifier"])})
    assert len(measured), "run `sesn run delta-rectifier --budget lite`"
    deltas = measured.set_index(["rectifier", "width", "action", "pixels", "shift"])["delta"]
    for (name, width, action, pixels, shift), delta in deltas.items():
        place = (width, action, pixels, shift)
        if name in ("nested", "all sizes") and action == "translation" and shift == 1:
            assert delta <= 1e-4, place
        if name == "nested" and action == "scaling":
            assert delta <= deltas["bandlimited", *place], place
            assert pixels != LISTED or delta <= 1e-27, place
    made = [[entry.text for entry in line] for line in table(measured).lines]
    assert [line[0] for line in made] == [*NAMES.values()]
    shown = (ROWS.parents[1] / "docs" / "measuring-delta.md").read_text(encoding="utf-8")
    for name, *numbers in made:
        assert f"| `{name}` | {' | '.join(numbers[:4])} |" in shown, name
