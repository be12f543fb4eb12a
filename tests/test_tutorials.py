"""The tutorials' Python blocks run, in order and in one namespace; their programs are those under docs/examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_readme import ROOT, blocks, run

#: The line before a block that takes more than a few seconds.
SLOW = "<!-- slow -->"
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


def run_page(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, *, slow: bool) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.before == SLOW and not slow:
            break
        if block.runs:
            run(page, block, names)


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_up_to_what_takes_long(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, tmp_path, monkeypatch, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in TUTORIALS if SLOW in page.read_text()], ids=lambda page: page.stem)
def test_a_tutorial_runs_to_its_end(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, tmp_path, monkeypatch, slow=True)


@pytest.mark.parametrize("name", ["classifier", "segmentation"])
def test_a_tutorial_shows_its_program_whole(name: str) -> None:
    page = (ROOT / "docs" / "tutorials" / f"{name}.md").read_text(encoding="utf-8")
    program = (ROOT / "docs" / "examples" / f"{name}.py").read_text(encoding="utf-8").split('"""\n', 1)[1]
    shown = [block.text for block in blocks(page) if block.is_python and block.before != SLOW]
    assert "\n\n\n".join(shown).strip() == program.strip()
