"""The method benchmark: a training step of every MNIST-scale network, its nominal work, and the times of the paper."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from harness.bench.printing import table_console
from harness.stopwatch import StepTimes, keep_freed_memory, time_training
from sesn.methods import REFERENCE, Method, method, methods_on
from sesn.methods.outside import check
from sesn.tools.consoles import progress_bar
from sesn.tools.machine import machine_line

RESOLUTIONS = (28, 56)
PAPER = Path(__file__).parents[1] / "paper" / "epoch_time.csv"
HEADINGS = ("method", "step ms", "x CNN", "work M", "x CNN", "time/work", "peak MB", "paper s", "x CNN", "goals")


@dataclass(frozen=True)
class MethodTimes:
    """What was measured of a method's network at 28 or 56 pixels, and of the CNN in the same rounds."""

    method: Method
    resolution: int
    own: StepTimes
    reference: StepTimes

    @property
    def time_ratio(self) -> float:
        """The median of the ratios within rounds: what slows a whole round down cancels."""
        rounds = zip(self.own.milliseconds, self.reference.milliseconds, strict=True)
        return statistics.median(own / reference for own, reference in rounds)

    @property
    def work_ratio(self) -> float:
        """Nominal multiply-adds over the CNN's."""
        return self.own.work / self.reference.work

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
    where, console = torch.device(device), table_console()
    results = measure_methods(rounds, where, only, batch, console, methods)
    console.print(
        f"training steps (zero_grad, forward, cross-entropy, backward, Adam) of batch {batch}, float32, recipe paper, "
        f"medians of {rounds} interleaved rounds; work: nominal multiply-adds per image, in millions; "
        f"{machine_line(where)}"
    )
    for resolution in RESOLUTIONS:
        table = Table(title=f"{resolution} x {resolution}", box=None)
        for heading in HEADINGS:
            table.add_column(heading, justify="left" if heading in ("method", "goals") else "right", no_wrap=True)
        for one in results:
            if one.resolution == resolution:
                table.add_row(*_cells(one))
        console.print(table)
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
    # Noise will do: the time of a step does not depend on the images.
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 1, 28, 28, generator=generator).to(device)
    labels = torch.randint(0, 10, (batch,), generator=generator).to(device)
    named = {f"{row.key}/{size}": network for (row, size), network in networks.items()}
    with progress_bar(progress, rounds + 1 + len(named), "timing steps") as advance:
        times = time_training(named, [(images, labels)], device, rounds, on_part=lambda _done: advance(1))
    return [MethodTimes(row, size, times[f"{row.key}/{size}"], times[f"{REFERENCE}/{size}"]) for row, size in networks]


def _networks(only: str, device: torch.device, keys: Sequence[str]) -> dict[tuple[Method, int], nn.Module]:
    wanted = [row for row in methods_on("mnist") if only in row.key and (not keys or row.key in keys)]
    chosen = dict.fromkeys([method(REFERENCE), *wanted])
    for row in chosen:
        if row.digest:
            check(row)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {
            (row, size): row.build("mnist", "paper", resolution=size).to(device)
            for size in RESOLUTIONS
            for row in chosen
        }


def paper_seconds() -> dict[tuple[str, int], float]:
    """The published seconds of an epoch, by method and resolution."""
    with PAPER.open(encoding="utf-8", newline="") as lines:
        return {(row["method"], int(row["resolution"])): float(row["value"]) for row in csv.DictReader(lines)}


def _cells(one: MethodTimes) -> list[str]:
    published = paper_seconds()
    seconds, reference = (published.get((key, one.resolution), math.nan) for key in (one.method.key, REFERENCE))
    return [
        one.method.label_on("mnist"),
        f"{statistics.median(one.own.milliseconds):.0f}",
        f"{one.time_ratio:.2f}",
        f"{one.own.work / 1e6:.1f}",
        f"{one.work_ratio:.2f}",
        f"{one.slowness:.2f}",
        f"{one.own.memory / 2**20:.0f}",
        "" if math.isnan(seconds) else f"{seconds:.1f}",
        "" if math.isnan(seconds) else f"{seconds / reference:.2f}",
        ", ".join(f"{words} {'met' if met else 'MISSED'}" for words, met in one.goals()),
    ]
