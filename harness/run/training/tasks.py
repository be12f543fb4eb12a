"""What is learnt: images with their classes, and how a batch of them becomes the network's input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from harness.data.augment import mnist_batch, stl10_batch
from harness.data.labelled import LabelledImages
from harness.data.mnist_scale import mnist_scale
from harness.data.stl10 import SPLITS, stl10_labelled
from harness.records import Cell
from sesn.errors import UsageError

#: uint8 images -> the network's input; with a generator after random changes.
Batch = Callable[[Tensor, torch.Generator | None], Tensor]


@dataclass(frozen=True)
class Task:
    """Images in memory, and what is done to a batch of them.

    Attributes:
        train, test: the two sets.
        batch: normalises a batch; with a generator it augments it first.
        augmented: whether training batches are given a generator.
        validation: chooses the epoch that counts; None: the last one does.
    """

    train: LabelledImages
    test: LabelledImages
    batch: Batch
    augmented: bool
    validation: LabelledImages | None = None


def first(images: LabelledImages, count: int) -> LabelledImages:
    """The first `count` images, under a name that says so; all of them if there are no more."""
    if count < 1:
        raise UsageError(f"`count` (={count}) must be at least 1; training and testing need images")
    if count >= len(images):
        return images
    return LabelledImages(images.images[:count], images.labels[:count], f"the first {count} of {images.name}")


def mnist_task(cell: Cell, root: Path | None) -> Task:
    """The cell's realisation of MNIST-scale, or the beginning of it; never more images to validate than to train."""
    settings = cell.settings
    realisation = mnist_scale(cell.seed, str(settings["data"]), root)  # type: ignore[arg-type]
    count = int(settings["train_images"])
    return Task(
        train=first(realisation.train, count),
        test=first(realisation.test, int(settings["test_images"])),
        batch=mnist_batch,
        augmented=bool(settings["augmented"]),
        validation=first(realisation.val, count),
    )


def stl10_task(cell: Cell, root: Path | None) -> Task:
    """STL-10's labelled images, or the first of them, at the cell's resolution; there is no validation set."""
    train, test = (stl10_labelled(name, root, int(cell.settings[f"{name}_images"])) for name in SPLITS)
    side = int(cell.settings["resolution"])
    return Task(train=shrunk(train, side), test=shrunk(test, side), batch=stl10_batch, augmented=True)


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
