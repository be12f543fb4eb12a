"""A training step as the stopwatch takes it: what an epoch consists of, without loading or changing images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.stopwatch import Step
from sesn.networks import unused_parameters

Batch = tuple[Tensor, Tensor]


def training_step(
    network: nn.Module, batches: Sequence[Batch], prepare: Callable[[Tensor], Tensor] = lambda images: images
) -> Step:
    """A step on the next of the batches, in turn: prepare the images, forward, cross-entropy, backward, Adam.

    Args:
        network: put into train mode; images -> [b, classes].
        batches: images and labels in memory, on the network's device.
        prepare: from stored images to the network's input, such as `harness.data.augment.mnist_batch`.
    """
    network.train()
    unused = unused_parameters(network)
    trained = [weight for name, weight in network.named_parameters() if weight.requires_grad and name not in unused]
    optimizer = torch.optim.Adam(trained, lr=0.01, fused=True)
    following = cycle(batches)

    def step() -> None:
        images, labels = next(following)
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(network(prepare(images)), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step
