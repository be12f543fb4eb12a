"""What is trained, on what and how: the images, the learning rate by epoch, and what is measured on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from harness.data.labelled import LabelledImages
from sesn.errors import UsageError

#: uint8 images -> the network's input; with a generator after random changes.
Batch = Callable[[Tensor, torch.Generator | None], Tensor]
#: What else is measured on the way: (network in eval mode, epochs behind it) -> measurements as plain JSON.
Probe = Callable[[nn.Module, int], list[dict[str, Any]]]


@dataclass(frozen=True)
class Datasets:
    """Images in memory, and what is done to a batch of them.

    Attributes:
        train, test: the two sets.
        batch: normalises a batch; with a generator it augments it first.
        augmented: whether training batches are given a generator.
        validation: chooses the epoch that counts; None: the last one does.
        test_sizes: the factor by which each test image was shrunk, [n]; None where they were not.
    """

    train: LabelledImages
    test: LabelledImages
    batch: Batch
    augmented: bool
    validation: LabelledImages | None = None
    test_sizes: Tensor | None = None


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
class Job:
    """One network to train.

    Attributes:
        network: with fresh weights.
        data: what it learns and is tested on.
        schedule: the learning rate by epoch.
        batch: images in a step; the last, smaller batch of an epoch is kept.
        optimizer: made from the parameters; fused, which is faster and differs by rounding.
        probe: what else is measured.
    """

    network: nn.Module
    data: Datasets
    schedule: Schedule
    batch: int
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]
    probe: Probe | None = None

    def __post_init__(self) -> None:
        if self.batch < 2:
            raise UsageError(f"`batch` (={self.batch}) must be at least 2; batch norm needs more than one image")
