"""What Delta is held against: the next image of a set, or one of the same spectrum. Prints the table of the docs.

python docs/pictures/unrelated.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from sesn import BandlimitedReLU, Meter, PartneredProjection, ScaleConv, ScaleGrid, ScaleLift, basis_a
from sesn.meter.compare import middle
from sesn.tools.images import image_set

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import zoo

SIDE, COUNT, SEEDS = 64, 8, 4
METER = Meter()


def score(seed: int) -> nn.Module:
    """A steerable network with scores that are invariant by construction."""
    torch.manual_seed(seed)
    grid = ScaleGrid.geometric(1.5, 2**0.5, 6)
    basis = basis_a(grid, "wide", 3, max_order=2)
    layers = [ScaleLift(1, 8, basis), BandlimitedReLU(), ScaleConv(8, 8, basis)]
    return zoo.scored(nn.Sequential(*layers, PartneredProjection(grid, side=SIDE, steps=2)), 8).eval()


def both(network: nn.Module, images: Tensor) -> tuple[float, float]:
    """The median relative Delta against the next image, and against one of the same spectrum."""
    with torch.no_grad():
        found = METER.branches(network, images, 1 / 2)
        others = found.direct.roll(-1, 0), found.unrelated()
        following, same = (METER.error(found, context=False, unrelated=other) for other in others)
    return middle(following.relative), middle(same.relative)


def main() -> None:
    """One row a network: over the seeds, the smallest of an ordinary one, the largest of a steerable one."""
    networks: dict[str, tuple[Callable[[int], nn.Module], Callable[..., float]]] = {
        name: (partial(zoo.ordinary, name, "random"), min) for name in zoo.ORDINARY
    }
    networks |= {"wide field": (partial(zoo.wide_field, 3), max), "partnered score": (score, max)}
    sets = [image_set(name, 1, SIDE, SIDE, COUNT)[0] for name in ("embedded", "1/f")]
    for name, (build, worst) in networks.items():
        cells = []
        for images in sets:
            found = [both(build(seed), images) for seed in range(SEEDS)]
            cells += [f"{worst(column):.2g}" for column in zip(*found, strict=True)]
        print("| " + " | ".join([name, *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
