"""The equivariance error, defined once:

    Delta = ||L_s Phi(f) - Phi(L_s f)||^2 / ||L_s Phi(f)||^2

for one image f, as a ratio of sums over channels, scales and space. Tests assert on it and the harness sweeps it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sesn._checks import one_of, require
from sesn.meter.action import rescale
from sesn.meter.floor import reference_error
from sesn.meter.reading import (
    KINDS,
    SPATIAL,
    Kind,
    call,
    check_eval,
    check_images,
    check_repeatable,
    output_crop,
    output_grid,
    output_kind,
    quarter_side,
    read,
    receptive_field_of,
    spoiled_along,
    unrelated_to,
)
from sesn.meter.resample import ENDS, RESAMPLERS, Ends, Resampler
from sesn.scales import ON_GRID_TOLERANCE, ScaleGrid

Action = Callable[[Tensor, float], Tensor]
#: A signal whose energy without its mean is below this part of the whole is constant up to rounding.
ROUNDING_ENERGY = 1e-24
#: Unrelated images differ by about 1 to 2; where they differ by less than this, the output hardly depends on them.
HARDLY = 0.1


@dataclass(frozen=True)
class EquivarianceError:
    """Delta of a module on a batch of images: one float64 value per image in every tensor.

    Attributes:
        valid: Delta over the scale channels that have a partner and are not spoilt by truncation (NaN if none is).
        all: Delta over all scale channels that have a partner, spoilt or not.
        uncropped: `valid` with the border counted; equal to it without a crop.
        centred: `valid` with the spatial mean of every channel removed from both branches (NaN without spatial axes).
        floor: Delta of a reference lift on the same images, resampler and crop: what the probe itself contributes.
        ceiling: L_s Phi(f_i) against Phi(L_s f_j) of another image, or of noise if that is the same image; None where
            two outputs were compared that had no other.
        energy: the mean square of L_s Phi(f) over the valid channels.
        lost: scale channels lost to truncation of the scale axis.
        factor: the factor s that was applied, exactly.
        residual: |ln| distance of the factor from the grid; above 0.02 the partners are only the nearest ones.
        crop: pixels left out at each border of the output.
        kind: how the output was read.
        pairs: the partnered scale channels (k of the rescaled image, j of the original).
        by_scale: Delta of each pair, [pairs, images].
        border: Delta of the cropped-away frame over the same channels as `valid` (NaN without a crop).
    """

    valid: Tensor
    all: Tensor
    uncropped: Tensor
    centred: Tensor
    floor: Tensor
    ceiling: Tensor | None
    energy: Tensor
    lost: int
    factor: float
    residual: float
    crop: int
    kind: str
    pairs: tuple[tuple[int, int], ...]
    by_scale: Tensor
    border: Tensor

    @property
    def at_floor(self) -> bool:
        """Whether the median Delta is within three times the probe's own floor: it cannot be told from zero then."""
        return middle(self.valid) <= 3 * middle(self.floor)

    def empty(self) -> str:
        """Why a small Delta would show nothing, whatever the tolerance; an empty text if it shows something."""
        if self.kind in SPATIAL and math.isnan(middle(self.centred)):
            return "the output is constant over space"
        if hardly_depends(self.unrelated):
            return f"the output hardly depends on the image (unrelated images differ by {self.unrelated:.2g})"
        return ""

    def passes(self, tolerance: float) -> bool:
        """Whether the median Delta is within the tolerance and shows something."""
        return within(middle(self.valid), self.unrelated, tolerance) and not self.empty()

    @property
    def unrelated(self) -> float | None:
        """The median Delta of unrelated images."""
        return None if self.ceiling is None else middle(self.ceiling)

    @property
    def on_grid(self) -> bool:
        """Whether the factor is a step of the grid; otherwise the nearest partners were compared."""
        return bool(self.pairs) and self.residual <= ON_GRID_TOLERANCE


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
    repeat: bool = True,
) -> EquivarianceError:
    """Measure Delta of a module under L_s, s = factor (< 1 shrinks), on images [b, c, h, w].

    Args:
        module: any module in eval mode that takes images.
        images: the images f; zero-mean images, or a large mean hides the error (see `centred`).
        factor: s > 0.
        grid: the output's scales; by default the module's `grid`, or that of the submodule that made the output.
        kind: what the output is: "field" [b, c, s, h, w], "map" [b, c, h, w], "scale" [b, c, s], "invariant" [b, c].
        action: how L_s acts on an output that is none of these: action(output, factor) -> output.
        spoiled: scale channels at the large end that interscale layers fill with zeros; by default counted.
        resampler: "lanczos3" for zero-padded modules, "fourier" for circular ones, "bicubic", "legacy".
        crop: pixels to leave out at each border; by default min(receptive radius x s + 3, a quarter of the side).
        ends: what lies past the border for the resampler; by default "circular" for "fourier", else "zeros". With
            crop=0, "inside" keeps the resampler from darkening the border.
        repeat: call the module once more, and refuse it if its output depends on state or chance; False saves the call
            for a module that is known to have neither.
    """
    check_images(images, factor)
    check_eval(module)
    one_of("kind", kind, KINDS)
    if action is not None and (grid is not None or spoiled is not None):
        raise ValueError(
            "`action` says how the whole output moves, scales included: give it without `grid` and `spoiled`"
        )
    past = resampler_ends(resampler, ends)
    with torch.no_grad():
        exact = images.to(torch.float64)
        small = rescale(exact, factor, resampler, past)
        reading = read(module, exact)
        original, direct = reading.output, call(module, small)
        if repeat:
            check_repeatable(module, *((small, direct) if factor < 1 else (exact, original)))
        if action is not None:
            moved, found = _acted(action, original, factor), "action"
            spatial = crop != "auto" and direct.dim() >= 4
        else:
            found = output_kind(kind, original)
            grid = output_grid(module, grid, original, found, reading.path)
            spatial = found in SPATIAL
            moved = rescale(original, factor, resampler, past) if spatial else original
        margin = spoiled_along(reading.path, spoiled) if grid is not None else 0
        seen = receptive_field_of(module, exact, reading) if spatial and crop == "auto" else reading.seen
        cut = output_crop(crop, seen, factor, direct) if spatial else 0
        floor = reference_error(exact, factor, resampler, past, min(math.ceil(cut * seen.stride), quarter_side(small)))
        others = _others(module, exact, small, direct)
        return compare(moved, direct, factor, found, grid, margin, cut, floor, others)


def _others(module: nn.Module, images: Tensor, small: Tensor, direct: Tensor) -> Tensor:
    """Phi(L_s f) of another image in the place of each: of the next one or, where that is the same image, of noise."""
    alone = (images == images.roll(-1, 0)).flatten(1).all(1).to(direct.device)
    others = direct.roll(-1, 0)
    if not bool(alone.any()):
        return others
    return torch.where(alone.reshape(-1, *[1] * (direct.dim() - 1)), call(module, unrelated_to(small)), others)


def compare(
    moved: Tensor,
    direct: Tensor,
    factor: float,
    kind: str,
    grid: ScaleGrid | None,
    spoiled: int,
    crop: int,
    floor: Tensor,
    others: Tensor | None = None,
) -> EquivarianceError:
    """Delta of two outputs: `moved` is L_s Phi(f) before the scale axis shifts, `direct` is Phi(L_s f).

    `others` are direct outputs of other images, by default of the next one in the batch.
    """
    if moved.shape != direct.shape:
        raise ValueError(
            f"the module gives {tuple(direct.shape)} for the rescaled images, but its output rescaled by {factor:.4g} "
            f"is {tuple(moved.shape)}: its spatial size does not follow the image's. Use sizes that the module's "
            "stride divides before and after rescaling, or give `kind=` or `action=` if the output is no map"
        )
    pairs, residual = _partners(grid, factor)
    whole_scales = len(grid) - spoiled if grid is not None else 1
    valid = [i for i, (k, j) in enumerate(pairs) if k < whole_scales and j < whole_scales]
    whole_sums = [_sums(_channel(moved, j, grid), _channel(direct, k, grid)) for k, j in pairs]
    inside = [(_cut(_channel(moved, j, grid), crop), _cut(_channel(direct, k, grid), crop)) for k, j in pairs]
    if others is None and len(direct) > 1:
        others = direct.roll(-1, 0)
    sums = [_sums(a, b) for a, b in inside]
    spatial = kind in SPATIAL
    frame = [(w - i, u - v) for (w, u), (i, v) in zip(whole_sums, sums, strict=True)]
    nothing = torch.full((moved.shape[0],), math.nan, dtype=torch.float64, device="cpu")
    chosen = [inside[i] for i in valid]
    return EquivarianceError(
        valid=_ratio([sums[i] for i in valid], nothing),
        all=_ratio(sums, nothing),
        uncropped=_ratio([whole_sums[i] for i in valid], nothing),
        centred=_centred_ratio(chosen, nothing) if spatial else nothing,
        floor=floor,
        ceiling=None if others is None else _ceiling(moved, others, grid, [pairs[i] for i in valid], crop, nothing),
        energy=torch.stack([a.square().flatten(1).mean(1).cpu() for a, _ in chosen]).mean(0) if chosen else nothing,
        lost=len(grid) - len(valid) if grid is not None else 0,
        factor=float(factor),
        residual=residual,
        crop=crop,
        kind=kind,
        pairs=pairs,
        by_scale=torch.stack([_ratio([each], nothing) for each in sums]) if sums else nothing[None, :][:0],
        border=_ratio([frame[i] for i in valid], nothing) if crop else nothing,
    )


def _ceiling(
    moved: Tensor, others: Tensor, grid: ScaleGrid | None, pairs: Sequence[tuple[int, int]], crop: int, nothing: Tensor
) -> Tensor:
    """Delta against the outputs of other images."""
    chosen = [(_cut(_channel(moved, j, grid), crop), _cut(_channel(others, k, grid), crop)) for k, j in pairs]
    return _ratio([_sums(a, b) for a, b in chosen], nothing)


def _partners(grid: ScaleGrid | None, factor: float) -> tuple[tuple[tuple[int, int], ...], float]:
    """The scale channels to compare; an output without a scale axis is one channel that partners itself."""
    if grid is None:
        return ((0, 0),), 0.0
    match = grid.match(factor)
    return match.pairs, match.residual


def _channel(output: Tensor, index: int, grid: ScaleGrid | None) -> Tensor:
    return output if grid is None else output[:, :, index]


def _cut(output: Tensor, crop: int) -> Tensor:
    return output[..., crop:-crop, crop:-crop] if crop else output


def _centred_ratio(chosen: Sequence[tuple[Tensor, Tensor]], nothing: Tensor) -> Tensor:
    """Delta without the channels' means; NaN where nothing but rounding is left of the signal then."""
    ratio = _ratio([_sums(_centred(a), _centred(b)) for a, b in chosen], nothing)
    if not chosen:
        return ratio
    whole_energy = torch.stack([_sums(a, a)[1] for a, _ in chosen]).sum(0)
    left = torch.stack([_sums(_centred(a), a)[1] for a, _ in chosen]).sum(0)
    return torch.where(left <= ROUNDING_ENERGY * whole_energy, nothing, ratio)


def _centred(output: Tensor) -> Tensor:
    return output - output.mean(dim=(-2, -1), keepdim=True)


def _sums(moved: Tensor, direct: Tensor) -> tuple[Tensor, Tensor]:
    """Per image: the sums of squares of the difference and of L_s Phi(f)."""
    return (moved - direct).square().flatten(1).sum(1).cpu(), moved.square().flatten(1).sum(1).cpu()


def _ratio(sums: Sequence[tuple[Tensor, Tensor]], nothing: Tensor) -> Tensor:
    """Ratio of sums, not mean of ratios: a dead channel must not count as an error. NaN where there is no signal."""
    if not sums:
        return nothing
    difference, reference = (torch.stack(column).sum(0) for column in zip(*sums, strict=True))
    return difference / reference


def hardly_depends(unrelated: float | None) -> bool:
    """Whether unrelated images differ so little that a small Delta shows nothing. The tolerance has no say in it."""
    return unrelated is not None and unrelated <= HARDLY


def within(delta: float, unrelated: float | None, tolerance: float) -> bool:
    """Whether a Delta, beside that of unrelated images, passes; what cannot be compared (NaN) does not.

    What passes at a tolerance passes at every looser one.
    """
    return delta <= tolerance and not hardly_depends(unrelated)


def middle(values: Tensor) -> float:
    """The median, the mean of the two middle values of an even number; NaN if any value is."""
    return float(values.quantile(0.5)) if values.numel() else math.nan


def resampler_ends(resampler: Resampler, ends: Ends | Literal["auto"]) -> Ends:
    """What lies past the border: the Fourier resampler is periodic, the others meet zeros unless told otherwise."""
    one_of("resampler", resampler, RESAMPLERS)
    if one_of("ends", ends, ("auto", *ENDS)) != "auto":
        periodic = resampler == "fourier" and ends == "inside"
        require(not periodic, "ends", ends, "circular with the fourier resampler, which is periodic", "or use lanczos3")
        return ends  # type: ignore[return-value]
    return "circular" if resampler == "fourier" else "zeros"


def _acted(action: Action, original: Tensor, factor: float) -> Tensor:
    moved = action(original, factor)
    if not isinstance(moved, Tensor):
        raise TypeError(f"`action` must return a tensor, got {type(moved).__name__}")
    return moved.to(torch.float64)
