"""The one place that hands torch a convolution with padding.

In torch 2.13 the gradient of such a convolution may write past the end of its memory on processors with AVX-512, where
the first window, which starts in the padding, covers all rows of the map: `docs/training.md` says which shapes were
seen to. A few rows of zeros around the map keep every window from doing so. The convolution pads the rest by itself,
which is two to three times as quick as putting all the zeros there: it skips the taps over its own padding.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def padded_convolution(
    x: Tensor,
    kernel: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: tuple[int, int] = (0, 0),
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """Correlate x [b, i, h, w], with `padding` zeros around its rows and columns, with a kernel [o, i, y, x]."""
    window = dilation * (kernel.shape[-2] - 1) + 1
    frame = _frame(x.shape[-2], window, padding[0])
    if frame:
        x = F.pad(x, (0, 0, frame, frame))
    return F.conv2d(x, kernel, bias, stride, (padding[0] - frame, padding[1]), dilation, groups)


def _frame(rows: int, window: int, padding: int) -> int:
    """How many rows of zeros keep a window that starts in the rest of the padding from covering all rows."""
    return min(padding, max(0, window - padding - rows + 1))
