"""The files that a tool writes when asked to: JSON with raw values and provenance, and a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness.files import check_writable, replacing
from harness.machine import provenance
from sesn._checks import complaint, require

PICTURES = (".png", ".svg")


@dataclass(frozen=True)
class Output:
    """Where to write: JSON with raw values and provenance, and a picture as PNG and SVG."""

    json: Path | None = None
    picture: Path | None = None

    def __post_init__(self) -> None:
        if self.picture is not None:
            suffix = self.picture.suffix
            require(suffix in PICTURES, "picture", str(self.picture), f"a name ending in {' or '.join(PICTURES)}")
        self._check_apart()
        for path in (self.json, *self.drawn):
            if path is not None:
                check_writable(path)

    @property
    def drawn(self) -> list[Path]:
        """Both files of the picture, if there is one."""
        return [] if self.picture is None else [self.picture.with_suffix(suffix) for suffix in PICTURES]

    def _check_apart(self) -> None:
        """The picture is written last: it would take the place of a JSON of the same name."""
        if self.json is None or _place(self.json) not in map(_place, self.drawn):
            return
        both = " and ".join(map(str, self.drawn))
        rule = f"another file than those of `picture` (={str(self.picture)!r}), which are {both}"
        raise ValueError(complaint("json", str(self.json), rule, f"for example {self.json.with_suffix('.json')}"))

    def write(self, document: dict[str, Any], draw: Callable[[], Any] | None = None) -> list[Path]:
        """Write what was asked for; the picture is drawn before anything is written."""
        figure = draw() if draw is not None and self.picture is not None else None
        written = []
        if self.json is not None:
            facts = plain_values({**document, "sesn": version("sesn"), **provenance()})
            with replacing(self.json) as partial:
                partial.write_text(json.dumps(facts, indent=1, allow_nan=False, ensure_ascii=False) + "\n", "utf-8")
            written.append(self.json)
        if figure is not None and self.picture is not None:
            from harness.drawing import save

            written += save(figure, self.picture.parent, self.picture.stem)
        return written


def _place(path: Path) -> Path:
    """Where a file will be: its folder may be a link, a link of its own name is replaced."""
    return path.parent.resolve() / path.name


def plain_values(value: Any) -> Any:
    """As JSON has it: neither NaN (null: there is no number) nor infinity (the word), and paths as text."""
    if isinstance(value, dict):
        return {key: plain_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return str(value) if isinstance(value, Path) or value in (math.inf, -math.inf) else value
