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
from sesn.meter.action import GroupElement
from sesn.tools.check import Checked
from sesn.tools.machine import machine_line
from sesn.tools.statistics import Summary

#: Channel means that make Delta this many times smaller are worth a word: they inflate its denominator.
HIDDEN = 5.0
#: From this relative Delta on a network is hardly better than chance, and from 1 on no better.
NEAR = 0.9
#: Images that change much when they are rescaled, and what to know of all others.
STRICT = ("1/f", "white")
LENIENT = (
    "These images are a lenient test: an ordinary network may pass a loose tolerance on smooth images or pictures, but "
    "fail on --images 1/f, the default."
)
#: Downscales side by side in one table: what fits into 80 columns.
MOST_COLUMNS = 4


def number(value: float) -> str:
    """Two digits; a dash for what could not be measured."""
    return "–" if math.isnan(value) else f"{value:.1e}"


def verdict(result: Checked, tolerance: float | None, absolute: bool = False) -> tuple[str, str]:
    """What to make of a result, and its colour: at the floor, within or above the tolerance, or nothing to compare."""
    if math.isnan(result.delta.median) or result.empty(absolute=absolute):
        return "nothing to compare" if math.isnan(result.delta.median) else "shows nothing", "red"
    if not passes(result, tolerance, absolute):
        return f"above {tolerance:g}", "red"
    if result.at_floor:
        return "at the floor", "green"
    return ("measured", "default") if tolerance is None else (f"within {tolerance:g}", "green")


def passes(result: Checked, tolerance: float | None, absolute: bool = False) -> bool:
    """Whether the median relative Delta (or Delta itself) is within the tolerance, if there is one.

    What cannot be compared does not pass, nor what would show nothing.
    """
    limit = math.inf if tolerance is None else tolerance
    return not math.isnan(result.delta.median) and (
        result.judged(absolute=absolute) <= limit and not result.empty(absolute=absolute)
    )


def decibels(value: float) -> str:
    """With one decimal; infinite where there is no error, and a dash for what could not be measured."""
    return "–" if math.isnan(value) else "∞ dB" if value == math.inf else f"{value:.1f} dB"


def _interval(values: Summary) -> str:
    """From low to high; of one value there is none."""
    return f"{number(values.low)} .. {number(values.high)}" if values.n > 1 else "–"


#: The lines of the table: what they are called, and what they say of a result.
LINES: dict[str, Callable[[Checked], str]] = {
    "relative Δ": lambda r: number(r.relative.median),
    "  95 % interval": lambda r: _interval(r.relative),
    "  of fine detail": lambda r: number(r.median("relative_detail")),
    "Δ median": lambda r: "at the floor" if r.at_floor else number(r.delta.median),
    "  95 % interval of Δ": lambda r: _interval(r.delta),
    "  95th percentile": lambda r: number(r.delta.p95),
    "  largest": lambda r: number(r.delta.max),
    "  in decibels": lambda r: decibels(r.median("decibels")),
    "  PSNR of the map": lambda r: decibels(r.median("psnr_of_map")),
    "Δ of all channels": lambda r: number(r.median("all")),
    "Δ without means": lambda r: number(r.median("centred")),
    "floor of the probe": lambda r: number(r.median("floor")),
    "unrelated images": lambda r: number(r.median("ceiling")),
    "  without means": lambda r: number(r.median("ceiling_centred")),
    "energy of L_s Φ(f)": lambda r: number(r.median("energy")),
    "scales lost": lambda r: str(r.first.lost) if r.first.kind in ("field", "scale") else "–",
    "crop, pixels": lambda r: f"{r.first.crop}{', measured' if r.first.measured else ''}",
    "weight draws": lambda r: str(r.delta.draws),
}


def _table(results: Sequence[Checked], title: str, tolerance: float | None, absolute: bool) -> Table:
    # Plain text: the name of a file is no markup.
    table = Table(box=box.SIMPLE_HEAD, title=Text(title), pad_edge=False)
    table.add_column(results[0].first.element.named[0])
    for result in results:
        table.add_column(result.first.element.named[1], justify="right")
    for heading, text in LINES.items():
        table.add_row(heading, *(text(result) for result in results))
    table.add_row("verdict", *(Text(*verdict(result, tolerance, absolute)) for result in results))
    return table


def sentence(result: Checked, tolerance: float | None, absolute: bool = False) -> str:
    """One result in words."""
    delta, floor, relative = result.delta.median, result.median("floor"), result.relative.median
    start = f"{result.moved}: "
    if math.isnan(delta):
        silent = bool((result.first.energy == 0).any())
        lost = f"no scale channel is left to compare ({result.first.lost} lost)"
        return start + ("the output is zero: there is nothing to compare" if silent else lost)
    if empty := result.empty(absolute=absolute):
        return f"{start}Δ {number(delta)}, but {empty}: it shows nothing"
    said = f"relative Δ {number(relative)}, {_nearness(result)}"
    if absolute:
        said += f"; judged by Δ itself, {number(delta)}"
    if tolerance is not None:
        said += f"; {_held(result, tolerance, absolute)}"
    if result.at_floor and not passes(result, tolerance, absolute):
        said += f", which the probe's own floor ({number(floor)}) keeps any network from meeting: choose a larger one"
    if not result.first.on_grid:
        said += "; between two scales of the grid, compared with the nearest"
    if result.median("centred") > HIDDEN * delta and delta < relative and not result.at_floor:
        said += f"; Δ itself is only {number(delta)}, because the means of the channels, such as a bias, are large: "
        said += f"without them it is {number(result.median('centred'))}"
    return start + said


def _held(result: Checked, tolerance: float, absolute: bool) -> str:
    """How a result compares with a tolerance, and what decides where it is not the relative Delta."""
    if passes(result, tolerance, absolute):
        return f"within the tolerance {tolerance:g}"
    fine = not absolute and result.relative.median <= tolerance
    detail = f" in fine detail, whose relative Δ is {number(result.judged())}" if fine else ""
    return f"ABOVE the tolerance {tolerance:g}{detail}"


def _nearness(result: Checked) -> str:
    """What a relative Delta means, in plain words."""
    relative = result.relative.median
    if result.at_floor:
        return f"at the floor of the probe ({number(result.median('floor'))}): it cannot be told from zero"
    if relative >= NEAR:
        return "no better than chance" if relative >= 1 else "hardly better than chance"
    return f"{100 * relative:.2g} % of what unrelated images give"


def leniency(images: str) -> list[str]:
    """What to know of a verdict that was reached on smooth images; nothing of any other."""
    return [] if images in STRICT else [LENIENT]


def likely_causes(module: nn.Module, images: Tensor, results: Sequence[Checked]) -> list[str]:
    """What is diagnosed, each cause once with its evidence where Delta is worst, and where it shows."""
    found: dict[str, tuple[Finding, set[GroupElement]]] = {}
    for result in sorted(results, key=lambda result: result.delta.median, reverse=True):
        for finding in diagnose(module, images, result.first):
            found.setdefault(finding.cause, (finding, set()))[1].add(result.first.element)
    order = [result.first.element for result in results]
    listed = [(finding, [one.named for one in order if one in shown]) for finding, shown in found.values()]
    return [
        f"{finding.on_the_command_line()} ({shown[0][0]} {', '.join(amount for _, amount in shown)})"
        for finding, shown in listed
    ]


def say(
    console: Console,
    target: str,
    how: str,
    results: Sequence[Checked],
    tolerance: float | None,
    causes: Sequence[str],
    absolute: bool = False,
) -> None:
    """The table, how it was measured, the verdict in words, and the likely causes."""
    for start in range(0, len(results), MOST_COLUMNS):
        shown, title = results[start : start + MOST_COLUMNS], "" if start else f"Δ of {target}"
        console.print(_table(shown, title, tolerance, absolute))
    console.print(Text(f"{how}\n{machine_line()}"))
    for result in results:
        console.print(Text(sentence(result, tolerance, absolute)))
        if result.repetition is not None:
            console.print(Text(f"  {result.repetition.reason}"))
    if measured := results[0].first.measured:
        said = f"how far these layers look is not known and was measured: {', '.join(measured)}"
        console.print(Text(said))
    if causes:
        console.print(Text("What the numbers and the layers point to:", style="bold"))
    for cause in causes:
        console.print(Padding(Text(f"- {cause}"), (0, 0, 0, 2)))
