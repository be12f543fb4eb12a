"""The layer benchmark: our layers against the textbook form, a filter bank, and direct wide convolution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from harness.bench.printing import table_console
from harness.stopwatch import Step, interleave, peak_bytes
from sesn import ScaleConv, ScaleGrid, ScaleLift, SteerableBasis, basis_a, basis_b
from sesn.algorithms import ALGORITHMS, padded_convolution
from sesn.tools.machine import machine_line

MNIST = basis_b(ScaleGrid([1.7, 2.45, 3.54, 5.1]), 15, 7, mult=1.5)
STL10 = basis_a(ScaleGrid.geometric(0.9, 1.41, 3), 7, 3)
WIDE = basis_a(ScaleGrid.geometric(1.5, math.sqrt(2), 3), "wide", 3, max_order=2)


@dataclass(frozen=True)
class LayerCase:
    """One layer shape: `kind` lift or conv, `side` of the map; `group` says which target applies."""

    group: str
    kind: str
    batch: int
    in_channels: int
    out_channels: int
    side: int
    basis: SteerableBasis

    @property
    def name(self) -> str:
        """For example "MNIST lift 1->32 at 28"."""
        return f"{self.group} {self.kind} {self.in_channels}->{self.out_channels} at {self.side}"

    def layer(self, algorithm: str, device: torch.device) -> ScaleLift | ScaleConv:
        """The layer of this case, with the same weights whatever the algorithm."""
        torch.manual_seed(0)
        make = ScaleLift if self.kind == "lift" else ScaleConv
        return make(self.in_channels, self.out_channels, self.basis, bias=False, algorithm=algorithm, device=device)  # type: ignore[arg-type]

    def inputs(self, device: torch.device) -> Tensor:
        """A random input; only a grey image needs no gradient, since it can only be the first layer's."""
        scales = () if self.kind == "lift" else (len(self.basis.grid),)
        x = torch.randn(self.batch, self.in_channels, *scales, self.side, self.side, device=device)
        return x.requires_grad_(self.in_channels > 1)


CASES = (
    LayerCase("MNIST", "lift", 64, 1, 32, 28, MNIST),
    LayerCase("MNIST", "lift", 64, 32, 63, 14, MNIST),
    LayerCase("MNIST", "lift", 64, 63, 95, 7, MNIST),
    LayerCase("MNIST", "conv", 64, 32, 63, 14, MNIST),
    LayerCase("MNIST", "conv", 64, 63, 95, 7, MNIST),
    LayerCase("STL-10", "conv", 8, 128, 128, 48, STL10),
    LayerCase("STL-10", "conv", 8, 256, 256, 24, STL10),
)
WIDE_CASES = (
    LayerCase("wide", "conv", 32, 64, 64, 14, WIDE),
    LayerCase("wide", "conv", 16, 32, 32, 28, WIDE),
    LayerCase("wide", "conv", 4, 32, 32, 48, WIDE),
    LayerCase("wide", "conv", 2, 16, 16, 96, WIDE),
)
WAYS = tuple(name for name in ALGORITHMS if name != "auto")
#: Target name -> (at least or at most, bound).
TARGETS = {
    "textbook / auto, each MNIST shape": (">=", 1.5),
    "textbook / auto, MNIST conv, geometric mean": (">=", 3.0),
    "textbook / auto, each STL-10 shape": (">=", 1.3),
    "dense / filter bank, each shape": ("<=", 1.15),
    "auto / best algorithm, each shape": ("<=", 1.1),
    "separable / dense peak memory, each shape": ("<=", 2.0),
    "auto / dense peak memory, each shape": ("<=", 2.0),
    "direct / separable, each wide shape": (">=", 10.0),
}


def run_tables(rounds: int, threads: int, device: str, only: str) -> None:
    """Time every case, print the tables and whether each target was met in this run."""
    torch.set_num_threads(threads)
    where = torch.device(device)
    console = table_console()
    narrow = [case for case in CASES if only in case.name]
    wide = [case for case in WIDE_CASES if only in case.name]
    results = {case: _measure(case, rounds, where) for case in track(narrow, "layers", console=console)}
    results |= {case: _measure(case, max(3, rounds // 3), where) for case in track(wide, "wide", console=console)}
    console.print(f"forward + backward, float32, medians of {rounds} interleaved rounds; {machine_line(where)}")
    if narrow:
        console.print(_table(narrow, results, ("auto", *WAYS, "textbook", "bank")))
    if wide:
        console.print(_table(wide, results, ("separable", "direct")))
    console.print(_target_table(results))


# --- what the layers are compared with, written as plainly as possible


class Textbook(nn.Module):
    """The obvious form: every scale's kernel padded to V x V, one convolution, grouped by scale for H -> H."""

    functions: Tensor

    def __init__(self, layer: ScaleLift | ScaleConv) -> None:
        super().__init__()
        self.weight = nn.Parameter(layer.weight.detach().clone().flatten(1, -2))
        self.lift = isinstance(layer, ScaleLift)
        self.stride = layer.stride
        self.register_buffer("functions", layer.basis.functions.to(layer.weight), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[b, c(, s), h, w] -> [b, c', s, h', w']."""
        kernel = torch.einsum("oin,nsyx->osiyx", self.weight, self.functions)
        o, s, i, v, _ = kernel.shape
        if self.lift:
            y = padded_convolution(x, kernel.reshape(o * s, i, v, v), stride=self.stride, padding=(v // 2, v // 2))
            return y.reshape(y.shape[0], o, s, *y.shape[2:])
        grouped = x.transpose(1, 2).flatten(1, 2)
        kernel = kernel.transpose(0, 1).reshape(s * o, i, v, v)
        y = padded_convolution(grouped, kernel, stride=self.stride, padding=(v // 2, v // 2), groups=s)
        return y.reshape(y.shape[0], s, o, *y.shape[2:]).transpose(1, 2)


class FilterBank(nn.Module):
    """An ordinary CNN layer with as many filters, C_out per scale with its taps: equal nominal multiply-adds."""

    def __init__(self, layer: ScaleLift | ScaleConv) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(layer.in_channels, layer.out_channels, box, layer.stride, box // 2, bias=False)
            for box in layer.basis.boxes
        )

    def forward(self, x: Tensor) -> Tensor:
        """[b, c, h, w] -> [b, c' s, h', w']."""
        return torch.cat([convolution(x) for convolution in self.convolutions], dim=1)


# --- the measurement


@dataclass(frozen=True)
class LayerTimes:
    """Milliseconds of each contestant round by round, and its peak bytes."""

    samples: dict[str, list[float]]
    memory: dict[str, int]

    def time(self, name: str) -> float:
        """The median."""
        return statistics.median(self.samples[name])

    def ratio(self, slow: str, fast: str) -> float:
        """The median over rounds of the ratio within a round: what slows a whole round down cancels."""
        return statistics.median(a / b for a, b in zip(self.samples[slow], self.samples[fast], strict=True))


def step_of(module: nn.Module, x: Tensor) -> Step:
    """Forward and backward of a module on one input."""
    with torch.no_grad():
        gradient = torch.randn_like(module(x))

    def step() -> None:
        x.grad = None
        module.zero_grad(set_to_none=True)
        module(x).backward(gradient)

    return step


def _measure(case: LayerCase, rounds: int, device: torch.device) -> LayerTimes:
    x, wide = case.inputs(device), case.group == "wide"
    layers = {name: case.layer(name, device) for name in (("separable",) if wide else ("auto", *WAYS))}
    flat = x if x.dim() == 4 else x.detach()[:, :, 0].contiguous().requires_grad_(x.requires_grad)
    steps = {name: step_of(layer, x) for name, layer in layers.items()}
    if wide:
        # The dense algorithm's idea without its cropping: the whole window, scale by scale.
        steps["direct"] = step_of(FilterBank(layers["separable"]).to(device), flat)
    else:
        steps["textbook"] = step_of(Textbook(layers["dense"]).to(device), x)
        steps["bank"] = step_of(FilterBank(layers["dense"]).to(device), flat)
    samples = interleave(steps, rounds, device)
    return LayerTimes(samples, {name: peak_bytes(step, device) for name, step in steps.items()})


def _table(cases: Sequence[LayerCase], results: dict[LayerCase, LayerTimes], names: Sequence[str]) -> Table:
    table = Table("case", title="milliseconds (peak MB)")
    for name in names:
        table.add_column(name, justify="right")
    for case in cases:
        result = results[case]
        cells = [f"{result.time(name):.1f} ({result.memory[name] / 2**20:.0f})" for name in names]
        table.add_row(f"{case.name}, batch {case.batch}", *cells)
    return table


def _ratios(results: dict[LayerCase, LayerTimes]) -> dict[str, list[float]]:
    """The measured ratios behind each target."""
    found: dict[str, list[float]] = {name: [] for name in TARGETS}
    for case, result in results.items():
        memory = result.memory
        if case.group == "wide":
            found["direct / separable, each wide shape"].append(result.ratio("direct", "separable"))
            continue
        speedup = result.ratio("textbook", "auto")
        found[f"textbook / auto, each {case.group} shape"].append(speedup)
        if case.group == "MNIST" and case.kind == "conv":
            found["textbook / auto, MNIST conv, geometric mean"].append(speedup)
        found["dense / filter bank, each shape"].append(result.ratio("dense", "bank"))
        best = min(WAYS, key=result.time)
        found["auto / best algorithm, each shape"].append(result.ratio("auto", best))
        for way in ("separable", "auto"):
            found[f"{way} / dense peak memory, each shape"].append(memory[way] / memory["dense"])
    return found


def _target_table(results: dict[LayerCase, LayerTimes]) -> Table:
    table = Table("ratio", "target", "measured", "worst", "met", title="targets")
    for name, values in _ratios(results).items():
        if not values:
            continue
        sense, bound = TARGETS[name]
        shown = [statistics.geometric_mean(values)] if name.endswith("geometric mean") else values
        worst = min(shown) if sense == ">=" else max(shown)
        met = worst >= bound if sense == ">=" else worst <= bound
        listed = " ".join(f"{value:.2f}" for value in shown)
        table.add_row(name, f"{sense} {bound}", listed, f"{worst:.2f}", "yes" if met else "NO")
    return table
