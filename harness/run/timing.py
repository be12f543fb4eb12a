"""The time of an epoch of MNIST-scale: training steps on digits in memory, all methods in turn.

A step is normalising, forward, loss, backward and optimizer; no image is loaded or augmented. Every round runs one step
of every method, so that a machine that slows down slows all of them, and a ratio is taken within its round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from harness.data.augment import mnist_batch
from harness.data.mnist import SIDE, embedded_digits
from harness.memory import speedups
from harness.records import Cell, Measurement, Scalar
from harness.run.context import Context, Skip
from harness.steps import Batch, training_step
from harness.stopwatch import Step, interleave, peak_bytes
from sesn.methods import REFERENCE, method
from sesn.networks import multiply_adds
from sesn.networks.recipes import Recipe, known_recipe

#: How many different batches the steps take in turn.
BATCHES = 8
MEGABYTE = 1e6


def epoch_time(cell: Cell, context: Context) -> list[Measurement]:
    """Times of single steps, one value each, and what follows from them; memory and work of one step."""
    settings, device = cell.settings, torch.device(context.device)
    switched_on = speedups()
    networks = _networks(cell, device)
    batches = digit_batches(int(settings["batch"]), device)
    steps: dict[str, Step] = {key: training_step(net, batches, mnist_batch) for key, net in networks.items()}
    samples = interleave(
        steps,
        int(settings["steps"]),
        device,
        int(settings["warmup"]),
        lambda done: context.on_progress(done, "rounds"),
    )
    # A cell of one method has the reference to compare with; the reference's own rows are another cell's.
    told = {cell.method: networks[cell.method]} if cell.method else networks
    found = [one for key in told for one in _times(key, samples, settings, switched_on)]
    for key, network in told.items():
        # After the timing: the profiler that sees memory slows a step down, and the optimizer has its state by now.
        memory = peak_bytes(steps[key], device) / MEGABYTE
        found.append(Measurement("peak_memory", (memory,), {"method": key}))
        work = multiply_adds(network, (1, SIDE, SIDE))
        found.append(Measurement("multiply_adds", (float(work),), {"method": key}))
    return found


def _networks(cell: Cell, device: torch.device) -> dict[str, nn.Module]:
    """The networks that were asked for, after the one that times are compared with: it runs in every round."""
    asked = [key for key in str(cell.settings.get("methods", cell.method)).split(",") if key]
    if not asked:
        raise Skip("no method was asked for")
    recipe: Recipe = known_recipe(str(cell.settings["recipe"]))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cell.seed)
        return {
            key: method(key).build("mnist", recipe, resolution=int(cell.settings["resolution"])).to(device)
            for key in dict.fromkeys([REFERENCE, *asked])
        }


def digit_batches(size: int, device: torch.device) -> list[Batch]:
    """Batches of digits of all classes, in memory."""
    digits = embedded_digits()
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
    chosen = (order[start : start + size] for start in range(0, size * min(BATCHES, len(digits) // size), size))
    return [(images.to(device), labels.to(device)) for images, labels in (digits[numbers] for numbers in chosen)]


def _times(
    key: str, samples: Mapping[str, Sequence[float]], settings: Mapping[str, Scalar], switched_on: str
) -> list[Measurement]:
    """One value per timed step; an epoch's are what it would take if all its steps were like that one."""
    own, batch = samples[key], int(settings["batch"])
    epoch = math.ceil(int(settings["epoch_images"]) / batch)
    at: dict[str, Scalar] = {"method": key}
    timed = at | {"steps_timed": len(own), "steps_per_epoch": epoch, "speedups": switched_on}
    ratios = (mine / other for mine, other in zip(own, samples[REFERENCE], strict=True))
    return [
        Measurement("step_time", tuple(own), at),
        Measurement("time_ratio", tuple(ratios), at),
        Measurement("epoch_time", tuple(one * epoch / 1e3 for one in own), timed),
        Measurement("images_per_second", tuple(batch / one * 1e3 for one in own), at),
    ]
