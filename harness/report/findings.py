"""What an artefact says: sentences with numbers computed from its frame, and a verdict on the paper's claim."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

Verdict = Literal["reproduced", "not reproduced", "differs", "measured", "missing", "failed", "described"]
#: The parts of the page's summary, in order. What is only described stands with its artefact alone.
VERDICTS: dict[Verdict, str] = {
    "reproduced": "Reproduced",
    "not reproduced": "Not reproduced",
    "differs": "What differs, and why",
    "measured": "Also measured",
    "missing": "Not measured yet",
    "failed": "Could not be made",
}


class Finding(NamedTuple):
    """A sentence, and under which heading of the summary it stands."""

    verdict: Verdict
    text: str


def claim(holds: bool, text: str) -> Finding:
    """The paper's claim, put to the test."""
    return Finding("reproduced" if holds else "not reproduced", text)


def number(value: float, digits: int = 2) -> str:
    """A number for a sentence: 0.058, 3.4e-05."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:.{digits}g}"


def between(low: float, high: float) -> str:
    """A range for a sentence: 1.1 to 1.7; one number if both read the same."""
    ends = dict.fromkeys([number(low), number(high)])
    return " to ".join(ends)


def listed(words: list[str]) -> str:
    """Words as in a sentence: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"
