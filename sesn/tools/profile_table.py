"""A profile for a terminal: one line a submodule, where it changes something, and one sentence on what adds most."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

from rich.text import Text

from sesn._checks import one_of, whole
from sesn.tools.profile import FUNCTIONS, KEEPS, WHOLE, LayerRow, adds_most
from sesn.tools.verdict import number

Sort = Literal["order", "added", "delta"]
SORTS: tuple[Sort, ...] = ("order", "added", "delta")
#: How a table is read.
LEGEND = (
    f"adds: the relative Δ (rel. Δ) that a layer gives its output by itself, when its inputs are exact; at most "
    f"{KEEPS:.0%} of the whole counts as nothing. lasts: how much this changes the network's output, on the same scale"
)
#: A table of more lines than this is shown less deep.
MOST_LINES = 60
#: The columns after the name, and how wide they are; numbers stand at their right end.
COLUMNS = {"layer": -12, "as": -6, "rel. Δ": 7, "adds": 7, "lasts": 7, "Δ": 7, "note": -4}
NARROWEST = 12
SHORT = {"invariant": "inv."}


@dataclass(frozen=True)
class Line:
    """A row, or several beside each other that are folded into one line for the same reason."""

    rows: tuple[LayerRow, ...]
    reason: str = ""
    note: str = ""


def lines(
    rows: Sequence[LayerRow], *, depth: int | None = None, sort: Sort = "order", unfolded: bool = False
) -> list[Line]:
    """What a table shows.

    Args:
        rows: what `profile` found.
        depth: how deep submodules may be nested that are shown; None for all.
        sort: in call order, or with the largest number first: what a row adds that lasts, or its relative Delta.
        unfolded: give each row a line of its own.

    Returns:
        The lines; all rows that are nested no deeper are in one of them.

    Raises:
        UsageError: the depth is not positive, or the sort is unknown.
    """
    deepest = math.inf if depth is None else whole("depth", depth, 1)
    shown = [row for row in rows if row.depth <= deepest]
    if one_of("sort", sort, SORTS) != "order":
        worth: Callable[[LayerRow], Any] = attrgetter("relative" if sort == "delta" else "weight")
        shown.sort(key=lambda row: (not math.isnan(row.relative), worth(row)), reverse=True)
    if unfolded:
        return [Line((row,)) for row in shown]

    def reason(row: LayerRow) -> tuple[str, str]:
        if math.isnan(row.relative):
            return "that cannot be compared", row.note
        return "that add nothing" if row.keeps(opened=row.depth < deepest) and row.name != WHOLE else "", ""

    found: list[Line] = []
    for (why, note), run in groupby(shown, reason):
        alike = tuple(run)
        found += [Line(alike, why, note)] if why and len(alike) > 1 else [Line((row,)) for row in alike]
    rest = tuple(row for line in found[MOST_LINES:] for row in line.rows)
    return found if sort == "order" or not rest else [*found[:MOST_LINES], Line(rest, f"with less {sort}")]


def fitting_depth(rows: Sequence[LayerRow]) -> int:
    """The depth that shows most and is still read at a glance."""
    deepest = max((row.depth for row in rows), default=1)
    fitting = (depth for depth in range(deepest, 1, -1) if len(lines(rows, depth=depth)) <= MOST_LINES)
    return next(fitting, 1)


def profile_table(
    rows: Sequence[LayerRow],
    title: str = "layer profile",
    *,
    floor: float = 0.0,
    width: int = 80,
    depth: int | None = None,
    sort: Sort = "order",
    unfolded: bool = False,
) -> Text:
    """The table, its notes under it, and what adds most in one sentence; the arguments as in `lines`."""
    room = max(NARROWEST, width - sum(2 + abs(wide) for wide in COLUMNS.values()))
    most, notes = adds_most(rows, floor), dict[str, int]()
    table = Text(f"{title}\n\n")
    table.append(_cells("submodule", room, list(COLUMNS)) + "\n" + "─" * width + "\n")
    for line in lines(rows, depth=depth, sort=sort, unfolded=unfolded):
        row, *others = line.rows
        note = line.note or ("" if others else row.note)
        mark = f"[{notes.setdefault(note, len(notes) + 1)}]" if note else ""
        if others:
            words = f"  {len(line.rows)} {line.reason} {mark}".rstrip() + ": "
            each = max(NARROWEST, (width - len(words) - len(" to ")) // 2)
            table.append(f"{words}{short(row, each)} to {short(others[-1], each)}\n", "dim")
            continue
        change = row.change(opened=depth is None or row.depth < depth)
        lasts = row.lasting if change == row.own else math.nan  # of what a container holds, each lasts by itself
        numbers = [number(row.relative), *(_small(one, row.relative) for one in (change, lasts)), number(row.delta)]
        cells = [row.layer, SHORT.get(row.kind, row.kind) or "–", *numbers, mark]
        style = "bold" if row is most else "" if row.leaf else "dim"
        table.append(_cells(short(row, room), room, cells) + "\n", style)
    for note, place in notes.items():
        table.append(f"[{place}] {note}\n")
    table.append(f"\n{sentence(rows, floor)}")
    deeper = [row.depth for row in rows if depth is not None and row.depth > depth]
    if deeper:
        table.append(f"\n{len(deeper)} rows are nested deeper than {depth}: --depth {max(deeper)} shows them.")
    return table


def _small(value: float, relative: float) -> str:
    return "0" if value < relative / 1000 else number(value)


def _cells(name: str, room: int, cells: Sequence[str]) -> str:
    aligned = [
        f"{cell:>{wide}}" if wide > 0 else f"{cell if len(cell) <= -wide else cell[: -wide - 1] + '…':<{-wide}}"
        for cell, wide in zip(cells, COLUMNS.values(), strict=True)
    ]
    return "  ".join([f"{name:<{room}}", *aligned]).rstrip()


def short(row: LayerRow, room: int) -> str:
    """The row's name with as many of its last parts as there is room for, and at least one."""
    kept = row.name
    while len(row.title) - len(row.name) + len(kept) > room and "." in kept:
        kept = "…" + kept.removeprefix("…").partition(".")[2]
    return row.title.replace(row.name, kept)


def sentence(rows: Sequence[LayerRow], floor: float = 0.0) -> str:
    """What adds most, by its whole name."""
    most = adds_most(rows, floor)
    if all(math.isnan(row.own) for row in rows):
        return "What each layer adds cannot be told: the network cannot be run with other inputs to its layers."
    if most is None:
        return f"No layer adds to Δ: what each adds is not above the floor of the probe ({number(floor)})."
    who = f"{most.title} ({most.layer})"
    if most.layer == FUNCTIONS:
        who = f"What functions do {most.title}"
    elif not most.leaf:
        who = f"What {who} does with the outputs of its submodules"
    left = "" if math.isnan(most.lasting) else f", and leaves one of {number(most.lasting)} in the network's output"
    return f"{who} adds most: by itself it gives its output a relative Δ of {number(most.own)}{left}."
