"""Methods that appeared after the paper stand below its own in every table, and no claim depends on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import synthetic

from harness.experiments import EXPERIMENTS
from harness.paper import published
from harness.records import Cell, Measurement, Result
from harness.report import configurations, errors, table_1, times
from harness.report.rendering import Material, rendered
from harness.report.select import select
from harness.report.tables import Table, as_markdown
from harness.store.frame import load
from sesn.methods import METHODS, Source
from sesn.methods.method import LATER

ROOT = Path(__file__).parents[1]
CITATION = "Somebody 2024"
SETTINGS = {"data": "mnist", "recipe": "paper", "epochs": 60, "resolution": 28, "augmented": False}


@pytest.fixture
def late(own_methods: None) -> str:
    """A method that appeared later, which rescales its input and is better and faster than all others."""
    METHODS["late"] = replace(
        METHODS["cnn"],
        key="late",
        label="Late",
        source=Source(CITATION, "Input Rescaling"),
        later=True,
        resamples="input",
    )
    return "late"


def of_the_paper(key: str) -> list[Result]:
    """What was trained and timed of a method, and its marks: the evidence of every claim about a comparison."""
    row = METHODS[key]
    level = {True: 2.0, False: 2.5}[row.ours] if row.in_paper else 0.1
    found = [Measurement("delta", (0.02 if row.in_paper else 0.9,), {"family": "own", "downscale": 2.0})]
    found += [Measurement("delta_cnn", (0.4,), {"family": "own", "downscale": 2.0})]
    for family, downscale in (("integer", 3.0), ("grid", 1.5), ("any", 3.2)):
        found += [Measurement("delta", (0.01,), {"family": family, "downscale": downscale})]
        found += [Measurement("delta_cnn", (0.4,), {"family": family, "downscale": downscale})]
    found += [Measurement("interscale_reach", (0.0,), {"scale_axis": False})]
    cells = [
        (Cell("mnist-scale", 1, "paper", key, SETTINGS, n), [Measurement("test_error", (level + n / 50,))])
        for n in range(3)
    ]
    timed = [Measurement("time_ratio", (level,) * 4), Measurement("epoch_time", (level,) * 4)]
    cells += [
        (Cell("epoch-time", 1, "paper", key, {"resolution": 28, "recipe": "paper", "batch": 128, "steps": 4}), timed)
    ]
    cells += [(Cell("properties", 1, "paper", key, {"images": "stl10", "image_count": 1, "recipe": "paper"}, 0), found)]
    return [result for cell, measured in cells for result in synthetic.rows(cell, measured)]


def verdicts(results: list[Result]) -> Any:
    material = Material(synthetic.frame(results), published(), EXPERIMENTS, pd.DataFrame())
    ((card,), _) = rendered(material, "scorecard")
    return card.frame


def test_no_claim_of_the_paper_depends_on_a_later_method(late: str) -> None:
    paper = [
        result
        for key, row in METHODS.items()
        if row.in_paper and not row.lacks("mnist")
        for result in of_the_paper(key)
    ]
    everything = [*paper, *of_the_paper(late)]
    before, after = verdicts(paper), verdicts(everything)
    assert {"confirmed", "not confirmed"} <= set(before["verdict"])
    pd.testing.assert_frame_equal(before, after)
    METHODS[late] = replace(METHODS[late], later=False)
    differing = before.ne(verdicts(everything)) & before.notna()
    assert {"best-28", "faster-28"} <= set(before["id"][differing.any(axis=1)])


def test_every_table_has_later_methods_below_a_rule_with_their_source(late: str) -> None:
    results = [result for key in ("cnn", "sesn-vector", late) for result in of_the_paper(key)]
    cell = Cell("parameters", 1, "paper", late, {"network": "mnist", "recipe": "paper"})
    rows = synthetic.frame([*results, *synthetic.rows(cell, [Measurement("parameters", (7.0,))])])
    keys = ("mnist-scale", "epoch-time", "properties", "parameters")
    chosen = {key: select(rows, published(), EXPERIMENTS[key]) for key in keys}
    made = [
        errors.mnist_table(errors.mnist_frame(chosen)),
        times.table(times.frame(chosen)),
        configurations.table(configurations.frame("mnist")(chosen)),
        *(table(table_1.frame(chosen)) for table in (table_1.table, table_1.details_table)),
    ]
    for table in made:
        names = [line[0].text for line in table.lines]
        assert names[-1] == "Late"
        noted = [n for n, line in enumerate(table.lines) if line[0].note]
        assert noted == list(range(noted[0], len(names)))
        assert noted[0] in table.rules
        assert f"{CITATION}; later than the paper" in table.notes
    # The lowest of the paper's methods is bold, whatever a later one achieves.
    assert [line[0].text for line in made[0].lines if line[2].bold] == ["SESN Vector"]


def test_a_later_method_that_was_not_measured_has_no_line(late: str) -> None:
    chosen = {"mnist-scale": select(synthetic.frame(of_the_paper("cnn")), published(), EXPERIMENTS["mnist-scale"])}
    assert late not in set(errors.mnist_frame(chosen)["method"])


def test_it_has_no_released_network_and_says_why(late: str) -> None:
    assert METHODS[late].lacks("mnist", "released") == LATER
    assert METHODS[late].lacks("mnist") is None
    with pytest.raises(ValueError, match=LATER):
        METHODS[late].build("mnist", "released")


def test_the_marks_of_its_authors_name_their_source(late: str) -> None:
    claims = published().query("experiment == 'properties'")
    claimed = {"method": late, "equivariance": "no", "interscale": "no", "claimed_in": "Somebody 2024, Section 3"}
    paper = pd.concat([claims, pd.DataFrame([claimed])], ignore_index=True)
    frame = table_1.property_frame(synthetic.frame(of_the_paper(late)), paper)
    table = table_1.table(frame)
    assert frame["equivariance_agree"].tolist() == ["yes"]
    assert "as its authors claim: Somebody 2024, Section 3" in table.notes
    # What is not known is a dash, and agrees with nothing.
    assert frame["admissible_agree"].tolist() == [""]
    assert "its authors' claim is not known here" in shown(table)


def shown(table: Table) -> str:
    return as_markdown(table, "title", [])


# --- the page


@pytest.fixture(scope="module")
def page() -> str:
    return " ".join((ROOT / "docs" / "later-methods.md").read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def marks() -> Any:
    """The rows behind the committed Table 1, and its lines by method."""
    rows = load(ROOT / "reports" / "rows", ["properties"])
    chosen = select(rows, published(), EXPERIMENTS["properties"])
    return chosen.rows, table_1.frame({"properties": chosen}).set_index("method")


def test_the_page_says_what_the_rows_of_scale_channels_give(page: str, marks: Any) -> None:
    line, other = marks[1].loc["fov-avg"], marks[1].loc["fov-max"]
    assert line["worst_ratio"] == other["worst_ratio"]
    assert f"Δ is at most {line['worst_ratio']:.2f} of that of a plain convolution at the nine factors" in page
    told = (
        f"Between scale {line['worst_scale']:.2g} and its partner Δ is {line['worst_scale_delta']:.2f}, and between "
        f"{line['best_scale']:.2g} and its partner {line['best_scale_delta']:.2f}. "
        f"For a plain convolution it is {line['delta_cnn']:.2f}."
    )
    assert told in page


def test_the_page_says_what_the_rows_of_riesz_layers_give(page: str, marks: Any) -> None:
    assert f"Δ was {marks[1].loc['riesz']['ratio']:.2f} of that of a plain convolution" in page


def test_the_page_says_what_the_rows_of_fourier_layers_give(page: str, marks: Any) -> None:
    rows, lines = marks
    shifts = rows[rows["method"].eq("fourier-layers") & rows["metric"].eq("translation_error")]
    one = shifts[shifts["down"].eq(1) & shifts["right"].eq(0)]["value"].median()
    every = lines.loc["fourier-layers"]["translation_error"]
    assert f"error of the layer was {one:.2f} under a shift by one pixel, and {every:.2f} was the median" in page


@pytest.mark.parametrize("key", ["riesz", "gauss-der"])
def test_the_page_says_how_many_parameters_a_network_has(page: str, key: str) -> None:
    assert f"has {METHODS[key].count('mnist').total:,} parameters" in page


def test_where_only_some_scales_fail_the_table_says_so() -> None:
    found = [Measurement("delta", (0.3,), {"family": "own", "downscale": 2.0})]
    found += [Measurement("delta_cnn", (0.4,), {"family": "own", "downscale": 2.0})]
    found += [Measurement("interscale_reach", (0.0,), {"scale_axis": False})]
    for family in ("integer", "grid", "any"):
        found += [
            Measurement(metric, (0.4,), {"family": family, "downscale": 2.0}) for metric in ("delta", "delta_cnn")
        ]

    def remarks(*deltas: float) -> list[str]:
        each = [
            Measurement("delta", (value,), {"family": "own, by scale", "downscale": 2.0, "scale": float(place)})
            for place, value in enumerate(deltas, 1)
        ]
        cell = Cell("properties", 1, "paper", "dss-vector", {"images": "stl10", "image_count": 1, "recipe": "paper"}, 0)
        rows = synthetic.frame(synthetic.rows(cell, [*found, *each]))
        chosen = select(rows, published(), EXPERIMENTS["properties"])
        return [told for told in table_1.remarks(table_1.frame({"properties": chosen})) if "DSS Vector" in told]

    (told,) = remarks(0.5, 0.05)
    assert "Δ is 0.5 between scale 1 and its partner, and 0.05 between scale 2" in told
    assert remarks(0.5, 0.3) == remarks() == []


def test_an_authors_mark_names_where_it_is_claimed() -> None:
    """A mark that merely follows from a definition is no claim."""
    claims = published().query("experiment == 'properties'").dropna(subset=["claimed_in"])
    assert set(claims["method"]) == {key for key, row in METHODS.items() if row.later}
    assert claims["claimed_in"].str.endswith((", abstract", ", title")).all()
