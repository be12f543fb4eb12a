"""Synthetic images of a chosen spectrum, from a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

#: The amplitude falls as 1/f^p: these sets go by these names everywhere.
SPECTRA = {"white": 0.0, "1/f": 1.0, "1/f2": 2.0}


def random_images(seed: int, shape: Sequence[int], exponent: float = 1.0, cutoff: float | None = None) -> Tensor:
    """Images [..., h, w] of mean 0 and variance 1 with random phases and amplitude 1/f^exponent at frequency f.

    f is the radial frequency in cycles per pixel. `exponent` 0 is white, 1 is like photographs. With `cutoff` nothing
    is left at f >= cutoff; the lowest frequency always stays, or nothing would be left.
    """
    noise = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    spectrum = torch.fft.fft2(noise).sgn() * _amplitude(shape[-2], shape[-1], exponent, cutoff)
    image: Tensor = torch.fft.ifft2(spectrum).real
    return image / image.square().mean(dim=(-2, -1), keepdim=True).sqrt()


def _amplitude(height: int, width: int, exponent: float, cutoff: float | None) -> Tensor:
    down, right = (torch.fft.fftfreq(side, dtype=torch.float64) for side in (height, width))
    frequency = torch.hypot(down[:, None], right)
    lowest = 1 / max(height, width)
    # A hair below the cut-off and above the lowest: which side of them a frequency is on is no matter of rounding.
    limit = math.inf if cutoff is None else max(cutoff * (1 - 1e-9), lowest * (1 + 1e-9))
    kept = (frequency > 0) & (frequency < limit)
    return torch.where(kept, frequency.clamp_min(lowest) ** -exponent, torch.zeros_like(frequency))
