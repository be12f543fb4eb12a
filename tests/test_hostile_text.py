"""Text of the rows is shown and does nothing else: on the page, in links, in a spreadsheet, on a terminal."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import unicodedata
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st
from test_report_page import Page
from test_run_command import cells, invoke

from harness.commands.report import material
from harness.records import Cell, Measurement, Result
from harness.report.escapes import as_csv
from harness.report.page import report_files
from harness.store.writing import Writer
from sesn.tools.consoles import consoles, visible

#: To the right, to the left, over what stands before it; a bell, an escape sequence that clears the screen.
HOSTILE = "=cmd\u202e|gpj.exe\u2066 \x1b[2J\x07\x9b31m\x00 end"
SHOWN = "=cmd<U+202E>|gpj.exe<U+2066> <U+001B>[2J<U+0007><U+009B>31m<U+0000> end"
INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def test_what_is_invisible_is_shown_as_a_mark() -> None:
    assert visible(HOSTILE) == SHOWN
    assert visible("Δ ≤ 2\u00a0× “é”\n\tnext") == "Δ ≤ 2\u00a0× “é”\n\tnext"


@given(st.text())
def test_nothing_invisible_is_left(text: str) -> None:
    assert not {unicodedata.category(c) for c in visible(text) if c not in "\n\t"} & INVISIBLE


# --- a spreadsheet


@given(st.text(), st.floats(allow_nan=False))
def test_text_in_a_spreadsheet_is_no_formula_and_numbers_stay_numbers(text: str, number: float) -> None:
    frame = pd.DataFrame({"text": [text, "=1+1", None], "number": [number, -1.5, 0.0], "mixed": [-2, text, "-2"]})
    lines = list(csv.reader(io.StringIO(as_csv(frame))))[1:]
    for line in lines:
        assert not line[0].startswith(tuple("=+-@\t\r"))
    assert lines[1][0] == "'=1+1"
    assert float(lines[0][1]) == pytest.approx(number, rel=1e-11)
    assert lines[1][1] == "-1.5"
    assert (lines[0][2], lines[2][2]) == ("-2", "'-2")


# --- the page


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A report on rows with hostile text, in a folder with a hostile name."""
    out = tmp_path_factory.mktemp("reports")
    settings = {"data": HOSTILE, "recipe": "paper", "epochs": 1, "resolution": 28, "augmented": False}
    facts = {**synthetic.PROVENANCE, "machine": HOSTILE}
    good, bad = (Cell("mnist-scale", 1, "smoke", method, settings) for method in ("cnn", "sesn-vector"))
    found = [
        Result(good, "ok", (Measurement("test_error", (2.0,)),), "", facts, synthetic.STARTED, 1.0),
        Result(bad, "skipped", (), HOSTILE, facts, synthetic.STARTED, 1.0),
    ]
    rows = synthetic.store(out / "ro ws#1?%41 (b)", found)
    return {str(out): b"", **report_files(material(rows, out / "none.json"), out, rows)}


@pytest.mark.parametrize("name", ["index.html", "README.md", "tables/mnist-scale.md", "tables/mnist-scale.csv"])
def test_nothing_invisible_is_in_the_report(files: dict[str, bytes], name: str) -> None:
    text = files[name].decode()
    assert "U+202E" in text
    assert not {c for c in text if unicodedata.category(c) in INVISIBLE} - set("\n\t")


def test_reasons_in_the_csv_are_no_formulas(files: dict[str, bytes]) -> None:
    lines = list(csv.DictReader(io.StringIO(files["tables/mnist-scale.csv"].decode())))
    reasons = {line["reason"] for line in lines if line["method"] == "sesn-vector"}
    assert "'" + SHOWN in reasons


def test_links_lead_to_files_with_odd_names(files: dict[str, bytes]) -> None:
    folder, page = Path(next(iter(files))), Page(files["index.html"].decode())
    (link,) = {link for link in page.links if "mnist-scale.jsonl" in link}
    assert link == "ro%20ws%231%3F%2541%20%28b%29/mnist-scale.jsonl"
    assert (folder / unquote(link)).exists()
    readme = files["README.md"].decode()
    assert f"[rows of mnist-scale]({link})" in readme
    assert "[`ro ws#1?%41 (b)/`](ro%20ws%231%3F%2541%20%28b%29)" in readme


def test_the_page_lets_nothing_run_but_its_own_script(files: dict[str, bytes]) -> None:
    text = files["index.html"].decode()
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', text)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.replace("&#39;", "'").split(";"))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert not re.search(r"<[^>]* (style|on[a-z]+)=", text)
    assert text.index("Content-Security-Policy") < text.index("<style>")


# --- a terminal


def test_what_is_invisible_does_not_reach_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table

    with consoles(quiet=False) as (console, errors):
        for one in (console, errors):
            one.print(HOSTILE, markup=False, soft_wrap=True)
            table = Table("heading")
            table.add_row(HOSTILE)
            one.print(table)
    for text in capsys.readouterr():
        assert text.count("<U+001B>[2J") == 2
        assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(text)


def test_colours_still_reach_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with consoles(quiet=False) as (console, _):
        console.print("red", style="red")
    assert "\x1b[31mred" in capsys.readouterr().out


def test_reasons_in_the_store_do_nothing_to_the_terminal(
    selftest: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    selftest.setenv("SELFTEST", cells({}))
    with Writer(tmp_path) as writer:
        writer.append(Result(Cell("selftest", 1, "smoke", ""), "failed", (), HOSTILE, synthetic.PROVENANCE))
    for command in ("status", "plan"):
        ended = invoke(command, "selftest", "--rows", tmp_path)
        assert ended.exit_code == 0, ended.output
        # Rich itself leaves out the bell.
        assert SHOWN.replace("<U+0007>", "") in ended.stdout
        assert not {"\x1b", "\x9b", "\u202e"} & set(ended.output)
