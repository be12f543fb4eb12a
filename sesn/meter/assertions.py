"""The front of the meter: measure Delta, or assert that it is small, and say by how much, where and why it is not."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sesn._checks import require
from sesn.algorithms.resample import Canvas, Ends, Resampler
from sesn.meter.compare import Action, EquivarianceError, middle
from sesn.meter.diagnosis import diagnose
from sesn.meter.elements import Element
from sesn.meter.meter import Meter
from sesn.meter.reading import Kind
from sesn.scales import ScaleGrid

#: What a module that is equivariant by construction reaches on a pixel grid, by what its output is. Pooling over space
#: adds what enters and leaves at the border.
TOLERANCES = {"field": 1e-3, "map": 1e-3, "scale": 1e-2, "invariant": 1e-2, "action": 1e-3}
#: What rounding adds in each dtype; in float32 and float64 it is far below the above.
ROUNDING = {torch.float64: 0.0, torch.float32: 0.0, torch.float16: 1e-3, torch.bfloat16: 1e-2}


def equivariance_error(
    module: nn.Module,
    images: Tensor,
    factor: Element,
    *,
    grid: ScaleGrid | None = None,
    kind: Kind = "auto",
    action: Action | None = None,
    spoiled: int | None = None,
    resampler: Resampler = "lanczos3",
    crop: int | Literal["auto"] = "auto",
    ends: Ends | Literal["auto"] = "auto",
    canvas: Canvas = "follow",
    repeat: bool = True,
) -> EquivarianceError:
    """Measure Delta of a module under L_s, s = factor (< 1 shrinks).

    Args:
        module, images, factor, repeat: as in `Meter.measure`.
        grid, kind, action, spoiled, resampler, crop, ends, canvas: as in `Meter`.

    Returns:
        Delta for each image, with the floor and the Delta of unrelated images to judge it by.

    Raises:
        UsageError: the images, the factor or the module's output cannot be measured.

    Example:
        >>> sesn.equivariance_error(nn.Identity(), torch.randn(2, 1, 32, 32), 0.5).valid.tolist()
        [0.0, 0.0]
    """
    meter = Meter(resampler, ends, crop, kind, grid, spoiled, action, canvas)
    return meter.measure(module, images, factor, repeat=repeat)


def assert_equivariant(
    module: nn.Module,
    images: Tensor,
    factor: Element,
    *,
    tolerance: float | None = None,
    absolute: bool = False,
    **options: Any,
) -> EquivarianceError:
    """Raise AssertionError unless the median relative Delta over the images is within a tolerance.

    Args:
        module, images, factor: as in `Meter.measure`.
        tolerance: the largest Delta that passes, relative to what unrelated images give (1 is no better than chance);
            by default it depends on the module's dtype and on what its output is.
        absolute: judge Delta itself, which cannot be compared between networks: a bias makes it small.
        options: those of `equivariance_error`.

    Returns:
        The error that was measured.

    Raises:
        AssertionError: Delta is larger, or shows nothing; the message says where, and the likeliest causes.
        UsageError: the images, the factor or the module's output cannot be measured.

    Example:
        >>> sesn.assert_equivariant(nn.Identity(), torch.randn(2, 1, 32, 32), 0.5).kind
        'map'
    """
    __tracebackhide__ = True  # pytest then shows the caller's line
    require(tolerance is None or tolerance >= 0, "tolerance", tolerance, "at least 0")
    error = equivariance_error(module, images, factor, **options)
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    limit = TOLERANCES[error.kind] + ROUNDING[dtype] if tolerance is None else tolerance
    if not error.passes(limit, absolute=absolute):
        raise AssertionError(explain(module, images, error, limit, absolute=absolute))
    return error


def explain(
    module: nn.Module, images: Tensor, error: EquivarianceError, tolerance: float, *, absolute: bool = False
) -> str:
    """By how much a module misses a tolerance, where, and the likeliest causes with their remedies."""
    delta, (name, judged) = middle(error.valid), _exceeding(error, tolerance, absolute)
    verdict = f"median {name} {judged:.3g} over {error.valid.numel()} image(s) exceeds the tolerance {tolerance:.3g}"
    if math.isnan(delta):
        verdict = "no scale channel or no signal is left to compare"
    elif empty := error.empty(absolute=absolute):
        verdict = f"median Delta {delta:.3g}, but {empty}: it shows nothing"
    elif tolerance > 0:
        verdict += f" by {judged / tolerance:.3g}x"
    floor = middle(error.floor)
    context = f"  the probe's own floor is {'not known' if math.isnan(floor) else f'{floor:.2g}'}"
    if error.at_floor:
        context += ", and no network can be told from an equivariant one below it: choose a larger tolerance"
    elif error.ceiling is not None and not math.isnan(delta):
        context += f", Delta itself {delta:.2g}, and unrelated images give {middle(error.ceiling):.2g}"
    heading = f"not scale-equivariant at factor {error.factor:.4g} ({error.element}): {verdict}"
    if not error.rescaled:
        heading = f"not equivariant under the {error.element}: {verdict}"
    causes = [f"  likely cause: {finding}" for finding in diagnose(module, images, error)[:3]]
    return "\n".join([heading, context, *_where(error), *causes])


def _exceeding(error: EquivarianceError, tolerance: float, absolute: bool) -> tuple[str, float]:
    """What is above the tolerance, by name: the relative Delta before that of fine detail, which is often larger."""
    if absolute:
        return "Delta", middle(error.judged(absolute=True))
    if (relative := middle(error.relative)) > tolerance:
        return "relative Delta", relative
    return "relative Delta of fine detail (the differences between neighbouring pixels)", middle(error.judged())


def _where(error: EquivarianceError) -> list[str]:
    """The worst scale channel, and border against interior."""
    lines = []
    if len(error.pairs) > 1:
        medians = error.by_scale.nanquantile(0.5, dim=1)
        k, j = error.pairs[int(medians.argmax())]
        lines.append(
            f"  worst at scale channel {k} (partner {j} of the original): {float(medians.max()):.3g}; "
            f"best {float(medians.min()):.3g}; {error.lost} channel(s) lost to truncation"
        )
    if error.crop:
        inside, border = middle(error.valid), middle(error.border)
        place = "the border" if border > inside else "the interior"
        lines.append(f"  larger in {place}: interior {inside:.3g}, frame of {error.crop} pixels {border:.3g}")
    return lines
