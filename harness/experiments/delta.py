"""Figure 2 of the paper: Delta against depth, downscale factor and interscale extent.

`sesn.Meter` measures: Phi(f) is computed once for all factors, and one pass through the deepest network gives every
shallower one. Images go through in chunks.

Every factor is sampled exactly, about the image's centre. `crop` says how many pixels of the border do not count;
"auto" is the meter's own choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harness.experiment import Context, Draft, Experiment, Request
from harness.experiments.sweep_methods import (
    OWN,
    OwnCells,
    Subject,
    between_of,
    chain_of,
    downscaled,
    own_depths,
    own_downscales,
    own_extents,
)
from harness.experiments.sweep_networks import (
    Amount,
    DepthSettings,
    DownscaleSettings,
    SweepSettings,
    calibrate,
    deep_network,
    interscale_network,
    meter_of,
    powers,
)
from harness.records import Budget, Cell, Measurement, Scalar
from sesn import EquivarianceError, Meter
from sesn.algorithms.resample import resampled_size
from sesn.errors import UsageError
from sesn.methods import METHODS, Method, method
from sesn.methods.method import CHANNELS, COLOURS
from sesn.tools.images import image_set, image_sets

#: All cells of a sweep see the same images; a cell's seed draws its weights.
IMAGE_SEED = 0
#: How many numbers a chunk's output has at most, unless a single image's has more: 8 images of 8 x 5 x 96 x 96.
CHUNK_NUMBERS = 8 * 8 * 5 * 96 * 96
#: The images, the first ones, that the layers' scalars are taken from. Delta does not depend on the choice.
CALIBRATION_IMAGES = 4
#: What rows keep of a value.
DIGITS = 6
#: The attributes of the meter that rows keep, by metric.
KEPT = {
    "delta": "valid",
    "delta_centred": "centred",
    "energy": "energy",
    "delta_uncropped": "uncropped",
    "delta_all": "all",
}
#: Those of a sweep that crops nothing, of one that does, and of one whose layers reach past the ends of the scale axis.
PLAIN = ("delta", "delta_centred", "energy")
CROPPED = (*PLAIN, "delta_uncropped")
INTERSCALE = (*CROPPED, "delta_all")


# --- the cells


AMOUNTS: dict[Budget, Amount] = {
    "smoke": Amount(4, 1, draws=1, layers=10, downscale_96=32.0, downscale_384=4.0),
    "lite": Amount(64, 64, draws=8, layers=50, downscale_96=32.0, downscale_384=64.0),
    "paper": Amount(64, 64, draws=32, layers=50, downscale_96=32.0, downscale_384=64.0),
}
WINDOWS = ("published", "wide")
LARGE_CHANNELS = 2
EXTENTS = (1, 2, 3, 4, 5)
SCALES = 5
#: 96 pixels shrink to 68: kernels that step by the ratio of the two have both grids whole.
WHOLE_STEP = 96 / 68
OCTAVE_HALVED = math.sqrt(2)
#: Relative cost; the band-limited nonlinearity works at twice the resolution, and the nested one at every size.
NONLINEARITY_WORK = {"linear": 1.0, "relu": 1.1, "bandlimited": 2.0, "nested": 3.0}
#: Windows and nonlinearities of every sweep, and of the depth sweep besides. Where maps repeat, nothing but
#: nonlinearities is in the way of an exact network.
SERIES = [(window, name) for window in WINDOWS for name in NONLINEARITY_WORK]
DEPTH_SERIES = SERIES + [("periodic", name) for name in NONLINEARITY_WORK]
#: Images of those cells: nothing hangs on the border, and their errors are alike.
PERIODIC_IMAGES = 16


def kernel_settings(window: str, step: float, scales: int) -> dict[str, Any]:
    """The kernels: those of the paper's STL-10 networks, or the same family where window and pixels cost nothing."""
    if window == "wide":
        kernels: dict[str, Any] = {"smallest_sigma": 2.0, "half_width": 4.5, "total_order": 2}
    elif window == "periodic":
        # Windows of 4.5 sigmas cut off what a network without borders and aliasing would show.
        kernels = {"smallest_sigma": 2.0, "half_width": 6.0, "total_order": 2}
        kernels |= {"padding_mode": "circular", "resampler": "fourier", "ends": "circular"}
    else:
        # The published V = 7 at three scales, so that the windows of these hold as many sigmas.
        size = 7 * step ** (scales - 3)
        kernels = {"smallest_sigma": 0.9, "kernel_size": 2 * math.floor((size - 1) / 2 + 1e-9) + 1, "total_order": 4}
    return {"window": window, "scales": scales, "step": step} | kernels


def _cells(
    request: Request,
    settings: type[SweepSettings],
    sizes: Callable[[Amount], Iterator[dict[str, Any]]],
    own: Callable[[Method, dict[str, Any], Amount], OwnCells],
    step: float,
    series: Sequence[tuple[str, str]] = SERIES,
) -> Iterator[Draft]:
    """All series, or every named method; the first weight draw of all before the second of any."""
    amount = AMOUNTS[request.budget]
    common: dict[str, Any] = {"images": request.images, "channels": CHANNELS, "image_count": amount.images}
    common |= {"resampler": "lanczos3", "ends": "inside", "side": 96}
    if request.methods is not None:
        base = common | {"window": OWN, "nonlinearity": "relu"}
        planned = [(row, *found) for row in request.chosen(METHODS.values()) for found in own(row, base, amount)]
        yield from ((row.key, told, draw, reason) for draw in range(amount.draws) for row, told, reason in planned)
        return
    for draw in range(amount.draws):
        for window, nonlinearity in series:
            for size in sizes(amount):
                told = common | {"nonlinearity": nonlinearity} | kernel_settings(window, step, size["scales"]) | size
                if window == "periodic":
                    told["image_count"] = min(PERIODIC_IMAGES, amount.images)
                yield "", settings(**told), draw, ""


def _depths(amount: Amount) -> Iterator[dict[str, Any]]:
    # Nothing is cropped: fifty layers see the border from everywhere.
    yield {"layers": amount.layers, "scales": SCALES, "extent": 1, "crop": 0}


def _downscales(amount: Amount) -> Iterator[dict[str, Any]]:
    lift = {"scales": 13, "crop": "auto", "enlarging": "fourier"}
    yield lift | {"largest_downscale": amount.downscale_96}
    # Of one layer each channel is a draw of its own: on large images there are fewer, and as many weight draws.
    large = {"side": 384, "image_count": amount.large_images, "channels": LARGE_CHANNELS}
    yield lift | large | {"largest_downscale": amount.downscale_384}


def _extents(_amount: Amount) -> Iterator[dict[str, Any]]:
    for extent in EXTENTS:
        # As many scales more as the extent spoils: all five of the others have what they need.
        for scales in sorted({SCALES, SCALES + extent - 1}):
            yield {"extent": extent, "scales": scales, "crop": "auto"}


def sweep_work(settings: SweepSettings) -> float:
    """How many numbers its layers make, and what its nonlinearity costs."""
    layers = settings.layers if isinstance(settings, DepthSettings) else 1
    numbers = settings.image_count * (settings.scales or 1) * settings.channels * settings.side**2
    return NONLINEARITY_WORK[settings.nonlinearity] * numbers * layers


# --- the sweep


def swept(
    sweep: Callable[[Tensor], Iterator[EquivarianceError]],
    images: Tensor,
    chunk: int,
    on_point: Callable[[float], None] = lambda _done: None,
) -> list[list[EquivarianceError]]:
    """A sweep's points, each with one error per chunk of images."""
    points: list[list[EquivarianceError]] = []
    for start in range(0, len(images), chunk):
        for index, error in enumerate(sweep(images[start : start + chunk])):
            if index == len(points):
                points.append([])
            points[index].append(error)
            on_point(start / len(images))
    return points


def chunk_of(settings: SweepSettings) -> int:
    """How many images go through at a time."""
    return max(1, CHUNK_NUMBERS // (settings.channels * (settings.scales or SCALES) * settings.side**2))


def subject_of(cell: Cell, settings: SweepSettings, layers: int) -> Subject:
    """The network of a cell, and how it is measured: of SESN's kernels, or of the layers of its method."""
    meter = meter_of(settings)
    if cell.method:
        return chain_of(method(cell.method), settings, cell.seed, layers, meter)
    return _steerable(settings, deep_network(settings, cell.seed, layers))


def _steerable(settings: SweepSettings, network: nn.Sequential) -> Subject:
    if settings.step is None:
        raise UsageError("`settings` must have a `step`; look at the plan")
    return Subject(network, meter_of(settings), settings.step, settings.step, settings.scales)


def delta_depth(cell: Cell, context: Context) -> list[Measurement]:
    """Delta of the first d layers, d = 1..layers, at one step of the grid; all that is known at the first and last."""
    settings = DepthSettings.of(cell)
    subject = subject_of(cell, settings, settings.layers)
    network, factor = subject.network.to(context.device), subject.factor
    images, name = images_of(settings, context)
    calibrate(network, images[:CALIBRATION_IMAGES].to(torch.float32))
    points = swept(
        lambda chunk: subject.meter.along(network, chunk, factor),
        images,
        chunk_of(settings),
        lambda done: context.on_progress(done, "depths"),
    )
    # The cell of a method does not say its step.
    place: dict[str, Scalar] = {"data_name": name} | ({"downscale": subject.downscale} if cell.method else {})
    # One layer also away from the border, which deeper networks see from everywhere.
    inside = replace(subject.meter, crop="auto")
    (errors,) = swept(lambda chunk: inside.along([network[0]], chunk, factor), images, chunk_of(settings))
    cropped = rounded(torch.cat([error.valid for error in errors]))
    found = [Measurement("delta_cropped", cropped, {"depth": 1, **place})]
    for depth, errors in enumerate(points, start=1):
        at: dict[str, Scalar] = {"depth": depth, **place}
        if depth in (1, len(points)):
            floor = floor_of(settings, context, factor, errors[0].crop, at)
            found += [*measurements(errors, at, PLAIN), floor]
        else:
            found += measurements(errors, at, ("delta",))
    return found


def delta_downscale(cell: Cell, context: Context) -> list[Measurement]:
    """Delta of one lift at the powers of its step up to the largest downscale."""
    settings = DownscaleSettings.of(cell)
    subject = subject_of(cell, settings, 1)
    subject.network.to(context.device)
    downscales = powers(subject.step, subject.scales, settings.largest_downscale)
    images, name = images_of(settings, context)
    points = swept(
        lambda chunk: downscaled(subject, chunk, downscales),
        images,
        chunk_of(settings),
        lambda done: context.on_progress(done, "factors"),
    )
    found: list[Measurement] = []
    for downscale, errors in zip(downscales, points, strict=True):
        pixels = resampled_size(settings.side, 1 / downscale)
        at: dict[str, Scalar] = {"downscale": downscale, "pixels": pixels, "data_name": name}
        floor = floor_of(settings, context, 1 / downscale, errors[0].crop, at)
        found += [*measurements(errors, at, CROPPED), floor]
    return found


def delta_interscale(cell: Cell, context: Context) -> list[Measurement]:
    """Delta of one interscale layer on an image copied along the scale axis, at one step of the grid.

    Where truncation spoils every scale channel there is no `delta`: `channels_lost` equals the scales then.
    """
    settings = SweepSettings.of(cell)
    if cell.method:
        subject = between_of(method(cell.method), settings, cell.seed, meter_of(settings))
    else:
        subject = _steerable(settings, interscale_network(settings, cell.seed))
    subject.network.to(context.device)
    images, name = images_of(settings, context)
    (errors,) = swept(
        lambda chunk: downscaled(subject, chunk, [subject.downscale]),
        images,
        chunk_of(settings),
        lambda done: context.on_progress(done, "images"),
    )
    at = {"data_name": name}
    return [*measurements(errors, at, INTERSCALE), floor_of(settings, context, subject.factor, errors[0].crop, at)]


# --- images, floors and rows


def images_of(settings: SweepSettings, context: Context) -> tuple[Tensor, str]:
    """The cell's images in float64, the same for every draw of weights, and their name."""
    images, name = _images(*_image_key(settings, context))
    return images.to(context.device), name


def _image_key(settings: SweepSettings, context: Context) -> tuple[str, int, int, str, Path | None]:
    enlarging = "lanczos"
    # The pictures of a directory are read at the wanted size.
    if isinstance(settings, DownscaleSettings) and settings.images in image_sets():
        enlarging = settings.enlarging
    return settings.images, settings.side, settings.image_count, enlarging, context.data_root


@lru_cache(maxsize=1)
def _images(name: str, side: int, count: int, enlarging: str, root: Path | None) -> tuple[Tensor, str]:
    return image_set(name, COLOURS, side, side, count, IMAGE_SEED, root, enlarging)  # type: ignore[arg-type]


def floor_of(
    settings: SweepSettings, context: Context, factor: float, crop: int, at: Mapping[str, Scalar]
) -> Measurement:
    """The meter's own floor. Weights have no part in it, so a worker computes it for its first draw only."""
    return Measurement("floor", _floor(_image_key(settings, context), factor, meter_of(settings), crop), at)


@lru_cache(maxsize=64)
def _floor(key: tuple[str, int, int, str, Path | None], factor: float, meter: Meter, crop: int) -> tuple[float, ...]:
    images, _ = _images(*key)
    return rounded(torch.cat([meter.floor(image[None], factor, crop) for image in images]))


def measurements(
    errors: Sequence[EquivarianceError], at: Mapping[str, Scalar], metrics: Sequence[str]
) -> list[Measurement]:
    """One measurement per metric that has a value: one value per image, and the scale channels that were lost."""
    columns = {metric: torch.cat([getattr(error, KEPT[metric]) for error in errors]) for metric in metrics}
    found = [Measurement(metric, rounded(values), at) for metric, values in columns.items() if not values.isnan().all()]
    if len(metrics) > 1:
        found.append(Measurement("channels_lost", (float(errors[0].lost),), at))
    return found


def rounded(values: Tensor) -> tuple[float, ...]:
    """To as many digits as rows keep."""
    return tuple(float(f"{value:.{DIGITS}g}") for value in values.tolist())


DELTA_DEPTH = Experiment(
    key="delta-depth",
    title="Figure 2, left: Delta against the number of layers.",
    version=1,
    settings=DepthSettings,
    cells=partial(_cells, settings=DepthSettings, sizes=_depths, own=own_depths, step=WHOLE_STEP, series=DEPTH_SERIES),
    run=delta_depth,
    work=sweep_work,
    axes=("window", "nonlinearity"),
    sizes=("side",),
    seed="weight draw",
    alone=False,
)
DELTA_DOWNSCALE = replace(
    DELTA_DEPTH,
    key="delta-downscale",
    title="Figure 2, middle: Delta against the downscale.",
    settings=DownscaleSettings,
    cells=partial(_cells, settings=DownscaleSettings, sizes=_downscales, own=own_downscales, step=OCTAVE_HALVED),
    run=delta_downscale,
    axes=("window", "nonlinearity", "side", "largest_downscale"),
)
DELTA_INTERSCALE = replace(
    DELTA_DEPTH,
    key="delta-interscale",
    title="Figure 2, right: Delta against the extent.",
    settings=SweepSettings,
    cells=partial(_cells, settings=SweepSettings, sizes=_extents, own=own_extents, step=WHOLE_STEP),
    run=delta_interscale,
    axes=("window", "nonlinearity", "extent", "scales"),
)
