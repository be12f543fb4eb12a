"""The causes as a waterfall: from the observed Delta down to the remainder, one bar for each cause."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from sesn.tools.causes import NOT_PRESENT, CauseSplit, CauseStep
from sesn.tools.drawing import STYLE

#: Okabe and Ito's palette, told apart by colour-blind readers; a rise is hatched as well.
FALL, LARGEST, RISE, GREY = "#56B4E9", "#D55E00", "#E69F00", "0.55"
#: As wide as a column of text.
WIDTH = 3.5


def draw_causes(split: CauseSplit, title: str = "") -> Figure:
    """Draw the steps on a logarithmic axis; save it with `sesn.tools.drawing.save`."""
    labels = [_label(split, i) for i in range(len(split.steps))]
    with mpl.rc_context({**STYLE, "font.size": 8, "hatch.linewidth": 0.6}):
        figure = Figure(figsize=(WIDTH, 0.9 + 0.27 * (len(labels) + 2)), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xscale("log")
        least = _limits(axes, split)
        _dot(axes, 0, max(split.observed, least))
        for place, step in enumerate(split.steps, start=1):
            _bar(axes, place, step, step.cause == split.largest, least)
        last = len(labels) + 1
        _dot(axes, last, max(split.remainder, least))
        axes.axvline(max(split.floor, least), color=GREY, ls=":", lw=1, zorder=0)
        axes.annotate("floor", (max(split.floor, least), -0.75), color="0.35", ha="center", va="bottom", fontsize=7)
        axes.set_yticks(range(last + 1), ["observed", *labels, "remainder"], parse_math=False)
        axes.set_ylim(last + 0.6, -0.8)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(f"equivariance error Δ, downscale {1 / split.factor:.3g}")
        if title:
            figure.suptitle(title, fontsize=8, parse_math=False)  # a name may have dollars
    return figure


def _label(split: CauseSplit, index: int) -> str:
    """The cause; its second step says what it does."""
    step = split.steps[index]
    again = index > 0 and split.steps[index - 1].cause == step.cause
    return step.change if again and step.change else step.cause


def _limits(axes: Any, split: CauseSplit) -> float:
    """Set the axis' limits, with room for the numbers; the lower one stands for zero."""
    values = [split.observed, split.remainder, split.floor, *(step.after for step in split.steps)]
    known = [value for value in values if value > 0] or [1.0]
    least, most = min(known) / 6, max(known) * 40
    axes.set_xlim(least, most)
    return least


def _dot(axes: Any, place: int, value: float) -> None:
    axes.plot([value], [place], "o", color="black", ms=4)
    axes.annotate(f"{value:.1e}", (value, place), (6, 0), "data", "offset points", va="center", fontsize=7)


def _bar(axes: Any, place: int, step: CauseStep, largest: bool, least: float) -> None:
    before, after = max(step.before, least), max(step.after, least)
    axes.plot([before] * 2, [place - 1, place], color=GREY, lw=0.8, zorder=0)
    axes.plot([after] * 2, [place, place + 1], color=GREY, lw=0.8, zorder=0)
    if step.note:
        word = NOT_PRESENT if step.note == NOT_PRESENT else "could not be switched off"
        axes.annotate(word, (before, place), (5, 0), "data", "offset points", va="center", fontsize=7, color="0.45")
        return
    rise = after > before
    colour = RISE if rise else LARGEST if largest else FALL
    low, high = min(before, after), max(before, after)
    edge = "black" if rise else colour  # an edge keeps the thinnest bar visible
    axes.barh(place, high - low, left=low, height=0.62, color=colour, edgecolor=edge, hatch="////" if rise else None)
    word = f"{-step.share:+.0%}".replace("-", "−") if abs(step.share) >= 0.005 else "<1%"
    axes.annotate(word, (high, place), (5, 0), "data", "offset points", va="center", fontsize=7)
