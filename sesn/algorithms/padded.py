"""The one place that hands torch a convolution with padding.

In torch 2.13 the gradient of such a convolution may write past the end of its memory on processors with AVX-512, where
the kernel has more rows than the map, and with a stride already where it has as many: `docs/training.md` says which
shapes were seen to. There, and with a stride from half as many, the rows of zeros are put around the map first. Columns
were never seen to matter, and a convolution skips the taps over its own padding, so they are left to it.
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
    down, across = padding
    window = dilation * (kernel.shape[-2] - 1) + 1
    strided = (stride if isinstance(stride, int) else stride[0]) > 1
    if window * (2 if strided else 1) > x.shape[-2]:
        x, down = F.pad(x, (0, 0, down, down)), 0
    return F.conv2d(x, kernel, bias, stride, (down, across), dilation, groups)
