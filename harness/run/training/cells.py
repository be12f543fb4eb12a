"""Training what a cell asks for, in this process or in several, and what is measured of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness.experiment import Context
from harness.records import Cell, Measurement, Scalar
from harness.run.training.delta import DeltaProbe
from harness.run.training.job import Job
from harness.run.training.numerics import Numerics, repeatable, seed_of
from harness.run.training.parallel import launch
from harness.run.training.team import Team
from harness.run.training.trainer import Trainer, checkpoint_in
from harness.stopwatch import speedups

#: Makes what a cell trains, given where data lie. Its weights are drawn from torch's global generator.
MakeJob = Callable[[Cell, Path | None], Job]
USUAL = Numerics()


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
    found += [_measurement(one) for one in diary.probed + _probe_best(trainer)]
    trainer.on_progress(1.0, f"testing on {len(data.test)} images")
    return [*found, Measurement("test_error", (trainer.error(data.test),), {"data_name": data.test.name})]


def _probe_best(trainer: Trainer) -> list[dict[str, Any]]:
    """Delta of the weights that count, unless their epoch has been measured."""
    probe, best = trainer.job.probe, trainer.diary.best_epoch
    if not isinstance(probe, DeltaProbe) or best in {one["at"]["epoch"] for one in trainer.diary.probed}:
        return []
    return probe.measure(trainer.network.eval(), best)


def _measurement(plain: dict[str, Any]) -> Measurement:
    return Measurement(plain["metric"], tuple(plain["values"]), plain["at"])
