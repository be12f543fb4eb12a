"""The page of the zoo is of the networks that are checked now; `nox -s zoo` checks them and writes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import zoo_packages as zoo
from zoo_packages import Ran

PAGE = zoo.PAGE.read_text("utf-8")
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")][1:]


def test_the_page_is_of_the_networks_of_the_table() -> None:
    typed = [re.findall("`(.*?)`", row[2])[0] for row in ROWS]
    assert typed == [words for _, words in zoo.chosen([])], "run nox -s zoo, which writes the page"
    assert [row[1].partition(" ")[0] for row in ROWS] == [package for package, _ in zoo.chosen([])]


def test_a_verdict_or_a_way_out_for_each_of_twelve_networks_within_the_time() -> None:
    assert len(ROWS) >= 12
    assert PAGE.startswith(zoo.HEAD.format(most=zoo.MOST_SECONDS))
    assert PAGE.endswith(zoo.TAIL)
    for _, _, typed, _, _, relative, verdict, seconds in ROWS:
        assert verdict
        refused = any(f"`{words}`" in typed for words in zoo.REFUSED)
        assert (relative == "–") == (refused or "nothing to compare" in verdict)
        assert all(float(each) <= zoo.MOST_SECONDS for each in seconds.split(", "))


GOOD = Ran("timm:resnet18", 0, "a table", "warning: of the network\n", 3.0)
REFUSED = Ran("transformers:CLIPModel", 2, "", "error: it takes no images\n", 3.0)


@pytest.mark.parametrize(
    ("ran", "words"),
    [
        (GOOD._replace(err="Traceback (most recent call last)"), "status 0"),
        (GOOD._replace(status=70), "status 70"),
        (GOOD._replace(seconds=31.0), "31 seconds"),
        (REFUSED._replace(err="error: one line\nand another\n"), "no answer of one line"),
        (REFUSED._replace(words="timm:resnet18"), "status 2 in the end"),
        (GOOD._replace(words="transformers:CLIPModel"), "status 0 in the end"),
    ],
)
def test_what_is_wrong_is_told(ran: Ran, words: str) -> None:
    assert zoo.complaint([GOOD], GOOD.words) == zoo.complaint([REFUSED], REFUSED.words) == ""
    assert words in zoo.complaint([ran], ran.words)


def test_the_way_out_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(words: str, *_: object) -> Ran:
        return GOOD if "--output" in words else REFUSED._replace(err="error: which: run sesn check x --output y\n")

    monkeypatch.setattr(zoo, "run", run)
    assert [one.status for one in zoo.check("x", {}, Path("x.json"))] == [2, 0]
