"""The probe's own floor: Delta of a lift so well sampled that only the resampler and rounding are left."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sesn.algorithms import Axis
from sesn.algorithms.separable import make_passes
from sesn.basis import Profile, ProfilePairs
from sesn.meter.action import rescale
from sesn.meter.resample import Ends, Resampler

#: The narrower of the two widths compared, and the half-width of their windows in sigmas.
SIGMA = 1.5
HALF_WIDTH = 6.0
_ORDERS = [(Profile(row), Profile(column)) for column in range(3) for row in range(3)]


def reference_error(images: Tensor, factor: float, resampler: Resampler, ends: Ends, crop: int) -> Tensor:
    """Delta per image of the nine type-A functions at sigma 1.5 against 1.5/s (1.5 s against 1.5 when enlarging).

    `crop` pixels at each border do not count, nor, unless images are periodic, those that the reference itself sees
    the border from (at most a quarter of the side): what a network does there is its own, and not the probe's.
    """
    direct_sigma, original_sigma = (SIGMA, SIGMA / factor) if factor <= 1 else (SIGMA * factor, SIGMA)
    moved = rescale(_responses(images, original_sigma, ends), factor, resampler, ends)
    direct = _responses(rescale(images, factor, resampler, ends), direct_sigma, ends)
    if ends != "circular":
        crop = max(crop, min(math.ceil(HALF_WIDTH * direct_sigma) + 3, min(direct.shape[-2:]) // 4))
    if crop:
        moved, direct = (x[..., crop:-crop, crop:-crop] for x in (moved, direct))
    difference = (moved - direct).square().flatten(1).sum(1)
    return (difference / moved.square().flatten(1).sum(1)).cpu()


def _norm(profile: Profile) -> float:
    """Every function has norm 1 at the narrower width, as in a basis."""
    return float(profile.sample(SIGMA, math.ceil(HALF_WIDTH * SIGMA)).norm())


def _responses(images: Tensor, sigma: float, ends: Ends) -> Tensor:
    radius = math.ceil(HALF_WIDTH * sigma)
    pairs = ProfilePairs.of(_ORDERS)
    profiles = torch.stack([profile.sample(sigma, radius) / _norm(profile) for profile in pairs.profiles]).to(images)
    axes = [Axis.of(side, 2 * radius + 1, 1, radius, ends == "circular") for side in images.shape[-2:]]
    return make_passes(profiles, pairs, *axes).responses(images)
