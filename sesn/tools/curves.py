"""The picture of a comparison: relative Delta over the downscale, a curve for each network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from textwrap import wrap
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from sesn.tools.compare import Compared
from sesn.tools.drawing import PALETTE, STYLE, log_axis

#: Marks and lines differ as well.
COLOURS = (*PALETTE, "#000000", "#B8A800")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")
#: In inches, and letters of a line of the legend, which has two columns.
WIDTH, HEIGHT, LETTERS = 5.0, 2.9, 30
#: Inches of a line of the legend.
LINE = 0.16
#: So many downscales are named on the axis; of more, round numbers are.
MOST_TICKS = 7


def draw_curves(found: Sequence[Compared], tolerance: float | None = None) -> Figure:
    """Draw what could be measured on logarithmic axes, with chance as a line; hollow marks are at the floor."""
    names = [f"{one.name}: not measured" if one.failure else one.name for one in found]
    names = ["\n".join(wrap(name, LETTERS)) for name in names]
    values = [v for one in found for r in one.results if (v := r.relative.median) > 0]
    least = min([*values, *([tolerance] if tolerance else []), 0.1]) / 2
    measured = list(dict.fromkeys(f"{result.downscale:.3g}" for one in found for result in one.results))
    at_floor = any(result.at_floor for one in found for result in one.results)
    lines = [name.count("\n") + 1 for name in names]
    half = math.ceil(len(lines) / 2)
    below = 0.1 + LINE * max(sum(lines[:half]), sum(lines[half:]))
    with mpl.rc_context({**STYLE, "font.size": 8}):
        figure = Figure(figsize=(WIDTH, HEIGHT + below), layout="constrained")
        axes, foot = figure.subplots(2, height_ratios=[HEIGHT, below])
        log_axis(axes, "x", (1.0, 1.5, 2.0, 3.0, 4.0, 6.0))
        axes.set_yscale("log")
        if len(measured) <= MOST_TICKS:
            axes.set_xticks([float(one) for one in measured], measured)
            axes.minorticks_off()
        looks = zip(cycle(COLOURS), cycle(MARKS), (line for line in cycle(LINES) for _ in COLOURS), strict=False)
        for one, name, look in zip(found, names, looks, strict=False):
            _curve(axes, one, name, look, least)
        for height, word in ((1.0, "chance"), *([(tolerance, "tolerance")] if tolerance else [])):
            axes.axhline(height, color="0.4", lw=0.9, ls=(0, (4, 3)), zorder=0)
            place = (1, height), (0, 2), axes.get_yaxis_transform(), "offset points"
            axes.annotate(word, *place, ha="right", va="bottom", fontsize=7, color="0.3")
        most = max([*values, 1.0])
        axes.set_ylim(least, most * (most / least) ** 0.08)  # with room for a word above the line of chance
        axes.set_xlabel("downscale 1/s" + (" (hollow: at the floor of the probe)" if at_floor else ""))
        axes.set_ylabel("relative Δ")
        foot.axis("off")
        legend = foot.legend(*axes.get_legend_handles_labels(), loc="upper center", ncols=2, fontsize=7, frameon=False)
        legend.set_in_layout(False)  # its place was made above
        for text in legend.get_texts():
            text.set_parse_math(False)  # a name may have dollars, which are no formula
    return figure


def _curve(axes: Any, one: Compared, name: str, look: tuple[str, str, str], least: float) -> None:
    """Medians with their 95 % intervals; what is zero lies on the lower edge, and what has no value is left out."""
    colour, mark, line = look
    known = sorted((r for r in one.results if not math.isnan(r.relative.median)), key=lambda result: result.downscale)
    x, y = [r.downscale for r in known], [max(r.relative.median, least) for r in known]
    style: Any = {"color": colour, "ls": line, "marker": mark, "ms": 4.5, "lw": 1.2, "label": name, "clip_on": False}
    axes.plot(x, y, **style, in_layout=False)  # an empty one that is not clipped would be laid out at the origin
    for result, place, middle in zip(known, x, y, strict=True):
        low, high = (max(end, least) for end in (result.relative.low, result.relative.high))
        axes.plot([place] * 2, [low, high], color=colour, lw=0.7, alpha=0.6)
        if result.at_floor:
            axes.plot([place], [middle], mark, color=colour, mfc="white", ms=4.5, clip_on=False, zorder=3)
