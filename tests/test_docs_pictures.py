"""The scripts under docs/pictures measure and draw what the README and the pages show."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sesn.tools.drawing import encoded
from sesn.tools.photographs import photographs

ROOT = Path(__file__).resolve().parents[1]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "pictures" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def committed(folder: str) -> list[dict]:
    text = (ROOT / "reports" / folder / f"{folder}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("first_look", "windows.md"),
        ("object_size", "tutorials/classifier.md"),
        ("metrics", "metrics.md"),
        ("which_grid", "which-grid.md"),
        ("segmentation", "tutorials/segmentation.md"),
        ("unrelated", "checking-your-network.md"),
    ],
)
def test_a_page_shows_the_committed_rows(name: str, page: str) -> None:
    table = script(name).table(committed(name.replace("_", "-")))
    assert table in (ROOT / "docs" / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["object_size", "segmentation"])
def test_a_number_and_its_spread_stay_on_one_line(name: str) -> None:
    """In a narrow column a line is broken at any ordinary space, and `91 ± 1` would take three lines."""
    table = script(name).table(committed(name.replace("_", "-"))).split("\n\n")[0]
    assert "±" in table
    assert " ± " not in table
    assert " px" not in table


def test_what_the_page_says_of_images_follows_from_its_rows() -> None:
    rows = {(row["method"], row["set"]): row for row in committed("unrelated")}
    ordinary, steerable = ([key for key, row in rows.items() if row["steerable"] == kind] for kind in (False, True))
    judged = {key: min(map(max, zip(*columns(row), strict=True))) for key, row in rows.items()}
    assert all(judged[key] > 0.1 for key in ordinary)
    assert all(max(map(max, columns(rows[key]))) < 1e-3 for key in steerable if key[1] != "white")
    assert max(rows["partnered score", "white"]["same_spectrum"]) > 0.01
    assert 0.045 < min(rows["one 3 x 3 convolution", "embedded"]["same_spectrum"]) < 0.055


def columns(row: dict[str, Any]) -> list[list[float]]:
    """What is judged of every draw; scores have no fine detail."""
    return [row[name] for name in ("same_spectrum", "fine_detail") if None not in row[name]]


def test_the_readme_says_what_the_committed_rows_give() -> None:
    object_size, rows = script("object_size"), committed("object-size")
    assert object_size.sentence(rows) in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert object_size.times(rows) in (ROOT / "docs" / "tutorials" / "classifier.md").read_text(encoding="utf-8")


def test_the_page_of_metrics_says_what_the_definitions_say_of_themselves() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert script("metrics").sentences() in text
    assert script("metrics").bias_words(committed("metrics")) in text


def table_lines(path: Path) -> list[list[str]]:
    """The cells of every line of the tables of a Markdown file, without its marks for code."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip().replace("\\", "").replace("`", "") for cell in line.strip("|").split("|")] for line in lines]


def in_this_order(shown: list[str], values: list[str]) -> bool:
    """Whether all that is shown stands among the values, in their order; an empty cell shows nothing."""
    left = iter(values)
    return all(cell in left for cell in shown if cell)


@pytest.mark.parametrize("name", ["projections", "rectifiers"])
def test_a_table_of_the_page_has_the_numbers_of_the_report(name: str) -> None:
    page = table_lines(ROOT / "docs" / "measuring-delta.md")
    for first, *values in table_lines(ROOT / "reports" / "tables" / f"{name}.md")[2:]:
        assert any(in_this_order(shown, values) for called, *shown in page if called == first), (first, values)


def test_the_page_has_the_medians_of_the_sweep_over_depth() -> None:
    text = (ROOT / "reports" / "figures" / "delta-depth.csv").read_text(encoding="utf-8")
    medians = {
        (row["nonlinearity"], row["x"]): f"{float(row['median']):.1e}"
        for row in csv.DictReader(text.splitlines())
        if row["window"] == "periodic"
    }
    shown = {"linear": "nothing (linear)", "relu": "nn.ReLU()", "bandlimited": 'BandlimitedReLU("circular")'}
    shown["nested"] = "NestedReLU([96, 68])"
    page = table_lines(ROOT / "docs" / "measuring-delta.md")
    for key, first in shown.items():
        assert [first, *(medians[key, depth] for depth in ("1", "10", "50"))] in page


def test_the_networks_that_are_compared_have_about_as_many_parameters() -> None:
    counts = {row["method"]: row["parameters"] for row in committed("object-size")}
    assert max(counts.values()) < 1.02 * min(counts.values())


@pytest.mark.parametrize("name", ["first_look", "measurement", "metrics", "object_size", "segmentation"])
def test_drawing_twice_gives_identical_bytes(name: str) -> None:
    draw, rows = script(name).draw, committed(name.replace("_", "-"))
    assert encoded(draw(rows), "svg") == encoded(draw(rows), "svg")


def test_the_first_look_measures_what_it_shows() -> None:
    first_look = script("first_look")
    rows = first_look.measure(images=3, draws=1)
    assert [row["method"] for row in rows] == list(first_look.LAYERS)
    wide, published, ordinary = (max(row["delta"]) for row in rows)
    assert wide < 1e-4
    assert published > 1e-3
    assert ordinary > 100 * wide
    assert [row.keys() for row in rows] == [row.keys() for row in committed("first-look")[:3]]


@pytest.mark.parametrize(
    ("name", "few"),
    [
        ("object_size", {"seeds": 1, "epochs": 1, "images": 32, "sizes": (16,)}),
        pytest.param("metrics", {"seeds": 1, "count": 2}, marks=pytest.mark.slow),
        ("which_grid", {"count": 1}),
        ("segmentation", {"seeds": 1, "steps": 1, "radii": (5,)}),
        pytest.param("unrelated", {"seeds": 1, "count": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_script_measures_rows_like_the_committed_ones(name: str, few: dict[str, Any]) -> None:
    rows, before = script(name).measure(**few), committed(name.replace("_", "-"))
    assert [row.keys() for row in rows] == [before[0].keys()] * len(rows)
    same = ("experiment", "method", "set", "label", "parameters", "range", "scales", "boxes", "separable_macs")
    kept = [[row.get(column) for column in same] for row in before if row.get("seed", 0) == 0]
    assert json.loads(json.dumps([[row.get(column) for column in same] for row in rows])) == kept


@pytest.mark.slow
def test_the_ingredients_are_measured_as_committed() -> None:
    measurement = script("measurement")
    rows, before = measurement.measure(count=2), committed("measurement")
    place = ("experiment", "panel", "series", "x", "seeds")
    assert [[row[name] for name in place] for row in rows] == [[row[name] for name in place] for row in before]
    # The committed rows have the same images first, draw by draw: the first two numbers of a draw are the same.
    for row, old in zip(rows, before, strict=True):
        assert row["delta"][:2] == pytest.approx(old["delta"][:2], rel=1e-3, abs=1e-12), row["panel"]


@pytest.mark.parametrize("count", [0, 10_000])
def test_photographs_says_how_many_there_are(count: int) -> None:
    with pytest.raises(ValueError, match="number of embedded crops"):
        photographs(count)


def test_there_are_200_distinct_photographs() -> None:
    crops = photographs()
    assert len(crops) >= 200
    assert len({crop.numpy().tobytes() for crop in crops}) == len(crops)
    assert crops.mean(dim=(-2, -1)).abs().max() < 1e-12
