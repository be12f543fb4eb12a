"""The families of bases in one network: Delta of its layers, what it costs, and its error on MNIST-scale.

The network is SESN Vector on MNIST-scale at 56 pixels, to which images are enlarged to the nearest pixel, with four
scales a third of an octave apart and 49 functions of 15 x 15 pixels at most. Each family has the settings that its
authors chose for training without and with random scaling (Sosnovik, Moskalev & Smeulders, ICCV workshop 2021). The
network of the fitted basis is pooled by means, as its authors have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from harness.experiment import CellSettings, Context, Draft, Experiment, Request
from harness.experiments.delta import DELTA_DEPTH, rounded
from harness.experiments.properties import SIDE, drawn
from harness.experiments.training import MNIST_SCALE, MNISTSettings, mnist_job_of
from harness.records import Budget, Cell, Measurement, Scalar
from harness.run.training.cells import train
from harness.run.training.job import Job
from sesn import (
    Meter,
    ScaleConv,
    ScaleGrid,
    ScaleLift,
    SteerableBasis,
    basis_b,
    basis_bspline,
    basis_fourier_bessel,
    basis_log_radial,
)
from sesn._checks import looked_up
from sesn.methods import disco
from sesn.methods.method import CHANNELS, COLOURS
from sesn.methods.steerable import SESN_VECTOR, vector_parts
from sesn.networks import Regime, mnist, multiply_adds
from sesn.tools.images import image_set

RESOLUTION = 56
WINDOW, SIZE = 15, 7
#: Steps of the grid: 1.26 and 2.
STEPS = (1, 3)


def _grid(smallest: float) -> ScaleGrid:
    return ScaleGrid(round(smallest * 2 ** (i / 3), 2) for i in range(4))


def _hermite(augmented: bool) -> SteerableBasis:
    smallest, mult = (1.7, 1.5) if augmented else (1.5, 1.4)
    return basis_b(_grid(smallest), WINDOW, SIZE, max_order=4, mult=mult)


def _log_radial(augmented: bool) -> SteerableBasis:
    smallest, directions, width = (0.5, 10, 0.3) if augmented else (0.1, 11, 0.2)
    return basis_log_radial(_grid(smallest), WINDOW, SIZE, directions=directions, width=width)


def _bspline(augmented: bool) -> SteerableBasis:
    mult, degree = (3.0, 1) if augmented else (2.0, 2)
    return basis_bspline(_grid(0.6), WINDOW, SIZE, mult=mult, degree=degree)


def _fourier_bessel(augmented: bool) -> SteerableBasis:
    return basis_fourier_bessel(_grid(0.6 if augmented else 0.88), WINDOW, SIZE)


#: By name, the basis without and with random scaling.
BASES: dict[str, Callable[[bool], SteerableBasis]] = {
    "hermite": _hermite,
    "log-radial": _log_radial,
    "bspline": _bspline,
    "fourier-bessel": _fourier_bessel,
    "fitted": disco.mnist_basis,
}
#: The networks that were published with other pools than the rest.
PARTS: dict[str, Callable[[Regime], mnist.StageParts]] = {"fitted": disco.mnist_parts}


def network_of(basis: str, regime: Regime) -> nn.Module:
    """The network with one of the bases."""
    made = looked_up("basis", basis, BASES)(regime.augmented)
    parts = PARTS[basis](regime) if basis in PARTS else vector_parts(made)
    return mnist.MNISTSkeleton(lambda _regime: parts)(regime.recipe, regime.resolution, regime.augmented)


# --- Delta and cost


@dataclass(frozen=True, kw_only=True)
class BasisSettings(CellSettings):
    """The images, and which basis; `augmented` chooses its settings."""

    images: str
    image_count: int
    basis: str
    augmented: bool


#: Images and draws of weights.
AMOUNTS: dict[Budget, tuple[int, int]] = {"smoke": (2, 1), "lite": (16, 4), "paper": (64, 32)}


def _delta_cells(request: Request) -> Iterator[Draft]:
    count, draws = AMOUNTS[request.budget]
    for draw in range(draws if request.methods is None else 0):
        for basis in BASES:
            for augmented in (False, True):
                settings = BasisSettings(images=request.images, image_count=count, basis=basis, augmented=augmented)
                yield "", settings, draw, ""


def delta_basis(cell: Cell, context: Context) -> list[Measurement]:
    """Delta of the first layer and of the first two, at steps of the grid, and the network's multiply-adds."""
    settings = BasisSettings.of(cell)
    basis = looked_up("basis", settings.basis, BASES)(settings.augmented)
    images, name = image_set(settings.images, COLOURS, SIDE, SIDE, settings.image_count, data_root=context.data_root)
    lift, conv = (drawn(partial(kind, bias=False), cell.seed) for kind in _layers(basis))
    found: list[Measurement] = []
    for of, module in {"layer": lift, "two layers": nn.Sequential(lift, nn.ReLU(), conv)}.items():
        context.on_progress(len(found) / (3 * 2 * len(STEPS)), of)
        for step in STEPS:
            downscale = 2 ** (step / 3)
            error = Meter(grid=basis.grid).measure(module.to(context.device), images, 1 / downscale, repeat=False)
            at: dict[str, Scalar] = {"of": of, "downscale": downscale, "data_name": name}
            values = {"delta": error.valid, "delta_relative": error.relative, "floor": error.floor}
            found += [Measurement(metric, rounded(value), at) for metric, value in values.items()]
    network = network_of(settings.basis, Regime(RESOLUTION, settings.augmented, "released"))
    count = multiply_adds(network, (1, mnist.SIDE, mnist.SIDE))
    return [*found, Measurement("multiply_adds", (float(count),))]


def _layers(basis: SteerableBasis) -> tuple[Callable[..., nn.Module], Callable[..., nn.Module]]:
    return partial(ScaleLift, COLOURS, CHANNELS, basis), partial(ScaleConv, CHANNELS, CHANNELS, basis)


# --- the error on MNIST-scale


@dataclass(frozen=True, kw_only=True)
class BasisMNISTSettings(MNISTSettings):
    """The training of `mnist-scale`, and the basis of its network."""

    basis: str


#: How a budget differs from that of `mnist-scale`. The smoke budget has enough to see that all of it works, and the lite
#: budget has half the epochs, since the whole table is trained at 56 pixels.
REDUCED: dict[Budget, dict[str, Any]] = {
    "smoke": {"epochs": 1, "train_images": 256, "test_images": 100, "delta_images": 0},
    "lite": {"epochs": 6},
    "paper": {},
}


def _mnist_cells(request: Request) -> Iterator[Draft]:
    """All realisations at 56 without and with random scaling; at smaller budgets the first one without it."""
    all_of_it = request.budget == "paper"
    for key, settings, seed, _ in MNIST_SCALE.cells(request):
        assert isinstance(settings, MNISTSettings)
        if key != SESN_VECTOR.key or settings.resolution != RESOLUTION:
            continue
        left_out = not all_of_it and (seed > 0 or settings.augmented)
        skip = f"the {request.budget} budget trains one realisation without random scaling" if left_out else ""
        shared = vars(settings) | {"recipe": "released"} | REDUCED[request.budget]
        for basis in BASES:
            yield key, BasisMNISTSettings(**shared, basis=basis), seed, skip


def mnist_basis(cell: Cell, context: Context) -> list[Measurement]:
    """Train the network with the cell's basis."""
    return train(basis_job, cell, context, BasisMNISTSettings.of(cell).numerics)


def basis_job(cell: Cell, root: Path | None) -> Job:
    """That of `mnist-scale` with another network."""
    settings = BasisMNISTSettings.of(cell)
    job = mnist_job_of(cell, settings, root)
    return replace(job, network=network_of(settings.basis, Regime(RESOLUTION, settings.augmented, "released")))


DELTA_BASIS = replace(
    DELTA_DEPTH,
    key="delta-basis",
    title="Delta and cost by the family of the basis.",
    version=1,
    settings=BasisSettings,
    cells=_delta_cells,
    run=delta_basis,
    work=lambda settings: float(settings.image_count),
    axes=("basis", "augmented"),
    sizes=(),
)
MNIST_BASIS: Experiment = replace(
    MNIST_SCALE,
    key="mnist-basis",
    title="Test error on MNIST-scale by the family of the basis.",
    settings=BasisMNISTSettings,
    cells=_mnist_cells,
    run=mnist_basis,
    axes=("basis", "augmented"),
)
