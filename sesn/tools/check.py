"""`check`: Delta of a module at several factors, with the raw values of every weight draw and image."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor, nn

from sesn import EquivarianceError, Meter
from sesn._checks import require
from sesn.errors import UsageError
from sesn.meter.elements import Element
from sesn.meter.reading import SPATIAL
from sesn.tools.statistics import Repetition, Summary, repeat_until, summarise

#: Images that go through the module at once.
BATCH = 8
#: Adaptive repetition stops at this width of the interval of log10 Delta.
WIDTH = 0.1
#: Every tensor of an EquivarianceError that has a value per image, by its name in the JSON.
RAW = {
    "delta": "valid",
    "delta_all": "all",
    "delta_uncropped": "uncropped",
    "delta_centred": "centred",
    "delta_detail": "detail",
    **{
        name: name
        for name in (
            *("floor", "ceiling", "ceiling_centred", "ceiling_detail", "energy", "largest", "span", "by_scale"),
            "border",
        )
    },
}
CEILINGS = ("ceiling", "ceiling_centred", "ceiling_detail")
DEFAULT = Meter()


@dataclass(frozen=True)
class Checked:
    """What was measured at one factor: one EquivarianceError per weight draw, all on the same images."""

    draws: tuple[EquivarianceError, ...]
    repetition: Repetition | None = None

    @property
    def downscale(self) -> float:
        """1/s, as it is written on the command line."""
        return 1 / self.first.factor

    @property
    def moved(self) -> str:
        """What was done to the images, in words."""
        return str(self.first.element)

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

    @cached_property
    def relative(self) -> Summary:
        """The summary of Delta over what unrelated images give: 0 is equivariant, 1 no better than chance."""
        return summarise(torch.stack([error.relative for error in self.draws]))

    def judged(self, *, absolute: bool = False) -> float:
        """The median that a tolerance is held against: the relative Delta or that of fine detail, or Delta itself."""
        values = torch.stack([error.judged(absolute=absolute) for error in self.draws])
        return summarise(values, resamples=1).median

    def median(self, name: str) -> float:
        """The median of one of the raw quantities; NaN where there is none."""
        values = self.raw(name)
        return math.nan if values is None else summarise(values, resamples=1).median

    @property
    def at_floor(self) -> bool:
        """Whether neither Delta nor what is judged is above three times the probe's floor: both may be zero then."""
        limit = 3 * self.median("floor")
        return self.delta.median <= limit and self.judged() <= limit

    def empty(self, *, absolute: bool = False) -> str:
        """Why a small Delta would show nothing in one of the draws; an empty text if it shows something."""
        return next(filter(None, (error.empty(absolute=absolute) for error in self.draws)), "")

    def row(self) -> dict[str, Any]:
        """Everything as plain data, raw values as [draws][images]."""
        error = self.first
        raw = {key: self.raw(name) for key, name in RAW.items()}
        return {
            "downscale": self.downscale,
            "moved": self.moved,
            **{name: getattr(error, name) for name in ("factor", "kind", "crop", "lost", "residual")},
            "measured": list(error.measured),
            "pairs": [list(pair) for pair in error.pairs],
            "relative_median": self.relative.median,
            "relative_detail_median": self.median("relative_detail"),
            "decibels_median": self.median("decibels"),
            "psnr_median": self.median("psnr_of_map"),
            "relative": [error.relative.tolist() for error in self.draws],
            "stopped": self.repetition.reason if self.repetition else "one weight draw was asked for",
            **{key: None if values is None else values.tolist() for key, values in raw.items()},
        }


def check(
    build: nn.Module | Callable[[int], nn.Module],
    images: Tensor,
    factors: Iterable[Element],
    meter: Meter = DEFAULT,
    draws: int = 1,
    on_step: Callable[[float], None] = lambda part: None,
) -> list[Checked]:
    """Measure Delta at every factor.

    Args:
        build: a module in eval mode, or a function from a seed to one, which is called for each weight draw.
        images: zero-mean images [n, c, h, w].
        factors: s each, below 1 shrinks, or what else is done to the images, as for a `Meter`.
        meter: how to measure.
        draws: the most weight draws; with more than one, they stop early when the interval is narrow enough.
        on_step: told which part of the work was done now; the parts sum to 1.

    Example:
        >>> from sesn.tools.images import random_images
        >>> [found] = check(nn.Identity(), random_images(0, (2, 1, 48, 48)), [1 / 2])
        >>> found.at_floor, found.delta.n
        (True, 2)
    """
    if isinstance(build, nn.Module):
        require(draws == 1, "draws", draws, "1 for a module", "give a function that builds it from a seed")
    several = list(factors)

    @cache
    def measured(draw: int) -> list[EquivarianceError]:
        module = build if isinstance(build, nn.Module) else build(draw)
        return measure_batches(module, images, several, meter, lambda part: on_step(part / draws))

    def check_one(place: int) -> Checked:
        errors: list[EquivarianceError] = []

        def one_draw(draw: int) -> Tensor:
            errors.append(measured(draw)[place])
            return errors[-1].valid

        if draws == 1:
            one_draw(0)
            return Checked(tuple(errors))
        repetition = repeat_until(one_draw, WIDTH, most=draws, least=min(4, draws))
        return Checked(tuple(errors), repetition)

    found = [check_one(place) for place in range(len(several))]
    on_step(1 - measured.cache_info().currsize / draws)
    return found


def measure_batches(
    module: nn.Module,
    images: Tensor,
    factors: Sequence[Element],
    meter: Meter = DEFAULT,
    on_step: Callable[[float], None] = lambda part: None,
) -> list[EquivarianceError]:
    """The error at each factor over batches of about equal size, so that no batch is left with a lone image."""
    errors: list[list[EquivarianceError]] = [[] for _ in factors]
    batches = images.tensor_split(math.ceil(len(images) / BATCH))
    for batch in batches:
        # A module that depends on state or chance shows it on the first images.
        swept = meter.sweep(module, batch, factors, repeat=batch is batches[0])
        for of_factor, error in zip(errors, swept, strict=True):
            of_factor.append(_useful(error, meter))
            on_step(1 / len(batches) / len(factors))
    return [joined(of_factor) for of_factor in errors]


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
    known = [name for name in RAW.values() if all(getattr(error, name) is not None for error in errors)]
    together: dict[str, Any] = {name: torch.cat([getattr(error, name) for error in errors], -1) for name in known}
    return replace(errors[0], **{**dict.fromkeys(CEILINGS), **together})
