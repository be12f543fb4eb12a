"""Resamplers as matrices: L_s f = R_h f R_w^T, in float64, sampling at the exact factor about the image's centre.

For N pixels and factor s (< 1 shrinks) the result has M = round(N s) pixels, the i-th at the source position

    x_i = (i + 1/2 - M/2) / s + N/2 - 1/2,

so that rounding the size moves the border and nothing else. Past the ends the image is zero, or repeats, or does not
count: with "inside" the weights of the pixels that there are add up to 1, as in Pillow, so that nothing darkens there.
It may also be mirrored there, or have its mean. On a canvas that is kept M = N, and what lies past the ends is seen.

| name      | kernel                                                              |
|-----------|---------------------------------------------------------------------|
| lanczos3  | Lanczos with three lobes, stretched by 1/s when shrinking            |
| fourier   | the trigonometric interpolant, of waves below the new Nyquist frequency; periodic by nature |
| bicubic   | Keys' cubic with a = -1/2, stretched by 1/s when shrinking (Pillow's resize)  |
| legacy    | Keys' cubic with a = -3/4, not stretched: aliases when shrinking (torch's default bicubic) |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from sesn._checks import one_of, positive, require, whole
from sesn._torch import recording
from sesn.algorithms.banded import Line, trigonometric_matrix

Resampler = Literal["lanczos3", "fourier", "bicubic", "legacy"]
Ends = Literal["zeros", "inside", "circular", "reflection", "mean"]
Canvas = Literal["follow", "keep"]
RESAMPLERS: tuple[Resampler, ...] = ("lanczos3", "fourier", "bicubic", "legacy")
ENDS: tuple[Ends, ...] = ("zeros", "inside", "circular", "reflection", "mean")


def resampler_ends(resampler: Resampler, ends: Ends | Literal["auto"], canvas: Canvas = "follow") -> Ends:
    """What lies past the border: the Fourier resampler is periodic, the others meet zeros unless told otherwise.

    On a canvas that is kept it is the background, by default the picture mirrored.
    """
    one_of("canvas", canvas, ("follow", "keep"))
    one_of("resampler", resampler, RESAMPLERS)
    if one_of("ends", ends, ("auto", *ENDS)) != "auto":
        require(canvas == "follow" or ends != "inside", "ends", ends, "another background on a canvas that is kept")
        periodic = resampler == "fourier" and ends in ("inside", "reflection", "mean")
        require(not periodic, "ends", ends, "circular with the fourier resampler, which is periodic", "or use lanczos3")
        return ends  # type: ignore[return-value]
    return "circular" if resampler == "fourier" else "zeros" if canvas == "follow" else "reflection"


def resampled_size(size: int, factor: float) -> int:
    """M = round(N s)."""
    return round(size * factor)


def resampling_matrix(
    size: int,
    factor: float,
    resampler: Resampler = "lanczos3",
    ends: Ends = "zeros",
    offset: float = 0.0,
    *,
    canvas: Canvas = "follow",
) -> Tensor:
    """Make the matrix that rescales a signal about its centre.

    Args:
        size: N, the samples of the signal.
        factor: s > 0; below 1 shrinks.
        resampler: "lanczos3", "fourier", "bicubic" or "legacy", as the table in `sesn.algorithms.resample` says.
        ends: "zeros", "inside", "circular", "reflection", or "mean", which is "zeros" for a signal without its mean;
            the Fourier resampler is periodic whatever it says.
        offset: moves the sampling points by this many source pixels; it exists to study misregistration.
        canvas: "follow" for a signal of another length, "keep" for one of the same.

    Returns:
        [M, N] in float64, M = round(N s), or N if the canvas is kept.

    Raises:
        UsageError: an argument breaks its rule, or nothing would be left.

    Example:
        >>> sesn.resampling_matrix(4, 0.5, "bicubic", "circular").sum(dim=1)
        tensor([1., 1.], dtype=torch.float64)
    """
    whole("size", size, 1)
    require(positive(factor), "factor", factor, "a positive, finite number")
    one_of("resampler", resampler, RESAMPLERS)
    one_of("ends", ends, ENDS)
    outputs = resampled_size(size, factor)
    resampler_ends(resampler, "auto", canvas)
    require(outputs >= 1, "factor", factor, f"large enough to leave a pixel of {size}", "use a larger image or factor")
    if factor == 1 and offset == 0:
        return torch.eye(size, dtype=torch.float64, device="cpu")
    if ends == "inside":
        room = size / 2 - (outputs - 1) / 2 / factor
        require(abs(offset) <= room, "offset", offset, f"at most {room:.4g}: with ends='inside' outputs lie within")
    make = _matrix if recording() else _kept
    return make(size, float(factor), resampler, ends, float(offset), size if canvas == "keep" else outputs).clone()


def resampler_line(
    size: int, factor: float, resampler: Resampler = "lanczos3", ends: Ends = "zeros", offset: float = 0.0
) -> Line | None:
    """Which pixels the rows of `resampling_matrix` reach, the canvas following; None if they may reach all."""
    if resampler == "fourier" or ends in ("circular", "reflection") or factor == 1:
        return None
    reach = math.ceil(_KERNELS[resampler][1] * _stretch(resampler, factor)) + 1
    first = _from_middle(0, factor, resampled_size(size, factor)) + (size - 1) / 2
    return Line(first + offset, 1 / factor, reach)


def _from_middle(output: Any, factor: float, outputs: int) -> Any:
    """x_i - (N - 1)/2: how far from the middle of the source one of the outputs lies, or all of them in a tensor."""
    return (output + 0.5 - outputs / 2) / factor


def _stretch(resampler: Resampler, factor: float) -> float:
    return 1.0 if resampler == "legacy" else max(1.0, 1.0 / factor)


@lru_cache(maxsize=256)
def _kept(*what: Any) -> Tensor:
    with torch.inference_mode(False), torch.device("cpu"):  # kept for all callers, whatever mode they are in
        return _matrix(*what)


def _matrix(size: int, factor: float, resampler: Resampler, ends: Ends, offset: float, outputs: int) -> Tensor:
    places = _from_middle(torch.arange(outputs, dtype=torch.float64), factor, outputs) + offset
    if resampler == "fourier":
        return _fourier(places, size, factor)
    kernel, radius = _KERNELS[resampler]
    stretch = _stretch(resampler, factor)
    return _local(places + (size - 1) / 2, size, kernel, radius * stretch, stretch, ends)


def _local(
    positions: Tensor, size: int, kernel: Callable[[Tensor], Tensor], radius: float, stretch: float, ends: Ends
) -> Tensor:
    """The matrix of a kernel of finite support."""
    index, weights = _taps(positions, size, kernel, radius, stretch, ends)
    matrix = torch.zeros(len(positions), size, dtype=torch.float64)
    return matrix.scatter_add(1, index, weights)


def taps(positions: Tensor, size: int, resampler: Resampler, ends: Ends) -> tuple[Tensor, Tensor]:
    """Which pixels an interpolation at each position takes, and their weights, both [positions, taps]."""
    kernel, radius = _KERNELS[resampler]
    index, weights = _taps(positions, size, kernel, radius, 1.0, ends)
    return index[:, 1:-1], weights[:, 1:-1]  # those at both ends have no weight unless a kernel is stretched


def _taps(
    positions: Tensor, size: int, kernel: Callable[[Tensor], Tensor], radius: float, stretch: float, ends: Ends
) -> tuple[Tensor, Tensor]:
    """Weights of a kernel of finite support, normalised over all whole pixels: those past the ends too, if zeros."""
    reach = math.ceil(radius)
    pixels = positions.floor()[:, None] + torch.arange(-reach, reach + 2, dtype=torch.float64)
    weights = kernel((positions[:, None] - pixels) / stretch)
    index = pixels.to(torch.int64)
    there = (index >= 0) & (index < size)
    counted = there if ends == "inside" else torch.ones_like(there)
    weights = weights / (weights * counted).sum(dim=1, keepdim=True)
    if ends == "reflection":
        index = index % (2 * size)
        index = torch.where(index < size, index, 2 * size - 1 - index)
    elif ends != "circular":
        weights = torch.where(there, weights, torch.zeros_like(weights))
        index = index.clamp(0, size - 1)
    return index % size, weights


def _fourier(places: Tensor, size: int, factor: float) -> Tensor:
    """The trigonometric interpolant of the samples, without what lies at the new Nyquist frequency or beyond.

    Of a wave at the Nyquist frequency an even number of pixels sees one phase only. Of the samples' own, where nothing
    is cut off, that phase is kept. Of a smaller size's none is, since a layer could not tell what the other one was.
    """
    if factor >= 1:
        return trigonometric_matrix(places, size, size // 2, exact=size % 2 == 0)
    return trigonometric_matrix(places, size, math.ceil(size * factor / 2 - 1e-9) - 1, exact=False)


def _lanczos3(x: Tensor) -> Tensor:
    return torch.where(x.abs() < 3, torch.sinc(x) * torch.sinc(x / 3), torch.zeros_like(x))


def _keys(a: float) -> Callable[[Tensor], Tensor]:
    def kernel(x: Tensor) -> Tensor:
        t = x.abs()
        near = (a + 2) * t**3 - (a + 3) * t**2 + 1
        far = a * (t**3 - 5 * t**2 + 8 * t - 4)
        return torch.where(t <= 1, near, torch.where(t < 2, far, torch.zeros_like(t)))

    return kernel


_KERNELS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "lanczos3": (_lanczos3, 3),
    "bicubic": (_keys(-0.5), 2),
    "legacy": (_keys(-0.75), 2),
}
