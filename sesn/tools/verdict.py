"""What `check` found in words: a table with a column per downscale, a verdict, a sentence, and likely causes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn

from sesn import Finding, diagnose
from sesn.tools.check import Checked
from sesn.tools.machine import machine_line

#: Channel means that make Delta this many times smaller are worth a word: they inflate its denominator.
HIDDEN = 5.0
#: A Delta beyond this part of that of unrelated images is worth a word.
NEAR = 0.5
#: Downscales side by side in one table: what fits into 80 columns.
MOST_COLUMNS = 4


def number(value: float) -> str:
    """Two digits; a dash for what could not be measured."""
    return "–" if math.isnan(value) else f"{value:.1e}"


def verdict(result: Checked, tolerance: float | None) -> tuple[str, str]:
    """What to make of a result, and its colour: at the floor, within or above the tolerance, or nothing to compare."""
    median = result.delta.median
    if math.isnan(median) or result.empty():
        return "nothing to compare" if math.isnan(median) else "shows nothing", "red"
    if tolerance is not None and not median <= tolerance:
        return f"above {tolerance:g}", "red"
    if result.at_floor:
        return "at the floor", "green"
    return ("measured", "default") if tolerance is None else (f"within {tolerance:g}", "green")


def passes(result: Checked, tolerance: float | None) -> bool:
    """Whether the median Delta is within the tolerance, if there is one.

    What cannot be compared does not pass, nor what would show nothing.
    """
    median = result.delta.median
    return not math.isnan(median) and (tolerance is None or (median <= tolerance and not result.empty()))


#: The lines of the table: what they are called, and what they say of a result.
LINES: dict[str, Callable[[Checked], str]] = {
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


def _table(results: Sequence[Checked], title: str, tolerance: float | None) -> Table:
    # Plain text: the name of a file is no markup.
    table = Table(box=box.SIMPLE_HEAD, title=Text(title), pad_edge=False)
    table.add_column("downscale")
    for result in results:
        table.add_column(f"{result.downscale:.4g}", justify="right")
    for heading, text in LINES.items():
        table.add_row(heading, *(text(result) for result in results))
    table.add_row("verdict", *(Text(*verdict(result, tolerance)) for result in results))
    return table


def sentence(result: Checked, tolerance: float | None) -> str:
    """One result in words."""
    median, floor, unrelated = result.delta.median, result.median("floor"), result.median("ceiling")
    start = f"downscale {result.downscale:.4g}: "
    if math.isnan(median):
        silent = bool((result.first.energy == 0).any())
        lost = f"no scale channel is left to compare ({result.first.lost} lost)"
        return start + ("the output is zero: there is nothing to compare" if silent else lost)
    if result.at_floor:
        said = f"Δ {number(median)} is at the floor ({number(floor)}): it cannot be told from zero"
    else:
        said = f"Δ {number(median)} is {median / floor:.3g} times the floor" if floor else f"Δ {number(median)}"
    if empty := result.empty():
        said += f"; but {empty}: it shows nothing"
    elif tolerance is not None:
        said += f"; {'within' if passes(result, tolerance) else 'ABOVE'} the tolerance {tolerance:g}"
    if median > NEAR * unrelated and not empty:
        said += f"; unrelated images differ by {number(unrelated)}, hardly more"
    if not result.first.on_grid:
        said += "; between two scales of the grid, compared with the nearest"
    if result.median("centred") > HIDDEN * median and not result.at_floor:
        said += f"; without the channels' means it is {number(result.median('centred'))}: a bias or a mean hides it"
    return start + said


def likely_causes(module: nn.Module, images: Tensor, results: Sequence[Checked]) -> list[str]:
    """What is diagnosed, each cause once with its evidence at the worst downscale, and at which downscales it shows."""
    found: dict[str, tuple[Finding, set[float]]] = {}
    for result in sorted(results, key=lambda result: result.delta.median, reverse=True):
        for finding in diagnose(module, images, result.first):
            found.setdefault(finding.cause, (finding, set()))[1].add(result.downscale)
    listed = [(finding, ", ".join(f"{one:.4g}" for one in sorted(shown))) for finding, shown in found.values()]
    return [f"{finding} (downscale {downscales})" for finding, downscales in listed]


def say(
    console: Console,
    target: str,
    how: str,
    results: Sequence[Checked],
    tolerance: float | None,
    causes: Sequence[str],
) -> None:
    """The table, how it was measured, the verdict in words, and the likely causes."""
    for start in range(0, len(results), MOST_COLUMNS):
        console.print(_table(results[start : start + MOST_COLUMNS], "" if start else f"Δ of {target}", tolerance))
    console.print(Text(f"{how}\n{machine_line()}"))
    for result in results:
        console.print(Text(sentence(result, tolerance)))
        if result.repetition is not None:
            console.print(Text(f"  {result.repetition.reason}"))
    if causes:
        console.print(Text("What the numbers and the layers point to:", style="bold"))
    for cause in causes:
        console.print(Padding(Text(f"- {cause}"), (0, 0, 0, 2)))
