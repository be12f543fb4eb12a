"""The published numbers: known methods, no duplicates, and every one as in the paper's LaTeX where that is at hand.

`SESN_PAPER` names the file of the paper's source.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.experiments import EXPERIMENTS
from harness.paper import FOLDER, published
from harness.report.table_1 import FAMILIES
from sesn import ScaleGrid, basis_a
from sesn.methods import METHODS
from sesn.methods.steerable import DESIGNS, RELEASED

SOURCE = os.environ.get("SESN_PAPER", "")
#: The rows of each table by their printed names.
MNIST = {
    "CNN": "cnn",
    "SiCNN": "sicnn-vector",
    "SI-ConvNet": "si-convnet",
    "SEVF Scalar": "sevf-scalar",
    "SEVF Vector": "sevf-vector",
    "DSS Scalar": "dss-scalar",
    "DSS Vector": "dss-vector",
    "SS-CNN": "ss-cnn",
    "SESN Scalar": "sesn-scalar",
    "SESN Vector": "sesn-vector",
}
STL10 = {
    "WRN": "wrn",
    "SiCNN": "sicnn-vector",
    "SI-ConvNet": "si-convnet",
    "DSS": "dss-vector",
    "SS-CNN": "ss-cnn",
    "SESN-A": "sesn-a",
    "SESN-B": "sesn-b",
    "SESN-C": "sesn-c",
    "Harm WRN": "harm-wrn",
}
TIMES = {**MNIST, "SiCNN Scalar": "sicnn-scalar", "SiCNN Vector": "sicnn-vector"}
#: A printed row of a configuration table may stand for several methods.
MNIST_SETUPS = {
    "CNN": ("cnn",),
    "SiCNN": ("sicnn-vector",),
    "SI-ConvNet": ("si-convnet",),
    "SEVF Scalar": ("sevf-scalar",),
    "SEVF Vector": ("sevf-vector",),
    "DSS": ("dss-scalar", "dss-vector"),
    "SS-CNN": ("ss-cnn",),
    "SESN": ("sesn-scalar", "sesn-vector"),
}
STL10_SETUPS = {
    "CNN": ("wrn",),
    "SiCNN": ("sicnn-vector",),
    "SI-ConvNet": ("si-convnet",),
    "SEVF": ("sevf-vector",),
    "DSS": ("dss-vector",),
    "SS-CNN": ("ss-cnn",),
    "SESN": ("sesn-a", "sesn-b", "sesn-c"),
}


def of(experiment: str) -> Any:
    """The published numbers of an experiment, without the claims about it, and those of later papers."""
    rows = published()
    return rows[rows["experiment"].eq(experiment) & rows["rule"].isna() & rows["claimed_in"].isna()]


@pytest.fixture(scope="module")
def source() -> str:
    if not SOURCE:
        pytest.skip("SESN_PAPER does not name the paper's LaTeX source")
    return Path(SOURCE).read_text(encoding="utf-8")


def table(source: str, caption: str) -> dict[str, list[str]]:
    """The cells of the table with such a caption, by the first cell of the row; commented lines are not there."""
    parts = [part for part in re.split(r"\\begin\{tabular\}", source) if caption in re.sub(r"\s+", " ", part)]
    body = parts[0].partition(r"\end{tabular}")[0]
    lines = [line for line in body.splitlines() if not line.lstrip().startswith("%")]
    rows = [row.split("&") for row in re.sub(r"^\{[lc|]+\}", "", "\n".join(lines)).split(r"\\")]
    return {_words(row[0]): [_plain(cell) for cell in row[1:]] for row in rows if len(row) > 1}


def _words(cell: str) -> str:
    return re.sub(r"\\(midrule|toprule|bottomrule)", "", cell).strip()


def _plain(cell: str) -> str:
    """The text of a cell: 2.08\\pm0.09 of $\\bm{2.08\\pm0.09}$."""
    return re.sub(r"\\(midrule|bottomrule)|\\bm|[${}]", "", cell).strip()


def test_every_row_is_of_a_known_experiment_method_and_source() -> None:
    rows = published()
    assert set(rows["experiment"]) <= {*EXPERIMENTS, "differences"}
    assert set(rows["method"].dropna()) <= set(METHODS)
    assert set(rows["source"]) == {"paper"}


@pytest.mark.parametrize(
    ("experiment", "keys", "count"),
    [
        ("mnist-scale", ["method", "resolution", "augmented"], 40),
        ("stl10", ["method"], 9),
        ("epoch-time", ["method", "resolution"], 22),
        ("properties", ["method"], 6),
    ],
)
def test_every_cell_of_a_table_is_there_once(experiment: str, keys: list[str], count: int) -> None:
    rows = of(experiment).dropna(subset=["method"])
    assert len(rows) == count
    assert not rows.duplicated(keys).any()


def test_mnist_scale_as_printed(source: str) -> None:
    printed, rows = table(source, "Classification error of different methods on MNIST-scale"), of("mnist-scale")
    assert printed.keys() - {"Method"} == MNIST.keys()
    for name, key in MNIST.items():
        *cells, _ = printed[name]
        settings = [(28, False), (28, True), (56, False), (56, True)]
        for (resolution, augmented), cell in zip(settings, cells, strict=True):
            mine = rows[rows.method.eq(key) & rows.resolution.eq(resolution) & rows.augmented.eq(augmented)].iloc[0]
            assert [mine.value, mine.standard_deviation] == [float(x) for x in cell.split(r"\pm")], (name, cell)


def test_stl10_as_printed(source: str) -> None:
    printed, rows = table(source, "Classification error on"), of("stl10").set_index("method")
    printed = {name: cells for name, cells in printed.items() if name in STL10}
    assert printed.keys() == STL10.keys()
    assert {STL10[name]: float(cells[0]) for name, cells in printed.items()} == rows["value"][STL10.values()].to_dict()


def test_parameters_as_printed(source: str) -> None:
    rows = of("parameters")
    for caption, names, network in (
        ("Classification error of different methods on MNIST-scale", MNIST, "mnist"),
        ("Classification error on", STL10, "stl10"),
    ):
        printed = table(source, caption)
        mine = rows[rows.network.eq(network) & rows.value.notna()].set_index("method")["printed"].to_dict()
        assert {key: printed[name][-1] for name, key in names.items()} == mine


@pytest.mark.parametrize(
    ("caption", "names", "network"),
    [
        ("number of units in fully-connected layers", MNIST_SETUPS, "mnist"),
        ("up to the widening factor", STL10_SETUPS, "stl10"),
    ],
)
def test_configurations_as_printed(source: str, caption: str, names: dict[str, tuple[str, ...]], network: str) -> None:
    printed, rows = table(source, caption), of("parameters")
    assert printed.keys() - {"Method"} == names.keys()
    for name, keys in names.items():
        cells = printed[name]
        for key in keys:
            mine = rows[rows.network.eq(network) & rows.method.eq(key)].iloc[0]
            assert mine.widths == "-".join(cells[:3]), name
            assert int(mine.scale_count) == int(cells[-1]), name


def test_fully_connected_units_as_printed(source: str) -> None:
    (units,) = set(re.findall(r"\\multirow\{8\}\{\*\}\{(\d+)\}", source))
    rows = of("parameters")
    assert set(rows[rows.network.eq("mnist")]["hidden"]) == {int(units)}


def test_times_as_printed(source: str) -> None:
    printed, rows = table(source, "Average time per epoch during training"), of("epoch-time")
    for name, cells in printed.items():
        if name == "Method":
            continue
        for resolution, cell in zip((28, 56), cells, strict=True):
            mine = rows[rows.method.eq(TIMES[name]) & rows.resolution.eq(resolution)]
            assert mine["value"].to_list() == [float(cell)], name


def test_properties_as_printed(source: str) -> None:
    printed, rows = table(source, "Comparing SESN to SiCNN"), of("properties")
    marks = {r"\cmark": "yes", r"\xmark": "no"}
    assert set(rows["printed"]) == printed.keys() - {"Method"}
    for row in rows.itertuples():
        equivariance, admissible, approach, interscale = printed[row.printed]
        assert (row.equivariance, row.admissible) == (marks[equivariance], admissible)
        assert (row.approach, row.interscale) == (approach, marks[interscale])


def test_facts_are_quoted_from_the_text(source: str) -> None:
    text = re.sub(r"\s+", " ", source)
    quotes = published()["quote"].dropna().to_list()
    assert len(quotes) >= 6
    assert [quote for quote in quotes if quote not in text] == []
    depth = published().set_index("id").loc["depth"]
    assert f"{depth['value']:.0%}".replace("%", r"\%") in depth["quote"]
    assert f"{depth['depth']:g} layers" in depth["quote"]


def test_spreads_are_over_six_realisations() -> None:
    rows = of("mnist-scale").dropna(subset=["method"])
    assert set(rows["realisations"]) == {6}
    assert all(math.isfinite(value) and value > 0 for value in rows["standard_deviation"])


def test_windows_among_the_differences_are_those_of_the_networks() -> None:
    grids = [ScaleGrid.geometric(design.smallest, 1.41, 3) for design in DESIGNS.values()]
    bases = [*(kernels.basis() for kernels in RELEASED.values()), *(basis_a(grid, 7, 3) for grid in grids)]
    cuts = [box // 2 / sigma for basis in bases for box, sigma in zip(basis.boxes, basis.grid, strict=True)]
    rows = of("differences")
    (text,) = rows[rows["where"].eq("Windows of the kernels")]["in_release"]
    assert f"cut off at {min(cuts):.1f} to {max(cuts):.1f} sigma" in text


@pytest.mark.parametrize("file", ["properties.csv", "later_properties.csv"])
def test_the_published_marks_are_those_of_methods(file: str) -> None:
    """What the authors of a later method claim may be unknown; then the mark is empty."""
    marks = pd.read_csv(FOLDER / file, keep_default_na=False)
    later = "claimed_in" in marks
    unknown = {""} if later else set()
    assert len(marks) == 6 or later
    for line in marks.itertuples():
        assert METHODS[line.method].later == later
        assert METHODS[line.method].source.approach == line.approach
        assert {line.equivariance, line.interscale} <= {"yes", "no"} | unknown
        assert line.admissible in {*FAMILIES.values()} | unknown
        assert not later or line.claimed_in
