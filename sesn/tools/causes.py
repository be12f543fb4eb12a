"""`causes`: an observed Delta split into its causes by switching each off in turn.

The causes come off one after the other and stay off, so the steps lead from the observed Delta to the remainder:

    observed = sum over steps of (before - after) + remainder.

Off means: the resampler is Lanczos (Fourier for a periodic network); the border is cropped away; scale channels that
truncation of the scale axis has spoilt are left out, also of a projection; windows cut off nothing; strides are 1 and
pools gone; nonlinearities are band-limited, then gone; the same picture and network stand on a grid of pixels twice as
fine. The finer grid comes last: it would ease the causes before it as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import Tensor, nn

from sesn import Meter, ScaleProjection
from sesn.algorithms.resample import Resampler, resampler_ends
from sesn.errors import UsageError
from sesn.meter.compare import EquivarianceError, middle
from sesn.meter.extent import seen_by, spoiled_by
from sesn.meter.reading import SPATIAL, check_asked
from sesn.meter.suspects import TRANSPOSED, normalises_input, ordinary_convolutions
from sesn.methods.method import scales_of
from sesn.tools import surgery
from sesn.tools.split import NOT_PRESENT, CauseSplit, CauseStep

#: How the observed Delta is measured if nothing else is said: with the border, which is one of the causes.
WHOLE_PICTURE = Meter(crop=0)
FIXED_BASIS = "a basis made by {} cannot be sampled on another window or grid"


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

    def measure(self) -> tuple[float, float, EquivarianceError]:
        """The median Delta, the median floor, and all else that was measured."""
        error = self.meter.measure(surgery.aware(self.module, self.images), self.images, self.factor)
        delta = error.all if self.truncated else error.valid
        if bool(delta.isnan().all()):
            if bool((error.energy == 0).all()):
                raise UsageError("the output is zero for every image: there is no Delta to split; check the weights")
            raise UsageError(
                f"no scale channel is left whole at factor {self.factor:.3g}: use a longer grid or a smaller extent"
                if error.pairs
                else f"`factor` (={self.factor:.3g}) must be within the grid's range: no scale channel has a partner"
            )
        return middle(delta[~delta.isnan()]), middle(error.floor), error


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
        >>> split.unsplit
        '1 ordinary convolution sees one scale, and no layer works at several, so there is no cause to switch off'
    """
    check_asked(module, images, factor)
    grid = meter.grid if meter.grid is not None else getattr(module, "grid", None)
    spoiled = spoiled_by(module, images) if meter.spoiled is None else meter.spoiled
    ends = resampler_ends(meter.resampler, meter.ends, meter.canvas)
    state = _State(module, images, factor, replace(meter, grid=grid, spoiled=spoiled, ends=ends), truncated=True)
    observed, floor, error = state.measure()
    relative = None if math.isnan(middle(error.relative)) else middle(error.relative)
    if grid is None and (unsplit := _unsplit(module)):
        on_step(1.0)
        return CauseSplit(observed, relative, observed, floor, factor, len(images), (), unsplit=unsplit)
    state, delta = state.measuring(kind=error.kind), observed
    steps: list[CauseStep] = []
    all_costs = 1 + sum(cause.cost for cause in CAUSES.values())
    on_step(1 / all_costs)
    done = 0.0  # a cause that took no time counts with the next: the time left is judged by the last steps
    for cause, (changes, cost) in CAUSES.items():
        done += cost / all_costs
        for change, without in list(changes(state)) or [("", NOT_PRESENT)]:
            after, reason = delta, without if isinstance(without, str) else ""
            if isinstance(without, _State):
                try:
                    after, floor, _ = without.measure()
                    state = without
                except UsageError as refusal:  # a network may need its strides, or have no scale channel left
                    reason = str(refusal)
            note = reason if reason in ("", NOT_PRESENT) else f"could not be switched off: {reason}"
            steps.append(CauseStep(cause, change, delta, after, note))
            delta = after
            if not note:
                on_step(done)
                done = 0.0
    on_step(done)
    return CauseSplit(
        observed, relative, delta, floor, factor, len(images), tuple(steps), ", ".join(_uncovered(module))
    )


def _unsplit(module: nn.Module) -> str:
    """Why there is nothing to switch off, counted from the layers; an empty text if there may be something."""
    fixed, attention = len(ordinary_convolutions(module)), len(_attention_layers(module))
    counted = [*_convolutions(module), *_counted(attention, "attention layer")]
    if not counted or scales_of(module) is not None:
        return ""
    see = "sees" if fixed + attention == 1 else "see"
    several = " and ".join(filter(None, (", ".join(counted[:-1]), counted[-1])))
    return f"{several} {see} one scale, and no layer works at several, so there is no cause to switch off"


def _attention_layers(module: nn.Module) -> list[str]:
    """The outermost layers that call themselves attention: libraries write their own."""
    named = [name for name, layer in module.named_modules() if "attention" in type(layer).__name__.lower()]
    return [name for name in named if not any(name.startswith(f"{other}.") for other in named)]


def _counted(number: int, what: str) -> list[str]:
    return [f"{number} {what}{'s' if number > 1 else ''}"] if number else []


def _convolutions(module: nn.Module) -> list[str]:
    """Those that see one scale, counted."""
    found = ordinary_convolutions(module)
    transposed = sum(isinstance(layer, TRANSPOSED) for layer in found)
    ordinary = _counted(len(found) - transposed, "ordinary convolution")
    return [*ordinary, *_counted(transposed, "transposed convolution")]


def _uncovered(module: nn.Module) -> Iterator[str]:
    """What breaks equivariance and has no switch."""
    yield from _convolutions(module)
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


def _fixed_basis(module: nn.Module) -> str:
    """Why the basis of some layer is fixed; empty if it can be sampled anew."""
    fixed = [layer.basis.name for layer in surgery.steerable(module) if layer.basis.reach is None]
    return FIXED_BASIS.format(fixed[0]) if fixed else ""


def _window(state: _State) -> _Changes:
    if fixed := _fixed_basis(state.module):
        yield "", fixed
    elif (wide := surgery.widened(state.module)) is not None:
        reach = max(layer.basis.reach or 0.0 for layer in surgery.steerable(wide))
        yield f"windows → {reach:g} sigma", replace(state, module=wide)


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
    if still is not None and (fixed := _fixed_basis(state.module)):
        yield "", fixed
    elif still is not None:
        ratio = seen_by(state.module, state.images).stride
        yield "strides → 1, no pools", replace(_finer(state, ratio), module=still)


def _finer(state: _State, times: float) -> _State:
    """The same frame left out of an output with so many times as many pixels."""
    crop = state.meter.crop
    return state if crop == "auto" else state.measuring(crop=math.ceil(crop * times))


def _sampling(state: _State) -> _Changes:
    if fixed := _fixed_basis(state.module):
        yield "", fixed
    elif (fine := surgery.refined(state.module)) is not None:
        resampler: Resampler = "fourier" if state.meter.resampler == "fourier" else "lanczos3"
        images = replace(state.meter, resampler=resampler, canvas="follow").move(state.images, 2)
        yield "pixels twice as fine", replace(_finer(state, 2), module=fine, images=images)


class _Cause(NamedTuple):
    """How to switch a cause off, and about how long that takes, where the observed Delta takes 1."""

    changes: Callable[[_State], _Changes]
    cost: float


#: In the order in which they come off.
CAUSES = {
    "resampler": _Cause(_resampler, 1),
    "border": _Cause(_border, 1),
    "scale truncation": _Cause(_truncation, 1),
    "kernel window": _Cause(_window, 1.5),
    "stride phase": _Cause(_stride, 2),
    "nonlinearity": _Cause(_nonlinearity, 4),
    "kernel sampling": _Cause(_sampling, 8),
}
