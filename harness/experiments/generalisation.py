"""Scale generalisation: accuracy at scales that a network has not been trained at, and Delta at the same factors.

The network of STIR is trained on pictures at some scales (`scenario`) of a family of `harness.data.at_scales`, and
tested on other pictures at all scales of the family. Published training is Adam on batches of 16 for up to 200 epochs,
of which the one with the best validation error counts; the learning rate is not published, and is chosen here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from harness.data.at_scales import FAMILIES, Family, Split
from harness.data.augment import STL10_MEAN, STL10_STD, normalised, random_rescale
from harness.data.sources import fashion_available
from harness.data.tensors import LabelledImages
from harness.experiment import Context, Draft, Experiment, Request, Skip
from harness.experiments.training import THIRDS, TrainingSettings
from harness.records import Budget, Cell, Measurement, Scalar
from harness.run.training.cells import train
from harness.run.training.job import Datasets, Job, Schedule
from harness.stopwatch import adam
from sesn import Meter
from sesn._checks import looked_up
from sesn.methods import PLAIN, method, methods_on
from sesn.networks.skeleton import known_recipe
from sesn.networks.stir import PUBLISHED

NETWORK = "stir"
#: The rate is divided by three after each third of the epochs.
DROP = 0.3


@dataclass(frozen=True, kw_only=True)
class GeneralisationSettings(TrainingSettings):
    """A training cell that is tested at many scales.

    `data` names the digits that there are, also in the cells of families that have other pictures, so that all stand
    together. `test_images` are for each of the `test_scales`, and `resolution` is the side of the frame.
    """

    family: str
    scenario: str
    design: str
    augmented: bool
    validation_images: int
    test_scales: int
    delta_images: int


class Amount(NamedTuple):
    """How much of a family a budget trains and tests."""

    scenarios: tuple[str, ...]
    epochs: int
    train_images: int
    validation_images: int
    test_images: int
    test_scales: int
    seeds: int
    delta_images: int = 8
    batch: int = 16
    rate: float = 0.003


#: Published numbers are of scenario 33-48 most of all ("mid to rest").
_STIR = Amount(("33-48", "17-32", "49-64", "17-64"), 200, 8000, 8000, 500, 48, seeds=25)
_LARGE = Amount(("2", "1", "4"), 20, 50_000, 10_000, 10_000, 17, seeds=5, batch=50)
AMOUNTS: dict[Budget, dict[str, Amount]] = {
    "smoke": {"stir": Amount(("33-48",), 1, 16, 10, 10, 3, seeds=1, delta_images=1)},
    "lite": {
        "stir": Amount(("33-48",), 5, 2000, 320, 200, 13, seeds=2),
        "large-scale": Amount(("2",), 4, 1000, 200, 100, 9, seeds=2),
    },
    "paper": {
        "stir": _STIR,
        "large-scale": _LARGE,
        "stir-fashion": _STIR,
        "large-scale-fashion": _LARGE,
        "stl10-rescaled": Amount(("1",), 100, 4000, 1000, 8000, 9, seeds=5),
    },
}


def work(settings: GeneralisationSettings) -> float:
    """Pixels that are learnt from, and those that are only looked at, at a third of the price."""
    looked_at = settings.epochs * settings.validation_images + settings.test_scales * settings.test_images
    return (settings.epochs * settings.train_images + looked_at / 3) * settings.resolution**2


def cells(request: Request) -> Iterator[Draft]:
    """Every method that has the network, with all its designs; the plain one also with random scaling."""
    for key, amount in AMOUNTS[request.budget].items():
        skip = (request.no_stl10 or "") if key == "stl10-rescaled" else ""
        for seed in range(amount.seeds):
            for scenario in amount.scenarios:
                plain = _settings(request, FAMILIES[key], amount, scenario)
                for row in request.chosen(methods_on(NETWORK, request.recipe)):
                    for design in (PUBLISHED, *row.designs(NETWORK)):
                        yield row.key, replace(plain, design=design), seed, skip
                    if row.key == PLAIN[NETWORK]:
                        yield row.key, replace(plain, augmented=True), seed, skip


def _settings(request: Request, family: Family, amount: Amount, scenario: str) -> GeneralisationSettings:
    given = {name: value for name, value in amount._asdict().items() if name not in ("scenarios", "seeds")}
    return GeneralisationSettings(
        data=request.digits,
        recipe=request.recipe,
        family=family.key,
        scenario=scenario,
        resolution=family.side,
        design=PUBLISHED,
        augmented=False,
        **given,
        **request.training,
    )


def scale_generalisation(cell: Cell, context: Context) -> list[Measurement]:
    """Train a method at some scales, and test it at all."""
    settings = GeneralisationSettings.of(cell)
    missing = fashion_available(context.data_root) if _source(settings) == "fashion" else None
    if missing:
        raise Skip(missing)
    return train(job, cell, context, settings.numerics)


def job(cell: Cell, root: Path | None) -> Job:
    """The network, Adam, and the pictures of the cell's family."""
    settings = GeneralisationSettings.of(cell)
    pictures = _Pictures(settings, looked_up("family", settings.family, FAMILIES), root)
    sizes = {"in_channels": pictures.family.channels}
    network = method(cell.method).build(NETWORK, known_recipe(settings.recipe), design=settings.design, **sizes)
    schedule = Schedule(settings.rate, settings.epochs, DROP, THIRDS)
    optimizer = partial(adam, rate=settings.rate)
    return Job(network, pictures.sets(), schedule, settings.batch, optimizer, examination=pictures.examined)


def _source(settings: GeneralisationSettings) -> str:
    """Where the pictures come from: the digits that there are, or the only source that a family has."""
    sources = looked_up("family", settings.family, FAMILIES).sources
    return settings.data if settings.data in sources else sources[0]


class _Pictures(NamedTuple):
    """The images of a cell, and what is measured of a network on them."""

    settings: GeneralisationSettings
    family: Family
    root: Path | None

    @property
    def trained(self) -> tuple[float, ...]:
        return looked_up("scenario", self.settings.scenario, self.family.trainings)

    @property
    def tested(self) -> tuple[float, ...]:
        return self.family.tests[self.settings.test_scales]

    @property
    def reference(self) -> float:
        """The test scale in the middle of those of training."""
        middle = sum(map(math.log, self.trained)) / len(self.trained)
        return min(self.tested, key=lambda scale: abs(math.log(scale) - middle))

    def sets(self) -> Datasets:
        """To train on, to choose the epoch by, and to test on: here the same pictures at one scale after the other."""
        settings = self.settings
        training = self._mixed("train", settings.train_images)
        validation = self._mixed("val", settings.validation_images)
        tests = [self.at(scale, "test", settings.test_images) for scale in self.tested]
        test = _joined(tests, self._name("test", f"{len(tests[0])} pictures at {len(tests)} scales", tests[0]))
        return Datasets(training, test, self.batch, settings.augmented, validation)

    def at(self, scale: float, split: Split, count: int) -> LabelledImages:
        return self.family.at(scale, split, _source(self.settings), count, self.root)

    def _mixed(self, split: Split, count: int) -> LabelledImages:
        """So many images at the scales of training, a random choice that is the same in every run."""
        there = [self.at(scale, split, count) for scale in self.trained]
        images = _joined(there, "")
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:count]
        return LabelledImages(*images[order], self._name(split, f"{len(order)} of {len(images)} images", there[0]))

    def _name(self, split: Split, count: str, one: LabelledImages) -> str:
        """What they are, how many, and out of what."""
        scenario = f" at {self.settings.scenario}" if split != "test" else ""
        return f"{self.family.title} {split}{scenario}, {count} out of {one.name.partition(' out of ')[2]}"

    def batch(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The network's input; the empty frame of digits is 0, as what a layer pads its input with."""
        if images.dim() == 4:
            return normalised(images, STL10_MEAN, STL10_STD)
        if generator is not None:
            reach = (self.tested[0] / self.reference, self.tested[-1] / self.reference)
            images = random_rescale(images, generator, reach, self.family.side / 2)
        return images[:, None].to(torch.float32) / 255

    # --- what is measured

    def examined(self, network: nn.Module, classes: Tensor) -> Iterator[Measurement]:
        """Accuracy and Delta at each scale, and how many pictures are given the same class at all of them."""
        tests = [self.at(scale, "test", self.settings.test_images) for scale in self.tested]
        found = classes.reshape(len(tests), -1)
        for scale, images, given in zip(self.tested, tests, found, strict=True):
            right = int((given == images.labels).sum())
            at = {**self._place(scale), "pictures": len(images), "data_name": images.name}
            yield Measurement("accuracy", (100 * right / len(images),), at)
        alike = (found == found[:1]).all(dim=0)
        at = {"pictures": len(alike), "data_name": self._name("test", f"{len(alike)} pictures", tests[0])}
        yield Measurement("consistency", (100 * int(alike.sum()) / len(alike),), at)
        yield from self._delta(network)

    def _place(self, scale: float) -> Mapping[str, Scalar]:
        return {"scale": float(scale), "trained": min(self.trained) <= scale <= max(self.trained)}

    def _delta(self, network: nn.Module) -> Iterator[Measurement]:
        """Of the scores, between each scale and the reference; the larger image is shrunk to the scale of the other."""
        scores = _Scores(network).eval()
        for scale in self.tested:
            factor = min(scale, self.reference) / max(scale, self.reference)
            if factor == 1:
                continue
            images = self.at(max(scale, self.reference), "test", self.settings.delta_images)
            error = Meter(kind="invariant").measure(
                scores, self.batch(images.images), factor, context=False, repeat=False
            )
            at = {**self._place(scale), "factor": error.factor, "of": "logits", "data_name": images.name}
            yield Measurement("delta", tuple(error.valid.tolist()), at)


class _Scores(nn.Module):
    """Scores less their mean, which decides nothing."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """[b, n] that sum to zero."""
        scores: Tensor = self.network(images)
        return scores - scores.mean(1, keepdim=True)


def _joined(sets: list[LabelledImages], name: str) -> LabelledImages:
    return LabelledImages(torch.cat([one.images for one in sets]), torch.cat([one.labels for one in sets]), name)


SCALE_GENERALISATION = Experiment(
    key="scale-generalisation",
    title="Accuracy at scales outside training.",
    version=1,
    settings=GeneralisationSettings,
    cells=cells,
    run=scale_generalisation,
    work=work,
    axes=("family", "scenario", "design", "augmented"),
    sizes=("resolution", "design"),
    seed="start",
    alone=False,
)
