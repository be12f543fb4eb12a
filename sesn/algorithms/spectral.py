"""Spectral: a product of spectra in place of the sliding window, for wide kernels on small maps with many channels.

Zero padding makes the correlation of a map with a kernel that of a longer periodic map, whose spectrum is the product
of two spectra. Three changes of coordinates and one small product per frequency cost the same for a kernel of any
width. On maps this small a transform is quickest as a product with its matrix, which also reads and writes just the
pixels and outputs that there are (padding, stride and the kernel's own support are in the matrices), is exact for any
length, and exports like any other product.

Spectra are pairs (real, imaginary) of [frequencies, ...]; a real map needs half of the frequencies along its rows. They
are made for part of the batch at a time and made again in the backward pass, so that they never add up in memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from sesn._torch import (
    backward_uncast,
    casting,
    held_for_graphs,
    may_keep,
    needs_replay,
    recording,
    refuse_capture,
    replayed_gradients,
    uncast,
)
from sesn.algorithms.axis import Axis
from sesn.algorithms.banded import left
from sesn.algorithms.policy import policy_of

#: Bytes of spectra of input and output held at once on a CPU: larger pieces fall out of the cache, smaller are slow.
CHUNK_BYTES = 24 << 20
#: Axes, kernels, devices and dtypes whose matrices are kept: a network has a few dozen.
KEPT = 256

Spectrum = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Taps:
    """Where a kernel's taps lie along an axis: `count` of them, `step` apart, from `first`, counted from the centre."""

    first: int
    count: int
    step: int = 1

    @classmethod
    def centred(cls, count: int) -> Taps:
        """An odd window about its centre."""
        return cls(-(count // 2), count)

    @property
    def offsets(self) -> range:
        """Of all taps."""
        return range(self.first, self.first + self.count * self.step, self.step)


def period(axis: Axis, taps: Taps) -> int:
    """The shortest period on which no window sees a pixel's copy: what lies outside the axis must land beyond it."""
    if axis.circular:
        return axis.size
    return max(axis.size, axis.size - taps.first - axis.first, axis.last + taps.offsets[-1] + 1)


@dataclass(frozen=True)
class Fourier:
    """The transform of real planes given at some positions: the half spectrum along rows, then all along columns.

    Attributes:
        down: [2 p, y], the cosine and sine of each of p frequencies at each row.
        across: the real and imaginary parts [q, 2 x] at each column of what `down` gives.
    """

    down: Tensor
    across: Spectrum

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """p and q frequencies, y rows and x columns."""
        return self.down.shape[0] // 2, self.across[0].shape[0], self.down.shape[1], self.across[0].shape[1] // 2

    def spectrum(self, planes: Tensor) -> Spectrum:
        """Planes [y x, n] to two parts [p q, n]."""
        p, q, y, x = self.sizes
        n = planes.shape[1]
        lines = (self.down @ planes.reshape(y, x * n)).reshape(p, 2 * x, n)
        real, imaginary = (left(part, lines).reshape(p * q, n) for part in self.across)
        return real, imaginary

    def adjoint(self, spectrum: Spectrum) -> Tensor:
        """Two parts [p q, n] back to planes [y x, n]; with weighted rows the inverse transform."""
        p, q, y, x = self.sizes
        n = spectrum[0].shape[1]
        real, imaginary = (part.reshape(p, q, n) for part in spectrum)
        lines = left(self.across[0].t(), real)
        lines = accumulate(lines, self.across[1].t().expand(p, -1, -1), imaginary)
        return (self.down.t() @ lines.reshape(2 * p, x * n)).reshape(y * x, n)


@dataclass(frozen=True)
class Transforms:
    """Those of the map, of the kernel, and, backwards, of the outputs."""

    image: Fourier
    kernel: Fourier
    outputs: Fourier
    sides: tuple[int, int]


def make_transforms(
    rows: Axis, columns: Axis, row_taps: Taps, column_taps: Taps, device: torch.device, dtype: torch.dtype
) -> Transforms:
    """The matrices of a correlation. The kernel's waves are conjugate: unlike in a convolution it is not mirrored."""
    down, across = (Circle(period(*each), device, dtype) for each in ((rows, row_taps), (columns, column_taps)))
    with torch.inference_mode(False), torch.no_grad():  # else what inference makes could not be trained with
        image = _fourier(down, across, range(rows.size), range(columns.size), -1)
        kernel = _fourier(down, across, row_taps.offsets, column_taps.offsets, 1)
        outputs = _fourier(down, across, _centres(rows), _centres(columns), -1)
        weights = down.inverse_weights() / across.period
        outputs = Fourier(outputs.down * weights[:, None], outputs.across)
    return Transforms(image, kernel, outputs, (rows.outputs, columns.outputs))


@lru_cache(maxsize=KEPT)
def _kept_transforms(*what: Any) -> Transforms:
    refuse_capture(what[-2])
    return make_transforms(*what)


def spectral_convolution(
    x: Tensor, kernel: Tensor, bias: Tensor | None, rows: Axis, columns: Axis, taps: tuple[Taps, Taps] | None = None
) -> Tensor:
    """Correlate x [b, g i, h, w] with a kernel [o, i, y, x], whose taps are centred unless said, and add the bias [o].

    Types of less than single precision are computed in it, and groups of channels one after the other.
    """
    if (groups := x.shape[1] // kernel.shape[1]) > 1:
        biases = [None] * groups if bias is None else bias.chunk(groups)
        parts = zip(x.chunk(groups, dim=1), kernel.chunk(groups), biases, strict=True)
        return torch.cat([spectral_convolution(*part, rows, columns, taps) for part in parts], dim=1)
    row_taps, column_taps = taps or (Taps.centred(kernel.shape[-2]), Taps.centred(kernel.shape[-1]))
    if casting(x):
        wanted = torch.get_autocast_dtype(x.device.type)
        with uncast(x):
            return spectral_convolution(x, kernel, bias, rows, columns, taps).to(wanted)
    dtype = torch.promote_types(torch.promote_types(x.dtype, kernel.dtype), torch.float32)
    plain = not may_keep(x)
    what = rows, columns, row_taps, column_taps, x.device, dtype
    transforms = make_transforms(*what) if plain else held_for_graphs(_kept_transforms(*what), x.device)
    run = spectral_plain if plain else _ChunkedSpectra.apply
    out: Tensor = run(x.to(dtype), kernel.to(dtype), transforms)
    if bias is not None:
        out = out + bias.to(dtype)[:, None, None]
    return out.to(x.dtype)


def spectral_plain(x: Tensor, kernel: Tensor, transforms: Transforms) -> Tensor:
    """The whole algorithm in ordinary operations: for compiling, exporting and differentiating twice."""
    image = _matrices(transforms.image, x)
    weights = _matrices(transforms.kernel, kernel)
    return _outputs(transforms, product(image, _transposed(weights)), x.shape[0], kernel.shape[0])


def product(a: Spectrum, b: Spectrum, conjugate: bool = False) -> Spectrum:
    """At every frequency the complex product of matrices [f, m, k] and [f, k, n], or with the conjugate of b."""
    sign = -1 if conjugate else 1
    real = accumulate(torch.bmm(a[0], b[0]), a[1], b[1], -sign)
    return real, accumulate(torch.bmm(a[1], b[0]), a[0], b[1], sign)


def accumulate(total: Tensor, a: Tensor, b: Tensor, sign: int = 1) -> Tensor:
    """total + sign a b, in place where nothing is recorded: torch.func cannot."""
    if recording():
        return torch.baddbmm(total, a, b, alpha=sign)
    return total.baddbmm_(a, b, alpha=sign)


class _ChunkedSpectra(torch.autograd.Function):
    """`spectral_plain` a part of the batch at a time; the spectra are made again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor, transforms: Transforms) -> Tensor:
        ctx.save_for_backward(x, kernel)
        ctx.transforms = transforms
        weights = _transposed(_matrices(transforms.kernel, kernel))
        parts = [
            _outputs(transforms, product(_matrices(transforms.image, images), weights), images.shape[0], len(kernel))
            for images in torch.functional.split(x, _chunk(x, kernel, transforms))
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @staticmethod
    @backward_uncast
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, kernel = ctx.saved_tensors
        want_x, want_kernel, _ = ctx.needs_input_grad
        transforms: Transforms = ctx.transforms
        if needs_replay(grad):
            run = partial(spectral_plain, transforms=transforms)
            return *replayed_gradients(run, (x, kernel), (want_x, want_kernel), grad), None  # type: ignore[return-value]
        weights = _matrices(transforms.kernel, kernel) if want_x else None
        grad_x, grad_weights = [], None
        step = _chunk(x, kernel, transforms)
        for images, grads in zip(*(torch.functional.split(t, step) for t in (x, grad)), strict=True):
            spectrum = _matrices(transforms.outputs, grads)
            if weights is not None:
                found = product(spectrum, weights, conjugate=True)
                grad_x.append(_planes(transforms.image, found).t().reshape(images.shape))
            if want_kernel:
                found = product(_transposed(spectrum), _matrices(transforms.image, images), conjugate=True)
                if grad_weights is None:
                    grad_weights = found
                else:
                    grad_weights[0].add_(found[0])
                    grad_weights[1].add_(found[1])
        grad_kernel = None
        if grad_weights is not None:
            grad_kernel = _planes(transforms.kernel, grad_weights).t().reshape(kernel.shape)
        return (torch.cat(grad_x) if want_x else None), grad_kernel, None


def _chunk(x: Tensor, kernel: Tensor, transforms: Transforms) -> int:
    """How many images to take at a time: parts of about the same size, whose spectra fill at most a piece of memory."""
    p, q, _, _ = transforms.image.sizes
    per_image = 2 * p * q * (kernel.shape[0] + kernel.shape[1]) * x.element_size()
    pieces = max(1, math.ceil(x.shape[0] * per_image / policy_of(x.device).piece(CHUNK_BYTES)))
    return max(1, math.ceil(x.shape[0] / pieces))


def _matrices(transform: Fourier, planes: Tensor) -> Spectrum:
    """The spectra of planes [m, n, y, x] as a matrix at each frequency, [f, m, n]."""
    m, n = planes.shape[:2]
    real, imaginary = transform.spectrum(planes.flatten(2).flatten(0, 1).t())
    return real.reshape(real.shape[0], m, n), imaginary.reshape(imaginary.shape[0], m, n)


def _planes(transform: Fourier, spectrum: Spectrum) -> Tensor:
    """[f, m, n] to planes [y x, m n]."""
    real, imaginary = (part.flatten(1) for part in spectrum)
    return transform.adjoint((real, imaginary))


def _outputs(transforms: Transforms, spectrum: Spectrum, batch: int, channels: int) -> Tensor:
    """[f, b, o] to maps [b, o, h', w']."""
    return _planes(transforms.outputs, spectrum).t().reshape(batch, channels, *transforms.sides)


def _transposed(spectrum: Spectrum) -> Spectrum:
    return spectrum[0].transpose(1, 2), spectrum[1].transpose(1, 2)


# The matrices


@dataclass(frozen=True)
class Circle:
    """The waves of a period."""

    period: int
    device: torch.device
    dtype: torch.dtype

    def waves(self, count: int, positions: range, sign: int) -> tuple[Tensor, Tensor]:
        """cos and sign sin of the first `count` frequencies, [count, positions], each rounded once."""
        # Not from a list, which would be copied to the device at each call of a compiled module. MPS has no float64.
        home = torch.device("cpu") if self.device.type == "mps" else self.device
        places = torch.arange(positions.start, positions.stop, positions.step, device=home)
        turns = torch.outer(torch.arange(count, device=home), places) % self.period
        # torch.compile with dynamic=True takes every float outside a function for a variable, and compiles again when
        # it finds that it is none; math.pi is one.
        angles = turns.to(torch.float64) * 6.283185307179586 / self.period
        cosine, sine = (wave.to(self.device, self.dtype) for wave in (angles.cos(), angles.sin()))
        return cosine, sign * sine

    def inverse_weights(self) -> Tensor:
        """The weights of the inverse transform from half of the spectrum, [2 p].

        A frequency counts 1 / period, and twice that if its conjugate is another frequency, which the half leaves out.
        """
        alone = 2 * torch.arange(self.period // 2 + 1, device=self.device) % self.period == 0
        return ((2 - alone.to(self.dtype)) / self.period).repeat_interleave(2)


def _fourier(down: Circle, across: Circle, rows: range, columns: range, sign: int) -> Fourier:
    """exp(sign i phi) at these positions."""
    cosine, sine = down.waves(down.period // 2 + 1, rows, sign)
    lines = torch.stack([cosine, sine], dim=1).flatten(0, 1)
    cosine, sine = across.waves(across.period, columns, sign)
    return Fourier(lines, (torch.cat([cosine, -sine], dim=1), torch.cat([sine, cosine], dim=1)))


def _centres(axis: Axis) -> range:
    return range(axis.first, axis.last + 1, axis.stride)
