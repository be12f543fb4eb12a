"""A profile as a line: the relative Delta along the network, with the names of the layers where there is room."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from sesn.tools.drawing import PALETTE, STYLE, log_axis
from sesn.tools.profile import FUNCTIONS, WHOLE, LayerRow, adds_most
from sesn.tools.profile_table import short

LINE, MOST, GREY = *PALETTE[:2], "0.55"
#: The least and the most inches that the figure is wide, those beside the axes, and those for each row.
NARROW, WIDE, MARGIN, EACH = 5.0, 11.0, 1.2, 0.16
#: A floor this many times below the smallest value is told in words.
FAR = 1000
#: Names beside each other need so many inches, and have so many letters at most.
APART, LETTERS = 0.14, 30


def draw_profile(rows: Sequence[LayerRow], floor: float, title: str = "") -> Figure:
    """Draw the rows that do something by themselves; save it with `sesn.tools.drawing.save`."""
    # A container that hands on what it holds would be the same point again.
    shown = [row for row in rows if not math.isnan(row.relative) and (row.leaf or row.name == WHOLE or not row.keeps())]
    most, values = adds_most(shown, floor), [max(row.relative, floor) for row in shown]
    width = min(max(NARROW, MARGIN + EACH * len(shown)), WIDE)
    with mpl.rc_context({**STYLE, "font.size": 8}):
        figure = Figure(figsize=(width, 4.2), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(range(len(shown)), values, "-", color=LINE, lw=1.2, marker=".", ms=3)
        _value_axis(axes, values, floor)
        if most is not None:
            place = shown.index(most)
            axes.plot([place], [values[place]], "o", color=MOST, ms=6)
            said = f"{most.title} ({most.layer}) adds most"
            axes.set_title(said, fontsize=8, color=MOST, loc="right", parse_math=False)
        named = named_places(shown, max(1, math.ceil(APART * len(shown) / (width - MARGIN))))
        names = [_label(shown[place]) for place in named]
        axes.set_xticks(named, names, rotation=90, fontsize=7, parse_math=False)
        for label, place in zip(axes.get_xticklabels(), named, strict=True):
            label.set_color(MOST if shown[place] is most else "black")
        axes.set_xlim(-0.5, len(shown) - 0.5)
        if title:
            figure.suptitle(title, fontsize=8, parse_math=False)  # a name may have dollars
    return figure


def _value_axis(axes: Any, values: Sequence[float], floor: float) -> None:
    """A logarithmic axis with the floor on it, unless that is so far below that nothing else could be told apart."""
    least, most = min(values, default=1.0), max(values, default=1.0)
    low = floor if floor > least / FAR else least
    log_axis(axes, "y", (1.0,) if most > 100 * low else (1.0, 2.0, 5.0))
    axes.set_ylim(low / 2, most * 2)
    axes.set_ylabel("relative Δ")
    place: Any = ("axes fraction", "data")
    words: Any = {"ha": "right", "fontsize": 7, "color": "0.35"}
    if low == floor:
        axes.axhline(floor, color=GREY, ls=":", lw=1, zorder=0)
        axes.annotate(f"floor {floor:.1e}", (1, floor), (-2, -2), place, "offset points", va="top", **words)
    else:
        axes.annotate(f"floor {floor:.1e}, far below", (1, low / 2), (-2, 2), place, "offset points", **words)


def _label(row: LayerRow) -> str:
    """Its name, with its class where the name is only a number."""
    name = short(row, LETTERS)
    return f"{name} {row.layer}" if row.name.rpartition(".")[2].isdigit() and row.layer != FUNCTIONS else name


def named_places(rows: Sequence[LayerRow], apart: int) -> list[int]:
    """Which rows are named, if names need to be so many rows apart: where most is added, then the others in turn."""
    taken: list[int] = []
    first = sorted(range(len(rows)), key=lambda place: rows[place].weight, reverse=True)
    for place in first:
        if all(abs(place - other) >= apart for other in taken):
            taken.append(place)
    return sorted(taken)
