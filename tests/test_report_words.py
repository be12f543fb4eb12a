"""The words of the report: every artefact has a title and a caption, and every sentence is said somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from harness.report.artefacts import ARTEFACTS
from harness.report.findings import WORDS

SOURCES = Path(__file__).parents[1] / "harness" / "report"
CODE = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES.glob("*.py"))


def test_every_artefact_has_its_words_and_no_other_has() -> None:
    assert WORDS["artefacts"].keys() == ARTEFACTS.keys()
    assert all(one.title and one.caption for one in ARTEFACTS.values())


def test_a_caption_is_one_sentence() -> None:
    several = [key for key, words in WORDS["artefacts"].items() if re.search(r"[.!?]\s+[A-ZΔ]", words["caption"])]
    assert several == []


def test_every_sentence_is_said_and_every_one_that_is_said_is_there() -> None:
    # Some keys are put together in the code: goal-inside, mark-shift.
    composed = [found.replace("{name}", "[a-z]+") for found in re.findall(r'sentence\(\s*f"([^"]+)"', CODE)]
    unsaid = [
        key
        for key in WORDS["sentences"]
        if f'"{key}"' not in CODE and not any(re.fullmatch(one, key) for one in composed)
    ]
    assert unsaid == []
    said = re.findall(r'sentence\(\s*"([a-z0-9-]+)"', CODE)
    assert set(said) <= WORDS["sentences"].keys()
