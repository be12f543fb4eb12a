"""Reading a module under test: call it safely, tell what its output is, and refuse what cannot be measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from sesn._checks import complaint, positive, require, whole
from sesn.receptive import Receptive, coarsest_field, receptive_field, submodules
from sesn.resample import resampled_size
from sesn.scales import ScaleGrid

Kind = Literal["auto", "field", "map", "scale", "invariant"]
KINDS: tuple[Kind, ...] = ("auto", "field", "map", "scale", "invariant")
_KIND_BY_RANK: dict[int, Kind] = {5: "field", 4: "map", 3: "scale", 2: "invariant"}
#: The kinds that have spatial axes.
SPATIAL = ("field", "map")
#: The fewest pixels a rescaled side may have.
FEWEST_PIXELS = 3
#: The most pixels that a rescaled side may have: more is a slip of the pen, and would fill the memory.
MOST_PIXELS = 1 << 15


class Trail:
    """What a forward pass went through.

    Attributes:
        layers: the submodules in the order in which they ran, as often as they ran.
        side: of the images.
        least: of the smallest map on the way; one pixel is none.
    """

    def __init__(self) -> None:
        self.layers: list[nn.Module] = []
        self.side = self.least = 1

    def hooks(self, module: nn.Module, images: Tensor) -> list[RemovableHandle]:
        """On the module and all below it, before it is given the images."""
        self.side = self.least = min(images.shape[-2:])
        entering = [m.register_forward_pre_hook(lambda m, _: self.layers.append(m)) for m in module.modules()]
        return entering + [m.register_forward_hook(lambda _, __, made: self._leave(made)) for m in module.modules()]

    def _leave(self, made: Any) -> None:
        side = min(made.shape[-2:]) if isinstance(made, Tensor) and made.dim() >= 4 else 1
        if side > 1:
            self.least = min(self.least, side)

    def seen(self, output: Tensor) -> Receptive:
        """How far the output looks, and with which stride."""
        left = min(output.shape[-2:]) if output.dim() >= 4 else self.least
        return receptive_field(self.layers).leaving(left, self.side)

    @property
    def sampling(self) -> tuple[float, float]:
        """Of the smallest map: its stride, and how many image pixels its centre lies off the image's."""
        seen = coarsest_field(self.layers).leaving(self.least, self.side)
        return seen.stride, seen.off_centre(self.side, self.least)


def seen_by(module: nn.Module, images: Tensor) -> Receptive:
    """How far a module looks, from running it on one of the images."""
    trail = Trail()
    with torch.no_grad():
        return trail.seen(call(module, images[:1], trail))


def call(module: nn.Module, images: Tensor, trail: Trail | None = None) -> Tensor:
    """The module on a copy of the images in its own dtype and device; its output in float64."""
    like = next((p for p in (*module.parameters(), *module.buffers()) if p.is_floating_point()), images)
    hooks = trail.hooks(module, images) if trail is not None else []
    try:
        output = module(images.to(device=like.device, dtype=like.dtype, copy=True))  # it may work in place
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"the module rejected images of shape {tuple(images.shape)}: {what}") from error
    finally:
        for hook in hooks:
            hook.remove()
    return _checked(output, images)


def _checked(output: Any, images: Tensor) -> Tensor:
    if not isinstance(output, Tensor):
        raise TypeError(
            f"the module must return one tensor, got {type(output).__name__}; wrap it to return the tensor to measure"
        )
    if output.is_complex():
        raise TypeError(
            f"the module returned {output.dtype}; return a real tensor, for example torch.view_as_real(output)"
        )
    if output.dim() == 0 or output.shape[0] != images.shape[0]:
        raise ValueError(
            f"the module returned {tuple(output.shape)} for {images.shape[0]} images; the first axis must be the batch"
        )
    if not bool(torch.isfinite(output).all()):
        raise ValueError(
            f"the module returned NaN or infinity for images of shape {tuple(images.shape)}; no Delta can be taken"
        )
    return output.to(torch.float64)


def output_kind(kind: Kind, output: Tensor) -> Kind:
    """How to read an output: as asked, or by its rank."""
    if kind != "auto":
        rank = next(rank for rank, name in _KIND_BY_RANK.items() if name == kind)
        require(
            output.dim() == rank,
            "kind",
            kind,
            f"the kind of a {output.dim()}-dimensional output {tuple(output.shape)}",
            f"use {_KIND_BY_RANK[output.dim()]!r} or 'auto'" if output.dim() in _KIND_BY_RANK else "",
        )
        return kind
    if output.dim() not in _KIND_BY_RANK:
        raise ValueError(
            f"the module's output has shape {tuple(output.shape)}, which is no map, field or invariant; give `action=`"
        )
    return _KIND_BY_RANK[output.dim()]


def output_grid(module: nn.Module, grid: ScaleGrid | None, output: Tensor, kind: str) -> ScaleGrid | None:
    """The scales of an output with a scale axis: given, the module's, or its last submodule's."""
    if kind not in ("field", "scale"):
        return None
    if grid is not None and not isinstance(grid, ScaleGrid):
        raise TypeError(complaint("grid", grid, "a ScaleGrid", "for example ScaleGrid([1.0, 2.0])"))
    found = grid if grid is not None else _module_grid(module)
    if found is None:
        raise ValueError(
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


def _module_grid(module: nn.Module) -> ScaleGrid | None:
    own = getattr(module, "grid", None)
    if isinstance(own, ScaleGrid):
        return own
    grids = [g for m in module.modules() if isinstance(g := getattr(m, "grid", None), ScaleGrid)]
    return grids[-1] if grids else None


def spoiled_channels(layers: nn.Module | Iterable[nn.Module], spoiled: int | None) -> int:
    """Scale channels at the large end that interscale layers, called one after the other, fill with zeros."""
    if spoiled is not None:
        return whole("spoiled", spoiled, 0)
    run = submodules(layers) if isinstance(layers, nn.Module) else layers
    return sum(map(spoilt_by, run))


def spoilt_by(layer: nn.Module) -> int:
    """Scale channels that a layer fills with zeros: all but one of those that it sees, as its `interscale` says.

    Only of layers that also say how far they see: a block may keep the extent of a layer in it.
    """
    extent = getattr(layer, "interscale", 1) if hasattr(layer, "receptive_radius") else 1
    return extent - 1 if isinstance(extent, int) else 0


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


def check_images(images: Any, factor: float) -> None:
    """Refuse what is no batch of images, or would shrink to nothing."""
    if not isinstance(images, Tensor) or images.dim() != 4 or not images.is_floating_point():
        shape = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(complaint("images", shape, "a floating-point tensor [b, c, h, w]"))
    require(images.shape[0] > 0, "images.shape[0]", 0, "at least 1")
    require(bool(torch.isfinite(images).all()), "images", "with NaN or infinity", "finite")
    require(positive(factor), "factor", factor, "a positive number", "below 1 shrinks, above 1 enlarges")
    largest = max(resampled_size(side, factor) for side in images.shape[-2:])
    require(
        largest <= MOST_PIXELS,
        "factor",
        factor,
        f"small enough for at most {MOST_PIXELS} pixels a side",
        f"it makes {largest} of {max(images.shape[-2:])}; use a smaller factor",
    )
    left = min(resampled_size(side, factor) for side in images.shape[-2:])
    require(
        left >= FEWEST_PIXELS,
        "factor",
        factor,
        f"large enough to leave {FEWEST_PIXELS} pixels of {min(images.shape[-2:])}",
        f"it leaves {left}; use larger images or a larger factor",
    )


def check_eval(module: nn.Module) -> None:
    """Refuse what is no module, and batch norm and dropout in train mode."""
    if not isinstance(module, nn.Module):
        raise TypeError(complaint("module", module, "a torch.nn.Module", "wrap a function in one"))
    for name, layer in module.named_modules():
        normalises = isinstance(layer, nn.modules.batchnorm._BatchNorm) or isinstance(
            getattr(layer, "running_var", None), Tensor
        )
        if layer.training and (normalises or isinstance(layer, nn.modules.dropout._DropoutNd)):
            raise ValueError(
                f"`{name or 'module'}` ({type(layer).__name__}) is in train mode: its output depends on the batch or "
                "on chance, so the two branches cannot be compared; call module.eval() first"
            )
