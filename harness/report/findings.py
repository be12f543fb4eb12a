"""What an artefact says: sentences of templates/words.toml, filled with numbers of its frame, each with a verdict."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, NamedTuple

#: The words of the report: its introduction, titles, captions and sentences.
WORDS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "templates" / "words.toml").read_text(encoding="utf-8"))
Verdict = Literal["reproduced", "not reproduced", "differs", "measured", "missing", "described"]
#: The parts of the page's summary, in order. What is only described stands with its artefact alone.
VERDICTS: dict[Verdict, str] = {
    "reproduced": "Reproduced",
    "not reproduced": "Not reproduced",
    "differs": "What differs, and why",
    "measured": "Also measured",
    "missing": "Not measured yet",
}


class Statement(NamedTuple):
    """A sentence, and under which heading of the summary it stands."""

    verdict: Verdict
    text: str


def claim(holds: bool) -> Verdict:
    """The paper's claim, put to the test."""
    return "reproduced" if holds else "not reproduced"


def sentence(key: str, **values: Any) -> str:
    """The words of that key with the values in their places: `{mean:.2g}` is 0.058 or 3.4e-05."""
    return str(WORDS["sentences"][key].format(**values))


def told(verdict: Verdict, key: str, **values: Any) -> Statement:
    """A sentence with its verdict."""
    return Statement(verdict, sentence(key, **values))


def between(low: float, high: float) -> str:
    """A range for a sentence: 1.1 to 1.7; one number if both read the same."""
    return " to ".join(dict.fromkeys([f"{low:.2g}", f"{high:.2g}"]))


def listed(words: list[str]) -> str:
    """Words as in a sentence: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"
