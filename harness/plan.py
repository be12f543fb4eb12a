"""EXPERIMENTS: which cells make up each figure and table of the paper, at each budget. Data only; nothing is run here.

`smoke` takes seconds a cell: tests and a first look. `lite` takes hours on two cores. `paper` is as published; where
the paper is silent, as much as its bars suggest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.records import SOURCE, Budget, Cell, Scalar
from harness.request import Request
from sesn._lookup import looked_up
from sesn.methods import METHODS, Method, methods_on
from sesn.networks import NETWORKS, RECIPES

WINDOWS = ("published", "wide")
RESOLUTIONS = (28, 56)
REALISATIONS = 6


class Planned(NamedTuple):
    """A cell, how much work it is, and why it is left out, if it is.

    `work` compares cells of one experiment: seconds are estimated from finished cells in proportion to it.
    """

    cell: Cell
    work: float = 1.0
    skip: str = ""


@dataclass(frozen=True)
class Experiment:
    """One figure or table.

    Attributes:
        key: how everything else refers to it.
        title: a sentence for people.
        version: raise it when a change of the code changes its numbers: old rows retire.
        cells: from a request to (method, settings, seed, skip) of each cell.
        work: how much work a cell is, compared with others of the experiment, whatever data it is on.
        alone: whether nothing else may run beside its cells, because they measure time.
        timed_by: the experiment whose measured epoch times predict this one's seconds until cells of it have finished.
    """

    key: str
    title: str
    version: int
    cells: Callable[[Request], Iterator[Draft]]
    work: Callable[[Cell], float] = lambda _cell: 1.0
    alone: bool = False
    timed_by: str = ""

    def plan(self, request: Request) -> list[Planned]:
        """Every cell of the experiment under a request."""
        return [self._planned(request.budget, draft) for draft in self.cells(request)]

    def _planned(self, budget: Budget, draft: Draft) -> Planned:
        # A method from outside whose source has changed makes other cells.
        digest = METHODS[draft.method].digest if draft.method else ""
        settings = draft.settings | ({SOURCE: digest} if digest else {})
        cell = Cell(self.key, self.version, budget, draft.method, settings, draft.seed)
        return Planned(cell, self.work(cell), draft.skip)


class Draft(NamedTuple):
    """A cell before its experiment, version and budget are added."""

    method: str
    settings: dict[str, Scalar]
    seed: int = 0
    skip: str = ""


# --- the equivariance error


class Sweep(NamedTuple):
    """How much is measured: images (of 96 pixels, of 384 pixels), weight draws, layers, factors."""

    images: int
    large_images: int
    draws: int
    layers: int
    downscale_96: float
    downscale_384: float


SWEEPS: dict[Budget, Sweep] = {
    "smoke": Sweep(4, 1, draws=1, layers=10, downscale_96=32.0, downscale_384=4.0),
    "lite": Sweep(64, 64, draws=8, layers=50, downscale_96=32.0, downscale_384=64.0),
    "paper": Sweep(64, 64, draws=32, layers=50, downscale_96=32.0, downscale_384=64.0),
}
LARGE_CHANNELS = 2
EXTENTS = (1, 2, 3, 4, 5)
SCALES = 5
#: 96 pixels shrink to 68: kernels that step by the ratio of the two have both grids whole.
WHOLE_STEP = 96 / 68
OCTAVE_HALVED = math.sqrt(2)
#: Relative cost; the band-limited nonlinearity works at twice the resolution.
NONLINEARITY_WORK = {"linear": 1.0, "relu": 1.1, "bandlimited": 2.0}


def _window(window: str, step: float, scales: int) -> dict[str, Scalar]:
    """The kernels: those of the paper's STL-10 networks, or the same family where window and pixels cost nothing."""
    if window == "wide":
        kernels: dict[str, Scalar] = {"smallest_sigma": 2.0, "half_width": 4.5, "total_order": 2}
    else:
        # The published V = 7 at three scales, so that the windows of these hold as many sigmas.
        size = 7 * step ** (scales - 3)
        kernels = {"smallest_sigma": 0.9, "kernel_size": 2 * math.floor((size - 1) / 2 + 1e-9) + 1, "total_order": 4}
    return {"scales": scales, "step": step} | kernels


def _sweep(request: Request, sizes: Callable[[], Iterator[dict[str, Scalar]]], step: float) -> Iterator[Draft]:
    """Every window and nonlinearity, and every weight draw of each, the first draw of all before the second of any."""
    for draw in range(SWEEPS[request.budget].draws):
        for window in WINDOWS:
            for nonlinearity in NONLINEARITY_WORK:
                common: dict[str, Scalar] = {"window": window, "nonlinearity": nonlinearity, "images": request.images}
                common |= {"channels": 8, "resampler": "lanczos3", "ends": "inside"}
                for size in sizes():
                    yield Draft("", common | _window(window, step, int(size["scales"])) | size, draw)


def _sweep_work(cell: Cell) -> float:
    """How many numbers its layers make, and what its nonlinearity costs."""
    settings = cell.settings
    numbers = math.prod(int(settings[name]) for name in ("image_count", "scales", "channels"))
    layers = int(settings.get("layers", 1))
    return NONLINEARITY_WORK[str(settings["nonlinearity"])] * numbers * int(settings["side"]) ** 2 * layers


def _delta_depth(request: Request) -> Iterator[Draft]:
    budget = SWEEPS[request.budget]

    def sizes() -> Iterator[dict[str, Scalar]]:
        deep: dict[str, Scalar] = {"layers": budget.layers, "scales": SCALES, "extent": 1}
        # Nothing is cropped: fifty layers see the border from everywhere.
        yield deep | {"side": 96, "image_count": budget.images, "crop": 0}

    return _sweep(request, sizes, WHOLE_STEP)


def _delta_downscale(request: Request) -> Iterator[Draft]:
    budget = SWEEPS[request.budget]

    def sizes() -> Iterator[dict[str, Scalar]]:
        lift: dict[str, Scalar] = {"scales": 13, "crop": "auto", "enlarging": "fourier"}
        yield lift | {"side": 96, "image_count": budget.images, "largest_downscale": budget.downscale_96}
        # Of one layer each channel is a draw of its own: on large images there are fewer, and as many weight draws.
        large: dict[str, Scalar] = {"side": 384, "image_count": budget.large_images, "channels": LARGE_CHANNELS}
        yield lift | large | {"largest_downscale": budget.downscale_384}

    return _sweep(request, sizes, OCTAVE_HALVED)


def _delta_interscale(request: Request) -> Iterator[Draft]:
    budget = SWEEPS[request.budget]

    def sizes() -> Iterator[dict[str, Scalar]]:
        for extent in EXTENTS:
            # As many scales more as the extent spoils: all five of the others have what they need.
            for scales in sorted({SCALES, SCALES + extent - 1}):
                layer: dict[str, Scalar] = {"extent": extent, "scales": scales, "crop": "auto"}
                yield layer | {"side": 96, "image_count": budget.images}

    return _sweep(request, sizes, WHOLE_STEP)


# --- the methods: properties, sizes, times


#: Images and weight draws of Table 1: its marks are far coarser than the curves of the sweeps.
MARKS: dict[Budget, tuple[int, int]] = {"smoke": (4, 1), "lite": (16, 4), "paper": (64, 32)}


def _properties(request: Request) -> Iterator[Draft]:
    images, draws = MARKS[request.budget]
    for draw in range(draws):
        for row in request.chosen(row for row in METHODS.values() if row.layer is not None):
            settings: dict[str, Scalar] = {"images": request.images, "image_count": images, "recipe": "paper"}
            yield Draft(row.key, settings, draw)


def _images_work(cell: Cell) -> float:
    return float(cell.settings["image_count"])


def _parameters(request: Request) -> Iterator[Draft]:
    for network in NETWORKS:
        for recipe in RECIPES:
            for row in request.chosen(METHODS.values()):
                skip = row.lacks(network, recipe) or ""
                yield Draft(row.key, {"network": network, "recipe": recipe}, skip=skip)


class Timing(NamedTuple):
    """How many steps are timed, and how many before them are not."""

    batch: int
    steps: int
    warmup: int


TIMINGS: dict[Budget, Timing] = {
    "smoke": Timing(batch=16, steps=2, warmup=1),
    "lite": Timing(batch=128, steps=7, warmup=2),
    "paper": Timing(batch=128, steps=79, warmup=5),
}


def _epoch_time(request: Request) -> Iterator[Draft]:
    timing = TIMINGS[request.budget]
    rows = request.chosen(methods_on("mnist", request.recipe))
    keys, others = ",".join(row.key for row in rows if not row.digest), [row.key for row in rows if row.digest]
    for resolution in RESOLUTIONS:
        settings: dict[str, Scalar] = {"resolution": resolution, "recipe": request.recipe}
        settings |= {"batch": timing.batch, "steps": timing.steps, "warmup": timing.warmup, "epoch_images": 10_000}
        if keys or not others:
            yield Draft("", settings | {"methods": keys}, skip="" if keys else "none of its methods was asked for")
        # A method from outside has a cell of its own, so that it leaves the rows of the others valid.
        yield from (Draft(key, settings) for key in others)


def _epoch_time_work(cell: Cell) -> float:
    steps, warmup, batch, side = (int(cell.settings[name]) for name in ("steps", "warmup", "batch", "resolution"))
    return float((steps + warmup) * batch * side**2)


# --- training


class MNISTSchedule(NamedTuple):
    """Adam, its rate divided by ten at each third of the epochs; the epoch with the best validation error counts."""

    epochs: int
    realisations: int
    resolutions: tuple[int, ...]
    train_images: int = 10_000
    test_images: int = 50_000
    delta_images: int = 16


MNIST_SCHEDULES: dict[Budget, MNISTSchedule] = {
    "smoke": MNISTSchedule(2, 1, resolutions=(28,), train_images=1024, test_images=500, delta_images=2),
    "lite": MNISTSchedule(epochs=12, realisations=2, resolutions=(28, 56)),
    "paper": MNISTSchedule(epochs=60, realisations=REALISATIONS, resolutions=(28, 56)),
}


def _mnist_scale(request: Request) -> Iterator[Draft]:
    schedule = MNIST_SCHEDULES[request.budget]
    train_images, test_images = _at_most(request.digit_counts, schedule.train_images, schedule.test_images)
    settings: dict[str, Scalar] = {"data": request.digits, "recipe": request.recipe, "epochs": schedule.epochs}
    settings |= {"batch": 128, "rate": 0.01, "train_images": train_images, "test_images": test_images}
    settings |= {"delta_images": schedule.delta_images}
    for resolution in RESOLUTIONS:
        for seed in range(schedule.realisations):
            for augmented in (False, True):
                for row in request.chosen(methods_on("mnist", request.recipe)):
                    cell = settings | {"resolution": resolution, "augmented": augmented} | request.training
                    yield Draft(row.key, cell, seed, _skip_mnist(request.budget, row, resolution, seed))


def training_work(cell: Cell) -> float:
    """Pixels that are learnt from, and those of the test at a third of the price: it has no backward pass."""
    names = ("epochs", "train_images", "test_images", "resolution")
    epochs, train, test, side = (int(cell.settings[name]) for name in names)
    return (epochs * train + test / 3) * side**2


def _at_most(there: tuple[int, int], train: int, test: int) -> tuple[int, int]:
    """How many images there are to train and to test on, of those that a budget asks for."""
    return min(train, there[0]), min(test, there[1])


def _skip_mnist(budget: Budget, row: Method, resolution: int, seed: int) -> str:
    if resolution not in MNIST_SCHEDULES[budget].resolutions:
        return f"the {budget} budget trains at 28 only"
    # On two cores a network at 56 takes four times as long: the representative ones show the trend.
    if budget == "lite" and resolution == 56 and (not row.representative or seed > 0):
        few = ", ".join(one.key for one in methods_on("mnist") if one.representative)
        return f"the lite budget trains {few} at 56, one realisation"
    return ""


class STL10Schedule(NamedTuple):
    """SGD, its rate divided by five after 30, 40, 60 and 80 % of the epochs; the last epoch counts."""

    depth: int
    width: int
    epochs: int
    train_images: int
    test_images: int
    batch: int = 128
    resolution: int = 96
    seeds: int = 1


STL10_SCHEDULES: dict[Budget, STL10Schedule] = {
    "smoke": STL10Schedule(depth=10, width=1, epochs=1, train_images=32, test_images=32, batch=16),
    "lite": STL10Schedule(depth=16, width=8, epochs=10, train_images=5000, test_images=8000),
    "paper": STL10Schedule(depth=16, width=8, epochs=1000, train_images=5000, test_images=8000),
}
#: Thinner and shallower than the paper's network, and in the lite budget on images of half the side: what two cores can
#: train. Never mixed with the published one. The augmentation keeps its proportions (padding 6 and hole 16 of 48).
REDUCED_SCHEDULES: dict[Budget, STL10Schedule] = {
    "smoke": STL10_SCHEDULES["smoke"],
    "lite": STL10Schedule(10, 1, epochs=40, train_images=5000, test_images=8000, resolution=48, seeds=2),
    "paper": STL10Schedule(depth=10, width=2, epochs=100, train_images=5000, test_images=8000),
}
NOT_ON_TWO_CORES = (
    "two cores need days for this network: the lite budget trains the reduced one (stl10-reduced), paper trains both"
)


def _stl10_with(request: Request, schedule: STL10Schedule) -> Iterator[Draft]:
    train_images, test_images = _at_most(request.stl10_counts, schedule.train_images, schedule.test_images)
    settings: dict[str, Scalar] = {"data": "stl10", "recipe": request.recipe, "rate": 0.1, **schedule._asdict()}
    # How often a cell is repeated is the plan's affair: it is no setting of the cell.
    seeds = int(settings.pop("seeds"))
    settings |= {"train_images": train_images, "test_images": test_images} | request.training
    for seed in range(seeds):
        for row in request.chosen(methods_on("stl10", request.recipe)):
            yield Draft(row.key, settings, seed, request.no_stl10 or "")


def _stl10(request: Request) -> Iterator[Draft]:
    for draft in _stl10_with(request, STL10_SCHEDULES[request.budget]):
        yield draft._replace(skip=draft.skip or (NOT_ON_TWO_CORES if request.budget == "lite" else ""))


def _stl10_reduced(request: Request) -> Iterator[Draft]:
    return _stl10_with(request, REDUCED_SCHEDULES[request.budget])


# --- the table

_ROWS = (
    Experiment("parameters", "How many parameters each network has, and how many it uses.", 1, _parameters),
    Experiment("properties", "Table 1: which methods are equivariant, to which factors.", 1, _properties, _images_work),
    Experiment("delta-depth", "Figure 2, left: Delta against the number of layers.", 1, _delta_depth, _sweep_work),
    Experiment("delta-downscale", "Figure 2, middle: Delta against the downscale.", 1, _delta_downscale, _sweep_work),
    Experiment("delta-interscale", "Figure 2, right: Delta against the extent.", 1, _delta_interscale, _sweep_work),
    Experiment("epoch-time", "Time of an epoch of MNIST-scale.", 1, _epoch_time, _epoch_time_work, alone=True),
    Experiment("mnist-scale", "Test error on MNIST-scale.", 1, _mnist_scale, training_work, timed_by="epoch-time"),
    Experiment("stl10", "Test error on STL-10.", 1, _stl10, training_work),
    Experiment("stl10-reduced", "Test error on STL-10 with a small network.", 1, _stl10_reduced, training_work),
)

#: Every experiment by its key, the quick ones first.
EXPERIMENTS: dict[str, Experiment] = {row.key: row for row in _ROWS}


def experiment(key: str) -> Experiment:
    """The experiment of that key; an unknown key is answered with the keys, and the nearest of them."""
    return looked_up("experiment", key, EXPERIMENTS)


def plan(request: Request, experiments: Iterable[str] | None = None) -> list[Planned]:
    """The cells of the experiments, or of all, in order; of one that is named twice, once."""
    named = dict.fromkeys(experiments or ())
    chosen: list[Any] = [experiment(key) for key in named] if named else list(EXPERIMENTS.values())
    return [planned for one in chosen for planned in one.plan(request)]
