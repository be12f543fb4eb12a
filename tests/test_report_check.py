"""`sesn report --check` finds what is out of date and writes nothing; the README's results are of the same claims."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import synthetic
from test_report_page import invoke

from harness.records import Cell, Measurement
from harness.report.page import outdated_files
from sesn.tools.files import GeneratedFiles

README = """# Ours

<!-- results -->
as it was
<!-- /results -->

the rest
"""


def counted(total: float) -> Any:
    settings = {"network": "mnist", "recipe": "paper"}
    return synthetic.rows(Cell("parameters", 1, "lite", "cnn", settings), [Measurement("parameters", (total,))])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the repository: rows, the report on them, and a README with markers."""
    root = tmp_path_factory.mktemp("project")
    synthetic.store(root / "reports" / "rows", counted(494_549.0))
    (root / "README.md").write_text(README, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        result = invoke()
    assert result.exit_code == 0, result.output
    return root


@pytest.fixture
def copied(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to change, as the working directory."""
    shutil.copytree(project, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_the_results_stand_between_the_markers_and_the_rest_is_kept(project: Path) -> None:
    text = (project / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# Ours\n\n<!-- results -->\n")
    assert text.endswith("<!-- /results -->\n\nthe rest\n")
    assert "as it was" not in text
    assert "| SESN has the lowest error at 28×28 | 2.08 %, best other 2.30 % |" in text
    assert "1 is undecided" in text
    assert sum(line.startswith("| ") for line in text.splitlines()) - 1 == 5
    assert "(reports/README.md)" in text


def test_a_fresh_report_passes(copied: Path) -> None:
    before = contents(copied)
    result = invoke("--check")
    assert result.exit_code == 0, result.output
    assert contents(copied) == before


def test_what_is_out_of_date_is_named_and_nothing_is_written(copied: Path) -> None:
    synthetic.store(copied / "reports" / "rows", counted(500_000.0))  # another result: the last one counts
    (copied / "reports" / "figures" / "basis.png").unlink()
    gone = copied / "reports" / "tables" / "no-such-artefact-any-more.md"
    gone.write_text("old", encoding="utf-8")
    listed = copied / "reports" / ".sesn-files"
    listed.write_text(listed.read_text(encoding="utf-8") + "tables/no-such-artefact-any-more.md\n", encoding="utf-8")
    before = contents(copied)
    result = invoke("--check")
    assert result.exit_code == 1
    assert contents(copied) == before
    named = {line.partition(": ")[2] for line in result.output.splitlines() if line.startswith("not what")}
    wanted = ["README.md", "reports/README.md", "reports/index.html", "reports/tables/configuration-mnist.csv"]
    assert named >= {*wanted, "reports/figures/basis.png", "reports/tables/no-such-artefact-any-more.md"}
    assert "reports/figures/figure-1.svg" not in named
    assert "`sesn report` with the same options, but without --check, updates them" in result.output


def test_another_folder_or_one_artefact_leaves_the_readme_alone(copied: Path) -> None:
    (copied / "README.md").write_text(README, encoding="utf-8")
    for asked in (["--out", "other", "--methods", "cnn"], ["--only", "differences"]):
        assert invoke(*asked).exit_code == 0
        assert (copied / "README.md").read_text(encoding="utf-8") == README


def test_a_list_that_was_tampered_with_leads_nowhere_else(copied: Path) -> None:
    listed = copied / "reports" / ".sesn-files"
    listed.write_text(listed.read_text(encoding="utf-8") + "../mine.md\ntables/../../mine.md\n", encoding="utf-8")
    (copied / "mine.md").write_text("mine", encoding="utf-8")
    names = outdated_files({}, GeneratedFiles(copied / "reports"))
    assert "tables/differences.md" in names
    assert not [name for name in names if "mine" in name]


@pytest.mark.parametrize(
    ("marker", "instead"), [("<!-- /results -->", ""), ("<!-- results -->", "<!-- results -->" * 2)]
)
def test_broken_markers_are_refused_and_nothing_is_written(copied: Path, marker: str, instead: str) -> None:
    readme = copied / "README.md"
    readme.write_text(readme.read_text(encoding="utf-8").replace(marker, instead), encoding="utf-8")
    before = contents(copied)
    for options in ((), ("--check",)):
        result = invoke(*options)
        assert result.exit_code == 2
        assert "README.md must have <!-- results --> once" in result.stderr
    assert contents(copied) == before
