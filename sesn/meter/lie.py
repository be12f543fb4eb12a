"""The local (Lie) error of scaling: how fast Delta grows when the factor leaves 1.

    LEE = || d/dt L_-t Phi(L_t f) ||^2 / || Phi(f) ||^2 at t = 0, with t = ln s,

so that Delta(s) / (ln s)^2 tends to it as s tends to 1. By the chain rule the derivative is J[V f] - V Phi(f), where V
is the generator of scaling, V f = -x . grad f about the centre, and J the derivative of the module at f. V is the
derivative of the resampler's own matrix, and J[V f] the central difference (Phi(f + h V f) - Phi(f - h V f)) / 2h, in
float64. It needs no derivative of the module, and has an error of order h^2.

The Fourier interpolant is periodic, and a jump at the border would spoil the slopes everywhere. So an image fades to
the colour of its border, which leaves an object on a uniform background as it is. What the module does to that colour
alone tells what padding adds at the border of the output, and is taken off there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn

from sesn._checks import positive, require
from sesn.algorithms.resample import Ends, Resampler, resampler_ends, resampling_matrix
from sesn.errors import UsageError
from sesn.meter.action import rescale
from sesn.meter.branches import Branches
from sesn.meter.compare import ratio_of, sums_of
from sesn.meter.extent import output_crop
from sesn.meter.meter import Meter
from sesn.meter.reading import SPATIAL, Kind, call, check_asked, check_repeatable

#: The step h, in ln s.
STEP = 1e-3
#: The part of the side over which images fade to the colour of their border.
FADE = 0.25
#: The step of the derivative of a resampling matrix.
_MATRIX_STEP = 1e-6


@dataclass(frozen=True)
class LieError:
    """The local error of scaling, for each image.

    Attributes:
        value: the Lie error; 0 is equivariant. Its root is the relative error of the output per unit of ln s.
        delta_rate: Delta(s) / (ln s)^2 at s = e^step, from the same outputs: it is near the value where the step is
            small enough.
        step: h.
        crop: pixels left out at each border of the output.
        kind: how the output was read: "map" or "invariant".

    Example:
        >>> error = sesn.lie_error(nn.AdaptiveMaxPool2d(1), torch.rand(2, 1, 32, 32))
        >>> error.kind, error.value.shape
        ('invariant', torch.Size([2]))
    """

    value: Tensor
    delta_rate: Tensor
    step: float
    crop: int
    kind: str


def lie_error(
    module: nn.Module,
    images: Tensor,
    *,
    step: float = STEP,
    fade: float = FADE,
    resampler: Resampler = "fourier",
    ends: Ends | Literal["auto"] = "auto",
    crop: int | Literal["auto"] = "auto",
    kind: Kind = "auto",
) -> LieError:
    """Measure the local error of scaling of a module whose output is a map, scores or classes.

    Args:
        module: in eval mode; it need not be differentiable.
        images: f [b, c, h, w]. Frequencies just below the highest that pixels hold (from 0.45 cycles per pixel on) are
            moved past it by growing, and come back as others. This counts as an error, even of a layer that commutes
            with every factor. Remove them first where that matters.
        step: h, in ln s; the difference has an error of order h^2.
        fade: the part of the side, at each border, over which images fade to the mean colour of their border, so that
            the periodic Fourier interpolant meets no jump there. An object within the rest, on a uniform background,
            stays as it is; 0 leaves every image as it is.
        resampler: as in `Meter`. "lanczos3" gives numbers a quarter to a third too small, since the slope of its
            interpolant at a pixel is 17 % off.
        ends, crop, kind: as in `Meter`.

    Returns:
        The error of each image.

    Raises:
        UsageError: the output has a discrete scale axis, and so no derivative, or an argument breaks its rule.

    Example:
        >>> images = torch.randn(2, 1, 48, 48)
        >>> float(sesn.lie_error(nn.Identity(), images.double()).value.max()) < 1e-20
        True
    """
    require(positive(step) and step <= 0.1, "step", step, "a number above 0 and at most 0.1", "for example 0.001")
    require(
        fade == 0 or (positive(fade) and fade <= 0.5),
        "fade",
        fade,
        "a part of the side from 0 to 0.5",
        "for example 0.25",
    )
    meter = Meter(resampler, ends, crop, kind, canvas="keep")
    check_asked(module, images, 1.0)
    with torch.no_grad():
        shown = faded(images.to(torch.float64), fade)
        found = meter.branches(module, shown, math.exp(step))
        _check_continuous(found)
        output = found.original.output
        check_repeatable(module, shown, output)
        cut, _ = output_crop(found, crop, acted=False, edge=0)
        direction = scaling_generator(shown, resampler, ends)
        ahead, back = (call(module, shown + sign * step * direction) for sign in (1, -1))
        own, moved = torch.zeros_like(output), output
        if found.kind in SPATIAL:
            smooth = _without_edges(module, shown, output, cut)
            own = scaling_generator(smooth, resampler, ends)
            past = resampler_ends(resampler, ends, "keep")
            moved = rescale(smooth, math.exp(step), resampler, past, canvas="keep")
        value = _ratio((ahead - back) / (2 * step) - own, output, cut)
        rate = _ratio(moved - found.direct, moved, cut) / step**2
    return LieError(value, rate, step, cut, found.kind)


def scaling_generator(images: Tensor, resampler: Resampler, ends: Ends | Literal["auto"]) -> Tensor:
    """V f = d/dt L_t f at t = 0, about the centre, as the resampler interpolates."""
    past = resampler_ends(resampler, ends, "keep")
    level = images.mean((-2, -1), keepdim=True) if past == "mean" else torch.zeros_like(images[..., :1, :1])
    rows, columns = (_derivative(side, resampler, past).to(images) for side in images.shape[-2:])
    return rows @ (images - level) + (images - level) @ columns.mT


@lru_cache(maxsize=32)
def _derivative(size: int, resampler: Resampler, ends: Ends) -> Tensor:
    """Of the resampling matrix with respect to ln s at s = 1, from the side on which pictures grow: nothing is cut off.

    There are two steps forward in place of one to either side, for the same order.
    """
    once, twice = (
        resampling_matrix(size, math.exp(steps * _MATRIX_STEP), resampler, ends, canvas="keep") for steps in (1, 2)
    )
    still = resampling_matrix(size, 1.0, resampler, ends, canvas="keep")
    return (4 * once - twice - 3 * still) / (2 * _MATRIX_STEP)


def _check_continuous(found: Branches) -> None:
    if found.grid is not None:
        steps = f"sesn.equivariance_error(module, images, {1 / found.grid.ratio:.4g})" if len(found.grid) > 1 else ""
        raise UsageError(
            f"the output {tuple(found.direct.shape)} has a scale axis of {len(found.grid)} discrete scales, on which "
            "only whole steps of the grid act: there is no derivative with respect to the scale, and so no Lie error. "
            "Project it first, for example with sesn.ScaleProjection()"
            + (f", or measure Delta at one step: {steps}" if steps else "")
        )


def _ratio(difference: Tensor, signal: Tensor, crop: int) -> Tensor:
    """||difference||^2 / ||signal||^2 of each image, without the border."""
    inside = (..., slice(crop, -crop), slice(crop, -crop)) if crop else ...
    return ratio_of(sums_of([(signal[inside], (signal - difference)[inside])], signal))


def _without_edges(module: nn.Module, images: Tensor, output: Tensor, crop: int) -> Tensor:
    """A map that is the output inside the crop, without what padding does outside it.

    Where an image has the colour of its border, the output is that of the uniform image of this colour: a constant, but
    for the edges that padding makes, which are outside the crop.
    """
    if crop == 0:
        return output
    try:
        uniform = call(module, border_colour(images).expand_as(images))
    except UsageError:  # a module that divides by the contrast of its image has no answer to this one
        return output
    inside = (..., slice(crop, -crop), slice(crop, -crop))
    level = border_colour(uniform[inside]).expand_as(uniform).clone()
    level[inside] = uniform[inside]
    return output - uniform + level


def border_colour(maps: Tensor) -> Tensor:
    """[..., 1, 1]: the mean of the outermost pixels of each channel."""
    edges = [maps[..., [0, -1], :].flatten(-2), maps[..., [0, -1]].flatten(-2)]
    return torch.cat(edges, dim=-1).mean(-1)[..., None, None]


def faded(images: Tensor, part: float) -> Tensor:
    """Images that fade to the colour of their border within a part of the side at each, as half a cosine."""
    if part == 0:
        return images
    colour = border_colour(images)
    down, right = (_window(side, part).to(images) for side in images.shape[-2:])
    return colour + (images - colour) * down[:, None] * right


def _window(side: int, part: float) -> Tensor:
    place = torch.arange(side, dtype=torch.float64) / (side - 1 or 1)
    nearest = torch.minimum(place, 1 - place) / part
    return 0.5 - 0.5 * torch.cos(math.pi * nearest.clamp(max=1.0))
