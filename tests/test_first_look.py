"""The main job: rows, table and picture, and that the README shows the committed rows and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.cli import app
from harness.drawing import save
from harness.report.first_look import draw, markdown_table, medians
from harness.run.first_look import wide_basis

ROOT = Path(__file__).resolve().parents[1]


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_readme_shows_the_committed_rows() -> None:
    rows = read(ROOT / "reports" / "first-look" / "first-look.jsonl")
    assert markdown_table(rows) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_main_job_writes_rows_and_pictures(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    result = CliRunner().invoke(app, ["first-look", "--out", str(out), "--images", "3", "--draws", "1"])
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in out.iterdir()) == ["first-look.jsonl", "first-look.png", "first-look.svg"]
    delta = medians(read(out / "first-look.jsonl"), "delta")
    assert delta["sesn-wide"] < 1e-4
    assert delta["sesn-stl10"] > 1e-3
    assert delta["cnn"] > 100 * delta["sesn-wide"]


def test_drawing_twice_gives_identical_bytes(tmp_path: Path) -> None:
    rows = read(ROOT / "reports" / "first-look" / "first-look.jsonl")
    pairs = [save(draw(rows, wide_basis()), tmp_path / name, "picture") for name in ("a", "b")]
    for one, other in zip(*pairs, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_main_job_refuses_bad_counts(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["first-look", "--out", str(tmp_path), "--images", "1"])
    assert result.exit_code == 2
    assert "--images" in result.output


@pytest.mark.parametrize("count", [0, 10_000])
def test_photographs_says_how_many_there_are(count: int) -> None:
    from harness.data.photographs import photographs

    with pytest.raises(ValueError, match="number of embedded crops"):
        photographs(count)


def test_there_are_200_distinct_photographs() -> None:
    from harness.data.photographs import photographs

    crops = photographs()
    assert len(crops) >= 200
    assert len({crop.numpy().tobytes() for crop in crops}) == len(crops)
    assert crops.mean(dim=(-2, -1)).abs().max() < 1e-12


@pytest.mark.parametrize("command", ["first-look", "explain"])
def test_bad_usage_is_said_in_a_line_before_anything_is_measured(command: str, tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("", encoding="utf-8")
    for arguments in (["--out", str(occupied / "below")], ["--out", str(tmp_path), "--images", "99999"]):
        result = CliRunner().invoke(app, [command, *arguments])
        assert result.exit_code == 2, result.output
        assert "error:" in result.output
        assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == [occupied]
