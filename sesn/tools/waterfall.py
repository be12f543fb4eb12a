"""The causes as a waterfall: from the observed Delta down to the remainder, one bar for each cause."""

from __future__ import annotations

import math
from textwrap import wrap
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from sesn.tools.drawing import STYLE
from sesn.tools.split import NOT_PRESENT, REMAINDER, CauseSplit, CauseStep

#: Okabe and Ito's palette, told apart by colour-blind readers; a rise is hatched as well.
FALL, LARGEST, RISE, GREY = "#56B4E9", "#D55E00", "#E69F00", "0.55"
#: As wide as a column of text, in inches, and so many letters of a line under the axis and of a name beside it.
WIDTH, LETTERS, NAME_LETTERS = 3.5, 56, 18
#: Lines of the title: of a longer one the end is kept, where the name of the network is.
TITLE_LINES = 3
#: Parts of the axis that are left free for the numbers, on the left and on the right.
LEFT, RIGHT = 0.05, 0.3
#: More letters than these do not fit into the right one.
LONG = 8


def draw_causes(split: CauseSplit, title: str = "") -> Figure:
    """Draw the steps on a logarithmic axis; save it with `sesn.tools.drawing.save`."""
    names = ["observed", *(_name(split, i) for i in range(len(split.steps))), *([REMAINDER] if split.steps else [])]
    below = [f"equivariance error Δ, downscale {1 / split.factor:.3g}", *_note(split)]
    with mpl.rc_context({**STYLE, "font.size": 8, "hatch.linewidth": 0.6}):
        figure = Figure(figsize=(WIDTH, 0.9 + 0.3 * len(names) + 0.13 * len(below)), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xscale("log")
        least = _limits(axes, split)
        _dot(axes, 0, split.observed, least)
        shares = split.step_shares or [math.nan] * len(split.steps)
        for place, (step, share) in enumerate(zip(split.steps, shares, strict=False), start=1):
            _bar(axes, place, step, share, step.cause == split.largest, least)
        if split.steps:
            _dot(axes, len(names) - 1, split.remainder, least)
        axes.axvline(max(split.floor, least), color=GREY, ls=":", lw=1, zorder=0)
        axes.annotate("floor", (max(split.floor, least), -0.75), color="0.35", ha="center", va="bottom", fontsize=7)
        axes.set_yticks(range(len(names)), names, parse_math=False)
        axes.set_ylim(len(names) - 0.4, -0.8)
        axes.tick_params(axis="y", length=0)
        figure.supxlabel("\n".join(below), fontsize=8, parse_math=False)
        if title:
            shown = f"…{title[-LETTERS * TITLE_LINES :]}" if len(title) > LETTERS * TITLE_LINES else title
            # A name may have dollars.
            figure.suptitle("\n".join(wrap(shown, LETTERS - 4)), fontsize=8, parse_math=False)
    return figure


def _name(split: CauseSplit, index: int) -> str:
    """The cause; its second step says what it does."""
    step = split.steps[index]
    again = index > 0 and split.steps[index - 1].cause == step.cause
    name = step.change if again and step.change else step.cause
    return "\n".join(wrap(name, NAME_LETTERS, max_lines=2, placeholder=" …"))


def _note(split: CauseSplit) -> list[str]:
    """Why there are no shares, in lines."""
    what = "not split" if split.unsplit else "no shares"
    return wrap(f"{what}: {split.unshared}", LETTERS) if split.unshared else []


def _limits(axes: Any, split: CauseSplit) -> float:
    """Set the axis' limits, with room for the numbers on both sides; the smallest value stands for zero."""
    values = [split.observed, split.remainder, split.floor, *(step.after for step in split.steps)]
    known = [math.log10(value) for value in values if value > 0] or [0.0]
    least, most = min(known) - (0.5 if min(values) == 0 else 0), max(known)
    unit = max(most - least, 1.0) / (1 - LEFT - RIGHT)
    # Beyond these there are no numbers.
    axes.set_xlim(10 ** max(least - LEFT * unit, -307), 10 ** min(most + RIGHT * unit, 307))
    return 10**least


def _dot(axes: Any, place: int, value: float, least: float) -> None:
    axes.plot([max(value, least)], [place], "o", color="black", ms=4)
    _write(axes, f"{value:.1e}", max(value, least), place)


def _bar(axes: Any, place: int, step: CauseStep, share: float, largest: bool, least: float) -> None:
    before, after = max(step.before, least), max(step.after, least)
    axes.plot([before] * 2, [place - 1, place], color=GREY, lw=0.8, zorder=0)
    axes.plot([after] * 2, [place, place + 1], color=GREY, lw=0.8, zorder=0)
    if step.note:
        _write(axes, NOT_PRESENT if step.note == NOT_PRESENT else "not switched off", before, place, "0.45")
        return
    rise = after > before
    colour = RISE if rise else LARGEST if largest else FALL
    low, high = min(before, after), max(before, after)
    edge = "black" if rise else colour  # an edge keeps the thinnest bar visible
    axes.barh(place, high - low, left=low, height=0.62, color=colour, edgecolor=edge, hatch="////" if rise else None)
    word = "" if math.isnan(share) else f"{share:.0%}" if share >= 0.005 else "<1%"
    _write(axes, "rises" if rise else word, high, place)


def _write(axes: Any, word: str, value: float, place: int, colour: str = "black") -> None:
    """A word beside a value: to its right, or to its left where a long one would leave the axis."""
    low, high = map(math.log10, axes.get_xlim())
    left = len(word) > LONG and math.log10(value) > (low + high) / 2
    shift, side = (-5, "right") if left else (5, "left")
    axes.annotate(
        word, (value, place), (shift, 0), "data", "offset points", ha=side, va="center", fontsize=7, color=colour
    )
