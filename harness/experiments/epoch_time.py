"""The time of an epoch: training steps on images in memory, each method in turn with the plain network.

A step is normalising, forward, loss, backward and optimizer; no image is loaded or augmented. Every round runs one step
of the plain network and one of the method, so that a machine that slows down slows both, and a ratio is taken within
its round. The cells of one method leave the rows of the others valid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from harness.data.augment import mnist_batch, stl10_batch
from harness.data.mnist import embedded_digits
from harness.experiment import CellSettings, Context, Draft, Experiment, Request
from harness.experiments.training import REDUCED_SCHEDULES, RESOLUTIONS, sgd
from harness.records import Budget, Cell, Measurement, Scalar
from harness.stopwatch import Batch, adam, speedups, time_training
from sesn.methods import PLAIN, method, methods_on
from sesn.networks.skeleton import known_recipe

#: How many different batches the steps take in turn.
BATCHES = 8
MEGABYTE = 1e6


class Rounds(NamedTuple):
    """How many steps are timed, and how many before them are not."""

    batch: int
    steps: int
    warmup: int


ROUNDS: dict[Budget, Rounds] = {
    "smoke": Rounds(batch=16, steps=2, warmup=1),
    "lite": Rounds(batch=128, steps=7, warmup=2),
    "paper": Rounds(batch=128, steps=79, warmup=5),
}


@dataclass(frozen=True, kw_only=True)
class TimeSettings(CellSettings):
    """Which network is timed, and for how many steps.

    Attributes:
        network: "stl10" for the reduced one of that size; the MNIST-scale network if absent.
        methods: of older cells, which timed many methods at once.
    """

    resolution: int
    recipe: str
    batch: int
    steps: int
    warmup: int
    epoch_images: int
    network: str | None = None
    depth: int | None = None
    width: int | None = None
    methods: str | None = None


def cells(request: Request) -> Iterator[Draft]:
    """Every method of MNIST-scale at both resolutions, and on the reduced STL-10 network that the budget trains."""
    rounds, reduced = ROUNDS[request.budget], REDUCED_SCHEDULES[request.budget]
    shared: dict[str, Any] = {"recipe": request.recipe, **rounds._asdict()}
    chosen = [("mnist", TimeSettings(resolution=side, epoch_images=10_000, **shared)) for side in RESOLUTIONS]
    shared |= {"depth": reduced.depth, "width": reduced.width, "resolution": reduced.resolution}
    chosen.append(("stl10", TimeSettings(network="stl10", epoch_images=5000, **shared)))
    for network, settings in chosen:
        for row in request.chosen(methods_on(network, request.recipe)):
            yield row.key, settings, 0, ""


def epoch_time(cell: Cell, context: Context) -> list[Measurement]:
    """Times of single steps, one value each, and what follows from them; memory and work of one step."""
    settings, device = TimeSettings.of(cell), torch.device(context.device)
    switched_on = speedups()
    on_mnist = settings.network is None
    reference = PLAIN[settings.network or "mnist"]
    batches = digit_batches(settings.batch, device) if on_mnist else photograph_batches(settings, device)
    times = time_training(
        networks(cell, settings, device, reference),
        batches,
        device,
        settings.steps,
        settings.warmup,
        mnist_batch if on_mnist else stl10_batch,
        adam if on_mnist else sgd,
        lambda done: context.on_progress(done, "rounds"),
    )
    own, base = times[cell.method].milliseconds, times[reference].milliseconds
    epoch = math.ceil(settings.epoch_images / settings.batch)
    told: dict[str, Scalar] = {"steps_timed": len(own), "steps_per_epoch": epoch, "speedups": switched_on}
    return [
        Measurement("step_time", tuple(own)),
        Measurement("time_ratio", tuple(mine / other for mine, other in zip(own, base, strict=True))),
        # What an epoch would take if all its steps were like that one.
        Measurement("epoch_time", tuple(one * epoch / 1e3 for one in own), told),
        Measurement("images_per_second", tuple(settings.batch / one * 1e3 for one in own)),
        Measurement("peak_memory", (times[cell.method].memory / MEGABYTE,)),
        Measurement("multiply_adds", (float(times[cell.method].work),)),
    ]


def networks(cell: Cell, settings: TimeSettings, device: torch.device, reference: str) -> dict[str, nn.Module]:
    """The plain network and the cell's, which are one and the same if the cell is about the plain network."""
    size = {"resolution": settings.resolution, "depth": settings.depth, "width": settings.width}
    options = {name: value for name, value in size.items() if value is not None}
    recipe = known_recipe(settings.recipe)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cell.seed)
        return {
            key: method(key).build(settings.network or "mnist", recipe, **options).to(device)
            for key in dict.fromkeys([reference, cell.method])
        }


def digit_batches(size: int, device: torch.device) -> list[Batch]:
    """Batches of digits of all classes, in memory."""
    digits = embedded_digits()
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
    chosen = (order[start : start + size] for start in range(0, size * min(BATCHES, len(digits) // size), size))
    return [(images.to(device), labels.to(device)) for images, labels in (digits[numbers] for numbers in chosen)]


def photograph_batches(settings: TimeSettings, device: torch.device) -> list[Batch]:
    """Noise in place of photographs, so that STL-10 need not be there: the time of a step does not depend on it."""
    draws = torch.Generator().manual_seed(0)
    shape = (settings.batch, 3, settings.resolution, settings.resolution)
    images = torch.randint(0, 256, shape, generator=draws, dtype=torch.uint8)
    return [(images.to(device), torch.randint(0, 10, (settings.batch,), generator=draws).to(device))]


EPOCH_TIME = Experiment(
    key="epoch-time",
    title="Time of an epoch of MNIST-scale, and of the reduced STL-10 network.",
    version=1,
    settings=TimeSettings,
    cells=cells,
    run=epoch_time,
    # The pixels that are learnt from.
    work=lambda told: float((told.steps + told.warmup) * told.batch * told.resolution**2),
    axes=("resolution",),
    sizes=("resolution", "depth", "width"),
    seed="",
    # Older cells timed many methods at once: their epochs tell how long the cells of one method take.
    timed_by="epoch-time",
    alone=True,
)
