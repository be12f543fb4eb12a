"""A tolerant comparison of figures with committed pictures; `SESN_GOLDEN=write` draws these anew."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageFilter

from sesn.tools.drawing import SMALL

FOLDER = Path(__file__).parent / "golden"
DPI = 60
#: Root mean square of grey levels after a blur of one pixel. Fonts and lines of other versions of matplotlib stay
#: below; a curve that is gone or moved does not (a test draws one).
TOLERANCE = 4.0


def raster(figure: Figure) -> Image.Image:
    """The figure at a low resolution, in grey."""
    buffer = BytesIO()
    with mpl.rc_context(SMALL):
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return Image.open(buffer).convert("L")


def distance(one: Image.Image, other: Image.Image) -> float:
    """How far two pictures of one size are apart; infinity for two sizes."""
    if one.size != other.size:
        return float("inf")
    blurred = [np.asarray(image.filter(ImageFilter.GaussianBlur(1)), dtype=float) for image in (one, other)]
    return float(np.sqrt(np.mean((blurred[0] - blurred[1]) ** 2)))


def assert_as_committed(figure: Figure, name: str) -> None:
    """Compare with tests/golden/<name>.png, or write it if asked."""
    path, drawn = FOLDER / f"{name}.png", raster(figure)
    if os.environ.get("SESN_GOLDEN") == "write":
        FOLDER.mkdir(exist_ok=True)
        drawn.save(path, optimize=True)
    far = distance(drawn, Image.open(path).convert("L"))
    assert far < TOLERANCE, f"{name} is {far:.1f} grey levels from {path}; look at it, then run with SESN_GOLDEN=write"
