"""What an artefact says: sentences of templates/words.toml, filled with numbers of its frame."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

#: The words of the report: its introduction, titles, captions, claims and sentences.
WORDS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "templates" / "words.toml").read_text(encoding="utf-8"))


def sentence(key: str, **values: Any) -> str:
    """The words of that key with the values in their places: `{mean:.2g}` is 0.058 or 3.4e-05."""
    return str(WORDS["sentences"][key].format(**values))


def between(low: float, high: float) -> str:
    """A range for a sentence: 1.1 to 1.7; one number if both read the same."""
    return " to ".join(dict.fromkeys([f"{low:.2g}", f"{high:.2g}"]))


def listed(words: list[str]) -> str:
    """Words as in a sentence: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"
