"""Figure 2 of the paper: Delta against depth, downscale factor and interscale extent.

`sesn.Meter` measures: Phi(f) is computed once for all factors, and one pass through the deepest network gives every
shallower one. Images go through in chunks.

Every factor is sampled exactly, about the image's centre. `crop` says how many pixels of the border do not count;
"auto" is the meter's own choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn

from harness.records import Cell, Measurement, Scalar
from harness.run.context import Context
from harness.run.sweep_networks import COLOURS, calibrate, deep_network, interscale_network
from sesn import EquivarianceError, Meter
from sesn.meter.resample import resampled_size
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


def meter_of(settings: Mapping[str, Scalar]) -> Meter:
    """How a cell measures."""
    return Meter(settings["resampler"], settings["ends"], settings["crop"])  # type: ignore[arg-type]


Sweep = Callable[[Tensor], Iterator[EquivarianceError]]


def swept(
    sweep: Sweep, images: Tensor, chunk: int, on_point: Callable[[float], None] = lambda _done: None
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


def chunk_of(settings: Mapping[str, Scalar]) -> int:
    """How many images go through at a time."""
    numbers = int(settings["channels"]) * int(settings["scales"]) * int(settings["side"]) ** 2
    return max(1, CHUNK_NUMBERS // numbers)


# --- the experiments


def delta_depth(cell: Cell, context: Context) -> list[Measurement]:
    """Delta of the first d layers, d = 1..layers, at one step of the grid; all that is known at the first and last."""
    settings, meter = cell.settings, meter_of(cell.settings)
    images, name = images_of(cell, context)
    factor = 1 / float(settings["step"])
    network = deep_network(settings, cell.seed, int(settings["layers"])).to(context.device)
    calibrate(network, images[:CALIBRATION_IMAGES].to(torch.float32))
    points = swept(
        lambda chunk: meter.along(network, chunk, factor),
        images,
        chunk_of(settings),
        lambda done: context.on_progress(done, "depths"),
    )
    found = _first_layer_cropped(network, images, factor, cell.settings, {"depth": 1, "data_name": name})
    for depth, errors in enumerate(points, start=1):
        at: dict[str, Scalar] = {"depth": depth, "data_name": name}
        if depth in (1, len(points)):
            floor = floor_of(cell, context, factor, errors[0].crop, at)
            found += [*measurements(errors, at, PLAIN), floor]
        else:
            found += measurements(errors, at, ("delta",))
    return found


def _first_layer_cropped(
    network: nn.Sequential, images: Tensor, factor: float, settings: Mapping[str, Scalar], at: Mapping[str, Scalar]
) -> list[Measurement]:
    """Delta of one layer away from the border, which deeper networks see from everywhere."""
    inside = replace(meter_of(settings), crop="auto")
    (errors,) = swept(lambda chunk: inside.along([network[0]], chunk, factor), images, chunk_of(settings))
    return [Measurement("delta_cropped", rounded(torch.cat([error.valid for error in errors])), at)]


def delta_downscale(cell: Cell, context: Context) -> list[Measurement]:
    """Delta of one lift at the powers of its step up to the largest downscale."""
    settings, meter = cell.settings, meter_of(cell.settings)
    images, name = images_of(cell, context)
    downscales = downscales_of(settings)
    network = deep_network(settings, cell.seed, 1).to(context.device)
    factors = [1 / downscale for downscale in downscales]
    points = swept(
        lambda chunk: meter.sweep(network, chunk, factors, context=False, repeat=False),
        images,
        chunk_of(settings),
        lambda done: context.on_progress(done, "factors"),
    )
    found: list[Measurement] = []
    for downscale, errors in zip(downscales, points, strict=True):
        pixels = resampled_size(int(settings["side"]), 1 / downscale)
        at: dict[str, Scalar] = {"downscale": downscale, "pixels": pixels, "data_name": name}
        floor = floor_of(cell, context, 1 / downscale, errors[0].crop, at)
        found += [*measurements(errors, at, CROPPED), floor]
    return found


def delta_interscale(cell: Cell, context: Context) -> list[Measurement]:
    """Delta of one interscale layer on an image copied along the scale axis, at one step of the grid.

    Where truncation spoils every scale channel there is no `delta`: `channels_lost` equals the scales then.
    """
    settings, meter = cell.settings, meter_of(cell.settings)
    images, name = images_of(cell, context)
    factor = 1 / float(settings["step"])
    network = interscale_network(settings, cell.seed).to(context.device)
    (errors,) = swept(
        lambda chunk: meter.sweep(network, chunk, [factor], context=False, repeat=False),
        images,
        chunk_of(settings),
        lambda done: context.on_progress(done, "images"),
    )
    at = {"data_name": name}
    return [*measurements(errors, at, INTERSCALE), floor_of(cell, context, factor, errors[0].crop, at)]


def downscales_of(settings: Mapping[str, Scalar]) -> list[float]:
    """The powers of the step that have a partner on the grid, up to the largest that the cell asks for."""
    step, largest = float(settings["step"]), float(settings["largest_downscale"]) * (1 + 1e-9)
    powers = [float(f"{step**k:.12g}") for k in range(1, int(settings["scales"]))]
    return [power for power in powers if power <= largest]


# --- images, floors and rows


def images_of(cell: Cell, context: Context) -> tuple[Tensor, str]:
    """The cell's images in float64, the same for every draw of weights, and their name."""
    images, name = _images(*_image_key(cell, context))
    return images.to(context.device), name


def _image_key(cell: Cell, context: Context) -> tuple[str, int, int, str, Path | None]:
    settings = cell.settings
    name, count, side = str(settings["images"]), int(settings["image_count"]), int(settings["side"])
    # The pictures of a directory are read at the wanted size.
    enlarging = str(settings.get("enlarging", "lanczos")) if name in image_sets() else "lanczos"
    return name, side, count, enlarging, context.data_root


@lru_cache(maxsize=1)
def _images(name: str, side: int, count: int, enlarging: str, root: Path | None) -> tuple[Tensor, str]:
    return image_set(name, COLOURS, side, side, count, IMAGE_SEED, root, enlarging)  # type: ignore[arg-type]


def floor_of(cell: Cell, context: Context, factor: float, crop: int, at: Mapping[str, Scalar]) -> Measurement:
    """The meter's own floor. Weights have no part in it, so a worker computes it for its first draw only."""
    return Measurement("floor", _floor(_image_key(cell, context), factor, meter_of(cell.settings), crop), at)


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
