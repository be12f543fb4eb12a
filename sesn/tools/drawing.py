"""How every figure looks and is written: the same numbers give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import LogLocator, NullFormatter

from sesn._files import replacing
from sesn.tools.files import CREATOR

STYLE: Any = {
    # A fixed salt and letters as paths: an SVG has neither random names nor the machine's fonts.
    "svg.hashsalt": "sesn",
    "svg.fonttype": "path",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
#: For the report's figures, which are as wide as a page.
SMALL: Any = {**STYLE, "font.size": 8}
FORMATS = ("png", "svg")
#: Okabe and Ito's palette, told apart by colour-blind readers: blue, vermilion, green, purple, orange and sky blue.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
#: The widths of the report's figures, in inches: the page's, and half of it beside another.
FULL, HALF = 7.2, 3.5
#: A date, or the version of what drew it, would make the same rows give other bytes.
METADATA: dict[str, dict[str, str | None]] = {
    "svg": {"Date": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
}
#: By which a picture that stands alone is known to be ours when it is drawn again.
SIGNED: dict[str, dict[str, str | None]] = {"svg": {"Date": None, "Creator": CREATOR}, "png": {"Software": CREATOR}}


class Hover(NamedTuple):
    """A point of a figure that shows its numbers under the pointer."""

    axes: Any
    x: float
    y: float
    text: str


class Frame(NamedTuple):
    """A picture of an animation: its bytes, of which type (`image/svg+xml`), and what it shows in a word."""

    content: bytes
    media: str = "image/svg+xml"
    label: str = ""


@dataclass(frozen=True)
class Drawing:
    """A figure, its points, and the frames of an animation, for which the figure stands wherever nothing moves."""

    figure: Figure
    hovers: tuple[Hover, ...] = ()
    frames: tuple[Frame, ...] = ()

    def laid_out(self) -> Figure:
        """The figure with its layout computed once, so that every format and every point agree on it."""
        if isinstance(self.figure.get_layout_engine(), ConstrainedLayoutEngine):
            # Ticks are made when they are first drawn, in the style of that moment.
            with mpl.rc_context(SMALL):
                self.figure.draw_without_rendering()
            self.figure.set_layout_engine("none")
            for axes in self.figure.axes:
                # The solver's last digits vary from run to run, and names in an SVG are made of all digits.
                place = axes.get_position(original=True).bounds
                axes.set_position(tuple(round(number, 6) for number in place))
        return self.figure

    def placed(self) -> list[tuple[float, float, str]]:
        """The points as fractions of the figure's width from the left and height from the top.

        Without those that have no place (NaN, infinity), which JSON could not hold either.
        """
        self.laid_out()
        width, height = self.figure.bbox.width, self.figure.bbox.height
        finite = [hover for hover in self.hovers if math.isfinite(hover.x) and math.isfinite(hover.y)]
        places = [(*hover.axes.transData.transform((hover.x, hover.y)), hover.text) for hover in finite]
        return [(round(x / width, 4), round(1 - y / height, 4), text) for x, y, text in places]


def styled(draw: Callable[[Any], Drawing]) -> Callable[[Any], Drawing]:
    """Draw in the style of the report's figures."""

    @wraps(draw)
    def drawn(points: Any) -> Drawing:
        with mpl.rc_context(SMALL):
            return draw(points)

    return drawn


def log_axis(axes: Any, which: Literal["x", "y"], ticks: tuple[float, ...]) -> None:
    """A logarithmic axis that names the given multiples of each power of ten, in plain numbers."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=ticks))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def encoded(
    figure: Figure, kind: str, style: Any = STYLE, metadata: dict[str, dict[str, str | None]] = METADATA
) -> bytes:
    """The figure as PNG, SVG or PDF."""
    buffer = BytesIO()
    with mpl.rc_context(style):
        figure.savefig(buffer, format=kind, dpi=160, metadata=metadata[kind])
    return buffer.getvalue()


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write PNG and SVG, signed."""
    paths = [folder / f"{name}.{kind}" for kind in FORMATS]
    for path in paths:
        with replacing(path) as partial:
            partial.write_bytes(encoded(figure, path.suffix[1:], metadata=SIGNED))
    return paths
