"""The benchmark of choices: how near `auto` comes to the best algorithm, timed by `sesn.tuning` and by the model alone.

The shapes are drawn. Each is timed twice: by `sesn.tuning`, which chooses, and then anew, all contestants in turn,
to judge. No time that chose judges.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.progress import track
from rich.table import Table
from torch import Tensor

from harness.bench.layers import MNIST, STL10, WIDE, step_of
from harness.bench.printing import table_console
from harness.stopwatch import Step, interleave, keep_freed_memory
from sesn import ScaleConv, ScaleGrid, ScaleLift, SteerableBasis, basis_a, tuning
from sesn.algorithms.choose import Mode
from sesn.algorithms.decide import candidates_on
from sesn.algorithms.memory import Memory, named, remembering
from sesn.tools.machine import machine_line

#: Windows small and wide, few functions and many.
BASES = {
    "7 pixels": STL10,
    "11 pixels": basis_a(ScaleGrid.geometric(1.2, 1.41, 3), 11, 3),
    "15 pixels": MNIST,
    "27 pixels": basis_a(ScaleGrid.geometric(1.0, math.sqrt(2), 4), "wide", 3),
    "29 pixels": WIDE,
}
CHANNELS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
SIDES = (14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
#: Multiply-adds of the longer of the textbook's convolution and the mixing: enough to be timed, and no long wait.
LEAST_WORK, MOST_WORK = 4e6, 5e8
#: The most responses of the separable algorithm.
MOST_RESPONSES = 3e7
#: Who chose, the most times the best algorithm's time that it may take, and on which share of the shapes.
TARGETS = {"measured": (1.1, 0.95), "model": (1.5, 0.90)}


@dataclass(frozen=True)
class DrawnShape:
    """A layer, its input and what is computed. A lift of one or three channels takes an image, without a gradient."""

    kind: str
    basis_name: str
    interscale: int
    in_channels: int
    out_channels: int
    side: int
    batch: int
    stride: int
    border: str
    mode: Mode

    @property
    def basis(self) -> SteerableBasis:
        """The steerable functions."""
        return BASES[self.basis_name]

    @property
    def name(self) -> str:
        """For example "lift 3->16 at 28, 7 pixels, batch 4, stride 2, forward"."""
        seen = f" K_S {self.interscale}," if self.interscale > 1 else ""
        step = f" stride {self.stride}," if self.stride > 1 else ""
        border = f" {self.border}," if self.border != "zeros" else ""
        place = f"{self.kind} {self.in_channels}->{self.out_channels} at {self.side}, {self.basis_name},{seen}"
        return f"{place} batch {self.batch},{step}{border} {self.mode}"

    @property
    def is_timely(self) -> bool:
        """Whether every algorithm takes long enough to be timed, and none keeps one waiting."""
        positions = self.batch * math.ceil(self.side / self.stride) ** 2
        pairs = positions * self.in_channels * self.out_channels * self.interscale
        dense = pairs * sum(box**2 for box in self.basis.boxes)
        mixing = pairs * len(self.basis) * len(self.basis.grid)
        pixels = self.batch * self.in_channels * self.interscale * self.side**2
        heavy = pixels * len(self.basis) * len(self.basis.grid) > MOST_RESPONSES
        return min(dense, mixing) >= LEAST_WORK and max(dense, mixing) <= MOST_WORK and not heavy

    def layer(self, algorithm: str, device: torch.device) -> ScaleLift | ScaleConv:
        """The layer, with the same weights whatever the algorithm."""
        options: dict[str, Any] = {"stride": self.stride, "padding_mode": self.border, "algorithm": algorithm}
        torch.manual_seed(0)
        if self.kind == "lift":
            layer: ScaleLift | ScaleConv = ScaleLift(self.in_channels, self.out_channels, self.basis, **options)
        else:
            layer = ScaleConv(self.in_channels, self.out_channels, self.basis, interscale=self.interscale, **options)
        return layer.to(device).train(self.mode != "forward")

    def inputs(self, device: torch.device) -> Tensor:
        """A random input."""
        scales = () if self.kind == "lift" else (len(self.basis.grid),)
        x = torch.randn(self.batch, self.in_channels, *scales, self.side, self.side, device=device)
        return x.requires_grad_(self.mode == "gradients")

    def step(self, layer: ScaleLift | ScaleConv, x: Tensor) -> Step:
        """What is timed."""
        if self.mode != "forward":
            return step_of(layer, x)

        def step() -> None:
            with torch.no_grad():
                layer(x)

        return step


def drawn_shapes(count: int, seed: int = 0) -> list[DrawnShape]:
    """So many different shapes of layers as networks have them, and some odd ones."""
    draws, found = random.Random(seed), dict[DrawnShape, None]()
    while len(found) < count:
        shape = _drawn(draws)
        if shape.is_timely:
            found[shape] = None
    return list(found)


def _drawn(draws: random.Random) -> DrawnShape:
    kind = draws.choice(("lift", "conv"))
    first = kind == "lift" and draws.random() < 0.5  # the first layer of a network, on grey or coloured images
    computed: Mode = "weights" if first else "gradients"
    return DrawnShape(
        kind=kind,
        basis_name=draws.choice(tuple(BASES)),
        interscale=1 if kind == "lift" else draws.randint(1, 3),
        in_channels=draws.choice((1, 3) if first else CHANNELS),
        out_channels=draws.choice(CHANNELS),
        side=draws.choice(SIDES),
        batch=draws.choice(BATCHES),
        stride=draws.choice((1, 1, 1, 2)),
        border=draws.choice(("zeros",) * 6 + ("circular",)),
        mode=draws.choice((computed, "forward")),
    )


@dataclass(frozen=True)
class ChoiceTimes:
    """Of one shape: the least milliseconds of every algorithm and of both choices, and what these chose."""

    shape: DrawnShape
    ways: tuple[str, ...]
    least: dict[str, float]
    chosen: dict[str, str]

    def ratio(self, chooser: str) -> float:
        """The time of a choice over that of the best algorithm."""
        return self.least[chooser] / min(self.least[way] for way in self.ways)


def measure_choice(shape: DrawnShape, rounds: int, device: torch.device) -> ChoiceTimes:
    """Let `sesn.tuning` choose, and then time everything anew."""
    x, known, nothing = shape.inputs(device), Memory(), Memory()
    auto = shape.layer("auto", device)
    with remembering(known), tuning():
        shape.step(auto, x)()
        measured = auto.plan(x.shape, mode=shape.mode)
    with remembering(nothing):
        model = auto.plan(x.shape, mode=shape.mode)
    ways = candidates_on(device)
    steps = {str(way): shape.step(shape.layer(way, device), x) for way in ways}
    steps |= {name: _with(memory, shape.step(auto, x)) for name, memory in (("measured", known), ("model", nothing))}
    samples = interleave(steps, rounds, device, warmup=1)
    chosen = {"measured": named(measured.algorithms), "model": named(model.algorithms)}
    return ChoiceTimes(shape, ways, {name: min(times) for name, times in samples.items()}, chosen)


def _with(memory: Memory, step: Step) -> Step:
    def run() -> None:
        with remembering(memory):
            step()

    return run


def run_choices(count: int, rounds: int, threads: int, device: str) -> list[ChoiceTimes]:
    """Time the drawn shapes, print them and the shares on which each chooser came near enough to the best."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    where, console = torch.device(device), table_console()
    shapes = drawn_shapes(count)
    results = [measure_choice(shape, rounds, where) for shape in track(shapes, "shapes", console=console)]
    console.print(f"{count} shapes, float32, least of {rounds} interleaved rounds; {machine_line(where)}")
    console.print(shape_table(results))
    console.print(target_table(results))
    return results


def shape_table(results: Sequence[ChoiceTimes]) -> Table:
    """Milliseconds of every algorithm, and the ratios of both choices with what they chose."""
    table = Table("shape", title="milliseconds; choice / best algorithm")
    for way in results[0].ways:
        table.add_column(way, justify="right")
    for chooser in TARGETS:
        table.add_column(f"{chooser} / best", justify="right")
    table.add_column("chosen by timing (by the model)")
    for result in results:
        times = [f"{result.least[way]:.2f}" for way in result.ways]
        ratios = [f"{result.ratio(chooser):.2f}" for chooser in TARGETS]
        measured, model = (_short(result.chosen[chooser]) for chooser in ("measured", "model"))
        table.add_row(result.shape.name, *times, *ratios, measured if measured == model else f"{measured} ({model})")
    return table


def _short(ways: str) -> str:
    """A list of algorithms by their first three letters."""
    return " ".join(way[:3] for way in ways.split(", ")) if "," in ways else ways


def shares(results: Sequence[ChoiceTimes]) -> dict[str, float]:
    """Of each chooser, the share of shapes on which it took at most so many times the time of the best."""
    return {
        chooser: sum(result.ratio(chooser) <= bound for result in results) / len(results)
        for chooser, (bound, _) in TARGETS.items()
    }


def target_table(results: Sequence[ChoiceTimes]) -> Table:
    """The shares, and whether they are what they should be."""
    table = Table("chosen by", "within", "share of shapes", "target", "worst", "met", title="targets")
    for chooser, share in shares(results).items():
        bound, target = TARGETS[chooser]
        worst = max(result.ratio(chooser) for result in results)
        met = "yes" if share >= target else "NO"
        table.add_row(chooser, f"{bound} x best", f"{share:.1%}", f"{target:.0%}", f"{worst:.2f}", met)
    return table
