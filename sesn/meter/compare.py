"""The equivariance error, defined once:

    Delta = ||L_s Phi(f) - Phi(L_s f)||^2 / ||L_s Phi(f)||^2

for one image f, as a ratio of sums over channels, scales and space. Tests assert on it and the harness sweeps it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sesn._checks import positive, require
from sesn.errors import UsageError, WrongTypeError
from sesn.meter.action import GroupElement, ScaleTranslation
from sesn.meter.reading import SPATIAL
from sesn.scales import ON_GRID_TOLERANCE, ScaleGrid

if TYPE_CHECKING:
    from sesn.meter.branches import Branches
    from sesn.meter.meter import Meter

Action = Callable[[Tensor, float], Tensor]
#: A signal whose energy without its mean is below this part of the whole is constant up to rounding.
ROUNDING_ENERGY = 1e-24
#: Where unrelated images differ by no more than this, as rounding in float32 does, the output does not depend on them.
INDEPENDENT = 1e-12
#: Delta itself shows something only where they differ by more than this; they usually do by about 1 to 2.
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
        ceiling: L_s Phi(f) against Phi of an unrelated image, which has the spectrum of L_s f and other phases; None
            where it was not measured.
        ceiling_centred: `ceiling` without the channels' means, as in `centred`.
        detail: `valid` of the differences between neighbouring pixels, down and right: that of fine detail, of which
            smooth images have little (NaN without spatial axes).
        ceiling_detail: `ceiling` of these differences.
        energy: the mean square of L_s Phi(f) over the valid channels.
        largest: the largest difference |L_s Phi(f) - Phi(L_s f)| of any number in the valid channels.
        span: the range of L_s Phi(f) over the valid channels, its largest number minus its smallest.
        lost: scale channels lost to truncation of the scale axis.
        factor: the factor s that was applied, exactly.
        residual: how far ln(factor) is from the grid; above 0.02 the partners are only the nearest ones.
        crop: pixels left out at each border of the output.
        kind: how the output was read.
        pairs: the partnered scale channels (k of the rescaled image, j of the original).
        by_scale: Delta of each pair, [pairs, images].
        border: Delta of the cropped-away frame over the same channels as `valid` (NaN without a crop).
        measured: layers that do not say how far they look; the crop was chosen by gradients because of them.
        rounding: by how much the rounding of the images changes an output that is very small; 0 for any other.
        told_apart: by how much Phi of the unrelated image differs from Phi(L_s f), of the same mean and spectrum;
            infinite where it was not measured.
        element: what was done to the images: a scaling, a shift, a rotation or a pair of functions.
        meter: how it was measured; None where two outputs were compared that no meter made.

    Example:
        >>> error = sesn.equivariance_error(nn.Identity(), torch.randn(2, 1, 32, 32), 0.5)
        >>> error.relative, error.at_floor, error.passes(1e-3)
        (tensor([0., 0.], dtype=torch.float64), True, True)
    """

    valid: Tensor
    all: Tensor
    uncropped: Tensor
    centred: Tensor
    floor: Tensor
    ceiling: Tensor | None
    ceiling_centred: Tensor | None
    detail: Tensor
    ceiling_detail: Tensor | None
    energy: Tensor
    largest: Tensor
    span: Tensor
    lost: int
    factor: float
    residual: float
    crop: int
    kind: str
    pairs: tuple[tuple[int, int], ...]
    by_scale: Tensor
    border: Tensor
    element: GroupElement
    measured: tuple[str, ...] = ()
    rounding: float = 0.0
    told_apart: float = math.inf
    meter: Meter | None = None

    @property
    def relative(self) -> Tensor:
        """Delta over the median that unrelated images give: 0 is equivariant, 1 no better than chance.

        Of an output with spatial axes it is the same without the channels' means, where that is worse. A bias makes
        both numbers smaller, so it hides nothing. NaN where unrelated images give the same output, or there are none.
        """
        plain = self.valid / _chance(self.ceiling)
        return torch.maximum(plain, self.centred / _chance(self.ceiling_centred)) if self.kind in SPATIAL else plain

    @property
    def relative_detail(self) -> Tensor:
        """The same of the differences between neighbouring pixels; NaN for an output without spatial axes.

        A small kernel does little to smooth images but to multiply them by a number, and much to their fine detail.
        """
        return self.detail / _chance(self.ceiling_detail)

    @property
    def decibels(self) -> Tensor:
        """Delta as a ratio of signal to error in decibels, -10 log10 Delta: more is better, and 0 dB is a Delta of 1.

        A Delta of 1e-5 is 50 dB, 6 % are 12.2 dB. Infinite where Delta is 0.
        """
        return -10 * self.valid.log10()

    def psnr(self, value_range: float | None = None) -> Tensor:
        """Give the peak signal-to-noise ratio of an output that is an image, 20 log10(range) - 10 log10 MSE.

        MSE is the mean square of L_s Phi(f) - Phi(L_s f) over channels and what the crop leaves.

        Args:
            value_range: the range of the image's values: 1 for values in 0..1, 2 for values in -1..1; by default each
                output's own (`span`).

        Returns:
            Decibels, one number per image; NaN by the own range of an output that is constant over space, which is
            nothing but rounding.

        Raises:
            UsageError: the range is not positive, or the output is no image [b, c, h, w].
        """
        given = value_range is None or positive(value_range)
        require(given, "value_range", value_range, "a positive number", "for example 2 for -1..1")
        if self.kind != "map":
            raise UsageError(
                f"PSNR is defined for images [b, c, h, w], and the output is read as {self.kind!r}; decibels give the "
                "ratio of signal to error of any output"
            )
        own = torch.where(self.centred.isnan(), math.nan, self.span)
        peak = own if value_range is None else torch.full_like(own, value_range)
        return 20 * peak.log10() - 10 * (self.valid * self.energy).log10()

    @property
    def psnr_of_map(self) -> Tensor | None:
        """`psnr` by the output's own range; None if the output is no map."""
        return self.psnr() if self.kind == "map" else None

    @property
    def at_floor(self) -> bool:
        """Whether the median Delta is within three times the probe's own floor, where it cannot be told from zero.

        What is judged has to be, too: the floor is that of a signal without a bias.
        """
        limit = 3 * middle(self.floor)
        return middle(self.valid) <= limit and middle(self.judged()) <= limit

    def empty(self, *, absolute: bool = False) -> str:
        """Say why a small Delta would show nothing, whatever the tolerance.

        Args:
            absolute: Delta itself is judged, which a bias makes small.

        Returns:
            The reason; an empty text if it shows something.
        """
        unrelated = _chance(self.ceiling)
        if self.rounding > HARDLY:
            return "the output is zero but for rounding"
        if self.kind in SPATIAL and math.isnan(middle(self.centred)):
            return "the output is constant over space"
        if unrelated <= INDEPENDENT:
            return f"the output does not depend on the image (unrelated images differ by {unrelated:.2g})"
        if self.told_apart <= INDEPENDENT:
            return "the output is the same for unrelated images of one size, mean and spectrum"
        if absolute and unrelated <= HARDLY:
            return f"the output hardly depends on the image (unrelated images differ by {unrelated:.2g})"
        return ""

    def judged(self, *, absolute: bool = False) -> Tensor:
        """Give what is compared with a tolerance.

        Args:
            absolute: Delta itself, and not relative to unrelated images.

        Returns:
            One number per image: the relative Delta, or that of fine detail where it is larger.
        """
        return self.valid if absolute else torch.fmax(self.relative, self.relative_detail)

    def passes(self, tolerance: float, *, absolute: bool = False) -> bool:
        """Ask whether the median of the relative Delta is within a tolerance and shows something.

        Args:
            tolerance: the largest that passes. What passes at a tolerance passes at every looser one.
            absolute: judge Delta itself, which cannot be compared between networks: a bias makes it small.

        Returns:
            Whether it passes; what cannot be compared (NaN) does not.
        """
        return middle(self.judged(absolute=absolute)) <= tolerance and not self.empty(absolute=absolute)

    @property
    def rescaled(self) -> bool:
        """Whether sizes were changed: otherwise images were shifted, rotated or moved by a pair of functions."""
        return isinstance(self.element, ScaleTranslation) and not self.element.shift

    @property
    def on_grid(self) -> bool:
        """Whether the factor is a step of the grid; otherwise the nearest partners were compared."""
        return bool(self.pairs) and self.residual <= ON_GRID_TOLERANCE


def acted(action: Action, output: Tensor, factor: float) -> Tensor:
    """An output moved by a user's own action."""
    moved = action(output, factor)
    if not isinstance(moved, Tensor):
        raise WrongTypeError(f"`action` must return a tensor, got {type(moved).__name__}")
    return moved.to(torch.float64)


def moved_channels(move: Callable[[Tensor], Tensor], output: Tensor, grid: ScaleGrid | None, factor: float) -> Tensor:
    """An output moved in space; of its scale channels, those without a partner are not computed."""
    partners = [j for _, j in grid.match(factor).pairs] if grid is not None else []
    if not partners or (min(partners) == 0 and max(partners) == output.shape[2] - 1):
        return move(output)
    kept = slice(min(partners), max(partners) + 1)
    part = move(output[:, :, kept])
    moved = part.new_zeros(*output.shape[:3], *part.shape[-2:])
    moved[:, :, kept] = part
    return moved


def compare(found: Branches, spoiled: int, crop: int, floor: Tensor, others: Tensor | None = None) -> EquivarianceError:
    """Delta of the two outputs; `others` are direct outputs of unrelated images, without which there is no ceiling."""
    moved, direct, grid, factor = found.moved, found.direct, found.grid, found.factor
    if moved.shape != direct.shape:
        raise UsageError(_other_shape(found))
    # An output without a scale axis is one channel that partners itself.
    match, scales = (None, 1) if grid is None else (grid.match(factor), len(grid))
    pairs = ((0, 0),) if match is None else match.pairs
    valid = [i for i, pair in enumerate(pairs) if max(pair) < scales - spoiled]

    def channels(against: Tensor, cut: int) -> list[tuple[Tensor, Tensor]]:
        inside = (..., slice(cut, -cut), slice(cut, -cut)) if cut else ...
        if grid is None:
            return [(moved[inside], against[inside])]
        return [(moved[:, :, j][inside], against[:, :, k][inside]) for k, j in pairs]

    inside, unrelated = channels(direct, crop), None if others is None else channels(others, crop)
    sums, whole_sums = sums_of(inside, moved), sums_of(channels(direct, 0), moved)
    nothing = torch.full((len(moved),), math.nan, dtype=torch.float64, device="cpu")
    numbers = inside[0][0][0].numel() if inside else 0

    def taken(part: Callable[[Tensor], Tensor], either: list[tuple[Tensor, Tensor]]) -> Tensor:
        spatial = found.kind in SPATIAL
        return _partial([either[i] for i in valid], part, sums[1, valid].sum(0)) if spatial else nothing

    kept = [inside[i] for i in valid]
    return EquivarianceError(
        valid=ratio_of(sums[:, valid]),
        all=ratio_of(sums),
        uncropped=ratio_of(whole_sums[:, valid]),
        centred=taken(_without_mean, inside),
        floor=floor,
        ceiling=None if unrelated is None else ratio_of(sums_of(unrelated, moved)[:, valid]),
        ceiling_centred=None if unrelated is None else taken(_without_mean, unrelated),
        detail=taken(_differences, inside),
        ceiling_detail=None if unrelated is None else taken(_differences, unrelated),
        energy=(sums[1, valid] / numbers).mean(0),
        largest=_over([(moved - direct).abs() for moved, direct in kept], nothing),
        span=_over([moved for moved, _ in kept], nothing) + _over([-moved for moved, _ in kept], nothing),
        lost=scales - len(valid) if grid is not None else 0,
        factor=float(factor),
        residual=match.residual if match is not None else 0.0,
        crop=crop,
        kind=found.kind,
        pairs=pairs,
        by_scale=sums[0] / sums[1],
        border=ratio_of((whole_sums - sums)[:, valid]) if crop else nothing,
        element=found.element,
    )


def _other_shape(found: Branches) -> str:
    """Why two outputs of different shapes cannot be compared."""
    direct, moved, element = tuple(found.direct.shape), tuple(found.moved.shape), found.element
    if not isinstance(element, ScaleTranslation):
        return (
            f"the module gives {direct} for the images after the {element}, but its output after it is {moved}: the "
            "two cannot be compared. Give images of another size, or an action on outputs that keeps their shape"
        )
    return (
        f"the module gives {direct} for the rescaled images, but its output rescaled by {found.factor:.4g} "
        f"is {moved}: its spatial size does not follow the image's. Use sizes that the module's "
        "stride divides before and after rescaling, or give `kind=` or `action=` if the output is no map"
    )


def _over(channels: list[Tensor], nothing: Tensor) -> Tensor:
    """The largest number in any of the channels."""
    found = [one.flatten(1).amax(1).cpu() for one in channels if one.numel()]
    return torch.stack(found).amax(0) if found else nothing


def sums_of(channels: list[tuple[Tensor, Tensor]], like: Tensor) -> Tensor:
    """Sums of squares of the difference and of L_s Phi(f), [2, channels, images]."""
    if not channels:
        return torch.zeros(2, 0, len(like), dtype=torch.float64, device="cpu")
    terms = [[x.square().flatten(1).sum(1).cpu() for x in (moved - direct, moved)] for moved, direct in channels]
    return torch.stack([torch.stack(column) for column in zip(*terms, strict=True)])


def ratio_of(sums: Tensor) -> Tensor:
    """Ratio of sums, not mean of ratios: a dead channel must not count as an error. NaN where there is no signal."""
    return sums[0].sum(0) / sums[1].sum(0)


def _without_mean(maps: Tensor) -> Tensor:
    return maps - maps.mean((-2, -1), keepdim=True)


def _differences(maps: Tensor) -> Tensor:
    """Between neighbouring pixels, down and right, as channels."""
    here = maps[..., :-1, :-1]
    return torch.cat([maps[..., 1:, :-1] - here, maps[..., :-1, 1:] - here], 1)


def _partial(channels: list[tuple[Tensor, Tensor]], part: Callable[[Tensor], Tensor], energy: Tensor) -> Tensor:
    """Delta of a part of the signal; NaN where nothing but rounding is left of the signal then."""
    sums = sums_of([(part(a), part(b)) for a, b in channels], energy)
    return torch.where(sums[1].sum(0) <= ROUNDING_ENERGY * energy, math.nan, ratio_of(sums))


def _chance(ceiling: Tensor | None) -> float:
    return math.nan if ceiling is None else middle(ceiling)


def middle(values: Tensor) -> float:
    """The median, the mean of the two middle values of an even number; NaN if any value is."""
    if not values.numel():
        return math.nan
    found = float(values.quantile(0.5))  # torch takes the mean of two infinite values for no number
    return float(values.quantile(0.5, interpolation="higher")) if math.isnan(found) else found
