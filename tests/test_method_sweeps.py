"""The Delta sweeps of a method's own layers: planned where the method is named, measured by the meter, drawn."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from harness.experiment import Context, Request
from harness.experiments import EXPERIMENTS
from harness.experiments.delta import delta_depth, delta_downscale, delta_interscale
from harness.paper import published
from harness.records import Cell, Measurement, Planned, Result, Scalar
from harness.report import delta
from harness.report.select import cleaned, select
from harness.store.frame import load
from harness.store.writing import Writer
from sesn import Meter
from sesn.methods import METHODS, method, scales_of
from sesn.tools.app import app

RUNS = {"delta-depth": delta_depth, "delta-downscale": delta_downscale, "delta-interscale": delta_interscale}
pytestmark = pytest.mark.usefixtures("own_methods")
EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "method.py"
OUTSIDE = """
import sesn
from torch import nn

GRID = sesn.ScaleGrid([1.5, 3.0, 6.0])

def lift(step):
    if step != 2:
        raise sesn.Inadmissible(f"`step` (={step:.4g}) must be 2")
    return sesn.ScaleLift(3, 8, sesn.basis_a(GRID, "wide", 2), bias=False)

def between(extent=1):
    return sesn.ScaleConv(8, 8, sesn.basis_a(GRID, "wide", 2), interscale=extent, bias=False)

FIELDS = sesn.Method("fields", "Fields", layer=lift, between=between)
PROJECTED = sesn.Method("projected", "Projected", layer=lift)
SHRINKS = sesn.Method("shrinks", "Shrinks", layer=lambda step: nn.Conv2d(3, 8, 21))
SCORES = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
NO_LAYER = sesn.Method("no-layer", "No Layer", networks={"mnist": lambda **_: SCORES})
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside.py"
    path.write_text(OUTSIDE, encoding="utf-8")
    return path


def planned(experiment: str, *methods: str) -> list[Planned]:
    return EXPERIMENTS[experiment].plan(Request(methods=methods))


def small(cell: Cell, **changes: Scalar) -> Cell:
    return replace(cell, settings={**cell.settings, "side": 48, "image_count": 2, **changes})


def deltas(found: list[Measurement], metric: str = "delta", **at: Scalar) -> list[Tensor]:
    chosen = [one for one in found if one.metric == metric and at.items() <= dict(one.at).items()]
    return [torch.tensor(one.values) for one in chosen]


# --- the plan


@pytest.mark.parametrize("experiment", RUNS)
def test_without_a_name_no_method_is_swept(experiment: str) -> None:
    assert {one.cell.method for one in EXPERIMENTS[experiment].plan(Request())} == {""}
    assert all(one.cell.method == "dss-vector" for one in planned(experiment, "dss-vector"))


def test_every_method_has_a_cell_or_a_reason_in_every_sweep() -> None:
    for key in ("cnn", "si-convnet", "sevf-vector", "dss-vector", "sesn-b"):
        for experiment in RUNS:
            cells = planned(experiment, key)
            assert cells, (key, experiment)
            assert all(bool(one.reason) == (one.state == "skipped") for one in cells)
        assert {one.state for one in planned("delta-depth", key)} == {"remaining"}


def test_the_extents_of_a_method_that_has_none_are_skipped_with_a_reason() -> None:
    assert [one.state for one in planned("delta-interscale", "dss-vector")] == ["remaining"] * 3
    for key, words in {"cnn": "no scales", "sicnn-vector": "no `extent`"}.items():
        (one,) = planned("delta-interscale", key)
        assert one.state == "skipped"
        assert words in one.reason


def test_a_layer_that_refuses_the_depth_is_named_before_anything_runs(outside: Path) -> None:
    (one,) = planned("delta-depth", f"{outside}:SHRINKS")
    assert one.state == "skipped"
    assert "layer 1 of 10 on 96 pixels" in one.reason
    (other,) = planned("delta-depth", f"{outside}:NO_LAYER")
    assert "`layer`" in other.reason


def test_the_downscales_end_where_the_layer_refuses() -> None:
    (cnn,) = planned("delta-downscale", "cnn")
    (shrinking,) = planned("delta-downscale", "si-convnet")
    assert cnn.cell.settings["largest_downscale"] == 32.0
    assert 2 <= float(shrinking.cell.settings["largest_downscale"]) < 32


# --- what is measured


def test_the_layers_of_a_method_are_measured_by_the_meter(outside: Path) -> None:
    (one,) = planned("delta-depth", f"{outside}:FIELDS")
    found = delta_depth(small(one.cell, layers=3), Context())
    assert [m.at["depth"] for m in found if m.metric == "delta"] == [1, 2, 3]
    assert {m.at["downscale"] for m in found} == {2.0}
    # Fields throughout, one channel without a partner, far better than a plain convolution.
    assert [float(values[0]) for values in deltas(found, "channels_lost")] == [1.0, 1.0]
    (plain,) = planned("delta-depth", "cnn")
    worse = delta_depth(small(plain.cell, layers=3), Context())
    assert float(deltas(found)[-1].median()) < float(deltas(worse)[-1].median()) / 3
    assert deltas(found, "floor", depth=1)[0].tolist() == deltas(worse, "floor", depth=1)[0].tolist()


def test_a_chain_is_the_lift_and_the_layers_after_it(outside: Path) -> None:
    fields = method(f"{outside}:FIELDS").chain(3)
    assert [tuple(scales_of(layer).sigmas) for layer in fields] == [(1.5, 3.0, 6.0)] * 3  # type: ignore[union-attr]
    x = torch.randn(1, 3, 24, 24)
    for layer in fields:
        x = layer(x)
    assert x.shape == (1, 8, 3, 24, 24)
    x = torch.randn(1, 3, 24, 24)
    for layer in method(f"{outside}:PROJECTED").chain(3):
        x = layer(x)
    assert x.shape == (1, 8, 3, 24, 24)


@pytest.mark.parametrize("key", METHODS)
def test_the_chain_of_every_method_runs(key: str) -> None:
    with torch.no_grad():
        x = torch.randn(1, 3, 32, 32)
        for layer in METHODS[key].chain(2):
            x = layer.eval()(x)
    assert x.shape[:2] == (1, 8)
    assert x.shape[-2:] == (32, 32)


def test_vectors_turn_with_the_scale() -> None:
    (one,) = planned("delta-downscale", "sevf-vector")
    found = delta_downscale(small(one.cell, largest_downscale=2.1), Context())
    downscales = [float(m.at["downscale"]) for m in found if m.metric == "delta"]
    assert downscales == pytest.approx([1.26, 1.26**2, 1.26**3])
    # Were they not turned, even those of the smallest step would be off by 2 (1 - cos) = 0.09 and more.
    everything = [float(values.median()) for values in deltas(found)]
    assert max(everything) < 1


def test_the_extent_of_a_method_is_swept(outside: Path) -> None:
    found = {}
    for one in planned("delta-interscale", f"{outside}:FIELDS"):
        found[one.cell.settings["extent"]] = delta_interscale(small(one.cell), Context())
    assert list(found) == [1, 2, 3]
    everything = [float(deltas(found[extent], "delta_all")[0].median()) for extent in found]
    assert everything[0] < everything[1] < everything[2]


def test_a_cell_repeats_exactly_and_its_seed_draws_the_weights() -> None:
    (one,) = planned("delta-depth", "cnn")
    cell = small(one.cell, layers=2)
    assert delta_depth(cell, Context()) == delta_depth(cell, Context())
    assert (
        deltas(delta_depth(replace(cell, seed=1), Context()))[0].tolist()
        != deltas(delta_depth(cell, Context()))[0].tolist()
    )


def test_the_meter_of_a_cell_is_the_sweep_s() -> None:
    (one,) = planned("delta-downscale", "cnn")
    settings = one.cell.settings
    assert (settings["resampler"], settings["ends"], settings["crop"]) == ("lanczos3", "inside", "auto")
    found = delta_downscale(small(one.cell, largest_downscale=1.5), Context())
    assert [m.at["downscale"] for m in found if m.metric == "delta"] == [pytest.approx(math.sqrt(2))]
    assert Meter("lanczos3", "inside").crop == "auto"


# --- from the plan to the page


def invoke(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_the_figure_has_a_line_for_each_method_and_none_for_those_without_rows(tmp_path: Path) -> None:
    for key in ("cnn", "dss-vector"):
        (one,) = planned("delta-depth", key)
        with Writer(tmp_path) as writer:
            writer.append(Result(one.cell, "ok", tuple(delta_depth(small(one.cell, layers=2), Context()))))
    rows, _ = cleaned(load(tmp_path))
    points = delta.frame({key: select(rows, published(), EXPERIMENTS[key]) for key in RUNS})
    figure = delta.draw_depth(points).figure
    assert {"CNN", "DSS Vector"} <= {text.get_text() for text in figure.axes[0].texts}
    lines = [line for line in figure.axes[0].lines if line.get_color() == METHODS["dss-vector"].colour]
    assert lines
    assert list(lines[0].get_xdata()) == [1, 2]
    assert not any(line.get_color() == METHODS["sesn-vector"].colour for line in figure.axes[0].lines)


@pytest.mark.slow
def test_the_documented_example_is_swept_and_drawn(tmp_path: Path) -> None:
    rows, out, name = tmp_path / "rows", tmp_path / "out", f"{EXAMPLE}:MINE"
    cells = invoke("plan", "delta-depth", "delta-downscale", "delta-interscale", "--methods", name, "--rows", rows)
    assert cells.exit_code == 0, cells.output
    done = invoke("run", "delta-depth", "--methods", name, "--rows", rows, "--threads", "1")
    assert done.exit_code == 0, done.output
    frame = load(rows)
    assert set(frame["method"]) == {"two-sizes"}
    assert sorted(frame[frame["metric"].eq("delta")]["depth"].unique()) == list(range(1, 11))
    none = tmp_path / "none.json"
    report = invoke("report", "--rows", rows, "--out", out, "--causes", none, "--methods", name)
    assert report.exit_code == 0, report.output
    figure = (out / "figures" / "delta-depth.svg").read_text(encoding="utf-8")
    assert "Two Sizes" in figure
    assert METHODS["two-sizes"].colour.lower() in figure.lower()
