"""What is trained, on what and how: images, learning rate by epoch, arithmetic, processes, random numbers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from harness.data.tensors import LabelledImages
from harness.records import Measurement
from sesn._checks import one_of, require
from sesn.errors import UsageError

#: uint8 images -> the network's input; with a generator after random changes.
Batch = Callable[[Tensor, torch.Generator | None], Tensor]
#: What else is measured on the way: (network in eval mode, epochs behind it) -> measurements as plain JSON.
Probe = Callable[[nn.Module, int], list[dict[str, Any]]]
#: What is measured at the end: (network with the weights that count, in eval mode; the classes that it gives the test
#: images) -> measurements.
Examination = Callable[[nn.Module, Tensor], Iterable[Measurement]]
PRECISIONS = ("fp32", "amp")
#: Processes that can share the published batch. The last, smaller batch of a run may allow fewer: the trainer says so.
MOST_RANKS = 64


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
        probe: what else is measured on the way.
        examination: what else is measured at the end.
    """

    network: nn.Module
    data: Datasets
    schedule: Schedule
    batch: int
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]
    probe: Probe | None = None
    examination: Examination | None = None

    def __post_init__(self) -> None:
        if self.batch < 2:
            raise UsageError(f"`batch` (={self.batch}) must be at least 2; batch norm needs more than one image")


@dataclass(frozen=True)
class Numerics:
    """With which arithmetic a network is trained.

    Attributes:
        precision: "fp32", or "amp": float16 where torch deems it safe, on CUDA.
        ranks: processes that share each batch.
    """

    precision: str = "fp32"
    ranks: int = 1

    def check(self, device: str) -> None:
        """Refuse what makes no sense, or not on this device."""
        one_of("precision", self.precision, PRECISIONS)
        require(self.ranks >= 1, "ranks", self.ranks, "at least 1")
        remedy = "each needs two images of every batch of 128, or batch norm has nothing to go by"
        require(self.ranks <= MOST_RANKS, "ranks", self.ranks, f"at most {MOST_RANKS}", remedy)
        rule = f"'fp32' on {device}: float16 is for CUDA"
        possible = self.precision == "fp32" or device.startswith("cuda")
        require(possible, "precision", self.precision, rule, "use --device cuda or fp32")

    def autocast(self) -> AbstractContextManager[object]:
        """Where the forward pass is computed."""
        return torch.autocast("cuda", torch.float16) if self.precision == "amp" else nullcontext()


@dataclass(frozen=True)
class Team:
    """Who computes a step: one process alone, or one of several that share each batch."""

    rank: int = 0
    size: int = 1

    def joined(self, network: nn.Module) -> nn.Module:
        """The network to train: rank 0's weights and statistics on all ranks, and gradients averaged over them."""
        if self.size == 1:
            return network
        place = next(network.parameters()).device
        return DistributedDataParallel(network, device_ids=[place.index] if place.type == "cuda" else None)

    def share(self, batch: Tensor) -> Tensor:
        """This process's part of a batch: one piece after the other, which differ by one image at most."""
        return torch.tensor_split(batch, self.size)[self.rank]

    def total(self, value: Tensor) -> Tensor:
        """The sum over all ranks, the same on each."""
        summed = value.clone()
        if self.size > 1:
            dist.all_reduce(summed)
        return summed


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Leave torch's global random numbers as they were; on CUDA, choose algorithms that repeat and full float32."""
    on_cuda = device.type == "cuda"
    exact: AbstractContextManager[object] = (
        torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
        if on_cuda
        else nullcontext()
    )
    with torch.random.fork_rng(devices=[device] if on_cuda else []), exact:
        yield


def seed_of(*what: str | int) -> int:
    """A seed for each purpose and moment of a run: no generator has a state that a checkpoint would have to keep."""
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=7).digest())


def generator(*what: str | int) -> torch.Generator:
    """Random numbers of their own for a purpose and moment, on the CPU: the same whatever the device."""
    return torch.Generator().manual_seed(seed_of(*what))
