"""`assert_equivariant`: compare Delta with a tolerance, and say by how much, where and why it fails."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sesn._checks import require
from sesn.diagnosis import diagnose
from sesn.equivariance import EquivarianceError, equivariance_error

#: What a module that is equivariant by construction reaches, by dtype and kind: rounding at best, and on a pixel grid
#: the discretisation of well-sampled kernels; an invariant adds the pixels that leave the image.
TOLERANCES: dict[tuple[torch.dtype, str], float] = {
    (torch.float64, "field"): 1e-3,
    (torch.float64, "map"): 1e-3,
    (torch.float64, "scale"): 1e-2,
    (torch.float64, "invariant"): 1e-2,
    (torch.float32, "field"): 1e-3,
    (torch.float32, "map"): 1e-3,
    (torch.float32, "scale"): 1e-2,
    (torch.float32, "invariant"): 1e-2,
}
#: Half precision rounds away more than that.
HALF_TOLERANCE = 2e-2


def assert_equivariant(
    module: nn.Module, images: Tensor, factor: float, *, tolerance: float | None = None, **options: Any
) -> EquivarianceError:
    """Raise AssertionError unless the median Delta over the images is at most `tolerance`; else return the error.

    `options` are those of `equivariance_error`. The default tolerance depends on the module's dtype and on what its
    output is (see TOLERANCES).
    """
    require(tolerance is None or tolerance >= 0, "tolerance", tolerance, "at least 0")
    error = equivariance_error(module, images, factor, **options)
    limit = _tolerance(module, error.kind) if tolerance is None else tolerance
    median = float(error.valid.median())
    if not median <= limit:  # NaN, when no channel is left to compare, is a failure too
        raise AssertionError(explain(module, images, error, limit, **options))
    return error


def explain(module: nn.Module, images: Tensor, error: EquivarianceError, tolerance: float, **options: Any) -> str:
    """By how much a module misses a tolerance, where, and the likeliest causes with their remedies."""
    median, floor = float(error.valid.median()), float(error.floor.median())
    lines = [
        f"not scale-equivariant at factor {error.factor:.4g} (downscale {1 / error.factor:.4g}): median Delta "
        f"{median:.3g} over {error.valid.numel()} image(s) exceeds the tolerance {tolerance:.3g}"
        + (f" by {median / tolerance:.3g}x" if tolerance > 0 else ""),
        f"  the probe's own floor is {floor:.2g}"
        + (f", unrelated images give {float(error.ceiling.median()):.2g}" if error.ceiling is not None else ""),
        *_where(error),
    ]
    reading = {name: options[name] for name in ("grid", "resampler", "ends") if name in options}
    findings = diagnose(module, images, error, **reading)
    lines += [f"  likely cause: {finding}" for finding in findings[:3]]
    return "\n".join(lines)


def _where(error: EquivarianceError) -> list[str]:
    """The worst scale channel, and border against interior."""
    lines = []
    if len(error.pairs) > 1:
        medians = error.by_scale.median(dim=1).values
        k, j = error.pairs[int(medians.argmax())]
        lines.append(
            f"  worst at scale channel {k} (partner {j} of the original): {float(medians.max()):.3g}; "
            f"best {float(medians.min()):.3g}; {error.lost} channel(s) lost to truncation"
        )
    if error.crop:
        inside, border = float(error.all.median()), float(error.border.median())
        place = "the border" if border > inside else "the interior"
        lines.append(f"  larger in {place}: interior {inside:.3g}, frame of {error.crop} pixels {border:.3g}")
    return lines


def _tolerance(module: nn.Module, kind: str) -> float:
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    return TOLERANCES.get((dtype, kind), HALF_TOLERANCE if dtype in (torch.float16, torch.bfloat16) else 1e-3)
