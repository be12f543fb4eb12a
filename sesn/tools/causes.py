"""`causes`: an observed Delta split into its causes by switching each off in turn.

The causes come off one after the other and stay off, so the steps lead from the observed Delta to the remainder:

    observed = sum over steps of (before - after) + remainder.

Off means: the resampler is Lanczos (Fourier for a periodic network); the border is cropped away; scale channels that
truncation of the scale axis has spoilt are left out, also of a projection; windows reach 6 sigma; strides are 1 and
pools gone; nonlinearities are band-limited, then gone; the same picture and network stand on a grid of pixels twice as
fine. The finer grid comes last: it would ease the causes before it as well.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rich.table import Table
from torch import Tensor, nn

from sesn import Meter, ScaleProjection
from sesn._checks import positive, require
from sesn.errors import UsageError
from sesn.meter.compare import middle
from sesn.meter.extent import seen_by, spoiled_by
from sesn.meter.reading import SPATIAL, Kind, check_asked
from sesn.meter.resample import Resampler, resampler_ends
from sesn.meter.suspects import normalises_input, ordinary_convolutions
from sesn.tools import surgery

#: How the observed Delta is measured if nothing else is said: with the border, which is one of the causes.
WHOLE_PICTURE = Meter(crop=0)
NOT_PRESENT = "not present"
FIXED_BASIS = "a basis made by from_function cannot be sampled on another window or grid"


@dataclass(frozen=True)
class CauseStep:
    """One cause switched off, and the median Delta over the images before and after."""

    cause: str
    change: str  # what was done, from -> to
    before: float
    after: float
    share: float  # (before - after) / observed; negative where the cause had hidden another
    note: str = ""  # "not present", or why the cause could not be switched off; before == after then


@dataclass(frozen=True)
class CauseSplit:
    """The steps from the observed Delta to the remainder."""

    observed: float
    remainder: float
    floor: float  # of the probe, at the end
    factor: float
    images: int
    steps: tuple[CauseStep, ...]
    uncovered: str = ""  # what is in the module that no step switches off

    @property
    def shares(self) -> dict[str, float]:
        """The share of each cause, its steps added up; with the remainder they sum to 1."""
        causes = dict.fromkeys(step.cause for step in self.steps)
        return {cause: sum(s.share for s in self.steps if s.cause == cause) for cause in causes}

    @property
    def largest(self) -> str:
        """The cause with the largest share, or "remainder"."""
        shares = {**self.shares, "remainder": self.remainder / self.observed if self.observed else 0.0}
        return max(shares, key=lambda cause: shares[cause])


@dataclass(frozen=True)
class _State:
    """How Delta is measured: what the steps change. While `truncated`, spoilt scale channels count."""

    module: nn.Module
    images: Tensor
    factor: float
    meter: Meter  # its `spoiled` is of the module as it was given
    truncated: bool

    def measuring(self, **changes: Any) -> _State:
        """The same, measured otherwise."""
        return replace(self, meter=replace(self.meter, **changes))

    def measure(self) -> tuple[float, float, Kind]:
        """The median Delta, the median floor, and how the output was read."""
        error = self.meter.measure(surgery.aware(self.module, self.images.shape[-1]), self.images, self.factor)
        delta = error.all if self.truncated else error.valid
        if bool(delta.isnan().all()):
            if bool((error.energy == 0).all()):
                raise UsageError("the output is zero for every image: there is no Delta to split; check the weights")
            raise UsageError(
                f"no scale channel is left whole at factor {self.factor:.3g}: use a longer grid or a smaller extent"
                if error.pairs
                else f"`factor` (={self.factor:.3g}) must be within the grid's range: no scale channel has a partner"
            )
        return middle(delta[~delta.isnan()]), middle(error.floor), error.kind  # type: ignore[return-value]


#: What a cause yields: the change in words, and how to measure without it, or why that cannot be done.
_Changes = Iterator[tuple[str, _State | str]]


def causes(
    module: nn.Module,
    images: Tensor,
    factor: float,
    meter: Meter = WHOLE_PICTURE,
    on_step: Callable[[float], None] = lambda part: None,
) -> CauseSplit:
    """Split the Delta of a module into its causes.

    Args:
        module: in eval mode.
        images: zero-mean images [n, c, h, w].
        factor: s; below 1 shrinks.
        meter: how the observed Delta is measured, by default over the whole picture.
        on_step: told which part of the work was done now; the parts sum to 1.

    Example:
        >>> from sesn.tools.images import random_images
        >>> split = causes(nn.Conv2d(1, 1, 3, padding=1).eval(), random_images(0, (2, 1, 48, 48)), 1 / 2)
        >>> split.largest, split.uncovered
        ('remainder', '1 ordinary convolution')
    """
    check_asked(module, images, factor)
    grid = meter.grid if meter.grid is not None else getattr(module, "grid", None)
    spoiled = spoiled_by(module, images) if meter.spoiled is None else meter.spoiled
    ends = resampler_ends(meter.resampler, meter.ends)
    state = _State(module, images, factor, replace(meter, grid=grid, spoiled=spoiled, ends=ends), truncated=True)
    observed, floor, read = state.measure()
    state, delta = state.measuring(kind=read), observed
    steps: list[CauseStep] = []
    for cause, changes in CAUSES.items():
        for change, without in list(changes(state)) or [("", NOT_PRESENT)]:
            after, reason = delta, without if isinstance(without, str) else ""
            if isinstance(without, _State):
                try:
                    after, floor, _ = without.measure()
                    state = without
                except UsageError as error:  # a network may need its strides, or have no scale channel left
                    reason = str(error)
            note = reason if reason in ("", NOT_PRESENT) else f"could not be switched off: {reason}"
            steps.append(CauseStep(cause, change, delta, after, (delta - after) / observed if observed else 0.0, note))
            delta = after
        on_step(1 / len(CAUSES))
    return CauseSplit(observed, delta, floor, factor, len(images), tuple(steps), ", ".join(_uncovered(module)))


def _uncovered(module: nn.Module) -> Iterator[str]:
    """What breaks equivariance and has no switch."""
    if fixed := len(ordinary_convolutions(module)):
        yield f"{fixed} ordinary convolution{'s' if fixed > 1 else ''}"
    yield from dict.fromkeys(type(layer).__name__ for layer in module.modules() if normalises_input(layer))


def _resampler(state: _State) -> _Changes:
    if state.meter.resampler in ("legacy", "bicubic"):
        yield f"{state.meter.resampler} → Lanczos", state.measuring(resampler="lanczos3")
    if state.meter.resampler != "fourier" and surgery.is_circular(state.module):
        yield "→ Fourier, periodic", state.measuring(resampler="fourier", ends="circular")


def _border(state: _State) -> _Changes:
    """Crop what the widest windows of the later steps see, so that the crop stays the same from here on."""
    if state.meter.crop != 0 or (surgery.is_circular(state.module) and state.meter.ends == "circular"):
        return
    if state.meter.kind not in SPATIAL:
        yield "", "the output has no space to crop, and the border is pooled into it"
    elif crop := state.meter.crop_for(surgery.widened(state.module) or state.module, state.images, state.factor):
        yield f"{crop} pixels cropped", state.measuring(crop=crop)


def _truncation(state: _State) -> _Changes:
    spoiled = state.meter.spoiled or 0
    projected = any(isinstance(layer, ScaleProjection) for layer in state.module.modules())
    if state.truncated and spoiled and not projected:
        yield f"{spoiled} spoilt channel(s) left out", replace(state, truncated=False)
    whole = surgery.partnered(state.module, state.factor, spoiled)
    if whole is not None:
        yield "projection over partnered scales", replace(state, module=whole, truncated=False)


def _has_fixed_basis(module: nn.Module) -> bool:
    return any(not layer.basis.separable for layer in surgery.steerable(module))


def _window(state: _State) -> _Changes:
    if _has_fixed_basis(state.module):
        yield "", FIXED_BASIS
    elif (wide := surgery.widened(state.module)) is not None:
        yield "windows → 6 sigma", replace(state, module=wide)


def _nonlinearity(state: _State) -> _Changes:
    smooth = surgery.bandlimited(state.module, "circular" if surgery.is_circular(state.module) else "zeros")
    if smooth is not None:
        yield "ReLU → band-limited", replace(state, module=smooth)
    linear = surgery.linearised(smooth if smooth is not None else state.module)
    if linear is not None:
        yield "→ identity", replace(state, module=linear)
    if surgery.calls_nonlinearity(linear if linear is not None else state.module, state.images):
        yield "", "called as a function; make it a module such as nn.ReLU"


def _stride(state: _State) -> _Changes:
    still = surgery.unstrided(state.module, state.images)
    if still is not None and _has_fixed_basis(state.module):
        yield "", FIXED_BASIS
    elif still is not None:
        ratio = seen_by(state.module, state.images).stride
        yield "strides → 1, no pools", replace(_finer(state, ratio), module=still)


def _finer(state: _State, times: float) -> _State:
    """The same frame left out of an output with so many times as many pixels."""
    crop = state.meter.crop
    return state if crop == "auto" else state.measuring(crop=math.ceil(crop * times))


def _sampling(state: _State) -> _Changes:
    if _has_fixed_basis(state.module):
        yield "", FIXED_BASIS
    elif (fine := surgery.refined(state.module)) is not None:
        resampler: Resampler = "fourier" if state.meter.resampler == "fourier" else "lanczos3"
        images = replace(state.meter, resampler=resampler).move(state.images, 2)
        yield "pixels twice as fine", replace(_finer(state, 2), module=fine, images=images)


#: In the order in which they come off.
CAUSES: dict[str, Callable[[_State], _Changes]] = {
    "resampler": _resampler,
    "border": _border,
    "scale truncation": _truncation,
    "kernel window": _window,
    "stride phase": _stride,
    "nonlinearity": _nonlinearity,
    "kernel sampling": _sampling,
}


def stored_causes(path: Path) -> tuple[CauseSplit, dict[str, Any]]:
    """What `sesn causes --json` wrote, and the whole document; anything else is a UsageError."""
    require(path.is_file(), "causes", str(path), "a regular file")  # to read a pipe may take for ever
    what = f"`causes` (={path}) must be what `sesn causes --json` writes"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no text, or no JSON
        raise UsageError(f"{what}; {error!r}") from error
    found = document if isinstance(document, dict) else {}
    settings, split = found.get("settings"), found.get("causes")
    named = isinstance(settings, dict) and isinstance(settings.get("target"), str) and "images" in found
    if not (named and isinstance(split, dict) and _holds(split, CauseSplit)):
        raise UsageError(f"{what}; a key is missing or unknown, or has a value of another kind")
    return CauseSplit(**{**split, "steps": tuple(CauseStep(**step) for step in split["steps"])}), found


def _holds(found: Any, kind: type[CauseSplit | CauseStep]) -> bool:
    """Whether a JSON object has the fields of a split or of a step, and no others."""
    named = isinstance(found, dict) and found.keys() == {field.name for field in fields(kind)}
    return named and all(_is_right(*item) for item in found.items())


def _is_right(name: str, value: Any) -> bool:
    if name in ("cause", "change", "note", "uncovered"):
        return isinstance(value, str)
    if name == "steps":
        return isinstance(value, list) and all(_holds(step, CauseStep) for step in value)
    if name == "share":
        return isinstance(value, int | float)
    return positive(value) or (value == 0 and name != "factor")


def causes_table(split: CauseSplit) -> Table:
    """The steps for a terminal."""
    table = Table("cause", "switched off by", "Δ before", "Δ after", "share", title="causes of Δ")
    for step in split.steps:
        numbers = ["", "", "-"] if step.note else [f"{step.before:.1e}", f"{step.after:.1e}", f"{step.share:.1%}"]
        style = "dim" if step.note == NOT_PRESENT else "bold" if step.cause == split.largest else None
        table.add_row(step.cause, step.note or step.change, *numbers, style=style)
    remaining = f"{split.remainder / split.observed:.1%}" if split.observed else "-"
    what = f"{split.uncovered}; " if split.uncovered else ""
    table.add_row("remainder", f"{what}floor of the probe {split.floor:.1e}", "", f"{split.remainder:.1e}", remaining)
    table.caption = caption(split)
    return table


def caption(split: CauseSplit) -> str:
    """What was split, and into what mostly."""
    uncovered = f": {split.uncovered}" if split.largest == "remainder" and split.uncovered else ""
    mostly = f"mostly {split.largest}{uncovered}" if split.observed > split.floor else "not above the probe's own floor"
    return f"Δ {split.observed:.1e} at downscale {1 / split.factor:.3g}, median of {split.images} image(s), {mostly}"
