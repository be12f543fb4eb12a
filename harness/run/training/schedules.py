"""How the paper trains: optimiser, batch, learning rate by epoch, and which epoch counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import nn
from torch.optim import Optimizer

from harness.records import Cell
from sesn.errors import UsageError

THIRDS = (Fraction(1, 3), Fraction(2, 3))
STL10_DROPS = (Fraction(3, 10), Fraction(4, 10), Fraction(6, 10), Fraction(8, 10))


@dataclass(frozen=True)
class Schedule:
    """A learning rate that is multiplied by `factor` after each of some fractions of the epochs.

    A fraction of an epoch counts as a whole one: of four epochs a third are two.
    """

    rate: float
    epochs: int
    factor: float
    drops: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise UsageError(f"`epochs` (={self.epochs}) must be at least 1")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise UsageError(f"`rate` (={self.rate}) must be a positive number")

    def rate_at(self, epoch: int) -> float:
        """The rate of an epoch, counted from 0."""
        passed = sum(epoch >= math.ceil(self.epochs * drop) for drop in self.drops)
        return self.rate * self.factor**passed


@dataclass(frozen=True)
class Recipe:
    """How one network is trained.

    Attributes:
        schedule: the learning rate by epoch.
        batch: images in a step; the last, smaller batch of an epoch is kept.
        optimizer: made from the parameters; fused, which is faster and differs by rounding.
    """

    schedule: Schedule
    batch: int
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]

    def __post_init__(self) -> None:
        if self.batch < 2:
            raise UsageError(f"`batch` (={self.batch}) must be at least 2; batch norm needs more than one image")


def mnist_recipe(cell: Cell) -> Recipe:
    """Adam without weight decay, its rate divided by ten after each third of the epochs."""
    schedule = Schedule(float(cell.settings["rate"]), int(cell.settings["epochs"]), 0.1, THIRDS)

    def adam(weights: Iterable[nn.Parameter]) -> Optimizer:
        return torch.optim.Adam(weights, schedule.rate, fused=True)

    return Recipe(schedule, int(cell.settings["batch"]), adam)


def stl10_recipe(cell: Cell) -> Recipe:
    """SGD with Nesterov's momentum and weight decay on all parameters, its rate divided by five four times."""
    schedule = Schedule(float(cell.settings["rate"]), int(cell.settings["epochs"]), 0.2, STL10_DROPS)

    def sgd(weights: Iterable[nn.Parameter]) -> Optimizer:
        return torch.optim.SGD(weights, schedule.rate, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True)

    return Recipe(schedule, int(cell.settings["batch"]), sgd)
