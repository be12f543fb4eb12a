"""The rectifiers' benchmark: what a plain, a band-limited and a nested ReLU cost, and a layer between two of them."""

from __future__ import annotations

import statistics

import torch
from rich.table import Table
from torch import nn

from harness.bench.layers import WIDE, step_of
from harness.stopwatch import interleave, peak_bytes
from sesn import BandlimitedReLU, NestedReLU, ScaleConv

CHANNELS = 16
#: Sides of maps, and the smaller ones that the nested ReLU is exact at.
SIDES = {48: (34,), 96: (68,), 192: (136, 96, 68)}


def rectifiers(side: int) -> dict[str, nn.Module]:
    """By name, with the layer between two of them for comparison."""
    return {
        "ReLU": nn.ReLU(),
        "band-limited": BandlimitedReLU(),
        "band-limited, circular": BandlimitedReLU("circular"),
        "nested": NestedReLU([side, *SIDES[side]]),
        "nested, oversample 1": NestedReLU([side, *SIDES[side]], oversample=1),
        "ScaleConv": ScaleConv(CHANNELS, CHANNELS, WIDE, bias=False),
    }


def rectifier_table(rounds: int, device: torch.device, sides: tuple[int, ...] = tuple(SIDES)) -> Table:
    """Milliseconds and peak memory of forward and backward on a field of one image."""
    table = Table("side (and smaller sizes)", title=f"rectifiers, {CHANNELS} channels: milliseconds (peak MB)")
    for name in rectifiers(sides[0]):
        table.add_column(name, justify="right")
    for side in sides:
        x = torch.randn(1, CHANNELS, len(WIDE.grid), side, side, device=device, requires_grad=True)
        steps = {name: step_of(module.to(device), x) for name, module in rectifiers(side).items()}
        samples = interleave(steps, rounds, device)
        cells = [
            f"{statistics.median(samples[name]):.1f} ({peak_bytes(step, device) / 2**20:.0f})"
            for name, step in steps.items()
        ]
        table.add_row(f"{side} ({', '.join(map(str, SIDES[side]))})", *cells)
    return table
