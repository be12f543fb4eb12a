"""The tutorials' Python blocks run, in order and in one namespace; their programs are those under docs/examples."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from test_readme import ROOT, blocks, run
from typer.testing import CliRunner

from sesn.tools.app import app
from sesn.tools.causes import causes

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


def test_the_method_tutorial_says_what_its_measurement_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "docs" / "tutorials" / "method.md"
    run_page(page, tmp_path, monkeypatch, slow=False)
    printed = dict(re.findall(r"^(mine|ordinary) tensor\(([\d.]+)", capsys.readouterr().out, re.M))
    text = " ".join(page.read_text(encoding="utf-8").split())
    said = re.search(r"relative Δ of ([\d.]+) for the method and ([\d.]+) for", text)
    assert said is not None
    assert list(map(float, said.groups())) == pytest.approx(list(map(float, printed.values())), abs=0.01)


def test_the_check_tutorial_says_that_its_network_has_no_cause_to_switch_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / "tutorials" / "check.md"
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    run(page, blocks(page.read_text(encoding="utf-8"))[0], names)
    assert causes(names["network"], names["images"], 1 / 2).unsplit
    assert "nothing to switch off" in " ".join(page.read_text(encoding="utf-8").split())


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


@pytest.mark.slow
@pytest.mark.usefixtures("own_methods")
def test_the_figure_that_the_method_tutorial_promises_has_the_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands, with one experiment and its method alone; each command is run as the page has it otherwise."""
    monkeypatch.chdir(tmp_path)
    found = blocks((ROOT / "docs" / "tutorials" / "method.md").read_text(encoding="utf-8"))
    Path("mine.py").write_text(next(block.text for block in found if block.is_python), encoding="utf-8")
    [console] = [block.text for block in found if block.info == "console"]
    for line in console.replace("cnn,sesn-vector,", "").splitlines():
        _, command, *words = shlex.split(line.removeprefix("$ "), comments=True)
        if command == "run":
            first = next(index for index, word in enumerate(words) if word.startswith("--"))
            assert "delta-depth" in words[:first]
            words = ["delta-depth", *words[first:]]
        words += ["--only", "delta-depth"] * (command == "report")
        ran = CliRunner().invoke(app, [command, *words], catch_exceptions=False)
        assert ran.exit_code == 0, ran.output
    assert ",mine," in Path("mine/figures/delta-depth.csv").read_text(encoding="utf-8")
