"""One way to time training steps: in turn, round by round, with their peak memory; and what makes a step cheaper."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.profiler import ProfilerActivity, profile

from sesn.algorithms.timing import milliseconds
from sesn.networks import multiply_adds, unused_parameters

Step = Callable[[], None]


def interleave(
    steps: Mapping[str, Step],
    rounds: int,
    device: torch.device,
    warmup: int = 2,
    on_round: Callable[[float], None] = lambda _done: None,
) -> dict[str, list[float]]:
    """Milliseconds of each step, round by round: every round runs all steps once, so drift hits them alike.

    Their order is drawn anew in each round: a step that always followed the same one would find what that left in the
    caches, and one that does the same work twice would be the quicker the second time.

    `on_round` is told before each round, outside the timed part, how much is done (0..1).
    """
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for index in range(warmup + rounds):
        on_round(index / (warmup + rounds))
        for name in random.Random(index).sample(list(steps), len(steps)):
            elapsed = milliseconds(steps[name], device)
            if index >= warmup:
                samples[name].append(elapsed)
    return samples


def peak_bytes(step: Step, device: torch.device) -> int:
    """The most memory that a step holds at once beyond what it found, as torch's allocator saw it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        return int(torch.cuda.max_memory_allocated(device)) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    results = recorded.profiler.kineto_results if recorded.profiler is not None else None
    events = [event for event in (results.events() if results is not None else []) if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


# --- training steps

Batch = tuple[Tensor, Tensor]


def adam(weights: Iterable[nn.Parameter], rate: float = 0.01) -> Optimizer:
    """The optimizer of the MNIST-scale networks, without weight decay."""
    return torch.optim.Adam(weights, rate, fused=True)


def training_step(
    network: nn.Module,
    batches: Sequence[Batch],
    prepare: Callable[[Tensor], Tensor] = lambda images: images,
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = adam,
) -> Step:
    """A step on the next of the batches, in turn: prepare the images, forward, cross-entropy, backward, optimizer.

    Args:
        network: put into train mode; images -> [b, classes].
        batches: images and labels in memory, on the network's device.
        prepare: from stored images to the network's input, such as `harness.data.augment.mnist_batch`.
        optimizer: made from the parameters.
    """
    network.train()
    unused = unused_parameters(network)
    trained = [weight for name, weight in network.named_parameters() if weight.requires_grad and name not in unused]
    chosen = optimizer(trained)
    following = cycle(batches)

    def step() -> None:
        images, labels = next(following)
        chosen.zero_grad(set_to_none=True)
        functional.cross_entropy(network(prepare(images)), labels).backward()  # type: ignore[no-untyped-call]
        chosen.step()

    return step


class StepTimes(NamedTuple):
    """Of one network's training steps: milliseconds round by round, peak bytes, and multiply-adds of an image."""

    milliseconds: list[float]
    memory: int
    work: int


def time_training(
    networks: Mapping[str, nn.Module],
    batches: Sequence[Batch],
    device: torch.device,
    rounds: int,
    warmup: int = 1,
    prepare: Callable[[Tensor], Tensor] = lambda images: images,
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = adam,
    on_part: Callable[[float], None] = lambda _done: None,
) -> dict[str, StepTimes]:
    """Train all networks in turn, a step each in every round, so that a machine that slows down slows all of them.

    `on_part` is told before each round, and before each look at memory, how much is done (0..1).
    """
    steps = {name: training_step(network, batches, prepare, optimizer) for name, network in networks.items()}
    parts = warmup + rounds + len(steps)
    share = (warmup + rounds) / parts
    samples = interleave(steps, rounds, device, warmup, lambda done: on_part(done * share))
    image = tuple(prepare(batches[0][0][:1]).shape[1:])
    found = {}
    for index, (name, network) in enumerate(networks.items()):
        on_part(share + index / parts)
        # After the timing: the profiler that sees memory slows a step down, and the optimizer has its state by now.
        memory = peak_bytes(steps[name], device)
        found[name] = StepTimes(samples[name], memory, multiply_adds(network, image))
    return found


# --- memory that torch gives back: the next training step asks for the same again

#: The options of mallopt: up to which size the heap serves, and how much free memory stays at its end.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
#: A gigabyte, more than any map of a training step; and as much as the option can say.
_LARGEST_ON_HEAP, _KEPT_AT_END = 1 << 30, (1 << 31) - 1


def keep_freed_memory() -> bool:
    """Have this process keep the memory that it frees, for itself; whether its C library can (glibc) and will.

    By default every large tensor goes back to the system at once, and each of its pages is asked for and cleared anew
    in the next step. That is a tenth of a training step. No result depends on it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or Windows
        return False
    options = ((_MMAP_THRESHOLD, _LARGEST_ON_HEAP), (_TRIM_THRESHOLD, _KEPT_AT_END))
    kept = [mallopt(option, value) == 1 for option, value in options]
    return all(kept)


def speedups() -> str:
    """Switch on what makes a training step cheaper, and say what it is, for the rows."""
    return "fused optimizer, freed memory kept" if keep_freed_memory() else "fused optimizer"
