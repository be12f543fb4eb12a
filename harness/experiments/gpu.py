"""Whether the library is right and fast on a GPU: one cell for each thing that is tried, so that one may fail alone.

The cells carry the name of the GPU, so that those of many GPUs stand side by side. On the processor they can only be
rehearsed, which shows that everything runs and says nothing about a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from harness.experiment import CellSettings, Context, Draft, Experiment, Request
from harness.experiments import gpu_checks, gpu_speed
from harness.records import Budget, Cell, Measurement
from sesn._checks import one_of
from sesn.algorithms.policy import processor
from sesn.methods import methods_on

REHEARSAL = "rehearsal on "
NO_GPU = "torch finds no GPU here; `sesn gpu` runs it on a machine that has one"


def rehearsal() -> str:
    """What stands for the name of a GPU where the processor stands in for one."""
    return REHEARSAL + processor()


class Amount(NamedTuple):
    """How much is run: timed rounds, images of a training step, and the sides of its images."""

    rounds: int
    batch: int
    resolutions: tuple[int, ...]


AMOUNTS: dict[Budget, Amount] = {
    "smoke": Amount(2, 2, (28,)),
    "lite": Amount(20, 128, (28, 56)),
    "paper": Amount(100, 128, (28, 56)),
}


@dataclass(frozen=True, kw_only=True)
class GpuSettings(CellSettings):
    """What is tried.

    Attributes:
        gpu: the name of the device.
        stage: one of STAGES.
        subject: which layer, network or precision it is tried on.
        algorithm: of the layer, where that is what is tried.
        rounds, batch: of what is timed.
    """

    gpu: str
    stage: str
    subject: str | None = None
    algorithm: str | None = None
    resolution: int | None = None
    rounds: int | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        one_of("stage", self.stage, tuple(STAGES))


Run = Callable[[Cell, GpuSettings, Context], Sequence[Measurement]]
#: Every stage in order, and what carries it out: first what it is, then whether it is right, then how fast it is.
STAGES: dict[str, Run] = {
    "machine": lambda cell, settings, context: gpu_checks.machine(context),
    "tests": lambda cell, settings, context: gpu_checks.device_tests(context, short=cell.budget == "smoke"),
    "self-check": lambda cell, settings, context: gpu_checks.self_check(context),
    "numerics": lambda cell, settings, context: gpu_checks.numerics(
        str(settings.subject), str(settings.algorithm), context
    ),
    "graph": lambda cell, settings, context: gpu_speed.graph(str(settings.subject), settings.rounds or 1, context),
    "compile": lambda cell, settings, context: gpu_speed.compiled(str(settings.subject), settings.rounds or 1, context),
    "layers": lambda cell, settings, context: gpu_speed.layer(
        str(settings.subject), str(settings.algorithm), settings.rounds or 1, settings.batch, context
    ),
    "methods": lambda cell, settings, context: gpu_speed.method_step(
        cell.method, settings.resolution or 28, settings.batch or 1, settings.rounds or 1, context
    ),
}


def cells(request: Request) -> Iterator[Draft]:
    """Every stage; without a GPU all are left out."""
    gpu, reason = request.gpu or "none", "" if request.gpu else NO_GPU
    for key, told in (*_checks(), *_speeds(request)):
        yield key, GpuSettings(gpu=gpu, **told), 0, reason


def _checks() -> Iterator[tuple[str, dict[str, Any]]]:
    """Whether it is right."""
    for stage in ("machine", "tests", "self-check"):
        yield "", {"stage": stage}
    for precision, way in product(gpu_checks.PRECISIONS, gpu_checks.WAYS):
        yield "", {"stage": "numerics", "subject": precision, "algorithm": way}


def _speeds(request: Request) -> Iterator[tuple[str, dict[str, Any]]]:
    """How fast it is; in a short run of fewer layers and networks, and on small batches."""
    few, (rounds, batch, resolutions) = request.budget == "smoke", AMOUNTS[request.budget]
    for stage, subject in product(("graph", "compile"), gpu_speed.networks(few=few)):
        yield "", {"stage": stage, "subject": subject, "rounds": rounds}
    own = {"batch": batch} if few else {}
    for case, way in product(gpu_speed.cases(few=few), gpu_speed.CONTESTANTS):
        yield "", {"stage": "layers", "subject": case, "algorithm": way, "rounds": rounds, **own}
    for side, row in product(resolutions, request.chosen(methods_on("mnist", request.recipe))):
        yield row.key, {"stage": "methods", "resolution": side, "rounds": rounds, "batch": batch}


def run(cell: Cell, context: Context) -> Sequence[Measurement]:
    """Carry out one cell."""
    settings = GpuSettings.of(cell)
    return STAGES[settings.stage](cell, settings, context)


GPU = Experiment(
    key="gpu",
    title="Whether the library is right and fast on a GPU.",
    version=1,
    settings=GpuSettings,
    cells=cells,
    run=run,
    axes=("gpu", "stage", "subject", "algorithm", "resolution"),
    sizes=("stage", "subject", "algorithm", "resolution"),
    work=lambda told: float((told.rounds or 1) * (told.batch or 1)),
    seed="",
    alone=True,
)
