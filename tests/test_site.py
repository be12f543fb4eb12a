"""The check of the documentation site finds what is loaded from elsewhere and what leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from site_check import faults
from test_readme import ROOT

import sesn

GOOD = """<link rel="stylesheet" href="style.css"><link rel="canonical" href="https://example.org/">
<img src="data:image/png;base64,AA"><h1 id="top">T</h1><a href="#top">a</a><a href="sub/other.html#there">b</a>
<a href="https://example.org/x">c</a><a href="mailto:a@example.org">d</a>"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(GOOD)
    (tmp_path / "sub" / "other.html").write_text('<p id="there"><a href="../index.html#top">back</a>')
    (tmp_path / "style.css").write_text("body { background: url(data:image/png;base64,AA) }")
    return tmp_path


def test_a_good_site_has_no_faults(site: Path) -> None:
    assert faults(site) == []


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        ('<script src="https://cdn.example.org/mathjax.js"></script>', "loads https://cdn.example.org/mathjax.js"),
        ('<img src="//example.org/a.png">', "loads //example.org/a.png"),
        ('<link rel="preload stylesheet" href="http://example.org/f.css">', "loads http://example.org/f.css"),
        ('<p style="background: url(https://example.org/a.png)">', "loads https://example.org/a.png"),
        ('<img src="gone.png">', "loads gone.png, which is not there"),
        ('<a href="gone.html">', "leads to gone.html, which is not there"),
        ('<a href="sub/other.html#gone">', "leads to sub/other.html#gone, and that page has no such place"),
        ('<a href="#gone">', "leads to #gone, and that page has no such place"),
        ('<a href="http://example.org/">', "leads to http://example.org/, which is no address with https"),
    ],
)
def test_a_fault_is_found(site: Path, bad: str, fault: str) -> None:
    (site / "index.html").write_text(GOOD + bad)
    assert faults(site) == [f"index.html: {fault}"]


@pytest.mark.parametrize(
    "rule", ['@import "https://example.org/a.css";', "@font-face { src: url('https://example.org/f') }"]
)
def test_a_style_that_loads_from_elsewhere_is_found(site: Path, rule: str) -> None:
    (site / "style.css").write_text(rule)
    assert len(faults(site)) == 1


@pytest.mark.parametrize("page", [*(ROOT / "docs").rglob("*.md")], ids=lambda page: page.stem)
def test_headings_are_short_and_stand_alone(page: Path) -> None:
    """A paragraph that slips onto a heading's line becomes the page's title."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+ .*\n.*", prose, flags=re.MULTILINE):
        first, _, after = heading.partition("\n")
        assert len(first) <= 80, first
        assert not after, f"no empty line after {first!r}"


def test_every_public_name_has_a_page() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md")]
    shown = [
        module for page in pages for line in re.findall(r"^\.\. public:: (.+)", page, re.M) for module in line.split()
    ]
    homeless = [
        name for name, home in sesn._HOMES.items() if sum(f"{home}.".startswith(f"{one}.") for one in shown) != 1
    ]
    assert homeless == []
