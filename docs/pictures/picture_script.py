"""What the scripts here have in common: rows in a folder, measured again if asked to, drawn and told in words."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sesn.tools.drawing import save

Rows = list[dict[str, Any]]
#: Where a line is never broken. The columns of tables are narrow.
NO_BREAK = "\N{NO-BREAK SPACE}"


def with_spread(values: Sequence[float]) -> str:
    """Mean and standard deviation as a table shows them."""
    return f"{statistics.fmean(values):.0f}{NO_BREAK}±{NO_BREAK}{statistics.stdev(values):.0f}"


def run(
    about: str | None,
    name: str,
    measure: Callable[[], Rows],
    draw: Callable[[Rows], Figure] | None = None,
    words: Callable[[Rows], str] | None = None,
) -> None:
    """Read the command line, and draw and print what the rows `NAME.jsonl` of a folder say."""
    arguments = argparse.ArgumentParser(description=about)
    arguments.add_argument("folder", type=Path, help="the folder of the rows, into which pictures are written")
    arguments.add_argument("--measure", action="store_true", help="measure the rows again first, which may train")
    given = arguments.parse_args()
    path = given.folder / f"{name}.jsonl"
    if given.measure:
        path.write_text("".join(json.dumps(row) + "\n" for row in measure()), encoding="utf-8")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if draw is not None:
        save(draw(rows), given.folder, name)
    if words is not None:
        sys.stdout.write(words(rows))
