"""The figures and the table of scale generalisation, from made-up rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from harness.experiments import EXPERIMENTS
from harness.paper import published
from harness.records import Cell, Measurement
from harness.report import generalisation, generalisation_goal
from harness.report.select import Selection, select
from harness.report.summaries import octaves_near_the_best

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = {"data": "mnist", "recipe": "paper", "family": "stir", "scenario": "33-48", "design": "published"}


def selections(*cells: tuple[str, int, dict[float, float]], deltas: tuple[float, ...] = (0.1, 0.3)) -> Any:
    """Runs of methods with a seed and the accuracy at each scale."""
    found = []
    for method, seed, accuracies in cells:
        cell = Cell("scale-generalisation", 1, "lite", method, SETTINGS | {"augmented": False}, seed)
        seen = [Measurement("consistency", (60.0,)), Measurement("epoch_time", (2.0, 4.0, 3.0))]
        for scale, value in accuracies.items():
            at = {"scale": float(scale), "trained": 33 <= scale <= 48}
            seen += [Measurement("accuracy", (value,), {**at, "pictures": 200}), Measurement("delta", deltas, at)]
        found += synthetic.rows(cell, seen)
    return _selected(synthetic.frame(found))


def _selected(rows: Any) -> dict[str, Selection]:
    return {"scale-generalisation": select(rows, published(), EXPERIMENTS["scale-generalisation"])}


def test_the_curve_of_few_runs_has_the_interval_of_all_their_pictures() -> None:
    points = generalisation.curves_frame(selections(("cnn", 0, {17: 40.0, 40: 90.0}), ("cnn", 1, {17: 50.0, 40: 92.0})))
    first = points.iloc[0]
    assert (first["scale"], first["mean"], first["draws"], first["pictures"]) == (17, 45, 2, 400)
    # Wilson's interval of 180 out of 400.
    p, n, z = 0.45, 400, 1.959964
    middle, half = (
        (p + z * z / (2 * n)) / (1 + z * z / n),
        z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n),
    )
    assert [first["low"], first["high"]] == pytest.approx([100 * (middle - half), 100 * (middle + half)], abs=0.01)


def test_three_runs_have_their_spread() -> None:
    runs = [("cnn", seed, {17: 40.0 + 3 * seed, 40: 90.0}) for seed in range(3)]
    first = generalisation.curves_frame(selections(*runs)).iloc[0]
    assert (first["low"], first["mean"], first["high"]) == (40, 43, 46)


def test_the_summary_is_of_the_scales_outside_training() -> None:
    (line,) = generalisation.summary_frame(
        selections(("cnn", 0, {17: 40.0, 34: 89.0, 40: 90.0, 48: 88.5, 64: 70.0}))
    ).to_dict("records")
    assert line["outside"] == 55
    assert line["everywhere"] == pytest.approx((40 + 89 + 90 + 88.5 + 70) / 5)
    assert line["worst"] == 40
    assert line["octaves"] == pytest.approx(math.log2(48 / 34))
    assert (line["consistency"], line["delta"], line["epoch_time"], line["runs"]) == (60, pytest.approx(0.2), 3, 1)
    assert line["published"] == 81.0


def test_the_table_has_a_line_for_each_series_and_a_dash_where_nothing_is_published() -> None:
    frame = generalisation.summary_frame(_selected(synthetic.frame(synthetic.results())))
    table = generalisation.table(frame)
    first = {line[1].text: line for line in table.lines if "STIR-MNIST" in line[0].text}
    assert [*first] == ["CNN", "CNN +", "DSS Vector", "SESN Vector", "SESN Vector, wide"]
    assert [first[name][2].text for name in ("CNN", "SESN Vector", "SESN Vector, wide")] == ["81.0", "87.6", "—"]
    assert table.rules == (5,)


def test_what_is_published_of_single_scales_stands_beside_what_was_measured_there() -> None:
    large = SETTINGS | {"family": "large-scale", "scenario": "1", "augmented": False}
    cell = Cell("scale-generalisation", 1, "lite", "riesz", large, 0)
    seen = [
        Measurement("accuracy", (value,), {"scale": scale, "trained": scale == 1, "pictures": 200})
        for scale, value in ((0.5, 90.0), (1.0, 95.0), (2.0, 94.0))
    ]
    frame = generalisation.summary_frame(_selected(synthetic.frame(synthetic.rows(cell, seen))))
    (told,) = generalisation.by_scale(frame)
    assert told.startswith("Riesz, MNIST Large Scale, trained at 1: published accuracy")
    assert "96.3 (90.0) at 0.5, 98.6 (95.0) at 1, 98.4 (94.0) at 2, 96.4 at 4, 51.8 at 8 (Barisin et al. 2024)" in told
    nothing = generalisation.summary_frame(selections(("ss-cnn", 0, {17: 40.0, 40: 90.0})))
    assert generalisation.by_scale(nothing) == []


@pytest.mark.parametrize(
    ("accuracy", "delta", "seconds", "met"),
    [(93.0, 0.01, 9.0, True), (92.0, 0.01, 9.0, False), (93.0, 0.011, 9.0, False), (93.0, 0.01, 9.1, False)],
)
def test_a_goal_is_reached_only_by_accuracy_delta_and_time_together(
    accuracy: float, delta: float, seconds: float, met: bool
) -> None:
    def trained(method: str, design: str, times: tuple[float, ...]) -> Any:
        at = SETTINGS | {"design": design, "augmented": False}
        places = [{"scale": scale, "trained": scale == 40, "pictures": 200} for scale in (17, 40)]
        seen = [Measurement("accuracy", (accuracy,), place) for place in places]
        seen += [Measurement("delta", (value,), place) for place, value in zip(places, (delta, 1e-3), strict=True)]
        cell = Cell("scale-generalisation", 1, "lite", method, at, 0)
        return synthetic.rows(cell, [*seen, Measurement("epoch_time", times, {})])

    results = [*trained("cnn", "published", (40.0, 3.0)), *trained("sesn-vector", "wide", (seconds, 80.0))]
    goal, told = generalisation_goal.says(generalisation.summary_frame(_selected(synthetic.frame(results))))
    assert "FovAvg (92.0 %)" in goal
    assert told.startswith("SESN Vector, wide reaches it" if met else "SESN Vector, wide does not reach it")
    assert f"{accuracy:.1f} %, Δ of" in told


def test_no_rows_give_empty_frames() -> None:
    rows = synthetic.frame(synthetic.results())
    nothing = _selected(rows[rows["experiment"].ne("scale-generalisation")])
    assert len(generalisation.curves_frame(nothing)) == len(generalisation.summary_frame(nothing)) == 0


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.floats(0, 100))
def test_octaves_near_the_best_are_those_of_the_longest_good_run_around_it(values: list[float], points: float) -> None:
    scales = 2.0 ** np.arange(len(values))
    best = max(range(len(values)), key=lambda place: values[place])
    around = [
        (low, high)
        for low in range(best + 1)
        for high in range(best, len(values))
        if min(values[low : high + 1]) >= max(values) - points
    ]
    low, high = max(around, key=lambda ends: ends[1] - ends[0])
    shuffled = np.random.default_rng(0).permutation(len(values))
    found = octaves_near_the_best(scales[shuffled], np.array(values)[shuffled], points)
    assert found == pytest.approx(high - low)


# What docs/sizes-outside-training.md says


def _committed(family: str) -> Any:
    lines = pd.read_csv(ROOT / "reports" / "tables" / "scale-generalisation-table.csv")
    lines = lines[lines["family"].eq(family)]
    augmented = lines["augmented"].map({True: "+", False: ""})
    return lines.set_index(
        lines["method"] + augmented + lines["design"].map(lambda name: f"-{name}" if name != "published" else "")
    )


@pytest.mark.parametrize("family", ["stir", "large-scale"])
def test_the_page_on_sizes_says_what_holds_in_both_families(family: str) -> None:
    lines = _committed(family)
    assert set(lines["everywhere"].sort_values().index[-2:]) == {"dss-vector", "riesz"}
    assert lines["delta"].idxmin().startswith("sesn-vector-wide")
    assert lines["delta"]["sesn-vector"] > 10 * lines["delta"]["sesn-vector-wide"]
    assert lines["worst"]["sesn-vector-wide"] > lines["worst"]["sesn-vector"]


def test_the_page_on_sizes_says_what_differs_between_the_families() -> None:
    stir, large = _committed("stir")["everywhere"], _committed("large-scale")["everywhere"]
    assert stir.idxmax() == "riesz"
    assert large["riesz"] == pytest.approx(large["dss-vector"], abs=3)
    assert stir["cnn+"] > stir["cnn"]
    assert large["cnn+"] <= large["cnn"]
    assert stir["sesn-vector-wide"] == pytest.approx(stir["sesn-vector"], abs=1)
    assert large["sesn-vector-wide"] > large["sesn-vector"]


def test_the_page_on_sizes_says_what_the_nonlinearities_change() -> None:
    lines = _committed("stir")
    wide, bandlimited, nested = (lines.loc[f"sesn-vector-wide{more}"] for more in ("", "-bandlimited", "-nested"))
    assert nested["everywhere"] < wide["everywhere"] < bandlimited["everywhere"]
    assert bandlimited["delta"] > wide["delta"]
    assert (nested["delta"], wide["delta"]) == pytest.approx((0.0065, 0.0087), abs=5e-5)
    assert nested["largest_delta"] == lines["largest_delta"].min()
    assert (nested["largest_delta"], wide["largest_delta"]) == pytest.approx((0.025, 0.089), abs=5e-4)


def test_the_page_on_sizes_says_how_far_the_published_means_are() -> None:
    lines = _committed("stir").dropna(subset=["published"])
    difference = lines["everywhere"] - lines["published"]
    assert difference["fov-avg"] == pytest.approx(-7, abs=0.5)
    assert difference.drop("fov-avg").abs().max() < 5
