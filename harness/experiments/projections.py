"""What the projection over scale costs: Delta of fields, of the maps and scores made of them, and the error of a task.

The field is that of a network with wide windows, whose own Delta is near the meter's floor. The same projections then
stand in the SESN vector network on MNIST-scale, which is trained as in `mnist-scale`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness.experiment import Context, Draft, Experiment, Request
from harness.experiments.delta import (
    CALIBRATION_IMAGES,
    DELTA_DEPTH,
    WHOLE_STEP,
    images_of,
    kernel_settings,
    rounded,
)
from harness.experiments.sweep_networks import DepthSettings, calibrate, deep_network, meter_of
from harness.experiments.training import MNIST_SCALE, MNISTSettings, mnist_job_of
from harness.records import Budget, Cell, Measurement, Scalar
from harness.run.training.cells import train
from harness.run.training.job import Job
from sesn import GlobalPool, PartneredProjection, ScaleProjection
from sesn._checks import looked_up
from sesn.errors import UsageError
from sesn.layers.project import Reduce
from sesn.methods import scales_of
from sesn.methods.method import CHANNELS
from sesn.methods.steerable import SESN_VECTOR

#: Those that a network can have on images of one size, on which the partnered one is "max-upper".
PROJECTIONS: dict[str, Callable[[], nn.Module]] = {
    "max": ScaleProjection,
    "soft": partial(ScaleProjection, reduce="soft"),
    "mean": partial(ScaleProjection, reduce="mean"),
    "soft-tapered": partial(ScaleProjection, reduce="soft", taper=2),
    "mean-tapered": partial(ScaleProjection, reduce="mean", taper=2),
    "max-upper": partial(ScaleProjection, leave_out=(1, 0)),
    "max-inner": partial(ScaleProjection, leave_out=(1, 1)),
}
#: Those that need images of several sizes.
PARTNERED: dict[str, Reduce] = {"max-partnered": "max", "soft-partnered": "soft"}
#: Steps of the grid by which the smallest image is smaller.
STEPS = 2


# --- Delta


@dataclass(frozen=True, kw_only=True)
class ProjectedFieldSettings(DepthSettings):
    """The field of a deep network, and what it is projected by."""

    projection: str


#: Images and draws of weights.
AMOUNTS: dict[Budget, tuple[int, int]] = {"smoke": (4, 1), "lite": (16, 4), "paper": (64, 32)}
#: The scales of the field: those of the sweeps, and twice the octaves.
SCALES = (5, 9)


def _field_cells(request: Request) -> Iterator[Draft]:
    count, draws = AMOUNTS[request.budget]
    common: dict[str, Any] = {"images": request.images, "image_count": count, "channels": CHANNELS, "side": 96}
    common |= {"resampler": "lanczos3", "ends": "inside", "crop": "auto", "layers": 2, "nonlinearity": "bandlimited"}
    # Of nine scales from the sweeps' smallest sigma the largest would hardly fit into the image.
    common |= {"smallest_sigma": 1.5}
    for draw in range(draws if request.methods is None else 0):
        for scales in SCALES:
            kernels = kernel_settings("wide", WHOLE_STEP, scales) | common
            for name in (*PROJECTIONS, *PARTNERED):
                yield "", ProjectedFieldSettings(**kernels, projection=name), draw, ""


def delta_projection(cell: Cell, context: Context) -> list[Measurement]:
    """Delta, absolute and relative, of the field, its map and the mean of that, at steps of the grid."""
    settings = ProjectedFieldSettings.of(cell)
    trunk = deep_network(settings, cell.seed, settings.layers).to(context.device)
    grid = scales_of(trunk)
    if grid is None or settings.step is None:
        raise UsageError("`settings` must have scales and a `step`; look at the plan")
    images, data_name = images_of(settings, context)
    calibrate(trunk, images[:CALIBRATION_IMAGES].to(torch.float32))
    sized = {
        name: partial(PartneredProjection, grid, side=settings.side, steps=STEPS, reduce=how)
        for name, how in PARTNERED.items()
    }
    projection = looked_up("projection", settings.projection, PROJECTIONS | sized)()
    heads = {"field": (), "map": (projection,), "score": (projection, GlobalPool("mean"))}
    found: list[Measurement] = []
    factors = [settings.step**-step for step in range(1, STEPS + 1)]
    for done, (of, head) in enumerate(heads.items()):
        context.on_progress(done / len(heads), of)
        network = nn.Sequential(trunk, *head).eval()
        for error in meter_of(settings).sweep(network, images, factors, repeat=False):
            at: dict[str, Scalar] = {"of": of, "downscale": 1 / error.factor, "data_name": data_name}
            found.append(Measurement("delta", rounded(error.valid), at))
            found.append(Measurement("delta_relative", rounded(error.relative), at))
    return found


# --- the error on MNIST-scale


@dataclass(frozen=True, kw_only=True)
class ProjectedMNISTSettings(MNISTSettings):
    """The network of `mnist-scale`, and what its field is projected by."""

    projection: str


def _mnist_cells(request: Request) -> Iterator[Draft]:
    """The first realisation at 28 without augmentation."""
    for key, settings, seed, reason in MNIST_SCALE.cells(request):
        assert isinstance(settings, MNISTSettings)
        if (key, settings.resolution, settings.augmented, seed) == (SESN_VECTOR.key, 28, False, 0):
            for name in PROJECTIONS:
                yield key, ProjectedMNISTSettings(**vars(settings), projection=name), seed, reason


def mnist_projection(cell: Cell, context: Context) -> list[Measurement]:
    """Train the network of a cell's method with the cell's projection in the place of the maximum."""
    return train(projected_job, cell, context, ProjectedMNISTSettings.of(cell).numerics)


def projected_job(cell: Cell, root: Path | None) -> Job:
    """That of `mnist-scale`, its projections exchanged; they have no weights, so the others are drawn alike."""
    settings = ProjectedMNISTSettings.of(cell)
    job = mnist_job_of(cell, settings, root)
    make = looked_up("projection", settings.projection, PROJECTIONS)
    for name, layer in [*job.network.named_modules()]:
        if isinstance(layer, ScaleProjection):
            job.network.set_submodule(name, make())
    return job


DELTA_PROJECTION = replace(
    DELTA_DEPTH,
    key="delta-projection",
    title="Delta of fields, maps and scores by the projection over scale.",
    settings=ProjectedFieldSettings,
    cells=_field_cells,
    run=delta_projection,
    axes=("projection", "scales"),
)
MNIST_PROJECTION: Experiment = replace(
    MNIST_SCALE,
    key="mnist-projection",
    title="Test error on MNIST-scale by the projection over scale.",
    settings=ProjectedMNISTSettings,
    cells=_mnist_cells,
    run=mnist_projection,
    axes=("projection",),
)
