"""The floor of the probe: what the meter itself contributes to Delta, on these images and with this resampler."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sesn.algorithms import Axis
from sesn.algorithms.resample import Ends, Resampler
from sesn.algorithms.separable import make_passes
from sesn.basis import Profile, ProfilePairs
from sesn.meter.action import GroupElement
from sesn.meter.compare import ratio_of, sums_of
from sesn.meter.elements import Rotation

#: The lift that shows the probe's floor: the narrower of the two widths compared, and half its window in sigmas.
SIGMA = 1.5
HALF_WIDTH = 6.0
_ORDERS = [(Profile(row), Profile(column)) for column in range(3) for row in range(3)]
#: Orders of those that make up functions without a direction: a Gaussian, and the two terms of its Laplacian.
_ROUND = ((0, 0), (2, 0), (0, 2))


def reference_error(images: Tensor, element: GroupElement, resampler: Resampler, ends: Ends, crop: int) -> Tensor:
    """The probe's own floor: Delta of a lift so well sampled that only the resampler and rounding are left.

    Per image, of the nine type-A functions at sigma 1.5 against 1.5/s (1.5 s against 1.5 when enlarging); for
    rotations, of the two among them and their sums that have no direction, a Gaussian and its Laplacian. `crop` pixels
    at each border do not count, nor, unless images are periodic, those that the reference itself sees the border from:
    what a network does there is its own, and not the probe's. At most a quarter of the side is left out, and what shows
    no picture or has left it. NaN for a pair of functions, since nobody knows what commutes with it.
    """
    factor = element.scale
    if element.act_on_outputs(images) is not None:
        return torch.full((len(images),), math.nan, dtype=torch.float64, device="cpu")
    direct_sigma, original_sigma = (SIGMA, SIGMA / factor) if factor <= 1 else (SIGMA * factor, SIGMA)
    turned = isinstance(element, Rotation)
    moved = element.act(_responses(images, original_sigma, ends, turned), resampler, ends, "follow")
    direct = _responses(element.act(images, resampler, ends, "follow"), direct_sigma, ends, turned)
    side, unseen = min(direct.shape[-2:]), element.hidden("follow")
    own = 0 if ends == "circular" and not turned else math.ceil(HALF_WIDTH * direct_sigma + 3 + element.shift)
    gone = min(math.ceil(element.shift), side // 2 - 1)
    crop = math.ceil(unseen * side) + min(max(crop, own), gone + (int(side * (1 - 2 * unseen)) - 2 * gone) // 4)
    if crop:
        moved, direct = (x[..., crop:-crop, crop:-crop] for x in (moved, direct))
    return ratio_of(sums_of([(moved, direct)], moved))


def _responses(images: Tensor, sigma: float, ends: Ends, without_direction: bool) -> Tensor:
    """Of functions that have norm 1 at the narrower width, as in a basis."""
    radius = math.ceil(HALF_WIDTH * sigma)
    pairs = ProfilePairs.of(_ORDERS)
    norms = [float(profile.sample(SIGMA, math.ceil(HALF_WIDTH * SIGMA)).norm()) for profile in pairs.profiles]
    sampled = [profile.sample(sigma, radius) / norm for profile, norm in zip(pairs.profiles, norms, strict=True)]
    axes = [Axis.of(side, 2 * radius + 1, 1, radius, ends == "circular") for side in images.shape[-2:]]
    found = make_passes(torch.stack(sampled).to(images), pairs, *axes).responses(images)
    if not without_direction:
        return found
    gaussian, down, right = (found[:, :, _ORDERS.index((Profile(row), Profile(column)))] for row, column in _ROUND)
    return torch.stack([gaussian, down + right], 2)
