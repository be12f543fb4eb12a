"""The README's first picture: accuracy against the size of the digits, for networks that were trained at one size.

    python docs/pictures/object_size.py reports/object-size

draws the picture from the rows in that folder; with --measure it trains the networks of the tutorial anew first.
"""

from __future__ import annotations

import runpy
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from picture_script import NO_BREAK, run, with_spread

from sesn.tools.drawing import STYLE
from sesn.tools.machine import machine_words, provenance

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "classifier.py"
TRAINED_AT, SIZES = 16, (8, 10, 12, 14, 16, 20, 24, 28, 32)
#: By method: the label, the colour (Okabe and Ito's palette) and line, the function that makes it, the training sizes.
NETWORKS: dict[str, tuple[str, str, str, str, tuple[int, ...]]] = {
    "sesn": (f"SESN, trained at {TRAINED_AT} pixels", "#0072B2", "-", "steerable", (TRAINED_AT,)),
    "cnn": (f"CNN, trained at {TRAINED_AT} pixels", "#D55E00", "-", "ordinary", (TRAINED_AT,)),
    "cnn-all-sizes": ("CNN, trained at all of these sizes", "0.55", "--", "ordinary", SIZES),
}


def measure(seeds: int = 5, epochs: int = 10, images: int = 640, sizes: Sequence[int] = SIZES) -> list[dict[str, Any]]:
    """One row per network and seed, which draws the weights, the split and the batches: the accuracy at every size."""
    torch.set_num_threads(1)
    example = SimpleNamespace(**runpy.run_path(str(EXAMPLE)))
    rows = []
    for method, (label, _, _, maker, trained) in NETWORKS.items():
        for seed in range(seeds):
            torch.manual_seed(seed)
            order = torch.randperm(len(example.labels))
            chosen, tested = order[:images], order[1000:]
            network, started = getattr(example, maker)(), time.process_time()
            example.train(network, chosen, trained, epochs)
            seconds = time.process_time() - started
            row = {"experiment": "object-size", "method": method, "label": label, "seed": seed, "epochs": epochs}
            row |= {"parameters": sum(each.numel() for each in network.parameters()), "trained_at": trained}
            row |= {"training_images": len(chosen), "test_images": len(tested), "training_cpu_seconds": seconds}
            found = [example.accuracy(network, tested, size) for size in sizes]
            rows.append({**row, "sizes": sizes, "accuracy": found, **provenance()})
    return rows


def accuracies(rows: list[dict[str, Any]], method: str, size: int) -> list[float]:
    """The accuracy of every seed at a size."""
    return [row["accuracy"][row["sizes"].index(size)] for row in rows if row["method"] == method]


def mean(rows: list[dict[str, Any]], method: str, size: int) -> str:
    """The mean over seeds as a whole number of per cent."""
    return f"{statistics.fmean(accuracies(rows, method, size)):.0f} %"


def sentence(rows: list[dict[str, Any]]) -> str:
    """What the README says of the picture."""
    ours, other = ([mean(rows, method, size) for size in (12, 24)] for method in ("sesn", "cnn"))
    return (
        f"Trained on digits of {TRAINED_AT} pixels only, a scale-equivariant network reads {ours[0]} of unseen digits "
        f"at 12 pixels and {ours[1]} at 24 pixels. An ordinary CNN with about as many parameters reads {other[0]} "
        f"and {other[1]}."
    )


def times(rows: list[dict[str, Any]]) -> str:
    """How many times as long as the CNN's the training of the SESN took."""
    found = {row["method"]: row["training_cpu_seconds"] for row in rows if row["seed"] == 0}
    return f"{found['sesn'] / found['cnn']:.0f} times as long"


def table(rows: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over seeds as the tutorial shows them, with what was trained on what."""
    shown = (8, 12, 16, 20, 24, 28, 32)
    lines = [["", *(f"{size}{NO_BREAK}px" for size in shown), "parameters"], ["---"] * (len(shown) + 2)]
    for method, (label, *_) in NETWORKS.items():
        cells = [with_spread(accuracies(rows, method, size)) for size in shown]
        lines.append([label, *cells, next(f"{row['parameters']:,}" for row in rows if row["method"] == method)])
    first, seeds = rows[0], len({row["seed"] for row in rows})
    caption = f"accuracy in per cent, mean ± standard deviation of {seeds} seeds; {first['training_images']} digits"
    caption += f" trained for {first['epochs']} epochs, {first['test_images']} others tested; {machine_words(first)}"
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n({caption})\n"


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Mean and spread over seeds against the size."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for method, (label, colour, line, *_) in NETWORKS.items():
            found = [accuracies(rows, method, size) for size in SIZES]
            lows, highs = [min(each) for each in found], [max(each) for each in found]
            axes.fill_between(SIZES, lows, highs, color=colour, alpha=0.18, lw=0)
            axes.plot(SIZES, [statistics.fmean(each) for each in found], line, color=colour, lw=2, label=label)
        axes.axvline(TRAINED_AT, color="0.6", lw=1, ls=":")
        axes.set(xlabel="size of the digits in pixels", ylabel="accuracy, %", ylim=(0, 101), xlim=(SIZES[0], SIZES[-1]))
        axes.set_xticks([8, 12, 16, 20, 24, 28, 32])
        axes.legend(loc="lower center", frameon=False, fontsize=9)
        seeds = len({row["seed"] for row in rows})
        axes.set_title(f"line: mean of {seeds} seeds; band: the lowest and the highest", fontsize=9, loc="left")
    return figure


if __name__ == "__main__":
    run(__doc__, "object-size", measure, draw, lambda rows: f"{sentence(rows)}\n\n{table(rows)}")
