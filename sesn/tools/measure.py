"""Delta of a module at several downscales: raw values for every weight draw and image, with where they come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from sesn import EquivarianceError, Meter
from sesn._checks import require
from sesn.errors import UsageError
from sesn.meter.reading import SPATIAL
from sesn.tools.statistics import Repetition, Summary, repeat_until, summarise

#: Images that go through the module at once.
BATCH = 8
#: Adaptive repetition stops at this width of the interval of log10 Delta.
WIDTH = 0.1
#: Every tensor of an EquivarianceError that has one value per image, by its name in the JSON.
RAW = {
    "delta": "valid",
    "delta_all": "all",
    "delta_uncropped": "uncropped",
    "delta_centred": "centred",
    "floor": "floor",
    "ceiling": "ceiling",
}


DEFAULT = Meter()


@dataclass(frozen=True)
class Result:
    """What was measured at one downscale: one EquivarianceError per weight draw, all on the same images."""

    downscale: float
    draws: tuple[EquivarianceError, ...]
    repetition: Repetition | None = None

    @property
    def first(self) -> EquivarianceError:
        """The first draw: what holds for all (crop, kind, pairs, lost) is read off it."""
        return self.draws[0]

    def raw(self, name: str) -> Tensor | None:
        """One of the raw quantities as [draws, images]; None where there is none."""
        values = [getattr(error, name) for error in self.draws]
        return None if values[0] is None else torch.stack(values)

    @cached_property
    def delta(self) -> Summary:
        """The summary of Delta over draws and images."""
        return summarise(torch.stack([error.valid for error in self.draws]))

    def median(self, name: str) -> float:
        """The median of one of the raw quantities; NaN where there is none."""
        values = self.raw(name)
        return math.nan if values is None else summarise(values, resamples=1).median

    @property
    def at_floor(self) -> bool:
        """Whether the median Delta is within three times the probe's own floor: it cannot be told from zero then."""
        return self.delta.median <= 3 * self.median("floor")

    def empty(self) -> str:
        """Why a small Delta would show nothing in one of the draws; an empty text if it shows something."""
        return next(filter(None, (error.empty() for error in self.draws)), "")

    def row(self) -> dict[str, Any]:
        """Everything as plain data, raw values as [draws][images]."""
        error = self.first
        raw = {key: _listed(self.raw(name)) for key, name in RAW.items()}
        return {
            "downscale": self.downscale,
            "factor": error.factor,
            "kind": error.kind,
            "crop": error.crop,
            "lost": error.lost,
            "residual": error.residual,
            "pairs": [list(pair) for pair in error.pairs],
            "stopped": self.repetition.reason if self.repetition else "one weight draw was asked for",
            **raw,
            "energy": _listed(self.raw("energy")),
            "by_scale": _listed(self.raw("by_scale")),
            "border": _listed(self.raw("border")),
        }


def _listed(values: Tensor | None) -> Any:
    return None if values is None else values.tolist()


def measure(
    build: Callable[[int], nn.Module],
    images: Tensor,
    downscales: Sequence[float],
    meter: Meter = DEFAULT,
    draws: int = 1,
    on_step: Callable[[int], None] = lambda _: None,
) -> list[Result]:
    """One result per downscale.

    Args:
        build: from a seed to a module in eval mode; called for each weight draw.
        images: zero-mean images [n, c, h, w].
        downscales: 1/s each; above 1 shrinks.
        meter: how to measure.
        draws: the most weight draws; with more than one, they stop early when the interval is narrow enough.
        on_step: told how many of `steps(...)` were done.
    """
    return [_measure_one(build, images, downscale, meter, draws, on_step) for downscale in downscales]


def steps(images: int, downscales: int, draws: int) -> int:
    """How many calls of the module's two branches `measure` makes at most."""
    return downscales * draws * _batches(images)


def _batches(images: int) -> int:
    return math.ceil(images / BATCH)


def _measure_one(
    build: Callable[[int], nn.Module],
    images: Tensor,
    downscale: float,
    meter: Meter,
    draws: int,
    on_step: Callable[[int], None],
) -> Result:
    errors: list[EquivarianceError] = []

    def one_draw(draw: int) -> Tensor:
        errors.append(measure_batches(build(draw), images, 1 / downscale, meter, on_step))
        return errors[-1].valid

    if draws == 1:
        one_draw(0)
        return Result(downscale, tuple(errors))
    repetition = repeat_until(one_draw, WIDTH, most=draws, least=min(4, draws))
    on_step((draws - len(errors)) * _batches(len(images)))
    return Result(downscale, tuple(errors), repetition)


def measure_batches(
    module: nn.Module,
    images: Tensor,
    factor: float,
    meter: Meter = DEFAULT,
    on_step: Callable[[int], None] = lambda _: None,
) -> EquivarianceError:
    """The error over batches of about equal size, so that no batch is left with a lone image."""
    errors = []
    for batch in images.tensor_split(_batches(len(images))):
        errors.append(_useful(meter.measure(module, batch, factor), meter))
        on_step(1)
    return joined(errors)


def _useful(found: EquivarianceError, meter: Meter) -> EquivarianceError:
    """The error, unless the output has no use for what the meter was told."""
    if found.kind in ("map", "invariant") and bool(found.energy.isnan().any()):  # a mean over nothing
        raise UsageError("the module's output holds no numbers: it has no channels, so there is nothing to measure")
    what = f"for this output, which is read as {found.kind!r} and has no"
    require(meter.grid is None or found.kind in ("field", "scale"), "grid", meter.grid, f"left out {what} scale axis")
    require(meter.crop in ("auto", 0) or found.kind in SPATIAL, "crop", meter.crop, f"'auto' {what} border to crop")
    return found


def joined(errors: Sequence[EquivarianceError]) -> EquivarianceError:
    """The errors of several batches of one module at one factor as that of all their images."""
    per_image = ("valid", "all", "uncropped", "centred", "floor", "energy", "border")
    together: dict[str, Any] = {name: torch.cat([getattr(error, name) for error in errors]) for name in per_image}
    ceilings = [error.ceiling for error in errors if error.ceiling is not None]
    return replace(
        errors[0],
        **together,
        by_scale=torch.cat([error.by_scale for error in errors], dim=1),
        ceiling=torch.cat(ceilings) if len(ceilings) == len(errors) else None,
    )
