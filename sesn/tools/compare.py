"""`compare`: the relative Delta of several networks over the change of scale, on the same images."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn

from sesn import Meter
from sesn._checks import require
from sesn.errors import UsageError
from sesn.tools.check import DEFAULT, Checked, check
from sesn.tools.verdict import NEAR, number, passes, verdict

#: Half octaves: the downscales of a curve, if nothing else is said. Those of most scale grids are among them.
USUAL_CURVE = (2**0.5, 2.0, 2**1.5, 4.0)
USUAL_FACTORS = tuple(1 / downscale for downscale in USUAL_CURVE)
#: Of a longer name the end is kept, which says most.
LONGEST_NAME = 32


@dataclass(frozen=True)
class Compared:
    """One network: what was measured at each factor, or why nothing was."""

    name: str
    results: tuple[Checked, ...] = ()
    parameters: int = 0
    failure: str = ""

    def passes(self, tolerance: float | None = None) -> bool:
        """Whether it was measured and every relative Delta shows something and is within the tolerance, if any."""
        return bool(self.results) and all(passes(result, tolerance) for result in self.results)

    @property
    def worst(self) -> Checked:
        """The result with the largest relative Delta, or one that could not be compared."""
        return max(self.results, key=lambda found: (not passes(found, None), found.relative.median))

    @property
    def decisive(self) -> Checked:
        """The result that is farthest from passing."""
        return max(self.results, key=lambda found: (not passes(found, None), found.judged()))

    def row(self, tolerance: float | None = None) -> dict[str, Any]:
        """Everything as plain data."""
        kept = {name: getattr(self, name) for name in ("name", "parameters", "failure")}
        return {**kept, "passes": self.passes(tolerance), "results": [result.row() for result in self.results]}


def compare(
    networks: Mapping[str, nn.Module],
    images: Tensor,
    factors: Iterable[float] = USUAL_FACTORS,
    meter: Meter = DEFAULT,
    on_step: Callable[[float], None] = lambda part: None,
) -> list[Compared]:
    """Measure several networks on the same images; one that refuses them says why, and the others are measured.

    Args:
        networks: in eval mode, by the name that tables and pictures give them.
        images: zero-mean images [n, c, h, w].
        factors: s each; below 1 shrinks.
        meter: how to measure.
        on_step: told which part of the work was done now; the parts sum to 1.

    Example:
        >>> from sesn.tools.images import random_images
        >>> networks = {"exact": nn.Identity(), "grey": nn.Conv2d(3, 1, 1)}
        >>> found = compare(networks, random_images(0, (2, 1, 48, 48)), [1 / 2])
        >>> [(one.name, one.passes(1e-3), bool(one.failure)) for one in found]
        [('exact', True, False), ('grey', False, True)]
    """
    several = [*factors]

    def advance(part: float) -> None:
        on_step(part / len(networks))

    return [compare_one(name, network, images, several, meter, advance) for name, network in networks.items()]


def compare_one(
    name: str,
    module: nn.Module,
    images: Tensor,
    factors: Sequence[float],
    meter: Meter = DEFAULT,
    on_step: Callable[[float], None] = lambda part: None,
    measuring: AbstractContextManager[None] | None = None,
) -> Compared:
    """Measure one of the networks; `measuring` makes a UsageError of what it does wrong."""
    done = 0.0

    def advance(part: float) -> None:
        nonlocal done
        done += part
        on_step(part)

    try:
        with measuring or nullcontext():
            found = check(module, images, factors, meter, on_step=advance)
            return Compared(name, tuple(found), sum(each.numel() for each in module.parameters()))
    except UsageError as refusal:
        on_step(1 - done)
        return Compared(name, failure=str(refusal))


def each_network(told: Mapping[str, Sequence[str]], count: int) -> list[dict[str, Any]]:
    """The options of each of so many networks: "2:VALUE" is for the second alone, and comes before what is for all.

    Example:
        >>> each_network({"output": ["logits", "2:features"]}, 2)
        [{'output': 'logits'}, {'output': 'features'}]
    """
    for name, values in told.items():
        for value in values:
            rule = f"for one of the {count} networks"
            require(_numbered_value(value)[0] <= count, name.rstrip("_"), value, rule, "for example 1:VALUE")
    return [{name: _of_network(place, name, values) for name, values in told.items()} for place in range(1, count + 1)]


def _of_network(place: int, name: str, values: Sequence[str]) -> Any:
    """What an option is for one network."""
    parts = [(number, value) for number, value in map(_numbered_value, values) if number in (0, place)]
    if name == "with_":
        return _arguments(parts)
    own = [value for number, value in parts if number] or [value for _, value in parts]
    require(len(own) <= 1, name, own, f"one value for network {place}")
    return None if not own else Path(own[0]) if name == "weights" else own[0]


def _numbered_value(text: str) -> tuple[int, str]:
    """The number of the network that a value is for, 0 for all, and the value."""
    number, colon, value = text.partition(":")
    return (int(number), value) if colon and number.isdecimal() and int(number) else (0, text)


def _arguments(parts: Sequence[tuple[int, str]]) -> list[str]:
    """Arguments, in which those for one network take the place of those for all of the same name."""
    own = {value.partition("=")[0] for number, value in parts if number}
    return [value for number, value in parts if number or value.partition("=")[0] not in own]


def short_names(targets: Sequence[str]) -> list[str]:
    """What tells the targets apart in few letters: the name, the file with it, or all; the same one is numbered."""
    forms = [
        [name, f"{PurePath(origin).stem}:{name}", text]
        for text in targets
        for origin, _, name in [text.rpartition(":")]
    ]
    shortest = []
    for own in forms:
        told = (form for place, form in enumerate(own) if [other[place] for other in forms].count(form) == 1)
        shortest.append(next(told, own[-1]))
    return numbered([one if len(one) <= LONGEST_NAME else f"…{one[1 - LONGEST_NAME :]}" for one in shortest])


def numbered(names: Sequence[str]) -> list[str]:
    """The names, those that are the same told apart by numbers."""
    times, met, found = Counter(names), Counter[str](), []
    for name in names:
        met[name] += 1
        found.append(f"{name} ({met[name]})" if times[name] > 1 else name)
    return found if len({*found}) == len(found) else numbered(found)


def compare_table(found: Sequence[Compared], tolerance: float | None = None) -> Table:
    """The networks for a terminal, two lines each: the relative Delta at each downscale, and Delta itself."""
    digits = _digits(found)
    columns = sorted({_heading(result, digits) for one in found for result in one.results}, key=float)
    table = Table(box=box.SIMPLE_HEAD, title="relative Δ by downscale, and Δ itself", pad_edge=False)
    table.add_column("network", overflow="fold")
    for heading in ("parameters", *columns, "verdict"):
        table.add_column(heading, justify="right", no_wrap=heading in columns)
    for one in found:
        if one.failure:
            table.add_row(Text(one.name), "–", *["–"] * len(columns), Text("not measured", "red"))
            continue
        at = {_heading(result, digits): result for result in one.results}
        shown = [at.get(column) for column in columns]
        relative = [number(result.relative.median) if result else "" for result in shown]
        delta = [number(result.delta.median) if result else "" for result in shown]
        table.add_row(Text(one.name), f"{one.parameters:,}", *relative, Text(*verdict(one.decisive, tolerance)))
        table.add_row("  Δ itself", "", *delta, "", style="dim")
    return table


def _heading(result: Checked, digits: int = 4) -> str:
    return f"{result.downscale:.{digits}g}"


def _digits(found: Sequence[Compared]) -> int:
    """How many digits the headings have: fewer than four where networks then share all columns (1.412 and 1.414)."""
    most = max((len(one.results) for one in found), default=0)
    for digits in (4, 3, 2):
        apart = [{_heading(result, digits) for result in one.results} for one in found]
        if len(set().union(*apart)) == most and all(
            len(a) == len(one.results) for a, one in zip(apart, found, strict=True)
        ):
            return digits
    return 4


def sentences(found: Sequence[Compared], tolerance: float | None = None) -> list[str]:
    """What was found in words: why a network was not measured, which is nearest to equivariance, and who passes."""
    said = [f"{one.name} could not be measured: {one.failure}" for one in found if one.failure]
    known = [one for one in found if one.results and not math.isnan(one.worst.relative.median)]
    if len(known) > 1:
        best = min(known, key=lambda one: one.worst.relative.median)
        worst = f"{number(best.worst.relative.median)} at downscale {_heading(best.worst)}"
        nearest = f"{best.name} is nearest to equivariance: its relative Δ is at most {worst} (1 is chance)"
        none = f"no network is near equivariance: the relative Δ of the best, {best.name}, is {worst} (1 is chance)"
        said.append(nearest if best.worst.relative.median < NEAR else none)
    between = {one.name: [_heading(r) for r in one.results if not r.first.on_grid] for one in found}
    said += [
        f"{name} at downscale {', '.join(at)}: between two scales of its grid, compared with the nearest, which alone "
        "gives a large Δ"
        for name, at in between.items()
        if at
    ]
    silent = {one.name: [_heading(r) for r in one.results if not passes(r, None)] for one in found}
    said += [
        f"{name} shows nothing at downscale {', '.join(at)}: it does not pass" for name, at in silent.items() if at
    ]
    if tolerance is not None:
        above = [one.name for one in found if one.results and not one.passes(tolerance)]
        told = f"not within the tolerance {tolerance:g}: {', '.join(above)}"
        said.append(told if above else f"all that were measured are within the tolerance {tolerance:g}")
    return said
