"""Training what a cell asks for, in this process or in several, and what is measured of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import ProcessContext, ProcessException, start_processes

from harness.data.mnist_scale import LARGEST, SMALLEST
from harness.experiment import Context, Progress
from harness.records import Cell, Measurement, Scalar
from harness.run.engines.work import environment
from harness.run.training.delta import DeltaProbe
from harness.run.training.job import Job, Numerics, Team, repeatable, seed_of
from harness.run.training.trainer import Trainer, checkpoint_in, percentage
from harness.stopwatch import speedups
from sesn.errors import UsageError

#: Makes what a cell trains, given where data lie. Its weights are drawn from torch's global generator.
MakeJob = Callable[[Cell, Path | None], Job]
USUAL = Numerics()
#: Seconds between looks at what rank 0 has said.
PATIENCE = 0.1
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


# --- several processes: rank 0 tells its progress through a pipe, and at last the answer; all die with their parent


def launch(make: MakeJob, cell: Cell, context: Context, numerics: Numerics) -> list[Measurement]:
    """Train a cell in as many processes as `numerics` says; `make` must be a function of an importable module."""
    ranks = numerics.ranks
    ours, theirs = torch.multiprocessing.get_context("spawn").Pipe(duplex=False)
    # The ranks share the processor.
    place = Context(context.data_root, context.device, max(1, torch.get_num_threads() // ranks), context.scratch)
    with tempfile.TemporaryDirectory(prefix="sesn-ranks-") as folder:
        with _imports_passed_on():
            arguments = (folder, theirs, make, cell, place, numerics)
            started = start_processes(_rank, arguments, ranks, join=False, start_method="spawn")  # type: ignore[no-untyped-call]
        assert started is not None
        try:
            answer = _heard(started, ours, context.on_progress)
        finally:
            for process in started.processes:
                process.kill()
                process.join()
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return answer


@contextmanager
def _imports_passed_on() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(environment())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _heard(started: ProcessContext, ours: Connection[Any, Any], on_progress: Progress) -> list[Measurement] | str:
    """Pass progress on until all ranks have ended; what rank 0 said last is the answer."""
    failure, ended, answer = "", False, None
    while not ended:
        try:
            ended = started.join(PATIENCE)
        except ProcessException as error:
            failure, ended = str(error), True
        while ours.poll():
            told = ours.recv()
            if isinstance(told, tuple):
                on_progress(*told)
            else:
                answer = told
    return answer or f"the {len(started.processes)} processes ended without a result: {failure.strip()}"


def _rank(
    rank: int,
    folder: str,
    told: Connection[Any, Any],
    make: MakeJob,
    cell: Cell,
    context: Context,
    numerics: Numerics,
) -> None:
    """What each rank does. A failure that all ranks meet alike becomes the answer, any other ends them."""
    torch.set_num_threads(context.threads)
    on_cuda = context.device.startswith("cuda")
    if on_cuda:
        context = replace(context, device=f"cuda:{rank}")
        torch.cuda.set_device(rank)
    if rank == 0:
        context = replace(context, on_progress=lambda *progress: told.send(progress))
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("nccl" if on_cuda else "gloo", meeting, rank=rank, world_size=numerics.ranks)
    try:
        answer: list[Measurement] | str = train_in(Team(rank, numerics.ranks), make, cell, context, numerics)
    except BrokenPipeError:
        raise
    except (FloatingPointError, UsageError, OSError) as error:
        answer = f"{type(error).__name__}: {error}"
    finally:
        dist.destroy_process_group()
    if rank == 0:
        told.send(answer)


# --- what is measured


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
    classes, of = trainer.classes(data.test), data.test.name
    wrong = classes != data.test.labels
    found.append(Measurement("test_error", (percentage(wrong),), {"data_name": of}))
    if trainer.job.examination is not None:
        found += trainer.job.examination(trainer.network.eval(), classes)
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
