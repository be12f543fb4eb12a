"""Tables as Markdown and LaTeX, their frames, and that no text in them does anything."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from harness.experiments import EXPERIMENTS
from harness.paper import published
from harness.records import Cell, Measurement, Result
from harness.report import configurations, errors, table_1, times
from harness.report.escapes import latex, markdown
from harness.report.rendering import Material, _selection, rendered
from harness.report.select import FAILED, Selection
from harness.report.tables import Table, TableEntry, absent, as_latex, as_markdown

HOSTILE = r"[2] <script>alert(1)</script> | \input{x} $x_1^2$ & 100% #1 ~ `code` **b** [l](javascript:x) é Ω {" + '"'


def selections(results: Any) -> dict[str, Selection]:
    rows = synthetic.frame(results)
    keys = ("mnist-scale", "stl10", "stl10-reduced", "parameters", "epoch-time", "properties", "differences")
    material = Material(rows, published(), EXPERIMENTS, None)
    return {key: _selection(material, rows, key) for key in keys}


@pytest.fixture(scope="module")
def every() -> dict[str, Selection]:
    return selections(synthetic.results())


def mnist(method: str, seed: int, error: float, budget: Any = "paper", **other: Any) -> Result:
    settings = {"data": "mnist", "recipe": "paper", "epochs": 60, "resolution": 28, "augmented": False} | other
    cell = Cell("mnist-scale", 1, budget, method, settings, seed)
    return Result(cell, "ok", (Measurement("test_error", (error,)),), "", synthetic.PROVENANCE, synthetic.STARTED, 1.0)


def test_the_frame_of_mnist_scale() -> None:
    frame = errors.mnist_frame(selections([mnist("cnn", 0, 2.5), mnist("cnn", 1, 2.7), mnist("cnn", 2, 2.6)]))
    assert len(frame) == 11 * 4
    line = frame[frame["method"].eq("cnn") & frame["resolution"].eq(28) & ~frame["augmented"]].iloc[0]
    assert (line["paper"], line["paper_deviation"], line["paper_n"]) == (2.56, 0.04, 6)
    assert line["here"] == pytest.approx(2.6)
    assert line["deviation"] == pytest.approx(0.1)
    assert (line["n"], line["within"]) == (3, "in")
    assert line["difference"] == pytest.approx(0.04)
    other = frame[frame["method"].eq("sesn-vector")].iloc[0]
    assert (other["reason"], other["within"]) == ("not run", "")


def test_a_difference_is_shown_only_where_it_means_something() -> None:
    """The paper's epochs and data, and three realisations; smoke rows are never compared."""

    def heading(*results: Result) -> tuple[str, ...]:
        return errors.mnist_table(errors.mnist_frame(selections(results))).heading[:4]

    three = [mnist("cnn", seed, 2.5 + seed / 10) for seed in range(3)]
    assert heading(*three)[3] == "28×28 difference"
    assert heading(*three[:2])[2:] == ("28×28 here, %", "28×28 + paper, %")
    for other in ({"budget": "smoke"}, {"budget": "lite", "epochs": 12}, {"data": "embedded"}):
        assert "28×28 difference" not in heading(*(mnist("cnn", seed, 2.5, **other) for seed in range(3)))


def shown_of(results: Any, only: str | None = None) -> dict[str, Any]:
    """The artefacts on made-up rows of MNIST-scale that have a table."""
    found, _ = rendered(Material(synthetic.frame(results), published(), EXPERIMENTS, pd.DataFrame()), only)
    return {one.artefact.id: one for one in found if one.table}


def test_short_trainings_have_a_table_beside_the_long_ones_and_none_alone() -> None:
    """Few methods are trained for long, and the table of short trainings has the others; alone it repeats the first."""
    short = [mnist(method, 0, 3.0, budget="lite", epochs=12) for method in ("cnn", "ss-cnn")]
    found = shown_of([*short, mnist("cnn", 0, 2.5)])
    epochs = {key: found[key].provenance.split(", ")[1] for key in ("mnist-scale", "mnist-scale-lite")}
    assert epochs == {"mnist-scale": "60 epochs", "mnist-scale-lite": "12 epochs"}
    here = {key: list(found[key].frame["here"].dropna()) for key in epochs}
    assert here == {"mnist-scale": [2.5], "mnist-scale-lite": [3.0, 3.0]}
    assert "mnist-scale-lite" not in shown_of(short)
    assert "mnist-scale-lite" in shown_of(short, only="mnist-scale-lite")


def test_a_caption_says_how_often_what_it_shows_was_run() -> None:
    """Not every method has been trained as often as the others; a second run of one is no second of all."""

    def told(*counts: int) -> str:
        runs = [
            mnist(method, seed, 2.5)
            for method, count in zip(("cnn", "ss-cnn", "sesn-vector"), counts, strict=False)
            for seed in range(count)
        ]
        return str(shown_of(runs)["mnist-scale"].provenance.split(",")[0])

    assert [told(1, 1), told(2, 2), told(1, 2), told(1, 6), told(2, 3, 5)] == [
        "1 realisation",
        "2 realisations",
        "1 or 2 realisations",
        "1 to 6 realisations",
        "2 to 5 realisations",
    ]


def test_two_runs_have_a_mean_and_no_spread() -> None:
    frame = errors.mnist_frame(selections([mnist("cnn", 0, 2.5), mnist("cnn", 1, 2.7)]))
    assert set(frame["within"]) == {""}
    assert frame[["difference", "half_width"]].isna().all(axis=None)
    assert [entry.text for entry in errors.mnist_table(frame).lines[0][1:3]] == ["2.56 ± 0.04", "2.60"]


def test_the_best_is_bold_and_a_missing_run_is_a_dash_with_a_reason() -> None:
    frame = errors.mnist_frame(selections([mnist("cnn", 0, 2.5), mnist("ss-cnn", 0, 2.6)]))
    table = errors.mnist_table(frame)
    by_name = {line[0].text: line for line in table.lines}
    assert by_name["CNN"][2] == TableEntry("2.50", 2.5, bold=True)
    assert not by_name["SS-CNN"][2].bold
    assert by_name["SESN Vector"][1].bold  # the paper's best
    assert by_name["SESN Vector"][2] == absent("not run")
    assert by_name["SiCNN Scalar"][1] == absent("the paper gives its times only")


def test_a_run_without_a_number_is_a_dash_with_a_reason() -> None:
    table = errors.mnist_table(errors.mnist_frame(selections([mnist("cnn", 0, float("nan"))])))
    assert table.lines[0][2] == absent("the run gave no number")


def test_single_runs_on_stl10_are_not_judged_and_the_reduced_network_stands_apart(every: dict[str, Selection]) -> None:
    frame = errors.stl10_frame(every)
    assert set(frame["within"]) == {""}
    assert errors.stl10_table(frame).heading == ("Method", "paper, %", "here, %", "reduced network here, %")
    failed = frame[frame["method"].eq("sicnn-vector")].iloc[0]
    assert failed["reason"] == FAILED  # and not the text of the exception
    nothing = errors.stl10_frame(selections([]))
    assert errors.stl10_table(nothing).heading == ("Method", "paper, %")


def test_times_are_compared_by_their_ratios(every: dict[str, Selection]) -> None:
    frame = times.frame(every)
    line = frame[frame["method"].eq("sesn-vector") & frame["resolution"].eq(56)].iloc[0]
    assert line["paper_ratio"] == pytest.approx(6.8 / 3.8)
    assert (line["paper_ratio_low"], line["paper_ratio_high"]) == pytest.approx((6.75 / 3.85, 6.85 / 3.75))
    assert line["ratio_low"] <= line["ratio"] <= line["ratio_high"]
    assert len(times.table(frame).lines) == 11


def test_configurations_say_whether_counts_round_to_the_printed_ones(every: dict[str, Selection]) -> None:
    frame = configurations.frame("mnist")(every)
    assert [line[7].text.split()[-1] for line in configurations.table(frame).lines if line[7].text != "—"] == [
        "in" if abs(a - b) <= 500 else "out"
        for a, b in zip(frame["parameters"], frame["paper"], strict=True)
        if math.isfinite(b)
    ]


def test_a_published_count_with_unused_parameters_says_so() -> None:
    def counted(method: str, recipe: str, total: float, used: float) -> Result:
        cell = Cell("parameters", 1, "lite", method, {"network": "stl10", "recipe": recipe})
        found = (Measurement("parameters", (total,)), Measurement("parameters_used", (used,)))
        return Result(cell, "ok", found, "", synthetic.PROVENANCE, synthetic.STARTED, 1.0)

    rows = [counted("ss-cnn", "paper", 10.3e6, 10.3e6), counted("ss-cnn", "released", 10.8e6, 10.3e6)]
    rows += [counted("dss-vector", recipe, 10.94e6, 10.94e6) for recipe in ("paper", "released")]
    (finding,) = configurations.says("stl10")(configurations.frame("stl10")(selections(rows)))
    assert finding == "The printed counts on STL-10 include parameters that never reach the output: SS-CNN."


def test_table_1_shows_every_mark_of_the_paper(every: dict[str, Selection]) -> None:
    frame = table_1.frame(every)
    table = table_1.table(frame)
    row = next(line for line in table.lines if line[0].text == "SESN Vector")
    assert [entry.text for entry in row[1:6:2]] == ["yes", "Any", "yes"]
    ratios = [frame[frame["method"].eq("sesn-vector")][name].iloc[0] for name in ("ratio", "ratio_any")]
    assert [entry.text for entry in row[2:5:2]] == [f"yes {ratios[0]:.2g} ✓", f"Any {ratios[1]:.2g} ✓"]
    assert row[6].text == "yes 1 ✓"


def test_a_mark_that_differs_is_bold_and_crossed(every: dict[str, Selection]) -> None:
    frame = table_1.frame(every)
    row = next(line for line in table_1.table(frame).lines if line[0].text == "SS-CNN")
    assert (row[1].text, row[2].text.split()[0], row[2].text[-1], row[2].bold) == ("no", "yes", "✗", True)


def test_the_details_of_table_1_hold_no_words_of_an_exception(every: dict[str, Selection]) -> None:
    frame = table_1.frame(every).assign(refused="`base` (=1.5) must be a whole number", ratio_any=math.nan)
    table = table_1.details_table(frame)
    assert table.notes == ["the layer cannot be built for such factors"]
    assert len({len(line) for line in table.lines}) == 1


def test_every_difference_has_all_four_texts(every: dict[str, Selection]) -> None:
    table = configurations.differences_table(configurations.differences_frame(every))
    assert len(table.lines) > 15
    assert all(entry.text for line in table.lines for entry in line)


# --- text


@given(st.text())
def test_markdown_is_one_line_without_markup(text: str) -> None:
    shown = markdown(text)
    assert "\n" not in shown
    assert not re.search(r"(?<!\\)[|`*_\[\]<>]", shown)


@given(st.text())
def test_latex_is_ascii_without_commands_of_the_text(text: str) -> None:
    shown = latex(text)
    assert shown.isascii()
    assert not re.search(r"(?<!\\)[&%#_]", shown)


def hostile_table() -> Table:
    return Table(
        (HOSTILE, "x"),
        ((TableEntry(HOSTILE, bold=True), absent(HOSTILE)), (TableEntry("—"), TableEntry("1 ± 2"))),
        (1,),
    )


def test_hostile_text_in_markdown() -> None:
    text = as_markdown(hostile_table(), HOSTILE, [HOSTILE])
    assert "<script>" not in text
    assert "](javascript" not in text.replace("\\]", "").replace("\\[", "")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {3}


def test_a_table_with_a_line_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="1 entries under a heading of 2"):
        Table(("a", "b"), ((TableEntry("x"),),))


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(every: dict[str, Selection], tmp_path: Path) -> None:
    tables = {
        "hostile": hostile_table(),
        "mnist": errors.mnist_table(errors.mnist_frame(every)),
        "stl10": errors.stl10_table(errors.stl10_frame(every)),
        "times": times.table(times.frame(every)),
        "configuration": configurations.table(configurations.frame("stl10")(every)),
        "properties": table_1.table(table_1.frame(every)),
        "differences": configurations.differences_table(configurations.differences_frame(every)),
    }
    body = "\n".join(as_latex(table, f"{HOSTILE}.", [HOSTILE], key) for key, table in tables.items())
    head = r"\documentclass{article}\usepackage{array,booktabs,graphicx,longtable}\begin{document}"
    (tmp_path / "all.tex").write_text(f"{head}\n{body}\n\\end{{document}}\n", encoding="ascii")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-2000:]
    assert "too large for page" not in finished.stdout
    assert "Overfull" not in finished.stdout
