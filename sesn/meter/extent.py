"""How much of an output counts: how far it looks, hence the border to leave out, and the scales that were spoilt."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from sesn._checks import require, whole
from sesn.algorithms.resample import Canvas
from sesn.errors import UsageError
from sesn.meter.action import GroupElement
from sesn.meter.branches import Branches
from sesn.meter.reading import LOST, SPATIAL, Reading, RejectedError, call, like_module, read
from sesn.meter.receptive import Receptive, spoilt_by, submodules
from sesn.meter.trail import Path

#: How a module whose layers could not be followed is put right.
_CALL_LAYERS = "call its layers as modules"
#: A part of a pixel that is no background.
ROUNDING = 1e-9
#: Images whose gradients are asked for; a second one where the first leaves a rectifier shut.
_ASKED = 2
#: A slope that is more than this many roundings of the largest shows that a pixel is seen.
_SLOPE = 8


def seen_by(module: nn.Module, images: Tensor) -> Receptive:
    """How far a module looks, from running it on one of the images, or on all if it takes no other number."""
    with torch.no_grad():
        return receptive_field_of(module, *_read_few(module, images))


def spoiled_by(module: nn.Module, images: Tensor) -> int:
    """Scale channels that a module spoils, counted along the images' way; where it hides that, over its layers."""
    with torch.no_grad():
        path = _read_few(module, images)[1].path
    if path is None or path.hidden:
        return sum(map(spoilt_by, submodules(module)))
    return path.spoiled


def _read_few(module: nn.Module, images: Tensor) -> tuple[Tensor, Reading]:
    try:
        return images[:1], read(module, images[:1])
    except RejectedError:
        return images, read(module, images)


def receptive_field_of(module: nn.Module, images: Tensor, reading: Reading) -> Receptive:
    """How far an output looks: as its layers say or, where some do not, as the gradients show."""
    path = reading.path
    if reading.output.dim() < 4 or (path is not None and not path.unread):
        return reading.seen
    if reading.shown:
        return reading.shown[0]
    runs = tuple(sorted(path.unread if path else LOST))
    radius = _radius_by_gradients(module, images, reading.seen)
    flat = bool((reading.output == reading.output[..., :1, :1]).all())  # then every pixel says the same
    if radius is None and not flat:
        raise UsageError(
            f"how far the module looks cannot be told: it runs {', '.join(runs)}, and has no gradient to measure it "
            f"by; {_CALL_LAYERS} or give `crop=`"
        )
    reading.shown.append(replace(reading.seen, radius=radius or 0, measured=runs))
    return reading.shown[0]


def _radius_by_gradients(module: nn.Module, images: Tensor, seen: Receptive, most: int = _ASKED) -> float | None:
    """How many pixels around its own place an output in the middle depends on; None without a gradient.

    A few outputs beside each other are asked, since a rectifier may be shut or a maximum be elsewhere for one.
    """
    with torch.inference_mode(False), torch.enable_grad():
        source = images[:most].detach().clone().requires_grad_()
        try:
            output = call(module, source)
        except RejectedError:  # it has run, so what it minds is the gradients, or so few images
            return None if len(images) <= most else _radius_by_gradients(module, images, seen, len(images))
        if not output.requires_grad:
            return None
        weights = torch.zeros_like(output)
        # Up to five pixels in the middle of each side.
        halves = [(side // 2, min(2, (side - 1) // 2)) for side in output.shape[-2:]]
        places = [slice(middle - half, middle + half + 1) for middle, half in halves]
        asked = weights[..., places[0], places[1]]
        asked += torch.arange(asked.numel(), device=asked.device).cos().reshape(asked.shape)  # a softmax sums to 1
        try:
            (slopes,) = torch.autograd.grad(output, source, weights)
        except RuntimeError:  # torch's own: a step has no derivative, or worked in place on what that needs
            return None
    reach = slopes.abs().amax(dim=(0, 1))
    used = reach > _SLOPE * torch.finfo(like_module(module, images).dtype).eps * reach.max()
    return max(_beyond(used.any(dim=1 - axis), places[axis], seen) for axis in (0, 1))


def _beyond(used: Tensor, asked: slice, seen: Receptive) -> float:
    """Pixels used before the place of the first output asked or after that of the last, along one axis."""
    found = used.nonzero().flatten().tolist()
    start = (seen.stride - 1) / 2 if math.isnan(seen.first) else seen.first
    first, last = (start + place * seen.stride for place in (asked.start, asked.stop - 1))
    return max(0.0, first - found[0], found[-1] - last) if found else 0.0


def spoiled_along(path: Path | None, spoiled: int | None) -> int:
    """Scale channels at the large end that interscale layers fill with zeros: given, or counted along a path."""
    if spoiled is not None:
        return whole("spoiled", spoiled, 0)
    if path is None or path.hidden:
        runs = ", ".join(sorted(path.hidden if path else LOST))
        raise UsageError(
            f"the scale channels that interscale layers spoil cannot be counted: the module runs {runs}; "
            f"{_CALL_LAYERS}, or give `spoiled=` (0 if no layer mixes scales) and `crop=`"
        )
    return path.spoiled


def background(kind: str, output: Tensor, element: GroupElement, canvas: Canvas) -> int | None:
    """Pixels of the output at each border that show no picture; None on a canvas that follows what fills it."""
    hidden = element.hidden(canvas)
    if canvas == "follow" and not hidden:
        return None
    return math.ceil(hidden * max(output.shape[-2:]) - ROUNDING) if kind in SPATIAL else 0


def output_crop(found: Branches, crop: int | str, *, acted: bool, edge: int | None = None) -> tuple[int, Receptive]:
    """Pixels of the output to leave out at each border, and how far it looks; `acted` where an action moved it.

    On a canvas that is kept or rotated, `edge` pixels of background come before them: the moved picture is seen with as
    much of it as the kernels reach, whatever the factor.
    """
    shown, reach = edge or 0, found.factor if edge is None else 1.0
    output, seen, side = found.direct, found.original.seen, min(found.direct.shape[-2:]) - 2 * shown
    require(edge is None or side > 0, "canvas", "keep", "for images that are nearly square, or less rescaled")
    if crop == "auto" and found.kind in SPATIAL:
        seen, shift = receptive_field_of(found.module, found.images, found.original), found.element.shift
        gone = math.ceil(shift / seen.stride)  # of what came in at one border as much has left at the other
        told = getattr(found.element, "translation", shift)
        rule = "less than half of the image's side, so that a part of the picture is left"
        require(2 * gone < side or not gone, "translation", told, rule, "use a shorter one or give `crop=`")
        return shown + automatic_crop(seen, reach, gone + (side - 2 * gone) // 4, shift), seen
    if crop == "auto" or not (found.kind in SPATIAL or (acted and output.dim() >= 4)):
        return 0, seen
    pixels = whole("crop", crop, 0)
    rule = f"less than half of the output's side ({side})"
    require(2 * pixels < side, "crop", crop, rule, f"use at most {(side - 1) // 2}")
    return shown + pixels, seen


def automatic_crop(seen: Receptive, factor: float, most: int, shift: float = 0) -> int:
    """Output pixels within reach of the border, three input pixels for the resampler and a shift, at most so many."""
    return min(math.ceil((seen.radius * factor + 3 + shift) / seen.stride), most)
