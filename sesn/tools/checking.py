"""`sesn check`, behind its options: load the module, measure, say what was found, write what was asked for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text
from torch import Tensor, nn

from sesn import Finding, Meter, diagnose
from sesn._checks import require
from sesn.tools.arguments import check_sizes, parse_crop, parse_downscales, parse_grid, parse_input
from sesn.tools.images import image_set
from sesn.tools.machine import machine_line
from sesn.tools.measure import BATCH, Result, measure, steps
from sesn.tools.output import Output
from sesn.tools.progress import progress_bar
from sesn.tools.table import number, passes, tables
from sesn.tools.target import load_factory, measuring

#: The shape of the JSON; a change of its keys raises it.
FORMAT = 2
#: Channel means that make Delta this many times smaller are worth a word: they inflate its denominator.
HIDDEN = 5.0
#: A Delta beyond this part of that of unrelated images is worth a word.
NEAR = 0.5


@dataclass(frozen=True)
class Settings:
    """What was asked for on the command line."""

    target: str
    input: str
    downscale: str
    images: str = "embedded"
    count: int | None = None
    data: Path | None = None
    resampler: str = "lanczos3"
    kind: str = "auto"
    crop: str = "auto"
    ends: str = "auto"
    grid: str | None = None
    draws: int = 1
    tolerance: float | None = None
    seed: int = 0
    json: Path | None = None
    picture: Path | None = None
    force: bool = False

    def __post_init__(self) -> None:
        _ = self.meter, self.output  # a bad value is refused before anything runs
        check_sizes(self.shape, self.downscales, self.count, BATCH)
        if self.tolerance is not None:
            require(self.tolerance >= 0, "tolerance", self.tolerance, "at least 0")

    @cached_property
    def meter(self) -> Meter:
        """How to measure."""
        words: Any = {"resampler": self.resampler, "kind": self.kind, "ends": self.ends}
        return Meter(**words, crop=parse_crop(self.crop), grid=parse_grid(self.grid))

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return parse_input(self.input)

    @cached_property
    def downscales(self) -> list[float]:
        """1/s each."""
        return parse_downscales(self.downscale)

    @cached_property
    def output(self) -> Output:
        """Where to write."""
        return Output(self.json, self.picture, self.force)


@dataclass(frozen=True)
class Report:
    """What was found."""

    settings: Settings
    module: nn.Module
    images: Tensor
    images_name: str
    results: list[Result]
    started: str
    seconds: float

    @property
    def passes(self) -> bool:
        """Whether every downscale is within the tolerance, if there is one."""
        return all(passes(result, self.settings.tolerance) for result in self.results)

    @cached_property
    def findings(self) -> list[str]:
        """Likely causes in words: each once, with its evidence at the worst downscale, and where else it shows."""
        evidence: dict[str, Finding] = {}
        shown: dict[str, list[float]] = {}
        for result in sorted(self.results, key=lambda result: result.delta.median, reverse=True):
            for finding in diagnose(self.module, self.images, result.first):
                evidence.setdefault(finding.cause, finding)
                shown.setdefault(finding.cause, []).append(result.downscale)
        return [f"{finding} (downscale {_listed(shown[cause])})" for cause, finding in evidence.items()]

    def document(self) -> dict[str, Any]:
        """Everything as plain data: raw values of every weight draw and image; `Output` adds where they come from."""
        return {
            "format": FORMAT,
            "settings": asdict(self.settings),
            "images": self.images_name,
            "module": repr(self.module),
            "passes": self.passes,
            "results": [result.row() for result in self.results],
            "diagnosis": self.findings,
            "started": self.started,
            "seconds": self.seconds,
        }


def check(settings: Settings, console: Console, progress: Console | None = None) -> Report:
    """Measure, print to `console`, show a progress bar on `progress`, and write the files that were asked for.

    Nothing is written unless all was measured and drawn.
    """
    factory = load_factory(settings.target)
    # The same draw serves every downscale: building may mean reading weights from a file.
    build = lru_cache(maxsize=1)(lambda draw: factory(settings.seed + draw))
    images, name = image_set(settings.images, *settings.shape, settings.count, settings.seed, settings.data)
    with measuring(settings.target, images, build):
        report = measured(settings, build, images, name, progress)
        say(report, console)
        for path in write(report):
            console.print(Text(f"wrote {path}"))
    return report


def measured(
    settings: Settings,
    build: Callable[[int], nn.Module],
    images: Tensor,
    name: str,
    progress: Console | None = None,
) -> Report:
    """Measure the module of every weight draw on the images."""
    downscales = settings.downscales
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    with progress_bar(progress, steps(len(images), len(downscales), settings.draws)) as on_step:
        results = measure(build, images, downscales, settings.meter, settings.draws, on_step)
    return Report(settings, build(0), images, name, results, started, time.perf_counter() - clock)


def say(report: Report, console: Console) -> None:
    """The table, the verdict and the likely causes."""
    settings = report.settings
    for table in tables(report.results, f"Δ of {settings.target}", settings.tolerance):
        console.print(table)
    console.print(Text(f"{report.images_name}; {settings.meter}; in eval mode\n{machine_line()}"))
    for result in report.results:
        console.print(Text(sentence(result, settings.tolerance)))
        if result.repetition is not None:
            console.print(Text(f"  {result.repetition.reason}"))
    if report.findings:
        console.print(Text("What the numbers and the layers point to:", style="bold"))
    for finding in report.findings:
        console.print(Padding(Text(f"- {finding}"), (0, 0, 0, 2)))


def _listed(downscales: Sequence[float]) -> str:
    return ", ".join(f"{downscale:.4g}" for downscale in sorted(set(downscales)))


def sentence(result: Result, tolerance: float | None) -> str:
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


def write(report: Report) -> list[Path]:
    """The JSON and the picture, if they were asked for."""

    def drawn() -> Any:
        from sesn.tools.picture import draw

        return draw(report.module, report.images, report.results)

    return report.settings.output.write(report.document(), drawn)
