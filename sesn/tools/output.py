"""The files that a tool writes when asked to: JSON with raw values and provenance, and a picture."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sesn._checks import require
from sesn._files import replacing
from sesn.tools.files import check_output
from sesn.tools.machine import provenance
from sesn.tools.options import STDOUT

#: The shape of the JSON; a change of its keys raises it.
FORMAT = 7
PICTURES = (".png", ".svg")


class OutputFiles:
    """What to write: JSON with raw values and provenance ("-": the standard output), and a picture as PNG and SVG.

    Files of others are left alone, unless `force` is given; a network's source even then.
    """

    def __init__(self, asked: Mapping[str, Any]) -> None:
        """From a command's options; whatever is wrong with a name is said before anything is measured."""
        self.asked, self.started = asked, time.time()
        self.json: Path | None = asked["json"]
        self.picture: Path | None = asked.get("picture")
        if self.picture is not None:
            suffix = self.picture.suffix
            require(suffix in PICTURES, "picture", str(self.picture), f"a name ending in {' or '.join(PICTURES)}")
            import_module("matplotlib")  # it may be missing
        if self.json is not None:
            require(self.json.suffix.lower() != ".py", "json", str(self.json), "another file than Python's source")
            self._check_apart(self.json)
        self._check_files()

    def _check_files(self) -> None:
        if self.json not in (None, STDOUT):
            check_output("json", self.json, force=self.asked["force"])
        for path in self.drawn:
            check_output("picture", path, force=self.asked["force"])

    @property
    def drawn(self) -> list[Path]:
        """Both files of the picture, if there is one."""
        return [] if self.picture is None else [self.picture.with_suffix(suffix) for suffix in PICTURES]

    def _check_apart(self, path: Path) -> None:
        """The picture is written last: it would take the place of a JSON of the same name."""
        apart = _place(path) not in map(_place, self.drawn)
        both = " and ".join(map(str, self.drawn))
        rule = f"another file than those of `picture` (={str(self.picture)!r}), which are {both}"
        require(apart, "json", str(path), rule, f"for example {path.with_suffix('.json')}" if path.name else "")

    def write(self, images: str, found: dict[str, Any], console: Any, draw: Callable[[], Any] | None = None) -> None:
        """Write what was asked for, with where it comes from, and say so; the picture is drawn first of all."""
        figure = draw() if draw is not None and self.picture is not None else None
        self._check_files()  # again: measuring may have taken hours
        written = []
        settings = {name.rstrip("_"): value for name, value in self.asked.items() if name != "quiet"}
        started = datetime.fromtimestamp(self.started, UTC).isoformat(timespec="seconds")
        times = {"started": started, "seconds": time.time() - self.started}
        document = {"format": FORMAT, "settings": settings, "images": images, **found, **times}
        document |= {"sesn": version("sesn"), **provenance()}
        text = json.dumps(plain_values(document), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
        if self.json == STDOUT:
            console.data.write(text)
        elif self.json is not None:
            with replacing(self.json) as partial:
                partial.write_text(text, "utf-8")
            written.append(self.json)
        if figure is not None and self.picture is not None:
            from sesn.tools.drawing import save

            written += save(figure, self.picture.parent, self.picture.stem)
        for path in written:
            console.print(f"wrote {path}", highlight=False)


def _place(path: Path) -> Path:
    """Where a file will be: its folder may be a link."""
    return path.parent.resolve() / path.name


def plain_values(value: Any) -> Any:
    """As JSON has it: neither NaN (null: there is no number) nor infinity (the word), and paths as text."""
    if isinstance(value, dict):
        return {key: plain_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, Path | str):  # a file's name need not be text
        return os.fsencode(value).decode("utf-8", "backslashreplace")
    return str(value) if value in (math.inf, -math.inf) else value
