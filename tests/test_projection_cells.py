"""The experiments about projections: what they plan, measure and train, and the table of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.experiment import Context, Request
from harness.experiments import EXPERIMENTS, Cell
from harness.experiments.projections import PARTNERED, PROJECTIONS, delta_projection, projected_job
from harness.experiments.training import MNISTSettings, mnist_job
from harness.paper import published
from harness.report.projections import NAMES, frame, table
from harness.report.select import select
from harness.store.frame import load
from sesn import ScaleProjection

ROOT = Path(__file__).resolve().parents[1]


def cell_of(experiment: str, **settings: object) -> Cell:
    planned = [one.cell for one in EXPERIMENTS[experiment].plan(Request())]
    return next(cell for cell in planned if settings.items() <= cell.settings.items())


def test_every_projection_is_planned_and_has_a_line_in_the_table():
    planned = {
        key: [one.cell for one in EXPERIMENTS[f"{key}-projection"].plan(Request())] for key in ("delta", "mnist")
    }
    assert {str(cell.settings["projection"]) for cell in planned["delta"]} == {*PROJECTIONS, *PARTNERED} == {*NAMES}
    assert [cell.settings["projection"] for cell in planned["mnist"]] == [*PROJECTIONS]
    assert {(cell.method, cell.seed, cell.settings["augmented"]) for cell in planned["mnist"]} == {
        ("sesn-vector", 0, False)
    }


def test_delta_is_that_of_field_map_and_score():
    found = {}
    for projection in ("max", "max-partnered"):
        cell = cell_of("delta-projection", projection=projection, scales=5)
        cell = replace(
            cell, settings={**cell.settings, "image_count": 2, "channels": 2, "layers": 1, "nonlinearity": "relu"}
        )
        for one in delta_projection(cell, Context()):
            found[projection, one.at["of"], round(float(one.at["downscale"]), 1), one.metric] = max(one.values)
    metrics = ("delta", "delta_relative")
    places = {(of, factor, metric) for of in ("field", "map", "score") for factor in (1.4, 2.0) for metric in metrics}
    assert {key[1:] for key in found} == places
    assert found["max", "field", 1.4, "delta"] == found["max-partnered", "field", 1.4, "delta"] < 1e-3
    for metric in metrics:
        assert 20 * found["max-partnered", "map", 2.0, metric] < found["max", "map", 2.0, metric]


@pytest.mark.parametrize("projection", ["max", "soft-tapered"])
def test_the_network_differs_from_that_of_mnist_scale_by_its_projection_alone(projection):
    cell = cell_of("mnist-projection", projection=projection)
    usual = Cell("mnist-scale", 1, "smoke", cell.method, {k: v for k, v in cell.settings.items() if k != "projection"})
    assert MNISTSettings.of(usual).resolution == 28
    networks = []
    for make, asked in ((projected_job, cell), (mnist_job, usual)):
        torch.manual_seed(0)
        networks.append(make(asked, None).network)
    ours, theirs = networks
    assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True))
    (project,) = (layer for layer in ours.modules() if isinstance(layer, ScaleProjection))
    assert str(project) == str(PROJECTIONS[projection]())
    assert (str(ours) == str(theirs)) == (projection == "max")


def test_the_numbers_in_the_docs_are_those_of_the_rows():
    shown = (ROOT / "docs" / "measuring-delta.md").read_text(encoding="utf-8").partition("## Fields are exact")[2]
    heading, _, *lines = ([one.strip() for one in row.split("|")[1:-1]] for row in shown.splitlines() if "|" in row[:1])
    keys = ("delta-projection", "mnist-projection")
    rows = load(ROOT / "reports" / "rows", keys)
    made = table(frame({key: select(rows, published(), EXPERIMENTS[key]) for key in keys}))
    measured = {line[0].text: dict(zip(made.heading, line, strict=True)) for line in made.lines}
    for name, *texts in lines[: len(NAMES) + 1]:
        for column, text in zip(heading[1:], texts, strict=True):
            assert text in (measured[name.replace("`", "")][column].text, "not run", ""), (name, column)
