"""Training in several processes that share every batch: who computes a step, and how the processes are started.

Rank 0 tells its progress through a pipe, and at last the measurements, or why there are none. The ranks die with the
process that started them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import ProcessContext, ProcessException, start_processes
from torch.nn.parallel import DistributedDataParallel

from harness.experiment import Context, Progress
from harness.records import Cell, Measurement
from harness.run.engines.work import environment
from harness.run.training.job import Numerics
from sesn.errors import UsageError

#: Seconds between looks at what rank 0 has said.
PATIENCE = 0.1


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


def launch(make: Callable[..., Any], cell: Cell, context: Context, numerics: Numerics) -> list[Measurement]:
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
    make: Callable[..., Any],
    cell: Cell,
    context: Context,
    numerics: Numerics,
) -> None:
    """What each rank does. A failure that all ranks meet alike becomes the answer, any other ends them."""
    from harness.run.training.cells import train_in

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
