"""Pictures known between their pixels, for tests of resampling: sums of waves that can be sampled at any size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor


@dataclass(frozen=True)
class Wave:
    """amplitude cos(2 pi (down y + right x) + phase) on the unit square: whole numbers of waves, so it is periodic."""

    down: int
    right: int
    amplitude: float
    phase: float


@dataclass(frozen=True)
class Picture:
    """A function on the unit square that can be sampled at any size: periodic, of mean 0, band-limited."""

    waves: tuple[Wave, ...]

    def sample(self, height: int, width: int | None = None) -> Tensor:
        """The values at the pixels' centres, an image [1, 1, h, w] in float64."""
        y, x = ((torch.arange(side, dtype=torch.float64) + 0.5) / side for side in (height, width or height))
        image = torch.zeros(len(y), len(x), dtype=torch.float64)
        for wave in self.waves:
            turns = wave.down * y[:, None] + wave.right * x
            image += wave.amplitude * (2 * math.pi * turns + wave.phase).cos()
        return image[None, None]


def pictures(highest: int = 4, most_waves: int = 4) -> SearchStrategy[Picture]:
    """Up to `most_waves` waves of up to `highest` periods a side: at most highest/n cycles per pixel at size n."""
    # Of (down, right) and (-down, -right) one is enough; and without repeats no two waves cancel.
    periods = st.tuples(st.integers(0, highest), st.integers(-highest, highest)).filter(lambda pair: pair > (0, 0))
    strengths = st.tuples(st.floats(0.25, 1), st.floats(0, 2 * math.pi))
    waves = st.dictionaries(periods, strengths, min_size=1, max_size=most_waves)
    return waves.map(lambda found: Picture(tuple(Wave(*period, *strength) for period, strength in found.items())))
