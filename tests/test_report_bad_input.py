"""What the report makes of odd rows, odd folders and odd files: text stays text, and errors are one line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import synthetic
from test_report_page import CAUSES, Page, invoke
from test_store import unsealed

from harness.commands.report import material
from harness.records import Cell, Measurement, Result
from harness.report.page import report_files

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)> | `x` [a](javascript:b) \\end{table}"


def hostile_results() -> list[Result]:
    settings = {"data": HOSTILE, "recipe": "paper", "epochs": 1, "resolution": 28, "augmented": False}
    provenance = {**synthetic.PROVENANCE, "machine": HOSTILE}
    good = Cell("mnist-scale", 1, "smoke", "cnn", settings)
    bad = Cell("mnist-scale", 1, "smoke", "sesn-vector", settings)
    measurement = Measurement("test_error", (2.0,))
    return [
        Result(good, "ok", (measurement,), "", provenance, synthetic.STARTED, 1.0),
        Result(bad, "failed", (), HOSTILE, provenance, synthetic.STARTED, 1.0),
    ]


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    rows = synthetic.store(tmp_path / "rows", hostile_results())
    result = invoke("--rows", rows, "--out", tmp_path / "out", "--causes", tmp_path / "none.json")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)" in text
    page = Page(text)
    assert page.tags.count("script") == 1
    assert "x" not in page.links
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "<script>" not in readme
    assert "onerror=alert(1)>" not in readme
    latex = (tmp_path / "out" / "tables" / "mnist-scale.tex").read_text(encoding="utf-8")
    assert latex.count(r"\end{table}") == 1


def test_unknown_methods_and_metrics_are_noted(tmp_path: Path) -> None:
    rows = synthetic.store(tmp_path / "rows", synthetic.results())
    file = rows / "epoch-time.jsonl"
    content = file.read_bytes().replace(b'"peak_memory"', b'"mood"').replace(b'"ss-cnn"', b'"perceptron"')
    file.write_bytes(unsealed(content))
    result = invoke("--rows", rows, "--out", tmp_path / "out", "--only", "epoch-time")
    assert result.exit_code == 0, result.output
    assert "mood" in result.output
    assert "perceptron" in result.output


def test_rows_of_a_retired_version_are_not_shown(tmp_path: Path) -> None:
    settings = {"data": "mnist", "recipe": "paper", "epochs": 1, "resolution": 28, "augmented": False}
    old = Cell("mnist-scale", 0, "paper", "cnn", settings)
    result = Result(old, "ok", (Measurement("test_error", (2.0,)),), "", synthetic.PROVENANCE, synthetic.STARTED, 1.0)
    rows = synthetic.store(tmp_path / "rows", [result])
    files = report_files(material(rows, tmp_path / "none.json"), tmp_path, rows)
    assert "tables/mnist-scale.csv" not in files
    assert b"Not shown: 1 cell of version 0" in files["index.html"]


def test_a_file_of_a_newer_format_is_an_error_in_a_line(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "mnist-scale.jsonl").write_text('{"format": 99, "cell": "x"}\n', encoding="utf-8")
    result = invoke("--rows", rows, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "format 99 was written by a newer sesn" in result.output
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_said_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("", encoding="utf-8")
    result = invoke("--out", occupied / "below")
    assert result.exit_code == 2
    assert "cannot write" in result.output
    readable = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and readable(path, mode))
    result = invoke("--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "is no directory that may be written to" in result.output
    assert list(tmp_path.iterdir()) == [occupied]


def test_another_json_is_no_split_into_causes(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"a": 1}), encoding="utf-8")
    result = invoke("--rows", tmp_path / "none", "--out", tmp_path / "out", "--causes", other)
    assert result.exit_code == 2
    assert "must be what `sesn causes --json` writes" in result.output


def test_dollars_in_the_causes_are_no_formula(tmp_path: Path) -> None:
    document = json.loads(CAUSES.read_text(encoding="utf-8"))
    document["settings"]["target"] = document["causes"]["steps"][0]["cause"] = r"$\frac{$"
    strange = tmp_path / "strange.json"
    strange.write_text(json.dumps(document), encoding="utf-8")
    result = invoke("--out", tmp_path / "out", "--causes", strange, "--only", "causes")
    assert result.exit_code == 0, result.output


def test_one_panel_alone_can_be_drawn(tmp_path: Path) -> None:
    only = [result for result in synthetic.results() if result.cell.experiment == "delta-interscale"]
    rows = synthetic.store(tmp_path / "rows", only)
    result = invoke("--rows", rows, "--out", tmp_path / "out", "--only", "figure-2")
    assert result.exit_code == 0, result.output
