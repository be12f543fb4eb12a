"""Stage 3, training: the test errors on MNIST-scale and on STL-10, and what was seen on the way there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness.memory import speedups
from harness.records import Cell, Measurement, Scalar
from harness.run.context import Context
from harness.run.training.delta import DeltaProbe
from harness.run.training.numerics import Numerics, repeatable, seed_of
from harness.run.training.parallel import launch
from harness.run.training.schedules import mnist_recipe, stl10_recipe
from harness.run.training.tasks import mnist_task, stl10_task
from harness.run.training.team import Team
from harness.run.training.trainer import Job, Trainer, checkpoint_in
from sesn.methods import method

#: Makes what a cell trains, given where data lie. Its weights are drawn from torch's global generator.
MakeJob = Callable[[Cell, Path | None], Job]


def mnist_scale(cell: Cell, context: Context) -> list[Measurement]:
    """Train a method on its realisation of MNIST-scale; the first epoch with the best validation error is tested."""
    return train(mnist_job, cell, context)


def stl10(cell: Cell, context: Context) -> list[Measurement]:
    """Train a method on STL-10; the last epoch is tested."""
    return train(stl10_job, cell, context)


def mnist_job(cell: Cell, root: Path | None) -> Job:
    """The MNIST-scale network of the cell's method, and its data."""
    settings, recipe, task = cell.settings, mnist_recipe(cell), mnist_task(cell, root)
    options = {"resolution": int(settings["resolution"]), "augmented": bool(settings["augmented"])}
    network = method(cell.method).build("mnist", str(settings["recipe"]), **options)  # type: ignore[arg-type]
    count = int(settings["delta_images"])
    assert task.validation is not None
    probe = DeltaProbe.on(task.validation, task.batch, count, recipe.schedule.epochs) if count else None
    return Job(network, task, recipe, probe)


def stl10_job(cell: Cell, root: Path | None) -> Job:
    """The wide residual network of the cell's method, and STL-10."""
    settings = cell.settings
    options = {name: int(settings[name]) for name in ("depth", "width", "resolution")}
    network = method(cell.method).build("stl10", str(settings["recipe"]), **options)  # type: ignore[arg-type]
    return Job(network, stl10_task(cell, root), stl10_recipe(cell))


def train(make: MakeJob, cell: Cell, context: Context) -> list[Measurement]:
    """Train what a cell asks for, in this process or in as many as it asks for."""
    if Numerics.of(cell.settings, context.device).ranks > 1:
        return launch(make, cell, context)
    return train_in(Team(), make, cell, context)


def train_in(team: Team, make: MakeJob, cell: Cell, context: Context) -> list[Measurement]:
    """This process's part of the training; rank 0 returns the measurements."""
    device, switched_on = torch.device(context.device), speedups()
    numerics = Numerics.of(cell.settings, context.device)
    with repeatable(device):
        torch.manual_seed(seed_of(cell.seed, "weights"))
        job = make(cell, context.data_root)
        checkpoint = checkpoint_in(context.scratch, cell.id)
        trainer = Trainer(job, numerics, cell.seed, device, team, checkpoint, context.on_progress)
        context.on_resume(trainer.run())
        return measurements(trainer, switched_on) if team.rank == 0 else []


def measurements(trainer: Trainer, switched_on: str) -> list[Measurement]:
    """What a finished run saw, its times with what was switched on; the test images are looked at here, once."""
    task, diary = trainer.job.task, trainer.diary
    trainer.take_best()
    curves = {metric: tuple(values) for metric, values in diary.curves.items()}
    names = dict.fromkeys(curves, task.train.name)
    if task.validation is not None:
        curves["best_epoch"] = (float(diary.best_epoch),)
        names |= dict.fromkeys(("validation_error", "best_epoch"), task.validation.name)
    at: dict[str, dict[str, Scalar]] = {metric: {"data_name": name} for metric, name in names.items()}
    at["epoch_time"]["speedups"] = switched_on
    found = [Measurement(metric, values, at[metric]) for metric, values in curves.items()]
    found += [_measurement(one) for one in diary.probed + _probe_best(trainer)]
    trainer.on_progress(1.0, f"testing on {len(task.test)} images")
    return [*found, Measurement("test_error", (trainer.error(task.test),), {"data_name": task.test.name})]


def _probe_best(trainer: Trainer) -> list[dict[str, Any]]:
    """Delta of the weights that count, unless their epoch has been measured."""
    probe, best = trainer.job.probe, trainer.diary.best_epoch
    if not isinstance(probe, DeltaProbe) or best in {one["at"]["epoch"] for one in trainer.diary.probed}:
        return []
    return probe.measure(trainer.network.eval(), best)


def _measurement(plain: dict[str, Any]) -> Measurement:
    return Measurement(plain["metric"], tuple(plain["values"]), plain["at"])
