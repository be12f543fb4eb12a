"""Reading a module under test: call it safely, tell what its output is, and refuse what cannot be measured.

Refused is also what is no batch of images, no module in eval mode, or a module that remembers or draws lots.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sesn._checks import complaint, positive, require
from sesn._source import failed_line, is_our_bug, missing_package
from sesn._torch import BATCH_NORM, DROPOUT, eager
from sesn.algorithms.resample import resampled_size
from sesn.errors import UsageError, WrongTypeError
from sesn.meter.action import GroupElement
from sesn.meter.elements import Element, element_of
from sesn.meter.outputs import OutputError, UndecidedError, listed, names, square_grid
from sesn.meter.receptive import Receptive
from sesn.meter.trail import Path, Trail
from sesn.scales import ScaleGrid

Kind = Literal["auto", "field", "map", "scale", "invariant"]
KINDS: tuple[Kind, ...] = ("auto", "field", "map", "scale", "invariant")
_KIND_BY_RANK: dict[int, Kind] = {5: "field", 4: "map", 3: "scale", 2: "invariant"}
#: The kinds that have spatial axes.
SPATIAL = ("field", "map")
#: What a module runs if nobody saw how its output came about.
LOST = ("something that hides how the output comes from the images",)
ON_META = "on the meta device, which holds no numbers"
#: Two answers to the same images whose Delta exceeds this, and the rounding of the module's dtype, are different.
_SAME = torch.finfo(torch.float32).eps
#: What was rearranged on the way cannot show more than so many times the image: padding adds less.
_WIDEST = 1.5
#: The fewest pixels a rescaled side may have.
FEWEST_PIXELS = 3
#: The most pixels that a rescaled side may have: more is a slip of the pen, and would fill the memory.
MOST_PIXELS = 1 << 15


class RejectedError(UsageError):
    """The module raised an error on the images that it was given."""


@dataclass(frozen=True)
class Reading:
    """What a forward pass gave, and how it came about."""

    output: Tensor  # in float64
    side: int  # of the images
    path: Path | None  # None if the output does not come from the images, or nobody saw how
    #: How far it looks as gradients show it, once they were asked: the same at every factor.
    shown: list[Receptive] = field(default_factory=list, init=False, compare=False)

    @property
    def seen(self) -> Receptive:
        """How far the output looks as its layers say it, with the stride that the sizes show."""
        left = min(self.output.shape[-2:]) if self.output.dim() >= 4 else 1
        if self.path is None:
            return Receptive(0, self.side / left, math.nan)
        seen = self.path.seen_on(left) if left > 1 else self.path.seen
        # Of spectra the number of waves was taken for pixels: then the sides alone show how far apart outputs are.
        wrong = math.isnan(seen.first) and seen.stride * left > _WIDEST * self.side
        return replace(seen, stride=self.side / left) if wrong else seen

    @property
    def sampling(self) -> tuple[float, float]:
        """Of the smallest map on the way: its stride, and how many image pixels its centre lies off the image's."""
        return self.path.coarsest if self.path is not None else (1, 0)


def read(module: nn.Module, images: Tensor, after: Reading | None = None) -> Reading:
    """Call the module and follow the images through it; where `after` made them, from the images that it was given."""
    trail = Trail() if after is None else Trail(after.path or Path().hiding(*LOST), after.side)
    output = call(module, images, trail)
    return Reading(output, trail.side, trail.end)


def like_module(module: nn.Module, images: Tensor) -> Tensor:
    """A tensor of the module's dtype and device."""
    return next((p for p in (*module.parameters(), *module.buffers()) if p.is_floating_point()), images)


def call(module: nn.Module, images: Tensor, trail: Trail | None = None) -> Tensor:
    """The module on a copy of the images in its own dtype and device; a copy of its output in float64."""
    like = like_module(module, images)
    given = images.to(device=like.device, dtype=like.dtype, copy=True)  # it may work in place
    try:
        with eager(), trail.following(module, given) if trail is not None else nullcontext():
            output = module(given)
            if trail is not None:
                trail.end_at(output)
    except Exception as error:  # whatever the module does, but no bug of the trail's hooks or of our layers in it
        if (trail is not None and error is trail.bug) or is_our_bug(error) or isinstance(error, OutputError):
            raise
        if package := missing_package(error):
            remedy = f"install it, for example with python -m pip install {package}"
            raise UsageError(f"the module needs the package {package}, which is missing; {remedy}") from error
        what = f"{type(error).__name__}: {str(error).strip() or failed_line(error)}"
        raise RejectedError(f"the module rejected images of shape {tuple(images.shape)}: {what}") from error
    return _checked(output, images)


def _checked(output: Any, images: Tensor) -> Tensor:
    if not isinstance(output, Tensor):
        got = f"the module must return one tensor, got {type(output).__name__}"
        if not (named := names(output)):
            raise WrongTypeError(f"{got}; wrap it to return the tensor to measure")
        remedy = f"give `output=` of sesn.OutputOf, for example {named[0]!r}"
        raise UndecidedError(f"{got} of {listed(output)}; {remedy}", output=named)
    said = "the module returned"
    if output.is_complex():
        raise WrongTypeError(f"{said} {output.dtype}; return a real tensor, for example torch.view_as_real(output)")
    shape, given = tuple(output.shape), tuple(images.shape)
    if shape[:1] != given[:1]:
        raise UsageError(f"{said} {shape} for {given[0]} images; the first axis must be the batch")
    if not bool(torch.isfinite(output).all()):
        raise UsageError(
            f"{said} NaN or infinity for images of shape {given}; no Delta can be taken: check its weights"
        )
    return precise(output.to(torch.float64, copy=True))  # it may use the tensor again


def precise(output: Tensor) -> Tensor:
    """In float64, with one number for each image, [b], as a score [b, 1]."""
    exact = output.to(torch.float64)
    return exact[:, None] if exact.dim() == 1 else exact


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
    rule = f"the kind of a {output.dim()}-dimensional output {tuple(output.shape)}"
    require(kind in ("auto", found), "kind", kind, rule, f"use {found!r} or 'auto'" if found else "")
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
    if found is None and kind == "scale":
        square = square_grid(output.shape[1])
        raise UndecidedError(
            f"the output {tuple(output.shape)} has three axes: for scales [b, c, s] give `grid=`, and for tokens "
            "[b, n, c] the grid that they lie on, `tokens=` of sesn.OutputOf"
            + (
                f", for example {square} ('set' if they lie on none)"
                if square
                else " ('set' if they lie on none); give a map [b, h, w] an axis of channels, as in output[:, None]"
            ),
            tokens=[square] if square else [],
        )
    if found is None:
        raise UsageError(
            f"the output {tuple(output.shape)} has a scale axis but the module has no `.grid`; give `grid=`"
        )
    rule = f"as long as the output's scale axis ({output.shape[2]})"
    require(len(found) == output.shape[2], "grid", found, rule, "give one sigma per scale channel")
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


def check_asked(module: nn.Module, images: Any, *elements: Element) -> None:
    """Refuse what is no batch of images, or would shrink to nothing, and a module that may not be measured."""
    if not isinstance(images, Tensor) or images.dim() != 4 or not images.is_floating_point():
        shape = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise UsageError(complaint("images", shape, "a floating-point tensor [b, c, h, w]"))
    require(images.shape[0] > 0, "images.shape[0]", 0, "at least 1")
    require(bool(torch.isfinite(images).all()), "images", "with NaN or infinity", "finite")
    for element in elements:
        factor = element.scale if isinstance(element, GroupElement) else element
        remedy = "below 1 shrinks, above 1 enlarges; or give a ScaleTranslation, Rotation or Transform"
        require(positive(factor), "factor", factor, "a positive number", remedy)
        element_of(element).check(images)
        left, largest = sorted(resampled_size(side, factor) for side in images.shape[-2:])
        rule = f"small enough for at most {MOST_PIXELS} pixels a side"
        remedy = f"it makes {largest} of {max(images.shape[-2:])}; use a smaller factor"
        require(largest <= MOST_PIXELS, "factor", factor, rule, remedy)
        rule = f"large enough to leave {FEWEST_PIXELS} pixels of {min(images.shape[-2:])}"
        remedy = f"it leaves {left}; use larger images or a larger factor"
        require(left >= FEWEST_PIXELS, "factor", factor, rule, remedy)
    _check_eval(module)


def _check_eval(module: nn.Module) -> None:
    """Refuse what is no module, and batch norm and dropout in train mode."""
    if not isinstance(module, nn.Module):
        raise WrongTypeError(complaint("module", module, "a torch.nn.Module", "wrap a function in one"))
    for name, layer in module.named_modules():
        normalises = isinstance(layer, BATCH_NORM) or isinstance(getattr(layer, "running_var", None), Tensor)
        if layer.training and (normalises or isinstance(layer, DROPOUT | nn.RReLU)):
            raise UsageError(
                f"`{name or 'module'}` ({type(layer).__name__}) is in train mode: its output depends on the batch or "
                "on chance, so the two branches cannot be compared; call module.eval() first"
            )


def check_repeatable(module: nn.Module, images: Tensor, output: Tensor) -> None:
    """Refuse a module that answers otherwise when it is asked once more, or remembers what it was asked before.

    Asked with the images in another order, which tells memory from an answer. Where the order alone matters, to
    rounding or to the module, there is neither: the diagnosis speaks of it.
    """
    same = max(_SAME, torch.finfo(like_module(module, images).dtype).eps)
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
