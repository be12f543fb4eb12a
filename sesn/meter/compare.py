"""The equivariance error, defined once:

    Delta = ||L_s Phi(f) - Phi(L_s f)||^2 / ||L_s Phi(f)||^2

for one image f, as a ratio of sums over channels, scales and space. Tests assert on it and the harness sweeps it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sesn.algorithms import Axis
from sesn.algorithms.resample import Ends, Resampler
from sesn.algorithms.separable import make_passes
from sesn.basis import Profile, ProfilePairs
from sesn.errors import UsageError, WrongTypeError
from sesn.meter.action import rescale
from sesn.meter.reading import SPATIAL, Reading, call
from sesn.scales import ON_GRID_TOLERANCE, ScaleGrid

if TYPE_CHECKING:
    from sesn.meter.meter import Meter

Action = Callable[[Tensor, float], Tensor]
#: A signal whose energy without its mean is below this part of the whole is constant up to rounding.
ROUNDING_ENERGY = 1e-24
#: Where unrelated images differ by no more than this, as rounding in float32 does, the output does not depend on them.
INDEPENDENT = 1e-12
#: Delta itself shows something only where they differ by more than this; they usually do by about 1 to 2.
HARDLY = 0.1
#: The lift that shows the probe's floor: the narrower of the two widths compared, and half its window in sigmas.
SIGMA = 1.5
HALF_WIDTH = 6.0
_ORDERS = [(Profile(row), Profile(column)) for column in range(3) for row in range(3)]


@dataclass(frozen=True)
class Branches:
    """Both branches of a module on the same images, in float64, and how the outputs are read."""

    module: nn.Module
    images: Tensor  # f
    small: Tensor  # L_s f
    original: Reading  # Phi(f), and how it came about
    direct: Tensor  # Phi(L_s f)
    moved: Tensor  # L_s Phi(f) before the scale axis shifts; scale channels without a partner may be zero
    kind: str
    grid: ScaleGrid | None  # None without a scale axis
    factor: float
    shift: float = 0  # the most pixels by which the images were translated

    def others(self) -> Tensor:
        """Phi(L_s f) of another image in place of each: the next one or, where that is the same image, noise."""
        alone = images_alone(self.images)
        return others(self.direct, alone, call(self.module, unrelated_to(self.small)) if bool(alone.any()) else None)

    def pooled(self) -> Branches:
        """Their means over space, which stay as they are when images are moved."""
        means, kind = self.original.output.mean((-2, -1)), "invariant" if self.grid is None else "scale"
        original = replace(self.original, output=means)
        return replace(self, original=original, moved=means, direct=self.direct.mean((-2, -1)), kind=kind)


def images_alone(images: Tensor) -> Tensor:
    """Which images are the same as the next one."""
    return (images == images.roll(-1, 0)).flatten(1).all(1)


def others(direct: Tensor, alone: Tensor, noise: Tensor | None) -> Tensor:
    """Outputs of the next image in place of each, and of noise for those that are alone."""
    following = direct.roll(-1, 0)
    if noise is None:
        return following
    return torch.where(alone.to(direct.device).reshape(-1, *[1] * (direct.dim() - 1)), noise, following)


def unrelated_to(images: Tensor) -> Tensor:
    """Noise of the same mean and spread as each image: what has nothing to do with it."""
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64, device="cpu")
    pixels = images.flatten(1)
    mean, spread = pixels.mean(1), pixels.std(1)
    spread = torch.where(spread > 0, spread, mean.abs().clamp_min(1.0))  # of an image of one colour
    return noise.to(images) * spread[:, None, None, None] + mean[:, None, None, None]


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
        ceiling_centred: `ceiling` without the channels' means, as in `centred`.
        energy: the mean square of L_s Phi(f) over the valid channels.
        lost: scale channels lost to truncation of the scale axis.
        factor: the factor s that was applied, exactly.
        residual: how far ln(factor) is from the grid; above 0.02 the partners are only the nearest ones.
        crop: pixels left out at each border of the output.
        kind: how the output was read.
        pairs: the partnered scale channels (k of the rescaled image, j of the original).
        by_scale: Delta of each pair, [pairs, images].
        border: Delta of the cropped-away frame over the same channels as `valid` (NaN without a crop).
        measured: layers that do not say how far they look; the crop was chosen by gradients because of them.
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
    energy: Tensor
    lost: int
    factor: float
    residual: float
    crop: int
    kind: str
    pairs: tuple[tuple[int, int], ...]
    by_scale: Tensor
    border: Tensor
    measured: tuple[str, ...] = ()
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
    def at_floor(self) -> bool:
        """Whether the median Delta is within three times the probe's own floor, where it cannot be told from zero.

        The relative one has to be, too: the floor is that of a signal without a bias.
        """
        limit = 3 * middle(self.floor)
        return middle(self.valid) <= limit and middle(self.relative) <= limit

    def empty(self, *, absolute: bool = False) -> str:
        """Say why a small Delta would show nothing, whatever the tolerance.

        Args:
            absolute: Delta itself is judged, which a bias makes small.

        Returns:
            The reason; an empty text if it shows something.
        """
        unrelated = _chance(self.ceiling)
        if self.kind in SPATIAL and math.isnan(middle(self.centred)):
            return "the output is constant over space"
        if unrelated <= INDEPENDENT:
            return f"the output does not depend on the image (unrelated images differ by {unrelated:.2g})"
        if absolute and unrelated <= HARDLY:
            return f"the output hardly depends on the image (unrelated images differ by {unrelated:.2g})"
        return ""

    def judged(self, *, absolute: bool = False) -> Tensor:
        """Give what a tolerance is held against.

        Args:
            absolute: Delta itself, and not relative to unrelated images.

        Returns:
            One number per image.
        """
        return self.valid if absolute else self.relative

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
    """Delta of the two outputs; `others` are direct outputs of other images, by default of the next in the batch."""
    moved, direct, grid, factor = found.moved, found.direct, found.grid, found.factor
    if moved.shape != direct.shape:
        raise UsageError(
            f"the module gives {tuple(direct.shape)} for the rescaled images, but its output rescaled by {factor:.4g} "
            f"is {tuple(moved.shape)}: its spatial size does not follow the image's. Use sizes that the module's "
            "stride divides before and after rescaling, or give `kind=` or `action=` if the output is no map"
        )
    # An output without a scale axis is one channel that partners itself.
    match, scales = (None, 1) if grid is None else (grid.match(factor), len(grid))
    pairs = ((0, 0),) if match is None else match.pairs
    valid = [i for i, pair in enumerate(pairs) if max(pair) < scales - spoiled]
    if others is None and len(direct) > 1:
        others = direct.roll(-1, 0)

    def channels(against: Tensor, cut: int) -> list[tuple[Tensor, Tensor]]:
        inside = (..., slice(cut, -cut), slice(cut, -cut)) if cut else ...
        if grid is None:
            return [(moved[inside], against[inside])]
        return [(moved[:, :, j][inside], against[:, :, k][inside]) for k, j in pairs]

    inside, unrelated = channels(direct, crop), None if others is None else channels(others, crop)
    sums, whole_sums = _sums(inside, moved), _sums(channels(direct, 0), moved)
    nothing = torch.full((len(moved),), math.nan, dtype=torch.float64, device="cpu")
    numbers = inside[0][0][0].numel() if inside else 0

    def without_means(either: list[tuple[Tensor, Tensor]]) -> Tensor:
        spatial = found.kind in SPATIAL
        return _centred([either[i] for i in valid], sums[1, valid].sum(0)) if spatial else nothing

    return EquivarianceError(
        valid=_ratio(sums[:, valid]),
        all=_ratio(sums),
        uncropped=_ratio(whole_sums[:, valid]),
        centred=without_means(inside),
        floor=floor,
        ceiling=None if unrelated is None else _ratio(_sums(unrelated, moved)[:, valid]),
        ceiling_centred=None if unrelated is None else without_means(unrelated),
        energy=(sums[1, valid] / numbers).mean(0),
        lost=scales - len(valid) if grid is not None else 0,
        factor=float(factor),
        residual=match.residual if match is not None else 0.0,
        crop=crop,
        kind=found.kind,
        pairs=pairs,
        by_scale=sums[0] / sums[1],
        border=_ratio((whole_sums - sums)[:, valid]) if crop else nothing,
    )


def _sums(channels: list[tuple[Tensor, Tensor]], like: Tensor) -> Tensor:
    """Sums of squares of the difference and of L_s Phi(f), [2, channels, images]."""
    if not channels:
        return torch.zeros(2, 0, len(like), dtype=torch.float64, device="cpu")
    terms = [[x.square().flatten(1).sum(1).cpu() for x in (moved - direct, moved)] for moved, direct in channels]
    return torch.stack([torch.stack(column) for column in zip(*terms, strict=True)])


def _ratio(sums: Tensor) -> Tensor:
    """Ratio of sums, not mean of ratios: a dead channel must not count as an error. NaN where there is no signal."""
    return sums[0].sum(0) / sums[1].sum(0)


def _centred(channels: list[tuple[Tensor, Tensor]], energy: Tensor) -> Tensor:
    """Delta without the channels' means; NaN where nothing but rounding is left of the signal then."""
    sums = _sums(
        [(a - a.mean((-2, -1), keepdim=True), b - b.mean((-2, -1), keepdim=True)) for a, b in channels], energy
    )
    return torch.where(sums[1].sum(0) <= ROUNDING_ENERGY * energy, math.nan, _ratio(sums))


def reference_error(images: Tensor, factor: float, resampler: Resampler, ends: Ends, crop: int) -> Tensor:
    """The probe's own floor: Delta of a lift so well sampled that only the resampler and rounding are left.

    Per image, of the nine type-A functions at sigma 1.5 against 1.5/s (1.5 s against 1.5 when enlarging). `crop` pixels
    at each border do not count, nor, unless images are periodic, those that the reference itself sees the border from:
    what a network does there is its own, and not the probe's. At most a quarter of the side is left out.
    """
    direct_sigma, original_sigma = (SIGMA, SIGMA / factor) if factor <= 1 else (SIGMA * factor, SIGMA)
    moved = rescale(_responses(images, original_sigma, ends), factor, resampler, ends)
    direct = _responses(rescale(images, factor, resampler, ends), direct_sigma, ends)
    own = 0 if ends == "circular" else math.ceil(HALF_WIDTH * direct_sigma) + 3
    crop = min(max(crop, own), min(direct.shape[-2:]) // 4)
    if crop:
        moved, direct = (x[..., crop:-crop, crop:-crop] for x in (moved, direct))
    return _ratio(_sums([(moved, direct)], moved))


def _responses(images: Tensor, sigma: float, ends: Ends) -> Tensor:
    """Of functions that have norm 1 at the narrower width, as in a basis."""
    radius = math.ceil(HALF_WIDTH * sigma)
    pairs = ProfilePairs.of(_ORDERS)
    norms = [float(profile.sample(SIGMA, math.ceil(HALF_WIDTH * SIGMA)).norm()) for profile in pairs.profiles]
    sampled = [profile.sample(sigma, radius) / norm for profile, norm in zip(pairs.profiles, norms, strict=True)]
    axes = [Axis.of(side, 2 * radius + 1, 1, radius, ends == "circular") for side in images.shape[-2:]]
    return make_passes(torch.stack(sampled).to(images), pairs, *axes).responses(images)


def _chance(ceiling: Tensor | None) -> float:
    return math.nan if ceiling is None else middle(ceiling)


def middle(values: Tensor) -> float:
    """The median, the mean of the two middle values of an even number; NaN if any value is."""
    return float(values.quantile(0.5)) if values.numel() else math.nan
