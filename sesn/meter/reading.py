"""Reading a module under test: call it safely, tell what its output is, and refuse what cannot be measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sesn._checks import complaint, require, whole
from sesn._torch import eager
from sesn.errors import UsageError, WrongTypeError
from sesn.meter.receptive import Receptive, spoilt_by, submodules
from sesn.meter.trail import Path, Trail
from sesn.scales import ScaleGrid

Kind = Literal["auto", "field", "map", "scale", "invariant"]
KINDS: tuple[Kind, ...] = ("auto", "field", "map", "scale", "invariant")
_KIND_BY_RANK: dict[int, Kind] = {5: "field", 4: "map", 3: "scale", 2: "invariant"}
#: The kinds that have spatial axes.
SPATIAL = ("field", "map")
#: How a module whose layers could not be followed is put right.
_CALL_LAYERS = "call its layers as modules"
#: What a module runs if nobody saw how its output came about.
_LOST = ("something that hides how the output comes from the images",)
#: A slope that is more than this many roundings of the largest shows that a pixel is seen.
_SLOPE = 8
#: Two answers to the same images whose Delta exceeds this, and the rounding of the module's dtype, are different.
_SAME = torch.finfo(torch.float32).eps
ON_META = "on the meta device, which holds no numbers"


class RejectedError(UsageError):
    """The module raised an error on the images that it was given."""


@dataclass(frozen=True)
class Reading:
    """What a forward pass gave, and how it came about.

    Attributes:
        output: in float64.
        side: of the images.
        path: how the output came about; None if it does not come from the images, or nobody saw how.
    """

    output: Tensor
    side: int
    path: Path | None

    @property
    def seen(self) -> Receptive:
        """How far the output looks as its layers say it, with the stride that the sizes show."""
        left = min(self.output.shape[-2:]) if self.output.dim() >= 4 else 1
        if self.path is None or self.path.unread:
            return Receptive(0, self.side / left)
        return self.path.seen.leaving(left, self.side) if left > 1 else self.path.seen

    @property
    def sampling(self) -> tuple[float, float]:
        """Of the smallest map on the way: its stride, and how many image pixels its centre lies off the image's."""
        return self.path.coarsest if self.path is not None else (1, 0)


def read(module: nn.Module, images: Tensor, after: Reading | None = None) -> Reading:
    """Call the module and follow the images through it; where `after` made them, from the images that it was given."""
    trail = Trail() if after is None else Trail(after.path or Path().hiding(*_LOST), after.side)
    output = call(module, images, trail)
    return Reading(output, trail.side, trail.end)


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
    radius = _radius_by_gradients(module, images, reading.seen.stride)
    flat = bool((reading.output == reading.output[..., :1, :1]).all())  # then every pixel says the same
    if radius is None and not flat:
        raise UsageError(
            f"how far the module looks cannot be told: it runs {_listed(path.unread if path else _LOST)}, and has no "
            f"gradient to measure it by; {_CALL_LAYERS} or give `crop=`"
        )
    return replace(reading.seen, radius=radius or 0)


def _radius_by_gradients(module: nn.Module, images: Tensor, stride: float) -> float | None:
    """How many pixels around its own place an output in the middle depends on; None without a gradient.

    A few outputs beside each other are asked, since a rectifier may be shut or a maximum be elsewhere for one.
    """
    with torch.inference_mode(False), torch.enable_grad():
        source = images.detach().clone().requires_grad_()
        try:
            output = call(module, source)
        except RejectedError:  # it has run without gradients, so that is all it minds
            return None
        if not output.requires_grad:
            return None
        weights = torch.zeros_like(output)
        places = [_middle(side) for side in output.shape[-2:]]
        asked = weights[..., places[0], places[1]]
        asked += torch.arange(asked.numel(), device=asked.device).cos().reshape(asked.shape)  # a softmax sums to 1
        try:
            (slopes,) = torch.autograd.grad(output, source, weights)
        except RuntimeError:  # torch's own: a step has no derivative, or worked in place on what that needs
            return None
    reach = slopes.abs().amax(dim=(0, 1))
    used = reach > _SLOPE * torch.finfo(_like(module, images).dtype).eps * reach.max()
    return max(_beyond(used.any(dim=1 - axis), places[axis], stride) for axis in (0, 1))


def _middle(side: int) -> slice:
    """Up to five pixels in the middle of so many."""
    half = min(2, (side - 1) // 2)
    return slice(side // 2 - half, side // 2 + half + 1)


def _beyond(used: Tensor, asked: slice, stride: float) -> float:
    """Pixels used before the place of the first output asked or after that of the last, along one axis."""
    found = used.nonzero().flatten().tolist()
    first, last = ((place + 0.5) * stride - 0.5 for place in (asked.start, asked.stop - 1))
    return max(0.0, first - found[0], found[-1] - last) if found else 0.0


def _like(module: nn.Module, images: Tensor) -> Tensor:
    """A tensor of the module's dtype and device."""
    return next((p for p in (*module.parameters(), *module.buffers()) if p.is_floating_point()), images)


def call(module: nn.Module, images: Tensor, trail: Trail | None = None) -> Tensor:
    """The module on a copy of the images in its own dtype and device; a copy of its output in float64."""
    like = _like(module, images)
    given = images.to(device=like.device, dtype=like.dtype, copy=True)  # it may work in place
    try:
        with eager(), trail.following(module, given) if trail is not None else nullcontext():
            output = module(given)
            if trail is not None:
                trail.end_at(output)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise RejectedError(f"the module rejected images of shape {tuple(images.shape)}: {what}") from error
    return _checked(output, images)


def _checked(output: Any, images: Tensor) -> Tensor:
    if not isinstance(output, Tensor):
        raise WrongTypeError(
            f"the module must return one tensor, got {type(output).__name__}; wrap it to return the tensor to measure"
        )
    if output.is_complex():
        raise WrongTypeError(
            f"the module returned {output.dtype}; return a real tensor, for example torch.view_as_real(output)"
        )
    if output.dim() == 0 or output.shape[0] != images.shape[0]:
        raise UsageError(
            f"the module returned {tuple(output.shape)} for {images.shape[0]} images; the first axis must be the batch"
        )
    if not bool(torch.isfinite(output).all()):
        raise UsageError(
            f"the module returned NaN or infinity for images of shape {tuple(images.shape)}; no Delta can be taken"
        )
    return output.to(torch.float64, copy=True)  # it may use the tensor again


def odd_output(output: Any) -> str:
    """Why there are no numbers to measure in an output; an empty text if there are."""
    if not isinstance(output, Tensor):
        return ""
    if output.is_nested:
        return "it returns a nested tensor; return one tensor, for example output.to_padded_tensor(0.0)"
    if output.is_quantized:
        return f"it returns a tensor of {output.dtype}; return output.dequantize()"
    if output.layout != torch.strided:
        return f"it returns a tensor of layout {output.layout}; return output.to_dense()"
    if output.is_meta:
        return f"it returns a tensor {ON_META}"
    return "" if output.numel() else f"it returns a tensor of shape {tuple(output.shape)}, which holds no numbers"


def output_kind(kind: Kind, output: Tensor) -> Kind:
    """How to read an output: as asked, or by its rank, where axes of one pixel are no space."""
    found = _KIND_BY_RANK.get(output.dim())
    if found in SPATIAL and tuple(output.shape[-2:]) == (1, 1):
        found = _KIND_BY_RANK[output.dim() - 2]
    if kind == "auto" and found is None:
        raise UsageError(
            f"the module's output has shape {tuple(output.shape)}, which is no map, field or invariant; give `action=`"
        )
    require(
        kind in ("auto", found),
        "kind",
        kind,
        f"the kind of a {output.dim()}-dimensional output {tuple(output.shape)}",
        f"use {found!r} or 'auto'" if found else "",
    )
    return found or kind


def output_grid(
    module: nn.Module, grid: ScaleGrid | None, output: Tensor, kind: str, path: Path | None
) -> ScaleGrid | None:
    """The scales of an output with a scale axis: given, the module's, or those of the submodule that made it."""
    if kind not in ("field", "scale"):
        return None
    if grid is not None and not isinstance(grid, ScaleGrid):
        raise WrongTypeError(complaint("grid", grid, "a ScaleGrid", "for example ScaleGrid([1.0, 2.0])"))
    found = grid if grid is not None else _module_grid(module, path)
    if found is None:
        raise UsageError(
            f"the output {tuple(output.shape)} has a scale axis but the module has no `.grid`; give `grid=`"
        )
    require(
        len(found) == output.shape[2],
        "grid",
        found,
        f"as long as the output's scale axis ({output.shape[2]})",
        "give one sigma per scale channel",
    )
    return found


def _module_grid(module: nn.Module, path: Path | None) -> ScaleGrid | None:
    """The module's own grid, else that of the layers the output comes from, else that of all its submodules."""
    own = getattr(module, "grid", None)
    if isinstance(own, ScaleGrid):
        return own
    every = dict.fromkeys(g for m in module.modules() if isinstance(g := getattr(m, "grid", None), ScaleGrid))
    made = [*dict.fromkeys(path.grids if path is not None else ())] or [*every]
    if len(made) > 1:
        raise UsageError(
            f"the output comes from layers with more than one grid ({', '.join(map(repr, made))}); give the `grid=` "
            "that its scale axis has"
        )
    return made[0] if made and made[0] in every else None


def spoiled_along(path: Path | None, spoiled: int | None) -> int:
    """Scale channels at the large end that interscale layers fill with zeros: given, or counted along a path."""
    if spoiled is not None:
        return whole("spoiled", spoiled, 0)
    if path is None or path.hidden:
        raise UsageError(
            "the scale channels that interscale layers spoil cannot be counted: the module runs "
            f"{_listed(path.hidden if path else _LOST)}; {_CALL_LAYERS}, or give `spoiled=` (0 if no layer mixes "
            "scales) and `crop=`"
        )
    return path.spoiled


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def output_crop(crop: int | str, seen: Receptive, factor: float, output: Tensor) -> int:
    """Pixels of the output to leave out at each border."""
    if crop == "auto":
        return automatic_crop(seen, factor, quarter_side(output))
    pixels = whole("crop", crop, 0)
    side = min(output.shape[-2:])
    require(
        2 * pixels < side,
        "crop",
        crop,
        f"less than half of the output's side ({side})",
        f"use at most {(side - 1) // 2}",
    )
    return pixels


def automatic_crop(seen: Receptive, factor: float, most: int) -> int:
    """Output pixels within reach of the border, and three input pixels for the resampler, but at most so many."""
    return min(math.ceil((seen.radius * factor + 3) / seen.stride), most)


def quarter_side(output: Tensor) -> int:
    """A quarter of the smaller side."""
    return int(min(output.shape[-2:]) // 4)


def check_repeatable(module: nn.Module, images: Tensor, output: Tensor) -> None:
    """Refuse a module that answers otherwise when it is asked once more, or remembers what it was asked before.

    Asked with the images in another order, which tells memory from an answer. Where the order alone matters, to
    rounding or to the module, there is neither: the diagnosis speaks of it.
    """
    same = max(_SAME, torch.finfo(_like(module, images).dtype).eps)
    turned = call(module, images.roll(1, 0))
    if _differ(turned.roll(-1, 0), output) <= same:
        return
    asks = "so two of its outputs cannot be compared; call module.eval()"
    change = _differ(call(module, images), output)
    if change > same:
        raise UsageError(
            f"the module gives another output for the same images when it is called again (Delta {change:.2g} between "
            f"the two): it depends on state or chance, {asks}, and remove dropout or noise that is called as a function"
        )
    if _differ(turned, output) <= same:
        raise UsageError(
            "the module gives the same output for the images in another order: it keeps an output from an earlier "
            f"call, {asks}, or remove what it remembers"
        )


def _differ(one: Tensor, other: Tensor) -> float:
    """Delta between two outputs of a module."""
    if one.shape != other.shape:
        return math.inf
    size = float(other.square().sum())
    return float((one - other).square().sum()) / size if size else float(one.square().sum())


def unrelated_to(images: Tensor) -> Tensor:
    """Noise of the same mean and spread as each image: what has nothing to do with it."""
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64, device="cpu")
    pixels = images.flatten(1)
    mean, spread = pixels.mean(1), pixels.std(1)
    spread = torch.where(spread > 0, spread, mean.abs().clamp_min(1.0))  # of an image of one colour
    return noise.to(images) * spread[:, None, None, None] + mean[:, None, None, None]
