"""A task that trains in milliseconds, for tests of the training loop; subprocesses import it too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from harness.data.tensors import LabelledImages
from harness.experiment import Context
from harness.experiments.training import mnist_schedule, sgd, stl10_schedule
from harness.records import Cell, Measurement
from harness.run.training import trainer
from harness.run.training.cells import train
from harness.run.training.job import Datasets, Job, generator
from harness.stopwatch import adam

SIDE, CLASSES = 6, 3


def cell(network: str = "full", recipe: str = "adam", **settings: str | int | float | bool) -> Cell:
    """45 images in batches of 16: three steps an epoch, the last one on 13 images."""
    usual = {"network": network, "optimizer": recipe, "epochs": 3, "batch": 16, "rate": 0.01, "images": 45}
    return Cell("tiny", 1, "smoke", "cnn", {**usual, **settings}, seed=5)


def images(count: int, purpose: str) -> LabelledImages:
    """Noise with a brighter stripe, whose place is the class."""
    draws = generator(purpose)
    labels = torch.randint(CLASSES, (count,), generator=draws)
    pixels = torch.randint(0, 128, (count, SIDE, SIDE), generator=draws, dtype=torch.uint8)
    for place in range(CLASSES):
        pixels[labels == place, 2 * place : 2 * place + 2] += 60
    return LabelledImages(pixels, labels, f"{count} tiny images to {purpose}")


def batch(pixels: Tensor, draws: torch.Generator | None) -> Tensor:
    """Normalised, and with a generator darkened at random."""
    values = pixels[:, None].float() / 255 - 0.25
    return values if draws is None else values * (0.5 + torch.rand(len(values), 1, 1, 1, generator=draws))


NETWORKS: dict[str, Callable[[], list[nn.Module]]] = {
    "plain": lambda: [],
    "norm": lambda: [nn.BatchNorm2d(4)],
    "full": lambda: [nn.BatchNorm2d(4), nn.Dropout(0.3)],
}


def job(cell: Cell, root: Path | None) -> Job:
    """One convolution, what the cell's "network" says, and a linear layer."""
    between = NETWORKS[str(cell.settings["network"])]()
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), *between, nn.Flatten(), nn.Linear(4 * SIDE**2, CLASSES)]
    stored = images(int(cell.settings["images"]), "train")
    validated = cell.settings["optimizer"] == "adam"
    data = Datasets(stored, images(40, "test"), batch, True, images(30, "validate") if validated else None)
    rate, epochs = float(cell.settings["rate"]), int(cell.settings["epochs"])
    schedule = (mnist_schedule if validated else stl10_schedule)(rate, epochs)
    optimizer = partial(adam if validated else sgd, rate=rate)
    return Job(nn.Sequential(*layers), data, schedule, int(cell.settings["batch"]), optimizer)


def values(found: list[Measurement]) -> dict[tuple[str, str], tuple[float, ...]]:
    """All that must not depend on when a run was interrupted: everything but times."""
    return {(one.metric, str(dict(one.at))): one.values for one in found if one.metric != "epoch_time"}


def curve(found: list[Measurement], metric: str) -> tuple[float, ...]:
    return next(one.values for one in found if one.metric == metric)


def train_and_die(scratch: Path, moment: str, count: int) -> None:
    """Train `cell()`, and be killed the `count`-th time that a step ends or that a file is written through."""
    import os
    import signal

    left = [count]

    def maybe_die() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    really_sync = os.fsync

    def sync(handle: int) -> None:
        maybe_die()
        really_sync(handle)

    if moment == "write":
        os.fsync = sync
    trainer.CHECKPOINT_SECONDS = 0.0
    train(job, cell(), Context(scratch=scratch, on_progress=lambda *_: maybe_die() if moment == "step" else None))


if __name__ == "__main__":
    train_and_die(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
