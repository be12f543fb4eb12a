"""The exact frame that each figure draws, and one picture of each, compared with tolerance."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import golden_images
import matplotlib as mpl
import numpy as np
import pytest
import synthetic
import torch
from matplotlib.figure import Figure
from torch.nn import functional

from harness.commands.report import material
from harness.experiments import EXPERIMENTS
from harness.paper import published
from harness.records import Cell, Measurement, Result
from harness.report import causes, delta, dots, kernels, panels, pictures, training
from harness.report.artefacts import ARTEFACTS
from harness.report.rendering import Rendered, rendered
from harness.report.select import Selection, select
from sesn.tools.drawing import FULL, HALF, SMALL

ROOT = Path(__file__).resolve().parents[1]
CAUSES = ROOT / "reports" / "causes" / "published.json"
FIGURES = [one.id for one in ARTEFACTS.values() if one.kind == "figure"]
CURVES = ("figure-2", "delta-accuracy", "delta-training", "learning-curves", "error-by-size")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rendered]:
    rows = synthetic.store(tmp_path_factory.mktemp("rows"), synthetic.results())
    every, _ = rendered(material(rows, CAUSES))
    return {one.artefact.id: one for one in every}


def measured(cell: Cell, *measurements: Measurement) -> Result:
    return Result(cell, "ok", measurements, "", synthetic.PROVENANCE, synthetic.STARTED, 1.0)


def selections(*results: Result) -> dict[str, Selection]:
    rows = synthetic.frame(results)
    keys = ("delta-depth", "delta-downscale", "delta-interscale", "mnist-scale")
    return {key: select(rows, published(), EXPERIMENTS[key]) for key in keys}


# --- the pictures


@pytest.mark.parametrize("name", FIGURES)
def test_picture(name: str, shown: dict[str, Rendered]) -> None:
    drawing = shown[name].drawing
    assert drawing is not None
    golden_images.assert_as_committed(drawing.laid_out(), name)


def test_the_comparison_sees_a_curve_that_is_gone(shown: dict[str, Rendered]) -> None:
    points = shown["figure-2"].frame
    fewer = delta.draw(points[~(points["window"].eq("wide") & points["nonlinearity"].eq("relu"))])
    drawing = shown["figure-2"].drawing
    assert drawing is not None
    whole, without = (golden_images.raster(one.laid_out()) for one in (drawing, fewer))
    assert golden_images.distance(whole, whole) == 0
    assert golden_images.distance(whole, without) > golden_images.TOLERANCE


def test_every_point_under_the_pointer_lies_within_its_figure(shown: dict[str, Rendered]) -> None:
    for name in (*CURVES, "delta-depth", "mnist-scale-dots", "epoch-time-dots"):
        drawing = shown[name].drawing
        assert drawing is not None
        places = drawing.placed()
        assert len(places) > 20
        assert all(0 < x < 1 and 0 < y < 1 and text for x, y, text in places), name


@pytest.mark.parametrize("name", FIGURES)
def test_no_label_is_cut_off(name: str, shown: dict[str, Rendered]) -> None:
    drawing = shown[name].drawing
    assert drawing is not None
    figure = drawing.laid_out()
    with mpl.rc_context(SMALL):
        drawn = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert min(drawn.x0, drawn.y0, width - drawn.x1, height - drawn.y1) > -0.02


@pytest.mark.parametrize("name", FIGURES)
def test_figures_share_one_grid_of_widths(name: str, shown: dict[str, Rendered]) -> None:
    drawing = shown[name].drawing
    assert drawing is not None
    assert drawing.figure.get_figwidth() in (FULL, HALF)
    assert not [axes for axes in drawing.figure.axes if not axes.has_data()]


def test_axes_are_labelled(shown: dict[str, Rendered]) -> None:
    for name in (*CURVES, "delta-depth"):
        drawing = shown[name].drawing
        assert drawing is not None
        axes = drawing.figure.axes
        assert any(one.get_ylabel() for one in axes)
        assert [one.get_xlabel() for one in axes if one.get_subplotspec().is_last_row() and not one.get_xlabel()] == []


# --- the frames


def depth(draw: int, values: dict[int, tuple[float, ...]]) -> Result:
    settings = {"window": "wide", "nonlinearity": "relu", "images": "stl10", "image_count": 2, "layers": 50}
    points = [Measurement("delta", seen, {"depth": d}) for d, seen in values.items()]
    points.append(Measurement("floor", (1e-6, 3e-6), {"depth": 1}))
    return measured(Cell("delta-depth", 1, "lite", "", settings, draw), *points)


def test_frame_of_figure_2() -> None:
    chosen = selections(depth(0, {1: (0.1, 0.2), 50: (0.3, 0.5)}), depth(1, {1: (0.3, 0.4), 50: (0.5, 0.7)}))
    frame = delta.frame(chosen)
    first, last, stated, knee = frame.to_dict("records")
    assert {k: first[k] for k in delta.SERIES} == {
        "experiment": "delta-depth",
        "window": "wide",
        "nonlinearity": "relu",
        "series": "valid scales",
        "x": 1.0,
    }
    assert (first["mean"], first["median"]) == pytest.approx((0.25, 0.25))
    assert first["standard_deviation"] == pytest.approx(np.std([0.1, 0.2, 0.3, 0.4], ddof=1))
    assert (first["draws"], first["values"], first["floor"]) == (2, 4, pytest.approx(2e-6))
    assert (last["x"], last["mean"]) == (50.0, pytest.approx(0.5))
    assert math.isnan(last["floor"])
    assert (stated["series"], stated["x"], stated["mean"]) == (delta.STATED, 50, 0.06)
    assert (knee["experiment"], knee["x"]) == ("delta-downscale", 16)
    assert math.isnan(knee["mean"])


SETTINGS = {"data": "mnist", "recipe": "paper", "epochs": 2, "resolution": 28, "augmented": False}


def run(method: str, seed: int, best: float, error: float, deltas: dict[int, tuple[float, float]]) -> Result:
    at = {"downscale": 2.0, "of": "trunk"}
    return measured(
        Cell("mnist-scale", 1, "lite", method, SETTINGS, seed),
        Measurement("validation_error", (3.0 + seed, 2.0 + seed)),
        Measurement("best_epoch", (best,)),
        Measurement("test_error", (error,)),
        *(Measurement("delta", seen, {**at, "epoch": epoch}) for epoch, seen in deltas.items()),
        Measurement("delta", (9.0, 9.0), {"downscale": math.sqrt(2), "of": "trunk", "epoch": 2}),
    )


@pytest.fixture
def runs() -> dict[str, Selection]:
    deltas = {0: (0.1, 0.3), 1: (0.2, 0.4), 2: (0.4, 0.8)}
    return selections(run("cnn", 0, 1.0, 2.0, deltas), run("cnn", 1, 2.0, 3.0, deltas))


def test_frame_of_the_learning_curves(runs: dict[str, Selection]) -> None:
    frame = training.curves_frame(runs)
    assert frame[["metric", "method", "epoch", "mean", "values"]].to_dict("records") == [
        {"metric": "validation_error", "method": "cnn", "epoch": 1, "mean": 3.5, "values": 2},
        {"metric": "validation_error", "method": "cnn", "epoch": 2, "mean": 2.5, "values": 2},
    ]


def test_frame_of_delta_along_training(runs: dict[str, Selection]) -> None:
    frame = training.delta_frame(runs)
    assert frame["epoch"].to_list() == [0, 1, 2]
    assert frame["median"].to_list() == pytest.approx([0.2, 0.3, 0.6])
    assert set(frame["of"]) == {"trunk"}


def test_delta_along_training_leaves_out_the_best_epoch_of_one_realisation() -> None:
    common = {0: (0.1, 0.3), 4: (0.4, 0.8)}
    found = selections(run("cnn", 0, 4.0, 2.0, common), run("cnn", 1, 3.0, 3.0, {**common, 3: (0.2, 0.4)}))
    assert training.delta_frame(found)["epoch"].to_list() == [0, 4]


def test_frame_of_delta_against_accuracy_takes_the_tested_weights(runs: dict[str, Selection]) -> None:
    (line,) = training.accuracy_frame(runs).to_dict("records")
    # Realisation 0 was tested after its first epoch (0.2, 0.4), realisation 1 after its second (0.4, 0.8).
    assert line["delta"] == pytest.approx(0.4)
    assert (line["error"], line["realisations"]) == (2.5, 2)


def test_a_network_that_diverged_has_no_point() -> None:
    good, bad = {1: (0.1, 0.3)}, {1: (math.nan, math.inf)}
    methods = ("cnn", "ss-cnn", "sesn-scalar", "sesn-vector")
    found = [run(method, 0, 1.0, 2.0 + place, good) for place, method in enumerate(methods)]
    frame = training.accuracy_frame(selections(*found, run("sevf-vector", 0, 1.0, 90.0, bad)))
    assert math.isnan(frame[frame["method"].eq("sevf-vector")]["delta"].item())
    assert "nan" not in "".join(repr(point) for point in training.draw_accuracy(frame).placed())


def test_what_training_does_to_delta_is_said_for_a_downscale(runs: dict[str, Selection]) -> None:
    (sentence,) = training.says_delta(training.delta_frame(runs))
    assert sentence.startswith("Training multiplies Δ of the last map at downscale 2 by ")


def trained(method: str, budget: Any, seed: int, error: float) -> Result:
    found = [Measurement("test_error", (error,))]
    found += [Measurement("test_error_by_size", (2 * error,), {"digit_size": 0.3, "digits": 1000})]
    found += [Measurement("test_error_by_size", (0.0,), {"digit_size": 0.9, "digits": 1000})]
    settings = SETTINGS | {"data": "mnist", "epochs": 60, "train_images": 10_000, "test_images": 50_000}
    return measured(Cell("mnist-scale", 1, budget, method, settings, seed), *found)


def test_errors_have_an_interval_from_three_realisations_on_and_the_papers_beside_them() -> None:
    runs = [trained("cnn", "paper", seed, 2.0 + 0.1 * seed) for seed in range(3)]
    runs += [trained("sesn-vector", "paper", seed, 1.0 + seed) for seed in range(2)]
    frame = dots.errors_frame(selections(*runs))
    assert frame[["resolution", "augmented"]].drop_duplicates().to_numpy().tolist() == [[28, False]]
    here = frame[frame["source"].eq("here")].set_index("method")
    assert here.loc["cnn"][["value", "low", "high", "n"]].tolist() == pytest.approx([2.1, 2.0, 2.2, 3])
    assert here.loc["sesn-vector"]["value"].tolist() == [1.0, 2.0]
    assert here.loc["sesn-vector"]["low"].isna().all()
    paper = frame[frame["source"].eq("paper")].set_index("method")
    assert paper.loc["cnn"][["value", "low", "high"]].tolist() == pytest.approx([2.56, 2.52, 2.60])
    short = dots.errors_frame(selections(trained("cnn", "smoke", 0, 2.0)))
    assert short["source"].tolist() == ["here"]


def test_smoke_times_are_not_drawn_beside_the_papers() -> None:
    for budget, sources in (("lite", {"paper", "here"}), ("smoke", {"here"})):
        timed = [one for one in synthetic.results(budget) if one.cell.experiment == "epoch-time"]
        rows = synthetic.frame(timed)
        frame = dots.times_frame({"epoch-time": select(rows, published(), EXPERIMENTS["epoch-time"])})
        assert set(frame["source"]) == sources


def test_errors_by_size_have_the_spread_of_realisations_or_of_the_count() -> None:
    few = training.sizes_frame(selections(trained("cnn", "paper", 0, 2.0)))
    assert few["mean"].tolist() == [4.0, 0.0]
    assert few[["low", "high"]].iloc[0].tolist() == pytest.approx([2.95, 5.40], abs=0.01)  # Wilson's, 40 of 1000
    many = training.sizes_frame(selections(*(trained("cnn", "paper", seed, 2.0 + seed) for seed in range(3))))
    assert many[["low", "mean", "high", "digits"]].iloc[0].tolist() == pytest.approx([4.0, 6.0, 8.0, 3000])
    assert not len(training.sizes_frame(selections(depth(0, {1: (0.1, 0.2)}))))


def test_the_stated_error_is_within_the_figure_of_depth_and_an_error_of_zero_is_drawn() -> None:
    small = delta.frame(selections(depth(0, {1: (0.0, 0.0), 50: (1e-4, 2e-4)})))
    low, high = delta.draw_depth(small).figure.axes[0].get_ylim()
    assert 0 < low < 1e-4
    assert high > 0.06


def test_words_at_the_ends_of_lines_stand_apart() -> None:
    figure = Figure(figsize=(HALF, 3.4))
    axes = figure.subplots()
    axes.set(yscale="log", ylim=(1e-6, 1))
    panels.label_ends(axes, [(1e-3, "one", "k"), (1.01e-3, "two", "k"), (1.02e-3, "three", "k"), (0.5, "top", "k")])
    heights = [text.get_position()[1] for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == ["one", "two", "three", "top"]
    assert min(np.diff(heights)) * 72 * 3.4 * 0.77 > 7


def test_only_the_map_of_sesn_stays_the_same_when_the_photograph_shrinks(shown: dict[str, Rendered]) -> None:
    frame = shown["feature-maps"].frame
    shrunk = frame[frame["downscale"].gt(1)]
    assert shrunk["pixels"].unique().tolist() == [96, 68]
    assert (shrunk[shrunk["network"].eq("SESN")]["delta"] < 1e-4).all()
    assert (shrunk[shrunk["network"].eq("CNN")]["delta"] > 0.1).all()
    assert len(shown["feature-maps"].animation) == 3
    assert all(b"<svg" in one.content and one.label for one in shown["feature-maps"].animation)


def test_samples_are_digits_of_their_row_and_size() -> None:
    frame = pictures.samples_frame({})
    assert (len(frame), frame["digit"].nunique()) == (10 * len(pictures.SIZES), 10)
    assert (frame["row"] - frame["size"]).abs().max() < 0.02


def test_one_epoch_is_named_by_a_whole_number() -> None:
    one = selections(measured(Cell("mnist-scale", 1, "lite", "cnn", SETTINGS), Measurement("validation_error", (3.0,))))
    figure = training.draw_curves(training.curves_frame(one)).laid_out()
    # Matplotlib keeps the ticks beyond the ends of the axis, too.
    assert {tick.get_text() for tick in figure.axes[0].get_xticklabels()} <= {"0", "1", "2"}


def test_kernels_of_figure_1_are_those_that_the_layers_use() -> None:
    found = kernels.example()
    image = torch.randn(1, 3, 20, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    pad = found.basis.kernel_size // 2
    one = functional.conv2d(image, found.lift_matrix, padding=pad).reshape(1, 2, 4, 20, 20)
    torch.testing.assert_close(one, found.lift(image).detach())
    field = torch.randn(1, 3, 4, 20, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    two = functional.conv2d(field.reshape(1, 12, 20, 20), found.conv_matrix, padding=pad).reshape(1, 2, 4, 20, 20)
    torch.testing.assert_close(two, found.conv(field).detach())


def test_frame_of_figure_1() -> None:
    frame = kernels.kernels_frame({})
    lift, conv = (frame[frame["panel"].eq(name)] for name in ("T → H", "H → H"))
    assert (len(lift), len(conv)) == (8 * 3, 8 * 12)
    assert (lift["norm"] > 0).all()
    assert ((conv["norm"] > 0) == (conv["row"] % 4 == conv["column"] % 4)).all()


def test_frame_of_the_basis() -> None:
    frame = kernels.basis_frame({})
    small = frame[frame["basis"].eq(kernels.PUBLISHED) & frame["sigma"].eq(0.9)]
    assert small["norm"].to_list() == pytest.approx([1.0] * 9)
    assert small["box"].unique().tolist() == [3]


def test_the_frame_of_the_kernels_tells_which_are_none() -> None:
    parts = kernels.kernels_frame({}).groupby("panel")["norm"]
    assert {panel: (len(norms), int(norms.eq(0).sum())) for panel, norms in parts} == {
        "T → H": (24, 0),
        "H → H": (96, 72),
    }


def test_only_published_windows_change_the_integral_of_a_function() -> None:
    cut, whole = (finding for finding in kernels.basis_says(kernels.basis_frame({})))
    spreads = [float(text.split(" varies over scales by up to ")[1].split(" ")[0]) for text in (cut, whole)]
    assert spreads[0] > 0.05
    assert spreads[1] < 1e-3


def test_frame_of_the_causes(shown: dict[str, Rendered]) -> None:
    frame: Any = shown["causes"].frame
    assert frame["observed"].iloc[0] - (frame["before"] - frame["after"]).sum() == pytest.approx(
        frame["remainder"].iloc[0], abs=1e-12
    )


def test_the_largest_share_of_the_causes_is_told_where_there_are_shares(shown: dict[str, Rendered]) -> None:
    frame: Any = shown["causes"].frame
    (finding,) = causes.causes_says(frame.assign(share=[0.5, *[0.0] * (len(frame) - 1)]))
    assert "(share 50%)" in finding
    assert not causes.causes_says(frame.assign(share=float("nan")))
