"""How every figure looks and is written: the same numbers give the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from harness.files import replacing

STYLE: Any = {
    # A fixed salt and letters as paths: an SVG has neither random names nor the machine's fonts.
    "svg.hashsalt": "sesn",
    "svg.fonttype": "path",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
FORMATS = ("png", "svg")


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write PNG and SVG; a date in the file would make the same rows give other bytes."""
    paths = [folder / f"{name}.{kind}" for kind in FORMATS]
    with mpl.rc_context(STYLE):
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
            with replacing(path) as partial:
                figure.savefig(partial, dpi=160, metadata=metadata)
    return paths
