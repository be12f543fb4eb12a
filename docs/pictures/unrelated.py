"""What Delta is held against: the next image of a set, or one of the same spectrum; and on which images.

    python docs/pictures/unrelated.py reports/unrelated

prints the table of the page "Checking your network" from the rows in that folder; with --measure it measures them anew
first.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from picture_script import run
from torch import Tensor, nn

from sesn import BandlimitedReLU, Meter, PartneredProjection, ScaleConv, ScaleGrid, ScaleLift, basis_a
from sesn.meter.compare import middle
from sesn.tools.images import image_set
from sesn.tools.machine import machine_words, provenance

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import zoo

SIDE = 64
METER = Meter()
#: The images, and what the table calls them.
SETS = {"embedded": "photographs", "1/f": "1/f", "white": "white"}
#: The columns of the table: the images, and what Delta is of and held against.
COLUMNS = [(name, kind) for name in ("embedded", "1/f") for kind in ("next_image", "same_spectrum", "fine_detail")]
COLUMNS += [("white", "same_spectrum")]


def score(seed: int) -> nn.Module:
    """A steerable network with scores that are invariant by construction."""
    torch.manual_seed(seed)
    grid = ScaleGrid.geometric(1.5, 2**0.5, 6)
    basis = basis_a(grid, "wide", 3, max_order=2)
    layers = [ScaleLift(1, 8, basis), BandlimitedReLU(), ScaleConv(8, 8, basis)]
    return zoo.scored(nn.Sequential(*layers, PartneredProjection(grid, side=SIDE, steps=2)), 8).eval()


def small(seed: int) -> nn.Module:
    """One convolution of the least size that there is."""
    torch.manual_seed(seed)
    return nn.Conv2d(1, 8, 3, padding=1).eval()


#: By name: what builds a network from a seed, and whether it is steerable.
NETWORKS: dict[str, tuple[Callable[[int], nn.Module], bool]] = {
    "one 3 x 3 convolution": (small, False),
    **{name: (partial(zoo.ordinary, name, "random"), False) for name in zoo.ORDINARY},
    "wide field": (partial(zoo.wide_field, 3), True),
    "partnered score": (score, True),
}


def each(network: nn.Module, images: Tensor) -> dict[str, float]:
    """The median relative Delta against the next image, against one of the same spectrum, and of fine detail."""
    with torch.no_grad():
        found = METER.branches(network, images, 1 / 2)
        others = found.direct.roll(-1, 0), found.unrelated()
        following, same = (METER.error(found, context=False, unrelated=other) for other in others)
    return {
        "next_image": middle(following.relative),
        "same_spectrum": middle(same.relative),
        "fine_detail": middle(same.relative_detail),
    }


def plain(value: float) -> float | None:
    """As JSON has it: scores have no fine detail."""
    return None if math.isnan(value) else value


def measure(seeds: int = 4, count: int = 8) -> list[dict[str, Any]]:
    """A row for each network and set of images: the relative Delta of each draw of the weights, against either."""
    rows = []
    for method, (build, steerable) in NETWORKS.items():
        for name in SETS:
            images, label = image_set(name, 1, SIDE, SIDE, count)
            draws = [each(build(seed), images) for seed in range(seeds)]
            found = {kind: [plain(draw[kind]) for draw in draws] for kind in draws[0]}
            row = {"experiment": "unrelated", "method": method, "steerable": steerable, "set": name, "images": label}
            rows.append({**row, "downscale": 2, **found, **provenance()})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """What the page shows: of all draws the smallest for an ordinary network, the largest for a steerable one."""
    heads = [f"{SETS[name]}, {kind.replace('_', ' ')}" for name, kind in COLUMNS]
    lines = [["network", *heads], ["---"] * (1 + len(heads))]
    for method in NETWORKS:
        cells = []
        for name, kind in COLUMNS:
            [row] = [one for one in rows if (one["method"], one["set"]) == (method, name)]
            worst = max if row["steerable"] else min
            cells.append("–" if None in row[kind] else f"{worst(row[kind]):.2g}")
        lines.append([method, *cells])
    first = rows[0]
    caption = f"downscale 2, {len(first['next_image'])} draws of the weights; {machine_words(first)}"
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n({caption})\n"


if __name__ == "__main__":
    run(__doc__, "unrelated", measure, words=table)
