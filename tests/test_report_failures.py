"""A bug in making or drawing an artefact is a traceback, and leaves the report that is there alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic
from test_report_page import invoke

from harness.report import artefacts
from sesn.tools.drawing import Drawing


def raising(*_anything: Any) -> Any:
    raise ZeroDivisionError("as told")


@pytest.mark.parametrize("step", ["frame", "table", "says", "extra"])
def test_a_bug_in_an_artefact_is_not_caught(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = synthetic.store(tmp_path / "rows", synthetic.results())
    broken = replace(artefacts.ARTEFACTS["stl10"], **{step: raising})
    monkeypatch.setitem(artefacts.ARTEFACTS, "stl10", broken)
    ended = invoke("--rows", rows, "--out", tmp_path / "out", "--only", "stl10")
    assert isinstance(ended.exception, ZeroDivisionError)
    assert not (tmp_path / "out").exists()


def test_a_bug_in_writing_a_figure_is_not_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drawing, "laid_out", raising)
    ended = invoke("--rows", tmp_path, "--out", tmp_path / "out", "--only", "figure-1")
    assert isinstance(ended.exception, ZeroDivisionError)
    assert not (tmp_path / "out").exists()
