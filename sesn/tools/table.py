"""What was measured, as a table for a terminal: a column per downscale, a line per quantity."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from sesn.tools.measure import Result

#: Downscales side by side in one table: what fits into 80 columns.
MOST_COLUMNS = 4


def number(value: float) -> str:
    """Two digits; a dash for what could not be measured."""
    return "–" if math.isnan(value) else f"{value:.1e}"


def verdict(result: Result, tolerance: float | None) -> tuple[str, str]:
    """What to make of a result, and its colour: at the floor, within or above the tolerance, or nothing to compare."""
    median = result.delta.median
    if math.isnan(median) or result.empty():
        return "nothing to compare" if math.isnan(median) else "shows nothing", "red"
    if tolerance is not None and not median <= tolerance:
        return f"above {tolerance:g}", "red"
    if result.at_floor:
        return "at the floor", "green"
    return ("measured", "default") if tolerance is None else (f"within {tolerance:g}", "green")


def passes(result: Result, tolerance: float | None) -> bool:
    """Whether the median Delta is within the tolerance, if there is one.

    What cannot be compared does not pass, nor what would show nothing.
    """
    if math.isnan(result.delta.median):
        return False
    return tolerance is None or (result.delta.median <= tolerance and not result.empty())


#: The lines of the table: what they are called, and what they say of a result.
LINES: dict[str, Callable[[Result], str]] = {
    "Δ median": lambda r: "at the floor" if r.at_floor else number(r.delta.median),
    "  95 % interval": lambda r: f"{number(r.delta.low)} .. {number(r.delta.high)}",
    "  95th percentile": lambda r: number(r.delta.p95),
    "  largest": lambda r: number(r.delta.max),
    "Δ of all channels": lambda r: number(r.median("all")),
    "Δ without means": lambda r: number(r.median("centred")),
    "floor of the probe": lambda r: number(r.median("floor")),
    "unrelated images": lambda r: number(r.median("ceiling")),
    "energy of L_s Φ(f)": lambda r: number(r.median("energy")),
    "scales lost": lambda r: str(r.first.lost) if r.first.kind in ("field", "scale") else "–",
    "crop, pixels": lambda r: str(r.first.crop),
    "weight draws": lambda r: str(r.delta.draws),
}


def tables(results: Sequence[Result], title: str, tolerance: float | None = None) -> Iterator[Table]:
    """One table, or several under each other for many downscales."""
    for start in range(0, len(results), MOST_COLUMNS):
        yield _table(results[start : start + MOST_COLUMNS], title if start == 0 else "", tolerance)


def _table(results: Sequence[Result], title: str, tolerance: float | None) -> Table:
    # Plain text: the name of a file is no markup.
    table = Table(box=box.SIMPLE_HEAD, title=Text(title), pad_edge=False)
    table.add_column("downscale")
    for result in results:
        table.add_column(f"{result.downscale:.4g}", justify="right")
    for heading, text in LINES.items():
        table.add_row(heading, *(text(result) for result in results))
    table.add_row("verdict", *(Text(*verdict(result, tolerance)) for result in results))
    return table
