"""One artefact that cannot be made is a note in its place; the others are written, and the exit status says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic
from test_report_page import ALWAYS, invoke

from harness.report import artefacts
from sesn.tools.drawing import Drawing

TOLD = "could not be made from these rows: ZeroDivisionError: as told"


def raising(*_anything: Any) -> Any:
    raise ZeroDivisionError("as told")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return synthetic.store(tmp_path / "rows", synthetic.results())


def broken(monkeypatch: pytest.MonkeyPatch, key: str, step: str) -> None:
    monkeypatch.setitem(artefacts.ARTEFACTS, key, replace(artefacts.ARTEFACTS[key], **{step: raising}))


LONG = [
    pytest.param(key, step, marks=pytest.mark.slow)
    for key, step in (("figure-2", "frame"), ("figure-2", "draw"), ("learning-curves", "says"))
]


@pytest.mark.parametrize(("key", "step"), [("stl10", "table"), *LONG])
def test_one_that_fails_is_a_note_in_its_place(
    key: str, step: str, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, key, step)
    ended = invoke("--rows", rows, "--out", tmp_path / "out", "--error-budget", tmp_path / "none.json")
    assert ended.exit_code == 1, ended.output
    assert f"{key} {TOLD}" in ended.stderr
    # It may well be a bug: where it happened is told.
    assert "Traceback" in ended.stderr
    for name, heading in (("index.html", f'<section id="{key}">'), ("README.md", f'<a id="{key}">')):
        text = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert TOLD in text[text.index(heading) :][:400].replace("This ", "")
        assert "Could not be made" in text
        assert "Nothing has been measured yet." not in text
    there = {path.stem for path in (tmp_path / "out").glob("*/*.csv")}
    assert there == {one.id for one in ALWAYS} - {key, "error-budget"}
    assert not list((tmp_path / "out").rglob(f"{key}.*"))


@pytest.mark.slow
def test_a_figure_that_cannot_be_written_is_a_note_too(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Drawing, "laid_out", raising)
    ended = invoke("--rows", rows, "--out", tmp_path / "out", "--error-budget", tmp_path / "none.json")
    assert ended.exit_code == 1, ended.output
    assert not list((tmp_path / "out").glob("figures/*"))
    assert (tmp_path / "out" / "tables" / "stl10.md").exists()


def test_one_that_fails_alone_leaves_nothing(rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "stl10", "table")
    ended = invoke("--rows", rows, "--out", tmp_path / "out", "--only", "stl10")
    assert ended.exit_code == 1, ended.output
    assert f"stl10 {TOLD}" in ended.stderr
    assert "has no rows yet" not in ended.output
    assert not list((tmp_path / "out").rglob("*.*"))
