"""Training what a cell asks for, in this process or in several, and what is measured of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.data.mnist_scale import LARGEST, SMALLEST
from harness.experiment import Context
from harness.records import Cell, Measurement, Scalar
from harness.run.training.delta import DeltaProbe
from harness.run.training.job import Job, Numerics, repeatable, seed_of
from harness.run.training.parallel import Team, launch
from harness.run.training.trainer import Trainer, checkpoint_in, percentage
from harness.stopwatch import speedups

#: Makes what a cell trains, given where data lie. Its weights are drawn from torch's global generator.
MakeJob = Callable[[Cell, Path | None], Job]
USUAL = Numerics()
#: How many intervals of equal width the sizes of test images are divided into.
SIZE_BINS = 8


def train(make: MakeJob, cell: Cell, context: Context, numerics: Numerics = USUAL) -> list[Measurement]:
    """Train what a cell asks for, in this process or in as many as it asks for."""
    numerics.check(context.device)
    if numerics.ranks > 1:
        return launch(make, cell, context, numerics)
    return train_in(Team(), make, cell, context, numerics)


def train_in(team: Team, make: MakeJob, cell: Cell, context: Context, numerics: Numerics = USUAL) -> list[Measurement]:
    """This process's part of the training; rank 0 returns the measurements."""
    device, switched_on = torch.device(context.device), speedups()
    with repeatable(device):
        torch.manual_seed(seed_of(cell.seed, "weights"))
        job = make(cell, context.data_root)
        checkpoint = checkpoint_in(context.scratch, cell.id)
        trainer = Trainer(job, numerics, cell.seed, device, team, checkpoint, context.on_progress)
        context.on_resume(trainer.run())
        return measurements(trainer, switched_on) if team.rank == 0 else []


def measurements(trainer: Trainer, switched_on: str) -> list[Measurement]:
    """What a finished run saw, its times with what was switched on; the test images are looked at here, once."""
    data, diary = trainer.job.data, trainer.diary
    trainer.take_best()
    curves = {metric: tuple(values) for metric, values in diary.curves.items()}
    names = dict.fromkeys(curves, data.train.name)
    if data.validation is not None:
        curves["best_epoch"] = (float(diary.best_epoch),)
        names |= dict.fromkeys(("validation_error", "best_epoch"), data.validation.name)
    at: dict[str, dict[str, Scalar]] = {metric: {"data_name": name} for metric, name in names.items()}
    at["epoch_time"]["speedups"] = switched_on
    found = [Measurement(metric, values, at[metric]) for metric, values in curves.items()]
    probed = diary.probed + _probe_best(trainer)
    found += [Measurement(one["metric"], tuple(one["values"]), one["at"]) for one in probed]
    trainer.on_progress(1.0, f"testing on {len(data.test)} images")
    wrong, of = trainer.wrong(data.test), data.test.name
    found.append(Measurement("test_error", (percentage(wrong),), {"data_name": of}))
    return found if data.test_sizes is None else [*found, *_by_size(wrong, data.test_sizes, of)]


def _by_size(wrong: Tensor, sizes: Tensor, data_name: str) -> Iterator[Measurement]:
    """The test error within each interval of sizes that has images: its middle, and how many they are."""
    edges = torch.linspace(SMALLEST, LARGEST, SIZE_BINS + 1, dtype=sizes.dtype)
    bins = torch.bucketize(sizes, edges[1:-1])
    for number, (low, high) in enumerate(zip(edges.tolist(), edges[1:].tolist(), strict=False)):
        inside = wrong[bins == number]
        if len(inside):
            at = {"digit_size": round((low + high) / 2, 6), "digits": len(inside), "data_name": data_name}
            yield Measurement("test_error_by_size", (percentage(inside),), at)


def _probe_best(trainer: Trainer) -> list[dict[str, Any]]:
    """Delta of the weights that count, unless their epoch has been measured."""
    probe, best = trainer.job.probe, trainer.diary.best_epoch
    if not isinstance(probe, DeltaProbe) or best in {one["at"]["epoch"] for one in trainer.diary.probed}:
        return []
    return probe.measure(trainer.network.eval(), best)
