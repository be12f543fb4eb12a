"""Fourier layers: kernels whose size is a part of the image's width, and rectifiers that no downscaling disturbs.

M. A. Rahman and R. A. Yeh, "Truly scale-equivariant deep nets with Fourier layers", NeurIPS 2023.

Here the layers stand in the network that all methods share on MNIST-scale, so that it is trained as the others are:
cross-entropy of one vector of scores, digits of all sizes on a canvas of 28 x 28. The authors' network is another one
(four layers of 32 to 128 channels, no pooling between them). They split images into groups of 8 to 28 pixels a side,
which they downscale ideally and do not pad; their network returns scores for every size up to the image's own, and the
loss adds the cross-entropies of all and punishes a larger size for a larger loss than a smaller one. Where they
normalise each image at each size before it is rectified, there is batch norm after pooling, as in the other networks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesn import _checks
from sesn._meaning import Constants
from sesn.algorithms.banded import along_both
from sesn.algorithms.resample import resampling_matrix
from sesn.layers.nested import NestedReLU, below_nyquist
from sesn.layers.store import Store
from sesn.methods._layer import EVERYWHERE, BaselineLayer, resize, transform_work
from sesn.methods.method import CHANNELS, COLOURS, Method, Source
from sesn.networks import Regime, mnist
from sesn.networks.skeleton import Carrier

#: Frequencies of a kernel that are learnt, along each side: it covers as many points of its grid.
MODES = 5
#: Maps of these sides are rectified at all of them up to their own.
SIZES = range(7, 129)


def dirichlet_matrix(frequencies: Tensor, grid: int) -> Tensor:
    """[k, MODES, 2]: the spectrum at whole frequencies of a kernel on MODES of `grid` points, from its own DFT.

    (1/N) exp(-i x (N - 1) / 2) sin(N x / 2) / sin(x / 2) with x = 2 pi (k / grid - n / N), as real and imaginary parts.
    """
    turns = frequencies.double()[:, None] / grid - torch.arange(MODES, dtype=torch.float64) / MODES
    points = torch.arange(MODES, dtype=torch.float64)
    angles = -2 * math.pi * turns[..., None] * points  # the sum that the closed form stands for, exact at x = 0, too
    return torch.stack([angles.cos().mean(-1), angles.sin().mean(-1)], dim=-1)


class SpectralConv(BaselineLayer):
    """A convolution whose kernel is a part of the image's width, and a 1 x 1 convolution, by products of spectra.

    The kernel stands on 5 x 5 of `grid` x `grid` points that cover the image whatever its number of pixels; its DFT is
    learnt. Frequencies that this grid does not have pass the 1 x 1 convolution alone. Both have complex weights, which
    apply to a half plane of frequencies; those of the other half are their conjugates. The Nyquist frequency of an even
    side is dropped, and the map counts as periodic.

    Args:
        in_channels, out_channels: channels of the two maps.
        grid: points across the image on which the kernel has five.
        device, dtype: of the parameters.
    """

    receptive_radius = EVERYWHERE

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        grid: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, 1)
        self.points = _checks.whole("grid", grid, MODES)
        self.details = (f"grid={self.points}",)
        shape = self.out_channels, self.in_channels
        self.modes = nn.Parameter(torch.empty(*shape, MODES, MODES, 2, device=device, dtype=dtype))
        self.skip = nn.Parameter(torch.empty(*shape, 2, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw complex weights of variance 1 / c."""
        for weight in (self.modes, self.skip):
            nn.init.normal_(weight, 0.0, math.sqrt(0.5 / self.in_channels))

    def forward(self, image: Tensor) -> Tensor:
        """Multiply the spectrum [b, c, h, w] -> [b, c', h, w]."""
        self._check_image(image, self.modes)
        h, w = image.shape[-2:]
        spectrum = torch.fft.rfft2(image, norm="forward")
        held = _lowest(spectrum, h, _half(h), _half(w))
        skipped = torch.einsum("bcyx,oc->boyx", held, torch.view_as_complex(self.skip))
        seen = self._seen(h, w)
        low = torch.einsum("bcyx,ocyx->boyx", _lowest(spectrum, h, *seen), self._spectrum(*seen))
        whole = _placed(skipped, h, w // 2 + 1) + _placed(low, h, w // 2 + 1)
        result: Tensor = torch.fft.irfft2(whole, s=(h, w), norm="forward")
        return result

    def _seen(self, height: int, width: int) -> tuple[int, int]:
        """The highest frequencies that the kernel's grid and the map both have."""
        return min(_half(height), _half(self.points)), min(_half(width), _half(self.points))

    def _spectrum(self, rows: int, columns: int) -> Tensor:
        """The kernels at the lowest frequencies."""
        down, right = (
            torch.view_as_complex(self._store.constant(ends, self.modes, partial(self._dirichlet, *ends)))
            for ends in ((-rows, rows), (0, columns))
        )
        return torch.einsum("yn,ocnm,xm->ocyx", down, torch.view_as_complex(self.modes), right)

    def _dirichlet(self, lowest: int, highest: int) -> Tensor:
        frequencies = torch.cat([torch.arange(highest + 1), torch.arange(lowest, 0)])
        return dirichlet_matrix(frequencies, self.points)

    def multiply_adds(self, shape: Sequence[int]) -> int:
        """Nominal multiply-adds: four for every product of complex numbers, and the transforms of all maps."""
        h, w = shape[-2:]
        held, seen = ((2 * a + 1) * (b + 1) for a, b in ((_half(h), _half(w)), self._seen(h, w)))
        products = 4 * self.in_channels * self.out_channels * (held + seen)
        return shape[0] * (products + (self.in_channels + self.out_channels) * transform_work(shape))

    def meaning(self) -> Constants:
        """The grid of the kernel."""
        return {"grid": (self.points,)}


def _half(size: int) -> int:
    """The highest frequency below Nyquist."""
    return (size - 1) // 2


def _lowest(spectrum: Tensor, height: int, rows: int, columns: int) -> Tensor:
    """Of a half spectrum the rows 0, .., rows, -rows, .., -1 and the columns 0, .., columns."""
    part = spectrum[..., : columns + 1]
    return torch.cat([part[..., : rows + 1, :], part[..., height - rows :, :]], dim=-2)


def _placed(lowest: Tensor, height: int, width: int) -> Tensor:
    """A half spectrum of the given size with these lowest frequencies, zero elsewhere."""
    rows = lowest.shape[-2] // 2
    middle = lowest.new_zeros(*lowest.shape[:-2], height - lowest.shape[-2], lowest.shape[-1])
    tall = torch.cat([lowest[..., : rows + 1, :], middle, lowest[..., rows + 1 :, :]], dim=-2)
    return F.pad(tall, (0, width - lowest.shape[-1]))


class FourierLayer(nn.Sequential):
    """A spectral convolution and its rectifier, which commute with ideal downscaling; not with translations.

    The rectifier works at every size up to the map's own, on the pixels of that size, as the authors released it. A
    translation by a pixel of the map is a fraction of a pixel of the smaller sizes, so it does not commute with them.
    """

    def __init__(self, in_channels: int, out_channels: int, grid: int) -> None:
        super().__init__(SpectralConv(in_channels, out_channels, grid), NestedReLU(SIZES, oversample=1))


class NestedMaxPool(NestedReLU):
    """Maximum over 2 x 2 pixels, nested as the rectifier is: [b, c, h, w] -> [b, c, h // 2, w // 2].

    A size of the output is made of the frequencies that it holds, on a grid that is twice as fine, by a maximum.
    """

    def __init__(self) -> None:
        super().__init__(SIZES, oversample=1)

    def forward(self, x: Tensor) -> Tensor:
        """Pool the last two axes."""
        _checks.real_tensor("x", x, "b c h w")
        (h, w), half = x.shape[-2:], (x.shape[-2] // 2, x.shape[-1] // 2)
        rows, columns = self._waves(h, below_nyquist(h), x), self._waves(w, below_nyquist(w), x)
        found = self._nested(along_both(rows.analysis, columns.analysis, x), half)
        rows, columns = (self._waves(side, count, x) for side, count in zip(half, found.shape[-2:], strict=True))
        return along_both(rows.synthesis, columns.synthesis, found)

    def _rectified(self, spectrum: Tensor, size: tuple[int, int]) -> Tensor:
        held = self._held(size)
        pairs = list(zip(size, held, strict=True))
        rows, columns = (self._waves(2 * side, count, spectrum) for side, count in pairs)
        values = along_both(rows.synthesis, columns.synthesis, spectrum[..., : held[0], : held[1]])
        rows, columns = (self._waves(side, count, spectrum) for side, count in pairs)
        return along_both(rows.analysis, columns.analysis, F.max_pool2d(values, 2))

    def extra_repr(self) -> str:
        """Nothing: the sizes are those of every such layer."""
        return ""


class ResampledMaxPool(nn.Module):
    """Maxima over the quarters of a map, [b, c, h, w] -> [b, c, 2, 2], which is resampled ideally to `side` before."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side, self._store = _checks.whole("side", side, 2), Store()

    def forward(self, x: Tensor) -> Tensor:
        """Resample and pool."""
        _checks.real_tensor("x", x, "b c h w")
        rows, columns = (self._store.constant(size, x, partial(self._matrix, size)) for size in x.shape[-2:])
        return F.max_pool2d(resize(x, rows, columns), self.side // 2)

    def _matrix(self, size: int) -> Tensor:
        return resampling_matrix(size, self.side / size, "fourier", "circular")


def pool(kernel_size: int, stride: int, padding: int) -> nn.Module:
    """The nested maximum over 2 x 2 pixels; where the skeleton pads, what leaves 2 x 2 positions."""
    return ResampledMaxPool(2 * kernel_size) if padding else NestedMaxPool()


#: The layers end in their own nonlinearity.
RECTIFIED = Carrier(nn.Identity, pool, nn.BatchNorm2d)


def mnist_parts(regime: Regime) -> mnist.StageParts:
    """Kernels on 5 x 5 points of as many as the map has pixels at each stage."""
    return mnist.StageParts(
        lambda stage, i, o: FourierLayer(i, o, regime.resolution // 2**stage), carriers=(RECTIFIED,) * 3
    )


def at_step(step: float) -> nn.Module:
    """The one layer that there is: it has no scales, and commutes with ideal downscaling to any size."""
    return FourierLayer(COLOURS, CHANNELS, mnist.SIDE)


FOURIER_LAYERS = Method(
    "fourier-layers",
    "Fourier Layers",
    Source("Rahman & Yeh 2023, NeurIPS", "Spectral Filters"),
    "#A850B8",
    {"mnist": mnist.MNISTSkeleton(mnist_parts)},
    at_step,
    resamples="features",
    ends="circular",
    later=True,
    representative=False,
    absences={
        "stl10": "in a wide ResNet every map would be rectified at up to 45 sizes, which no budget here can pay",
        "stir": "its kernels span a share of the image, so that a smaller object on the same frame is new to them",
    },
)
