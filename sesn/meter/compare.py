"""The equivariance error, defined once:

    Delta = ||L_s Phi(f) - Phi(L_s f)||^2 / ||L_s Phi(f)||^2

for one image f, as a ratio of sums over channels, scales and space. Tests assert on it and the harness sweeps it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sesn.errors import UsageError
from sesn.meter.reading import SPATIAL
from sesn.scales import ON_GRID_TOLERANCE, ScaleGrid

if TYPE_CHECKING:
    from sesn.meter.meter import Meter

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
        meter: how it was measured; None where two outputs were compared that no meter made.

    Example:
        >>> error = sesn.equivariance_error(nn.Identity(), torch.randn(2, 1, 32, 32), 0.5)
        >>> error.valid, error.at_floor, error.passes(1e-3)
        (tensor([0., 0.], dtype=torch.float64), True, True)
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
    meter: Meter | None = None

    @property
    def at_floor(self) -> bool:
        """Whether the median Delta is within three times the probe's own floor: it cannot be told from zero then."""
        return middle(self.valid) <= 3 * middle(self.floor)

    def empty(self) -> str:
        """Say why a small Delta would show nothing, whatever the tolerance.

        Returns:
            The reason; an empty text if it shows something.
        """
        if self.kind in SPATIAL and math.isnan(middle(self.centred)):
            return "the output is constant over space"
        if hardly_depends(self.unrelated):
            return f"the output hardly depends on the image (unrelated images differ by {self.unrelated:.2g})"
        return ""

    def passes(self, tolerance: float) -> bool:
        """Ask whether the median Delta is within a tolerance and shows something.

        Args:
            tolerance: the largest Delta that passes.

        Returns:
            Whether it passes.
        """
        return within(middle(self.valid), self.unrelated, tolerance) and not self.empty()

    @property
    def unrelated(self) -> float | None:
        """The median Delta of unrelated images."""
        return None if self.ceiling is None else middle(self.ceiling)

    @property
    def on_grid(self) -> bool:
        """Whether the factor is a step of the grid; otherwise the nearest partners were compared."""
        return bool(self.pairs) and self.residual <= ON_GRID_TOLERANCE


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
        raise UsageError(
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
