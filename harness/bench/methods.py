"""The method benchmark: a training step of every MNIST-scale network, its nominal work, and the times of the paper."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from harness.stopwatch import StepTimes, keep_freed_memory, time_training
from sesn.methods import REFERENCE, Method, method, methods_on
from sesn.methods.outside import check
from sesn.tools.consoles import progress_bar
from sesn.tools.machine import machine_line

RESOLUTIONS = (28, 56)
PAPER = Path(__file__).parents[1] / "paper" / "epoch_time.csv"
HEADINGS = ("method", "step ms", "x CNN", "work M", "x CNN", "time/work", "peak MB", "paper s", "x CNN", "goals")
#: Columns of a printed table where there is no terminal to fit.
WIDTH = 120

Key = tuple[str, int]


@dataclass(frozen=True)
class MethodTimes:
    """What was measured of one network, and what the paper prints.

    Attributes:
        method: whose network it is.
        resolution: 28 or 56.
        milliseconds: of a step, round by round; `reference` those of the CNN in the same rounds.
        work, reference_work: nominal multiply-adds per image.
        memory: peak bytes of a step.
        seconds, reference_seconds: the paper's epoch.
    """

    method: Method
    resolution: int
    milliseconds: Sequence[float]
    reference: Sequence[float]
    work: int
    reference_work: int
    memory: int
    seconds: float
    reference_seconds: float

    @property
    def time_ratio(self) -> float:
        """The median of the ratios within rounds: what slows a whole round down cancels."""
        return statistics.median(a / b for a, b in zip(self.milliseconds, self.reference, strict=True))

    @property
    def work_ratio(self) -> float:
        """Nominal multiply-adds over the CNN's."""
        return self.work / self.reference_work

    @property
    def slowness(self) -> float:
        """How much longer a nominal multiply-add takes than the CNN's."""
        return self.time_ratio / self.work_ratio

    def goals(self) -> list[tuple[str, bool]]:
        """Each goal in words, and whether it was met."""
        found = []
        if bound := self.method.goals.work:
            found.append((f"time/work <= {bound:g}", self.slowness <= bound))
        if bound := self.method.goals.times.get(self.resolution, 0.0):
            found.append((f"<= {bound:g} x CNN", self.time_ratio <= bound))
        return found


def run_methods(
    rounds: int, threads: int, device: str, only: str, batch: int, methods: Sequence[str] = ()
) -> list[MethodTimes]:
    """Time every method at both resolutions in one interleaved run, and print a table for each."""
    torch.set_num_threads(threads)
    where, console = torch.device(device), Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    results = measure_methods(rounds, where, only, batch, console, methods)
    console.print(
        f"training steps (zero_grad, forward, cross-entropy, backward, Adam) of batch {batch}, float32, recipe paper, "
        f"medians of {rounds} interleaved rounds; work: nominal multiply-adds per image, in millions; "
        f"{machine_line(where)}"
    )
    for resolution in RESOLUTIONS:
        console.print(_table(resolution, [one for one in results if one.resolution == resolution]))
    return results


def measure_methods(
    rounds: int,
    device: torch.device,
    only: str,
    batch: int,
    progress: Console | None = None,
    methods: Sequence[str] = (),
) -> list[MethodTimes]:
    """Build the networks (and the CNN's) whose key contains `only`, time them in turn, then take their memory.

    Of the `methods` if some are named, by key or as FILE.py:NAME.
    """
    networks = _networks(only, device, [method(name).key for name in methods])
    keep_freed_memory()
    named = {f"{key}/{size}": network for (key, size), network in networks.items()}
    with progress_bar(progress, rounds + 1 + len(named), "timing steps") as advance:
        times = time_training(named, [_digits(batch, device)], device, rounds, on_part=lambda _done: advance(1))
    return [_times(key, size, times) for key, size in networks]


def _networks(only: str, device: torch.device, keys: Sequence[str]) -> dict[Key, nn.Module]:
    wanted = [row for row in methods_on("mnist") if only in row.key and (not keys or row.key in keys)]
    chosen = dict.fromkeys([method(REFERENCE), *wanted])
    for row in chosen:
        if row.digest:
            check(row)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {
            (row.key, size): row.build("mnist", "paper", resolution=size).to(device)
            for size in RESOLUTIONS
            for row in chosen
        }


def _digits(batch: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise will do: the time of a step does not depend on the images."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 1, 28, 28, generator=generator)
    return images.to(device), torch.randint(0, 10, (batch,), generator=generator).to(device)


def _times(key: str, size: int, times: Mapping[str, StepTimes]) -> MethodTimes:
    own, reference, seconds = times[f"{key}/{size}"], times[f"{REFERENCE}/{size}"], paper_seconds()
    measured = own.milliseconds, reference.milliseconds, own.work, reference.work, own.memory
    return MethodTimes(method(key), size, *measured, seconds.get((key, size), math.nan), seconds[REFERENCE, size])


def paper_seconds() -> dict[Key, float]:
    """The published seconds of an epoch, by method and resolution."""
    with PAPER.open(encoding="utf-8", newline="") as lines:
        return {(row["method"], int(row["resolution"])): float(row["value"]) for row in csv.DictReader(lines)}


def _table(resolution: int, results: Sequence[MethodTimes]) -> Table:
    table = Table(title=f"{resolution} x {resolution}", box=None)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("method", "goals") else "right", no_wrap=True)
    for one in results:
        table.add_row(*_cells(one))
    return table


def _cells(one: MethodTimes) -> list[str]:
    return [
        one.method.label_on("mnist"),
        f"{statistics.median(one.milliseconds):.0f}",
        f"{one.time_ratio:.2f}",
        f"{one.work / 1e6:.1f}",
        f"{one.work_ratio:.2f}",
        f"{one.slowness:.2f}",
        f"{one.memory / 2**20:.0f}",
        "" if math.isnan(one.seconds) else f"{one.seconds:.1f}",
        "" if math.isnan(one.seconds) else f"{one.seconds / one.reference_seconds:.2f}",
        ", ".join(f"{words} {'met' if met else 'MISSED'}" for words, met in one.goals()),
    ]
