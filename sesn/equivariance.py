"""The equivariance error, defined once:

    Delta = ||L_s Phi(f) - Phi(L_s f)||^2 / ||L_s Phi(f)||^2

for one image f, as a ratio of sums over channels, scales and space. Tests assert on it and the harness sweeps it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sesn._checks import complaint, one_of, require, whole
from sesn.action import rescale
from sesn.conv import ScaleConv
from sesn.receptive import receptive_field
from sesn.reference import reference_error
from sesn.resample import Ends, Resampler, resampled_size
from sesn.scales import ScaleGrid

Kind = Literal["auto", "field", "map", "scale", "invariant"]
KINDS: tuple[Kind, ...] = ("auto", "field", "map", "scale", "invariant")
_KIND_BY_RANK: dict[int, Kind] = {5: "field", 4: "map", 3: "scale", 2: "invariant"}
Action = Callable[[Tensor, float], Tensor]
#: The fewest pixels a rescaled side may have.
FEWEST_PIXELS = 3


@dataclass(frozen=True)
class EquivarianceError:
    """Delta of a module on a batch of images: one float64 value per image in every tensor.

    Attributes:
        valid: Delta over the scale channels that have a partner and are not spoilt by truncation (NaN if none is).
        all: Delta over all scale channels that have a partner, spoilt or not.
        centred: `valid` with the spatial mean of every channel removed from both branches (NaN without spatial axes).
        floor: Delta of a reference lift on the same images, resampler and crop: what the probe itself contributes.
        ceiling: L_s Phi(f_i) against Phi(L_s f_j) of another image; None for a single image.
        energy: the mean square of L_s Phi(f) over the valid channels.
        lost: scale channels lost to truncation of the scale axis.
        factor: the factor s that was applied, exactly.
        residual: |ln| distance of the factor from the grid; above 0.02 the partners are only the nearest ones.
        crop: pixels left out at each border of the output.
        kind: how the output was read.
    """

    valid: Tensor
    all: Tensor
    centred: Tensor
    floor: Tensor
    ceiling: Tensor | None
    energy: Tensor
    lost: int
    factor: float
    residual: float
    crop: int
    kind: str

    @property
    def at_floor(self) -> bool:
        """Whether the median Delta is within three times the probe's own floor: it cannot be told from zero then."""
        return bool(self.valid.median() <= 3 * self.floor.median())


@dataclass(frozen=True)
class _Branches:
    """Both sides of the comparison, paired and cropped: lists over the partnered scale channels of [b, ...]."""

    moved: list[Tensor]
    direct: list[Tensor]
    valid: list[int]
    lost: int
    residual: float
    crop: int


def equivariance_error(
    module: nn.Module,
    images: Tensor,
    factor: float,
    *,
    grid: ScaleGrid | None = None,
    kind: Kind = "auto",
    action: Action | None = None,
    spoiled: int | None = None,
    resampler: Resampler = "lanczos3",
    crop: int | Literal["auto"] = "auto",
    ends: Ends | Literal["auto"] = "auto",
) -> EquivarianceError:
    """Measure Delta of a module under L_s, s = factor (< 1 shrinks), on images [b, c, h, w].

    Args:
        module: any module in eval mode that takes images.
        images: the images f; zero-mean images, or a large mean hides the error (see `centred`).
        factor: s > 0.
        grid: the output's scales; by default the module's `grid`, or that of its last submodule that has one.
        kind: what the output is: "field" [b, c, s, h, w], "map" [b, c, h, w], "scale" [b, c, s], "invariant" [b, c].
        action: how L_s acts on an output that is none of these: action(output, factor) -> output.
        spoiled: scale channels at the large end that interscale layers fill with zeros; by default counted.
        resampler: "lanczos3" for zero-padded modules, "fourier" for circular ones, "bicubic", "legacy".
        crop: pixels to leave out at each border; by default min(receptive radius x s + 3, a quarter of the side).
        ends: what lies past the border for the resampler; by default "circular" for "fourier", else "zeros".
    """
    _check_call(module, images, factor, kind, resampler)
    past: Ends = ends if ends != "auto" else ("circular" if resampler == "fourier" else "zeros")
    with torch.no_grad():
        exact = images.to(torch.float64)
        original = _call(module, exact)
        direct = _call(module, rescale(exact, factor, resampler, past))
        if action is not None:
            branches = _act(original, direct, factor, action)
            read = "action"
        else:
            read = _kind(kind, original)
            scales = _grid(module, grid, original, read)
            margin = _spoiled(module, spoiled) if read in ("field", "scale") else 0
            cut = _crop(crop, module, factor, direct) if read in ("field", "map") else 0
            branches = _pair(original, direct, factor, read, scales, margin, resampler, past, cut)
        floor_cut = (
            branches.crop if crop != "auto" else min(branches.crop, _quarter(rescale(exact, factor, resampler, past)))
        )
        floor = reference_error(exact, factor, resampler, past, floor_cut)
    return _summary(branches, read, factor, floor)


def _summary(branches: _Branches, read: str, factor: float, floor: Tensor) -> EquivarianceError:
    everything = range(len(branches.moved))
    batch = floor.shape[0]
    return EquivarianceError(
        valid=_delta(branches, branches.valid),
        all=_delta(branches, everything),
        centred=_delta(branches, branches.valid, centred=True)
        if read in ("field", "map")
        else torch.full_like(floor, math.nan),
        floor=floor,
        ceiling=_delta(branches, branches.valid, against_next=True) if batch > 1 else None,
        energy=_energy(branches),
        lost=branches.lost,
        factor=float(factor),
        residual=branches.residual,
        crop=branches.crop,
        kind=read,
    )


def _delta(branches: _Branches, channels: Sequence[int], centred: bool = False, against_next: bool = False) -> Tensor:
    """Ratio of sums over the given scale channels; NaN where there is none, or where the response is zero."""
    batch = branches.moved[0].shape[0] if branches.moved else 0
    difference = torch.zeros(batch, dtype=torch.float64)
    reference = torch.zeros(batch, dtype=torch.float64)
    for k in channels:
        moved, direct = branches.moved[k], branches.direct[k]
        if against_next:
            direct = direct.roll(-1, dims=0)
        if centred:
            moved, direct = (x - x.mean(dim=(-2, -1), keepdim=True) for x in (moved, direct))
        difference += (moved - direct).square().flatten(1).sum(1).cpu()
        reference += moved.square().flatten(1).sum(1).cpu()
    same = (difference == 0) & (reference == 0) & (len(list(channels)) > 0)
    return torch.where(same, torch.zeros_like(difference), difference / reference)


def _energy(branches: _Branches) -> Tensor:
    kept = [branches.moved[k].square().flatten(1).mean(1).cpu() for k in branches.valid]
    batch = branches.moved[0].shape[0] if branches.moved else 0
    return torch.stack(kept).mean(0) if kept else torch.full((batch,), math.nan, dtype=torch.float64)


def _pair(
    original: Tensor,
    direct: Tensor,
    factor: float,
    kind: str,
    grid: ScaleGrid | None,
    spoiled: int,
    resampler: Resampler,
    ends: Ends,
    crop: int,
) -> _Branches:
    """Apply L_s to the original's output and list the partnered scale channels of both branches."""
    moved = rescale(original, factor, resampler, ends) if kind in ("field", "map") else original
    _same_shape(moved, direct, factor)
    if crop:
        moved, direct = (x[..., crop:-crop, crop:-crop] for x in (moved, direct))
    if grid is None:
        return _Branches([moved], [direct], [0], 0, 0.0, crop)
    match = grid.match(factor)
    whole_scales = len(grid) - spoiled
    valid = [i for i, (k, j) in enumerate(match.pairs) if k < whole_scales and j < whole_scales]
    if not match.pairs:
        empty = direct[:, :, :0]
        return _Branches([empty], [empty], [], len(grid), math.nan, crop)
    return _Branches(
        [moved[:, :, j] for _, j in match.pairs],
        [direct[:, :, k] for k, _ in match.pairs],
        valid,
        len(grid) - len(valid),
        match.residual,
        crop,
    )


def _act(original: Tensor, direct: Tensor, factor: float, action: Action) -> _Branches:
    moved = action(original, factor)
    if not isinstance(moved, Tensor):
        raise TypeError(f"`action` must return a tensor, got {type(moved).__name__}")
    moved = moved.to(torch.float64)
    _same_shape(moved, direct, factor)
    return _Branches([moved], [direct], [0], 0, 0.0, 0)


def _same_shape(moved: Tensor, direct: Tensor, factor: float) -> None:
    if moved.shape != direct.shape:
        raise ValueError(
            f"the module gives {tuple(direct.shape)} for the rescaled images, but its output rescaled by {factor:.4g} "
            f"is {tuple(moved.shape)}: its spatial size does not follow the image's. Use sizes that the module's "
            "stride divides before and after rescaling, or give `kind=` or `action=` if the output is no map"
        )


def _call(module: nn.Module, images: Tensor) -> Tensor:
    """The module on images in its own dtype and device; its output in float64."""
    like = next((p for p in (*module.parameters(), *module.buffers()) if p.is_floating_point()), images)
    try:
        output = module(images.to(device=like.device, dtype=like.dtype))
    except (RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"the module rejected images of shape {tuple(images.shape)}: {error}") from error
    if not isinstance(output, Tensor):
        raise TypeError(
            f"the module must return one tensor, got {type(output).__name__}; wrap it to return the tensor to measure"
        )
    if not bool(torch.isfinite(output).all()):
        raise ValueError(
            f"the module returned NaN or infinity for images of shape {tuple(images.shape)}; no Delta can be taken"
        )
    return output.to(torch.float64)


def _kind(kind: Kind, output: Tensor) -> Kind:
    if kind != "auto":
        rank = next(rank for rank, name in _KIND_BY_RANK.items() if name == kind)
        require(
            output.dim() == rank, "kind", kind, f"the kind of a {output.dim()}-dimensional output {tuple(output.shape)}"
        )
        return kind
    if output.dim() not in _KIND_BY_RANK:
        raise ValueError(
            f"the module's output has shape {tuple(output.shape)}, which is no map, field or invariant; give `action=`"
        )
    return _KIND_BY_RANK[output.dim()]


def _grid(module: nn.Module, grid: ScaleGrid | None, output: Tensor, kind: str) -> ScaleGrid | None:
    if kind not in ("field", "scale"):
        return None
    found = grid if grid is not None else _module_grid(module)
    if found is None:
        raise ValueError(
            f"the output {tuple(output.shape)} has a scale axis but the module has no `.grid`; give `grid=`"
        )
    require(len(found) == output.shape[2], "grid", found, f"as long as the output's scale axis ({output.shape[2]})")
    return found


def _module_grid(module: nn.Module) -> ScaleGrid | None:
    own = getattr(module, "grid", None)
    if isinstance(own, ScaleGrid):
        return own
    grids = [g for m in module.modules() if isinstance(g := getattr(m, "grid", None), ScaleGrid)]
    return grids[-1] if grids else None


def _spoiled(module: nn.Module, spoiled: int | None) -> int:
    if spoiled is not None:
        return whole("spoiled", spoiled, 0)
    return sum(layer.interscale - 1 for layer in module.modules() if isinstance(layer, ScaleConv))


def _crop(crop: int | str, module: nn.Module, factor: float, output: Tensor) -> int:
    if crop == "auto":
        seen = receptive_field(module)
        return min(math.ceil((seen.radius * factor + 3) / seen.stride), _quarter(output))
    pixels = whole("crop", crop, 0)
    side = min(output.shape[-2:])
    require(2 * pixels < side, "crop", crop, f"less than half of the output's side ({side})")
    return pixels


def _quarter(output: Tensor) -> int:
    return int(min(output.shape[-2:]) // 4)


def _check_call(module: nn.Module, images: Any, factor: float, kind: str, resampler: str) -> None:
    if not isinstance(images, Tensor) or images.dim() != 4 or not images.is_floating_point():
        shape = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(complaint("images", shape, "a floating-point tensor [b, c, h, w]"))
    require(images.shape[0] > 0, "images.shape[0]", 0, "at least 1")
    require(bool(torch.isfinite(images).all()), "images", "with NaN or infinity", "finite")
    number = isinstance(factor, int | float) and math.isfinite(factor) and factor > 0
    require(number, "factor", factor, "a positive number", "below 1 shrinks, above 1 enlarges")
    one_of("kind", kind, KINDS)
    left = min(resampled_size(side, factor) for side in images.shape[-2:])
    require(
        left >= FEWEST_PIXELS,
        "factor",
        factor,
        f"large enough to leave {FEWEST_PIXELS} pixels of {min(images.shape[-2:])}",
        f"it leaves {left}; use larger images or a larger factor",
    )
    _check_eval(module)


def _check_eval(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        stochastic = isinstance(layer, nn.modules.batchnorm._BatchNorm | nn.modules.dropout._DropoutNd)
        if stochastic and layer.training:
            raise ValueError(
                f"`{name or 'module'}` ({type(layer).__name__}) is in train mode: its output depends on the batch or "
                "on chance, so the two branches cannot be compared; call module.eval() first"
            )
