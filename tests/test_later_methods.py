"""Methods that appeared after the paper stand below its own in every table, and no claim depends on them."""

from __future__ import annotations

from dataclasses import replace
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
from sesn.methods import METHODS, Source
from sesn.methods.method import LATER

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
        assert f"later than the paper: {CITATION}" in table.notes
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
