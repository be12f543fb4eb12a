"""Figure 2 of the paper: Delta against depth, downscale factor and interscale extent.

Delta is `sesn.equivariance_error`'s; here its two branches are shared by all points of a sweep. Phi(f) is computed
once for all factors, and one pass through the deepest network gives every shallower one. Images go through in chunks.

Every factor is sampled exactly, about the image's centre. `crop` says how many pixels of the border do not count;
"auto" is the meter's own choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from harness.data.image_sets import IMAGE_SETS, image_set
from harness.records import Cell, Measurement, Scalar
from harness.run.context import Context
from harness.run.sweep_networks import COLOURS, calibrate, deep_network, interscale_network
from sesn import EquivarianceError, ScaleGrid, rescale
from sesn.meter.compare import compare
from sesn.meter.floor import reference_error
from sesn.meter.reading import call, output_crop, output_kind, quarter_side, spoiled_channels
from sesn.meter.receptive import receptive_field
from sesn.meter.resample import Resampler, resampled_size, resampler_ends

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


class Probe(NamedTuple):
    """How two branches are compared."""

    resampler: Resampler = "lanczos3"
    crop: Any = "auto"
    ends: Any = "auto"

    @classmethod
    def of(cls, settings: Mapping[str, Scalar]) -> Probe:
        """That of a cell."""
        return cls(str(settings["resampler"]), settings["crop"], settings["ends"])  # type: ignore[arg-type]

    def moved(self, output: Tensor, factor: float, grid: ScaleGrid | None) -> Tensor:
        """L_s of an output, before the scale axis shifts; scale channels without a partner are not computed."""
        if grid is None:
            return self.shrunk(output, factor)
        first = min((j for _, j in grid.match(factor).pairs), default=len(grid))
        sides = [resampled_size(side, factor) for side in output.shape[-2:]]
        result = output.new_zeros(*output.shape[:3], *sides)
        result[:, :, first:] = self.shrunk(output[:, :, first:], factor)
        return result

    def shrunk(self, images: Tensor, factor: float) -> Tensor:
        """L_s of images."""
        return rescale(images, factor, self.resampler, resampler_ends(self.resampler, self.ends))

    def error(self, module: nn.Module, original: Tensor, direct: Tensor, factor: float) -> EquivarianceError:
        """Compare Phi(f) with Phi(L_s f), both in float64."""
        grid = grid_of(module)
        cut = output_crop(self.crop, receptive_field(module), factor, direct)
        unknown = torch.full((len(original),), torch.nan, dtype=torch.float64, device="cpu")
        moved, kind = self.moved(original, factor, grid), output_kind("auto", original)
        return compare(moved, direct, factor, kind, grid, spoiled_channels(module, None), cut, unknown)


def grid_of(module: nn.Module) -> ScaleGrid | None:
    """The scales of the last layer that has some; None for an ordinary network."""
    grids = [grid for layer in module.modules() if isinstance(grid := getattr(layer, "grid", None), ScaleGrid)]
    return grids[-1] if grids else None


# --- the sweeps of one chunk of images


def errors_by_depth(network: nn.Sequential, images: Tensor, factor: float, probe: Probe) -> Iterator[EquivarianceError]:
    """Delta of the first d layers for d = 1, 2, ..., from one pass of each branch."""
    original, direct = images, probe.shrunk(images, factor)
    for depth, layer in enumerate(network, start=1):
        # From layer to layer in the network's own dtype: `call` gives back float64, which holds it exactly.
        original, direct = call(layer, original), call(layer, direct)
        yield probe.error(network[:depth], original, direct, factor)


def errors_by_factor(
    network: nn.Module, images: Tensor, factors: Sequence[float], probe: Probe
) -> Iterator[EquivarianceError]:
    """Delta of one network at each factor, from one Phi(f)."""
    original = call(network, images)
    for factor in factors:
        yield probe.error(network, original, call(network, probe.shrunk(images, factor)), factor)


Sweep = Callable[[Tensor], Iterator[EquivarianceError]]


@torch.no_grad()
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
    settings, probe = cell.settings, Probe.of(cell.settings)
    images, name = images_of(cell, context)
    factor = 1 / float(settings["step"])
    network = deep_network(settings, cell.seed, int(settings["layers"])).to(context.device)
    calibrate(network, images[:CALIBRATION_IMAGES].to(torch.float32))
    points = swept(
        lambda chunk: errors_by_depth(network, chunk, factor, probe),
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
    first, inside = nn.Sequential(network[0]), Probe.of(settings)._replace(crop="auto")
    (errors,) = swept(lambda chunk: errors_by_depth(first, chunk, factor, inside), images, chunk_of(settings))
    return [Measurement("delta_cropped", rounded(torch.cat([error.valid for error in errors])), at)]


def delta_downscale(cell: Cell, context: Context) -> list[Measurement]:
    """Delta of one lift at the powers of its step up to the largest downscale."""
    settings, probe = cell.settings, Probe.of(cell.settings)
    images, name = images_of(cell, context)
    downscales = downscales_of(settings)
    network = deep_network(settings, cell.seed, 1).to(context.device)
    factors = [1 / downscale for downscale in downscales]
    points = swept(
        lambda chunk: errors_by_factor(network, chunk, factors, probe),
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
    settings, probe = cell.settings, Probe.of(cell.settings)
    images, name = images_of(cell, context)
    factor = 1 / float(settings["step"])
    network = interscale_network(settings, cell.seed).to(context.device)
    (errors,) = swept(
        lambda chunk: errors_by_factor(network, chunk, [factor], probe),
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
    enlarging = str(settings.get("enlarging", "lanczos")) if name in IMAGE_SETS else "lanczos"
    return name, side, count, enlarging, context.data_root


@lru_cache(maxsize=1)
def _images(name: str, side: int, count: int, enlarging: str, root: Path | None) -> tuple[Tensor, str]:
    return image_set(name, COLOURS, side, side, count, IMAGE_SEED, root, enlarging)  # type: ignore[arg-type]


def floor_of(cell: Cell, context: Context, factor: float, crop: int, at: Mapping[str, Scalar]) -> Measurement:
    """The probe's own floor. Weights have no part in it, so a worker computes it for its first draw only."""
    probe = Probe.of(cell.settings)._replace(crop=crop)
    return Measurement("floor", _floor(_image_key(cell, context), factor, probe), at)


@lru_cache(maxsize=64)
def _floor(key: tuple[str, int, int, str, Path | None], factor: float, probe: Probe) -> tuple[float, ...]:
    resampler, ends = probe.resampler, resampler_ends(probe.resampler, probe.ends)
    images, _ = _images(*key)
    values = []
    for start in range(len(images)):
        image = images[start : start + 1]
        cut = min(probe.crop, quarter_side(rescale(image, factor, resampler, ends)))
        values.append(reference_error(image, factor, resampler, ends, cut))
    return rounded(torch.cat(values))


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
