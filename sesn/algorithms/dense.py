"""Dense per scale: compose the kernel w x Psi of each scale on its own box, then one ordinary convolution per scale.

The textbook form pads every scale's kernel to the largest box and runs one grouped convolution; it multiplies by zeros.
Here each scale has its own box, cropped further to the taps that can see data at all.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sesn.algorithms.axis import Axis


def padded_convolution(
    x: Tensor,
    kernel: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: tuple[int, int] = (0, 0),
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """Correlate x [b, i, h, w], with `padding` zeros around its rows and columns, with a kernel [o, i, y, x].

    This is the one place that hands torch a convolution with padding. In torch 2.13 its gradient may write past the end
    of its memory on processors with AVX-512, where the kernel has more rows than the map, and with a stride already
    where it has as many: `docs/training.md` says which shapes were seen to. There, and with a stride from half as many,
    the rows of zeros are put around the map first. Columns were never seen to matter, and a convolution skips the taps
    over its own padding, so they are left to it.
    """
    down, across = padding
    window = dilation * (kernel.shape[-2] - 1) + 1
    strided = (stride if isinstance(stride, int) else stride[0]) > 1
    if window * (2 if strided else 1) > x.shape[-2]:
        x, down = F.pad(x, (0, 0, down, down)), 0
    return F.conv2d(x, kernel, bias, stride, (down, across), dilation, groups)


def plane_taps(taps: Tensor, rows: Axis, columns: Axis) -> Tensor:
    """Crop functions [n, box, box] to the taps that can see data on these axes."""
    centre = taps.shape[-1] // 2
    r, c = rows.useful_radius(centre), columns.useful_radius(centre)
    return taps[:, centre - r : centre + r + 1, centre - c : centre + c + 1]


def compose_kernel(weight: Tensor, taps: Tensor) -> Tensor:
    """w x Psi: weight [o, i, n] and functions [n, y, x] give the kernel [o, i, y, x]."""
    o, i, n = weight.shape
    return (weight.reshape(o * i, n) @ taps.reshape(n, -1)).reshape(o, i, *taps.shape[-2:])


def dense_convolution(x: Tensor, kernel: Tensor, bias: Tensor | None, rows: Axis, columns: Axis) -> Tensor:
    """Correlate x [b, g i, h, w] with a kernel [o, i, y, x] centred on the axes' positions, and add the bias [o]."""
    stride = rows.stride, columns.stride
    groups = x.shape[1] // kernel.shape[1]
    if rows.circular:
        kernel = _fold(_fold(kernel, -2, rows.size), -1, columns.size)
        wrapped = _wrap(_wrap(x, -2, rows, kernel.shape[-2]), -1, columns, kernel.shape[-1])
        return F.conv2d(wrapped, kernel, bias, stride=stride, groups=groups)
    radii = kernel.shape[-2] // 2, kernel.shape[-1] // 2
    if rows.first == 0 == columns.first:  # "same": the convolution's own padding, no copy of the input
        return padded_convolution(x, kernel, bias, stride, radii, groups=groups)
    framed = _framed(_framed(x, -2, rows.margins(radii[0])), -1, columns.margins(radii[1]))
    return F.conv2d(framed, kernel, bias, stride=stride, groups=groups)


def _framed(x: Tensor, dim: int, margins: tuple[int, int]) -> Tensor:
    """Zeros before and after the axis `dim`, then what is to be cut: a window may look at zeros alone."""
    before, after = margins
    ends = max(before, 0), max(after, 0)
    padded = F.pad(x, ends if dim == -1 else (0, 0, *ends)) if any(ends) else x
    start = max(-before, 0)
    return padded.narrow(dim, start, padded.shape[dim] - start - max(-after, 0))


def _fold(kernel: Tensor, dim: int, size: int) -> Tensor:
    """On a periodic axis taps that lie `size` apart see the same pixel: add them up, so that no kernel is longer."""
    side = kernel.shape[dim]
    if side <= size:
        return kernel
    start = (side // 2 - size // 2) % size  # the first tap of the folded kernel: the centre tap stays at size // 2
    index = (torch.arange(side, device=kernel.device) - start) % size
    shape = list(kernel.shape)
    shape[dim] = size
    return kernel.new_zeros(shape).index_add(dim, index, kernel)


def _wrap(x: Tensor, dim: int, axis: Axis, side: int) -> Tensor:
    """Repeat x along `dim` so that a window of `side` taps, centre at side // 2, fits at every output position."""
    start = axis.first - side // 2
    stop = axis.last - side // 2 + side
    return x.index_select(dim, torch.arange(start, stop, device=x.device) % axis.size)
