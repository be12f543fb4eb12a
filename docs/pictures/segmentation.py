"""The picture and the table of the tutorial on segmentation: discs and rings found at sizes that were not trained.

    python docs/pictures/segmentation.py reports/segmentation

draws the picture from the rows in that folder; with --measure it trains the networks of the tutorial anew first.
"""

from __future__ import annotations

import runpy
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from picture_script import run, with_spread

from sesn.tools.drawing import STYLE
from sesn.tools.machine import machine_words, provenance

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "segmentation.py"
TRAINED_AT, RADII, SHOWN = 5, (3, 4, 5, 6, 7, 8, 10), (5, 8, 10)
NETWORKS = {"sesn": ("SESN", "steerable"), "cnn": ("CNN", "ordinary")}


def measure(seeds: int = 3, steps: int = 150, radii: Sequence[int] = RADII) -> list[dict[str, Any]]:
    """One row per network and seed, which draws the weights: the overlap at every radius, and one scene at some."""
    torch.set_num_threads(1)
    example, rows = runpy.run_path(str(EXAMPLE)), []
    for method, (label, maker) in NETWORKS.items():
        for seed in range(seeds):
            torch.manual_seed(seed)
            network, started = example[maker](), time.process_time()
            example["train"](network, TRAINED_AT, steps)
            row = {"experiment": "segmentation", "method": method, "label": label, "seed": seed, "steps": steps}
            row |= {"training_cpu_seconds": time.process_time() - started, "trained_at": TRAINED_AT, "radii": radii}
            row |= {"parameters": sum(each.numel() for each in network.parameters())}
            row |= {"overlap": [example["overlap"](network, radius) for radius in radii]}
            row |= {"found": [_found(example, network, radius) for radius in SHOWN]}
            rows.append({**row, **provenance()})
    return rows


@torch.no_grad()
def _found(example: dict[str, Any], network: torch.nn.Module, radius: int) -> list[list[int]]:
    [image], _ = example["scenes"](1, radius, seed=2000)
    classes: list[list[int]] = network.eval()(image[None]).argmax(dim=1)[0].tolist()
    return classes


def table(rows: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over seeds as the tutorial shows them."""
    lines = [["", *(f"radius {radius}" for radius in RADII), "parameters"], ["---"] * (len(RADII) + 2)]
    for method, (label, _) in NETWORKS.items():
        mine = [row for row in rows if row["method"] == method]
        cells = [with_spread(each) for each in zip(*(row["overlap"] for row in mine), strict=True)]
        lines.append([label, *cells, f"{mine[0]['parameters']:,}"])
    first, seeds = rows[0], len({row["seed"] for row in rows})
    caption = f"intersection over union in per cent, mean ± standard deviation of {seeds} seeds; {first['steps']} steps"
    caption += f" at radius {first['trained_at']}; {machine_words(first)}"
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n({caption})\n"


def draw(rows: list[dict[str, Any]]) -> Figure:
    """One scene at three sizes: the truth, and what each network found with the first seed."""
    example = runpy.run_path(str(EXAMPLE))
    truth = [example["scenes"](1, radius, seed=2000)[1][0].tolist() for radius in SHOWN]
    lines = {"truth": truth} | {row["label"]: row["found"] for row in rows if row["seed"] == 0}
    colours = mpl.colors.ListedColormap(["#F2F2F2", "#0072B2", "#D55E00"])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.4, 5.6), layout="constrained")
        for row, (label, maps) in enumerate(lines.items()):
            for column, (radius, classes) in enumerate(zip(SHOWN, maps, strict=True)):
                axes = figure.add_subplot(len(lines), len(SHOWN), row * len(SHOWN) + column + 1)
                axes.imshow(classes, cmap=colours, vmin=0, vmax=2, interpolation="nearest")
                axes.set(xticks=[], yticks=[])
                axes.set_ylabel(label if column == 0 else "")
                if row == 0:
                    trained = ", as trained" if radius == TRAINED_AT else ""
                    axes.set_title(f"radius {radius}{trained}", fontsize=9)
    return figure


if __name__ == "__main__":
    run(__doc__, "segmentation", measure, draw, table)
