"""The report as files: all there, the same bytes twice, links that lead somewhere, and bad input met with words."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import synthetic
from typer.testing import CliRunner

from harness.commands.report import material
from harness.paper import published
from harness.records import Cell, Measurement, Result
from harness.report.artefacts import ARTEFACTS
from harness.report.claims import claims_of
from harness.report.findings import WORDS
from harness.report.page import report_files
from harness.report.select import FAILED
from sesn.methods import METHODS
from sesn.tools.app import app
from sesn.tools.files import GeneratedFiles

ROOT = Path(__file__).resolve().parents[1]
CAUSES = ROOT / "reports" / "causes" / "published.json"
#: The made-up rows are of the lite budget.
#: Without what only some rows give: shorter trainings beside longer ones, and experiments from outside.
ALWAYS = [one for one in ARTEFACTS.values() if one.id not in ("mnist-scale-lite", "own-experiments")]
#: Those that have a section of their own; the scorecard stands before all of them.
SECTIONS = [one for one in ALWAYS if one.id != "scorecard"]


def invoke(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows and the report on them."""
    out = tmp_path_factory.mktemp("reports")
    rows = synthetic.store(out / "rows", synthetic.results())
    (out / "tune").mkdir()
    (out / "tune" / "tune.png").write_bytes(b"")
    result = invoke("--rows", rows, "--out", out, "--causes", CAUSES)
    assert result.exit_code == 0, result.output
    return out


class Page(HTMLParser):
    """What a page refers to, its ids, and its tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name == "id" and value:
                self.ids.append(value)


@pytest.fixture(scope="module")
def page(written: Path) -> Page:
    return Page((written / "index.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["README.md", "index.html"])
def test_a_quote_of_several_claims_is_printed_once(written: Path, name: str) -> None:
    text = (written / name).read_text(encoding="utf-8")
    for quote in ("SESN significantly outperforms other methods in all 4 regimes", "All results are reported as mean"):
        assert text.count(quote) == 1
    assert re.findall(r"\S  Budget", text) == []


def test_every_artefact_has_its_files(written: Path) -> None:
    for one in ALWAYS:
        kinds = ("svg", "pdf", "png", "csv") if one.kind == "figure" else ("md", "tex", "csv")
        missing = [kind for kind in kinds if not (written / f"{one.kind}s" / f"{one.id}.{kind}").stat().st_size]
        assert not missing, one.id
    assert not [path for path in written.rglob("*") if ".partial" in path.name]


def test_the_same_rows_give_the_same_bytes(written: Path) -> None:
    files = report_files(material(written / "rows", CAUSES, written), written, written / "rows")
    different = [name for name, content in files.items() if (written / name).read_bytes() != content]
    assert different == []
    assert len(files) > 50


def test_links_of_the_page_lead_somewhere(written: Path, page: Page) -> None:
    assert "tune/tune.png" in page.links
    assert "rows/mnist-scale.jsonl" in page.links
    for link in page.links:
        if link.startswith("data:"):
            continue
        assert not re.match(r"[a-z]+:|//", link), link
        assert link[1:] in page.ids if link.startswith("#") else (written / link).exists(), link


def test_links_of_the_readme_lead_somewhere(written: Path) -> None:
    text = (written / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    anchors = re.findall(r'<a id="([^"]+)">', text)
    assert len(links) > 40
    for link in links:
        assert link[1:] in anchors if link.startswith("#") else (written / link).exists(), link


def test_ids_are_unique_and_every_artefact_has_a_place(page: Page) -> None:
    assert len(page.ids) == len(set(page.ids))
    assert {one.id for one in SECTIONS} <= set(page.ids)


def test_delta_is_explained_where_it_is_first_used(written: Path) -> None:
    for name in ("index.html", "README.md"):
        text = (written / name).read_text(encoding="utf-8")
        assert text.index("Δ, the equivariance error, is the relative difference") == text.index(
            "Δ", text.index("SESN")
        )


def test_the_first_part_leads_and_the_parts_name_each_artefact_once() -> None:
    named = [key for part in WORDS["parts"] for key in part["artefacts"]]
    assert len(named) == len(set(named))
    assert set(WORDS["folded"]) <= set(named) == ARTEFACTS.keys() - {"scorecard"}
    assert not {part["id"] for part in WORDS["parts"]} & set(named)


def test_page_and_text_tell_the_same_in_the_same_order(written: Path) -> None:
    page, text = ((written / name).read_text(encoding="utf-8") for name in ("index.html", "README.md"))
    shown = re.findall(r'<(?:section|article|details)[^>]* id="([^"]+)"', page)
    anchors = [name for name in re.findall(r'<a id="([^"]+)">', text) if name in shown]
    assert [name for name in shown if name in anchors] == anchors
    assert anchors[:2] == ["scorecard", WORDS["parts"][0]["artefacts"][0]]
    assert text.index("claims of the paper: ") < text.index("| Claim | Paper | Here | Verdict |") < text.index("![")
    assert text.count("<details><summary>") == text.count("</details>") > len(anchors) - len(WORDS["parts"])


def test_a_failed_cell_is_told_in_words_and_its_exception_is_not(tmp_path: Path) -> None:
    cell = Cell("mnist-scale", 1, "lite", "cnn", {"data": "mnist", "recipe": "paper", "epochs": 1, "resolution": 28})
    exception = "RuntimeError: mat1 and mat2 shapes cannot be multiplied"
    there = [result for result in synthetic.results() if result.cell.experiment == "mnist-scale"]
    for name, others in (("alone", []), ("among others", there)):
        rows = synthetic.store(tmp_path / name, [*others, *synthetic.absent(cell, "failed", exception)])
        files = report_files(material(rows, tmp_path / "none.json"), tmp_path, rows)
        assert f"mnist-scale: 1 cell failed: {FAILED}" in files["index.html"].decode()
        assert not [path for path, content in files.items() if b"shapes cannot be multiplied" in content]


def test_every_artefact_says_how_to_regenerate_it(written: Path) -> None:
    text = (written / "index.html").read_text(encoding="utf-8").replace("&amp;", "&")
    recipes = {(each.cell.experiment, each.cell.settings.get("recipe")) for each in synthetic.results()}
    released = {key for key, recipe in recipes if recipe == "released" and (key, "paper") not in recipes}
    rows = f"--rows {written / 'rows'}"
    for one in SECTIONS:
        trained = {result.cell.method for result in synthetic.results() if result.cell.experiment in one.experiments}
        few = f" --methods {','.join(key for key in METHODS if key in trained)}" if one.budgets else ""
        words = {key: f"--budget lite{few}{' --recipe released' * (key in released)}" for key in one.experiments}
        run = f"{one.run_with({key: f'{said} {rows}' for key, said in words.items()})} && " if one.experiments else ""
        assert f"<code>{run}sesn report --only {one.id} {rows} --out {written}</code>" in text


def test_the_command_of_another_folder_writes_its_file() -> None:
    for other in WORDS["others"]:
        folder, command = f"reports/{other['folder']}", other["command"]
        assert f"{folder}/{other['file']}" in command or f".py {folder} " in command


def test_the_command_names_the_budget_and_recipe_that_are_shown(tmp_path: Path) -> None:
    depth = [result for result in synthetic.results("paper") if result.cell.experiment == "delta-depth"]
    other = [result for result in synthetic.results("smoke") if result.cell.experiment == "delta-downscale"]
    settings = {"data": "mnist", "recipe": "released", "epochs": 1, "resolution": 28, "augmented": False}
    trained = synthetic.rows(Cell("mnist-scale", 1, "smoke", "cnn", settings), [Measurement("test_error", (2.0,))])
    rows = synthetic.store(tmp_path / "rows", [*depth, *other, *trained])
    text = report_files(material(rows, tmp_path / "none.json"), tmp_path, rows)["README.md"].decode()
    store = f"--rows {rows}"
    again = f"sesn run delta-depth --budget paper {store} && sesn report --only delta-depth {store}"
    assert f"Regenerate with `{again}`" in text
    first, second = "sesn run delta-downscale --budget smoke", "sesn run delta-interscale --budget lite"
    again = f"{first} {store} && {second} {store} && sesn report --only figure-2 {store}"
    assert f"Regenerate with `{again}`" in text
    again = (
        f"sesn run mnist-scale --budget smoke --methods cnn --recipe released {store} && sesn report --only mnist-scale"
    )
    assert f"`{again} {store}`" in text


def test_the_longest_training_is_shown_and_a_dash_says_what_is_missing(tmp_path: Path) -> None:
    settings = {"data": "mnist", "recipe": "paper", "epochs": 60, "resolution": 28, "augmented": False}
    trained = synthetic.rows(Cell("mnist-scale", 1, "paper", "cnn", settings), [Measurement("test_error", (2.0,))])
    rows = synthetic.store(tmp_path / "rows", [*synthetic.results(), *trained])
    files = report_files(material(rows, tmp_path / "none.json"), tmp_path, rows)
    published = files["tables/mnist-scale.md"].decode()
    assert "mnist-scale: paper budget" in published
    assert re.search(r"\| SESN Vector \| [^|]* \| — ", published), "every method has its row, run or not"
    assert "not run" in published
    assert re.search(r"Not shown: \d+ cells of version 1, lite budget", published)
    store = f"--rows {rows}"
    again = f"sesn run mnist-scale --budget paper --methods cnn {store} && sesn report --only mnist-scale {store}"
    assert f"Regenerate with `{again}`" in files["README.md"].decode()


def test_realisations_of_several_machines_stand_in_one_table_and_the_caption_names_the_machines(tmp_path: Path) -> None:
    settings = {"data": "mnist", "recipe": "paper", "epochs": 12, "resolution": 28, "augmented": False}
    rows = tmp_path / "rows"
    for seed, machine in enumerate(("Old CPU", "New CPU")):
        cell = Cell("mnist-scale", 1, "lite", "cnn", settings, seed)
        facts = {**synthetic.PROVENANCE, "machine": machine}
        found = Result(cell, "ok", (Measurement("test_error", (2.0 + seed,)),), "", facts, synthetic.STARTED, 1.0)
        synthetic.store(rows, [found])
    files = report_files(material(rows, tmp_path / "none.json"), tmp_path, rows)
    assert b"| 2.50 |" in files["tables/mnist-scale.md"]
    assert b"2 realisations; data set mnist; 12 epochs; paper recipe; New CPU and Old CPU" in files["README.md"]


def test_what_was_skipped_says_why_where_nothing_is_shown(tmp_path: Path) -> None:
    cell = Cell("stl10", 1, "smoke", "wrn", {"data": "stl10", "recipe": "paper"})
    rows = synthetic.store(tmp_path / "rows", synthetic.absent(cell, "skipped", "no folder of data sets was named"))
    files = report_files(material(rows, tmp_path / "none.json"), tmp_path, rows)
    assert b"stl10: 1 cell skipped: no folder of data sets was named" in files["index.html"]


def test_captions_name_budget_repetitions_data_and_machine(written: Path) -> None:
    text = (written / "tables" / "mnist-scale.md").read_text(encoding="utf-8")
    assert "mnist-scale: lite budget; 2 realisations; data set mnist; 3 epochs; paper recipe; " in text
    assert "Synthetic CPU, 2 threads, torch 0.0, cpu; version 1" in text


def test_a_claim_tested_with_other_epochs_than_the_papers_says_so(written: Path) -> None:
    text = (written / "index.html").read_text(encoding="utf-8")
    assert "Trained for 3 of the paper&#39;s 60 epochs." in text


def test_a_figure_is_drawn_from_the_csv_beside_it(written: Path) -> None:
    import pandas as pd

    from harness.report import training
    from sesn.tools.drawing import SMALL, encoded

    points = pd.read_csv(written / "figures" / "learning-curves.csv")
    drawn = training.draw_curves(points).laid_out()
    assert encoded(drawn, "svg", SMALL) == (written / "figures" / "learning-curves.svg").read_bytes()


# --- an empty store


def test_an_empty_store_beside_the_causes_is_still_empty(tmp_path: Path) -> None:
    files = report_files(material(tmp_path / "none", CAUSES), tmp_path, tmp_path / "none")
    assert b"Nothing has been measured yet." in files["index.html"]
    assert "figures/causes.svg" in files


def test_an_empty_store_says_what_to_run(tmp_path: Path) -> None:
    result = invoke("--rows", tmp_path / "none", "--out", tmp_path / "out", "--causes", tmp_path / "none.json")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "Nothing has been measured yet." in text
    for one in ALWAYS:
        if one.experiments:
            assert (f"run {one.run} in a clone" if one.id.startswith("gpu") else f"Run <code>{one.run}</code>") in text
            assert not list((tmp_path / "out").rglob(f"{one.id}.*"))
    assert (tmp_path / "out" / "figures" / "figure-1.svg").exists()
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "Nothing has been measured yet." in readme
    # Where no claim is decided, none is folded away below an empty table.
    assert "more claims" not in text + readme
    assert text.count('<tr id="claim-') == len(claims_of(published())) == readme.count("not measured |")


# --- one artefact


def test_only_one_artefact_is_written(written: Path, tmp_path: Path) -> None:
    result = invoke("--rows", written / "rows", "--out", tmp_path, "--only", "stl10")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == [".sesn-files", "stl10.csv", "stl10.md", "stl10.tex"]


@pytest.mark.parametrize("name", list(ARTEFACTS))
def test_every_artefact_can_be_made_alone(name: str, tmp_path: Path) -> None:
    rows = synthetic.store(tmp_path / "rows", [result for result in synthetic.results() if result.cell.seed == 0])
    found = material(rows, CAUSES)
    files = report_files(found, tmp_path, rows, name)
    assert all(name in path for path in files)
    assert bool(files) == (name != "own-experiments")


def test_what_the_rows_do_not_give_any_more_is_removed(tmp_path: Path) -> None:
    rows = synthetic.store(tmp_path / "rows", synthetic.results())
    (tmp_path / "tables").mkdir()
    outdated = tmp_path / "tables" / "own-experiments.md"
    others = [tmp_path / "tables" / "mine.md", tmp_path / "tables" / "table-1.png"]
    for path in (outdated, *others):
        path.write_text("of somebody", encoding="utf-8")
    GeneratedFiles(tmp_path).add(["tables/own-experiments.md"])  # as the report that wrote it did
    kept = invoke("--rows", rows, "--out", tmp_path, "--only", "epoch-time")
    assert kept.exit_code == 0
    assert "removed" not in kept.output
    assert outdated.exists()
    result = invoke("--rows", rows, "--out", tmp_path, "--only", "own-experiments")
    assert "removed what these rows do not give: own-experiments.md" in result.output
    assert not outdated.exists()
    assert all(path.exists() for path in others)
    assert (tmp_path / "tables" / "epoch-time.md").exists()


def test_an_unknown_artefact_is_answered_with_the_known(tmp_path: Path) -> None:
    result = invoke("--out", tmp_path, "--only", "figure_2x")
    assert result.exit_code == 2
    assert "`only` (='figure_2x') must be one of scorecard, figure-1, basis, mnist-scale-samples" in result.output
    assert "did you mean 'figure-2'?" in result.output
    assert list(tmp_path.iterdir()) == []


def test_one_artefact_without_rows_says_what_to_run(tmp_path: Path) -> None:
    result = invoke("--rows", tmp_path / "none", "--out", tmp_path / "out", "--only", "mnist-scale")
    assert result.exit_code == 0
    assert "sesn run mnist-scale --budget paper" in result.output


# --- a report that is there already


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_without_rows_does_not_empty_a_report(written: Path, tmp_path: Path, there: bool) -> None:
    rows = tmp_path / "rows"
    if there:
        rows.mkdir()
    before = {path: path.read_bytes() for path in written.rglob("*") if path.is_file()}
    result = invoke("--rows", rows, "--out", written)
    assert result.exit_code == 2
    assert "`rows`" in result.output
    assert "must be a folder with rows" in " ".join(result.output.split())
    assert {path: path.read_bytes() for path in written.rglob("*") if path.is_file()} == before


def test_the_causes_that_is_no_json_is_named(written: Path, tmp_path: Path) -> None:
    path = tmp_path / "budget.json"
    path.write_text("no json", encoding="utf-8")
    result = invoke("--rows", written / "rows", "--out", tmp_path / "out", "--causes", path)
    assert result.exit_code == 2
    assert "`causes`" in result.output
