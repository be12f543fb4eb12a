"""The test errors on MNIST-scale and on STL-10: what is trained at each budget, how the paper trains, and on what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.optim import Optimizer

from harness.data.augment import mnist_batch, stl10_batch
from harness.data.mnist_scale import mnist_scale as realisation_of
from harness.data.stl10 import SPLITS, stl10_labelled
from harness.data.tensors import LabelledImages
from harness.experiment import CellSettings, Context, Draft, Experiment, Request
from harness.records import Budget, Cell, Measurement
from harness.run.training.cells import train
from harness.run.training.delta import DeltaProbe
from harness.run.training.job import Datasets, Job, Numerics, Schedule
from harness.stopwatch import adam
from sesn.errors import UsageError
from sesn.methods import method, methods_on
from sesn.networks.skeleton import known_recipe

RESOLUTIONS = (28, 56)
REALISATIONS = 6
THIRDS = (Fraction(1, 3), Fraction(2, 3))
STL10_DROPS = (Fraction(3, 10), Fraction(4, 10), Fraction(6, 10), Fraction(8, 10))


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(CellSettings):
    """What every training cell is told; precision and ranks only where they are not the usual ones."""

    data: str
    recipe: str
    epochs: int
    batch: int
    rate: float
    train_images: int
    test_images: int
    resolution: int
    precision: str | None = None
    ranks: int | None = None

    @property
    def numerics(self) -> Numerics:
        """With which arithmetic, and in how many processes."""
        return Numerics(self.precision or "fp32", self.ranks or 1)


@dataclass(frozen=True, kw_only=True)
class MNISTSettings(TrainingSettings):
    """Delta is measured on so many images along the way; 0 measures none."""

    augmented: bool
    delta_images: int


@dataclass(frozen=True, kw_only=True)
class STL10Settings(TrainingSettings):
    """The size of the wide residual network."""

    depth: int
    width: int


def training_work(settings: TrainingSettings) -> float:
    """Pixels that are learnt from, and those of the test at a third of the price: it has no backward pass."""
    return (settings.epochs * settings.train_images + settings.test_images / 3) * settings.resolution**2


def _at_most(there: tuple[int, int], train: int, test: int) -> dict[str, Any]:
    """How many images there are to train and to test on, of those that a budget asks for."""
    return {"train_images": min(train, there[0]), "test_images": min(test, there[1])}


# --- MNIST-scale


class MNISTSchedule(NamedTuple):
    """Adam, its rate divided by ten at each third of the epochs; the epoch with the best validation error counts."""

    epochs: int
    realisations: int
    resolutions: tuple[int, ...]
    train_images: int = 10_000
    test_images: int = 50_000
    delta_images: int = 16


MNIST_SCHEDULES: dict[Budget, MNISTSchedule] = {
    "smoke": MNISTSchedule(2, 1, resolutions=(28,), train_images=1024, test_images=500, delta_images=2),
    "lite": MNISTSchedule(epochs=12, realisations=2, resolutions=(28, 56)),
    "paper": MNISTSchedule(epochs=60, realisations=REALISATIONS, resolutions=(28, 56)),
}


def _mnist_cells(request: Request) -> Iterator[Draft]:
    schedule = MNIST_SCHEDULES[request.budget]
    few = ", ".join(row.key for row in methods_on("mnist") if row.representative)
    for resolution in RESOLUTIONS:
        for seed in range(schedule.realisations):
            for augmented in (False, True):
                settings = MNISTSettings(
                    data=request.digits,
                    recipe=request.recipe,
                    epochs=schedule.epochs,
                    batch=128,
                    rate=0.01,
                    **_at_most(request.digit_counts, schedule.train_images, schedule.test_images),
                    delta_images=schedule.delta_images,
                    resolution=resolution,
                    augmented=augmented,
                    **request.training,
                )
                absent = resolution not in schedule.resolutions
                skip = f"the {request.budget} budget trains at 28 only" if absent else ""
                for row in request.chosen(methods_on("mnist", request.recipe)):
                    # On two cores a network at 56 takes four times as long: the representative ones show the trend.
                    if request.budget == "lite" and resolution == 56 and (not row.representative or seed > 0):
                        yield row.key, settings, seed, f"the lite budget trains {few} at 56, one realisation"
                    elif request.budget == "smoke" and row.later and augmented:
                        yield (
                            row.key,
                            settings,
                            seed,
                            skip or "the smoke budget trains later methods without augmentation only",
                        )
                    else:
                        yield row.key, settings, seed, skip


def mnist_scale(cell: Cell, context: Context) -> list[Measurement]:
    """Train a method on its realisation of MNIST-scale; the first epoch with the best validation error is tested."""
    return train(mnist_job, cell, context, MNISTSettings.of(cell).numerics)


def mnist_job(cell: Cell, root: Path | None) -> Job:
    """The MNIST-scale network of the cell's method, Adam without weight decay, and the cell's realisation."""
    return mnist_job_of(cell, MNISTSettings.of(cell), root)


def mnist_job_of(cell: Cell, settings: MNISTSettings, root: Path | None) -> Job:
    """The same of a cell that may have other settings, too; never more images to validate than to train."""
    realisation = realisation_of(cell.seed, settings.data, root)  # type: ignore[arg-type]
    count = settings.train_images
    validation = first(realisation.val, count)
    test = first(realisation.test, settings.test_images)
    sizes = realisation.factors["test"][: len(test)]
    data = Datasets(first(realisation.train, count), test, mnist_batch, settings.augmented, validation, sizes)
    options = {"resolution": settings.resolution, "augmented": settings.augmented}
    network = method(cell.method).build("mnist", known_recipe(settings.recipe), **options)
    images, epochs = settings.delta_images, settings.epochs
    probe = DeltaProbe.on(validation, mnist_batch, images, epochs) if images else None
    schedule = mnist_schedule(settings.rate, epochs)
    return Job(network, data, schedule, settings.batch, partial(adam, rate=schedule.rate), probe)


def mnist_schedule(rate: float, epochs: int) -> Schedule:
    """The rate divided by ten after each third of the epochs."""
    return Schedule(rate, epochs, 0.1, THIRDS)


def first(images: LabelledImages, count: int) -> LabelledImages:
    """The first `count` images, under a name that says so; all of them if there are no more."""
    if count < 1:
        raise UsageError(f"`count` (={count}) must be at least 1; training and testing need images")
    if count >= len(images):
        return images
    return LabelledImages(images.images[:count], images.labels[:count], f"the first {count} of {images.name}")


# --- STL-10


class STL10Schedule(NamedTuple):
    """SGD, its rate divided by five after 30, 40, 60 and 80 % of the epochs; the last epoch counts."""

    depth: int
    width: int
    epochs: int
    train_images: int = 5000
    test_images: int = 8000
    batch: int = 128
    resolution: int = 96
    seeds: int = 1


STL10_SCHEDULES: dict[Budget, STL10Schedule] = {
    "smoke": STL10Schedule(depth=10, width=1, epochs=1, train_images=32, test_images=32, batch=16),
    "lite": STL10Schedule(depth=16, width=8, epochs=10),
    "paper": STL10Schedule(depth=16, width=8, epochs=1000),
}
#: Thinner and shallower than the paper's network, and in the lite budget on images of half the side: what two cores can
#: train. Never mixed with the published one. The augmentation keeps its proportions (padding 6 and hole 16 of 48).
REDUCED_SCHEDULES: dict[Budget, STL10Schedule] = {
    "smoke": STL10_SCHEDULES["smoke"],
    "lite": STL10Schedule(depth=10, width=1, epochs=40, resolution=48, seeds=2),
    "paper": STL10Schedule(depth=10, width=2, epochs=100),
}
NOT_ON_TWO_CORES = (
    "two cores need days for this network: the lite budget trains the reduced one (stl10-reduced), paper trains both"
)


def _stl10_cells(request: Request, schedules: dict[Budget, STL10Schedule], not_lite: str = "") -> Iterator[Draft]:
    schedule = schedules[request.budget]
    settings = STL10Settings(
        data="stl10",
        recipe=request.recipe,
        rate=0.1,
        epochs=schedule.epochs,
        batch=schedule.batch,
        **_at_most(request.stl10_counts, schedule.train_images, schedule.test_images),
        resolution=schedule.resolution,
        depth=schedule.depth,
        width=schedule.width,
        **request.training,
    )
    skip = request.no_stl10 or (not_lite if request.budget == "lite" else "")
    for seed in range(schedule.seeds):
        for row in request.chosen(methods_on("stl10", request.recipe)):
            yield row.key, settings, seed, skip


def stl10(cell: Cell, context: Context) -> list[Measurement]:
    """Train a method on STL-10; the last epoch is tested."""
    return train(stl10_job, cell, context, STL10Settings.of(cell).numerics)


def stl10_job(cell: Cell, root: Path | None) -> Job:
    """The wide residual network of the cell's method, SGD, and STL-10's labelled images, or the first of them."""
    settings = STL10Settings.of(cell)
    options = {"depth": settings.depth, "width": settings.width, "resolution": settings.resolution}
    network = method(cell.method).build("stl10", known_recipe(settings.recipe), **options)
    schedule = stl10_schedule(settings.rate, settings.epochs)
    return Job(network, stl10_data(settings, root), schedule, settings.batch, partial(sgd, rate=schedule.rate))


def stl10_data(settings: STL10Settings, root: Path | None) -> Datasets:
    """The images at the cell's resolution; there is no validation set."""
    counts = dict(zip(SPLITS, (settings.train_images, settings.test_images), strict=True))
    train, test = (shrunk(stl10_labelled(name, root, counts[name]), settings.resolution) for name in SPLITS)
    return Datasets(train, test, stl10_batch, augmented=True)


def stl10_schedule(rate: float, epochs: int) -> Schedule:
    """The rate divided by five after 30, 40, 60 and 80 % of the epochs."""
    return Schedule(rate, epochs, 0.2, STL10_DROPS)


def sgd(weights: Iterable[nn.Parameter], rate: float = 0.1) -> Optimizer:
    """SGD with Nesterov's momentum, and weight decay on all parameters."""
    return torch.optim.SGD(weights, rate, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True)


def shrunk(images: LabelledImages, side: int) -> LabelledImages:
    """Images [n, c, h, h] with `side` pixels along each side, each the mean of a square of pixels."""
    stored = images.images.shape[-1]
    if side == stored:
        return images
    if side < 1 or stored % side:
        raise UsageError(
            f"`side` (={side}) must divide {stored}: every new pixel is the mean of a whole square of old ones"
        )
    means = functional.avg_pool2d(images.images.to(torch.float32), stored // side).round().to(torch.uint8)
    return LabelledImages(means, images.labels, f"{images.name}, averaged to {side} pixels")


MNIST_SCALE = Experiment(
    key="mnist-scale",
    title="Test error on MNIST-scale.",
    version=1,
    settings=MNISTSettings,
    cells=_mnist_cells,
    run=mnist_scale,
    work=training_work,
    axes=("resolution", "augmented"),
    sizes=("resolution",),
    seed="realisation",
    timed_by="epoch-time",
    alone=False,
)
STL10 = replace(
    MNIST_SCALE,
    key="stl10",
    title="Test error on STL-10.",
    settings=STL10Settings,
    cells=partial(_stl10_cells, schedules=STL10_SCHEDULES, not_lite=NOT_ON_TWO_CORES),
    run=stl10,
    axes=(),
    sizes=("resolution", "depth", "width"),
    timed_by="",
)
STL10_REDUCED = replace(
    STL10,
    key="stl10-reduced",
    title="Test error on STL-10 with a small network.",
    cells=partial(_stl10_cells, schedules=REDUCED_SCHEDULES),
    timed_by="epoch-time",
)
