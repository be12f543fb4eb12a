"""A nonlinearity that commutes with ideal downscaling between chosen sizes: each frequency is computed at one size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sesn import _checks
from sesn.algorithms.banded import Block, along_both, whole
from sesn.errors import WrongTypeError
from sesn.layers.store import KEPT, Store
from sesn.layers.typed import TensorModule

Size = tuple[int, int]


class NestedReLU(TensorModule):
    """A ReLU at every listed size up to the map's own, each of which gives one ring of frequencies of the output.

    At each size the map is cropped in frequency to what that size can hold, rectified and transformed back. Each
    frequency of the output comes from the smallest size that holds it. A map and its ideal downscaling to a listed size
    therefore agree in all that the smaller one holds. The layer commutes with the Fourier resampler between these
    sizes, while any other ReLU mixes high frequencies into low ones before they are removed.

    The map is taken to be periodic. Its own size is always the outermost ring, so a map may have any size. List the
    sizes of the maps that this layer gets: after a stride of 2 they are half as large as the images'.

    An even size M sees only one phase of a wave with M/2 periods, its Nyquist frequency. Where M is listed that wave is
    dropped, from larger maps too. Larger maps keep it only if it is all that the next listed size adds, and M is then
    exact up to that wave.

    Args:
        sizes: sides of square maps, or pairs (h, w), between which the layer is exact. Of any two pairs one must fit
            into the other.
        oversample: 1 rectifies each size on its own pixels, as Fourier layers do. A translation by one pixel of the map
            is then not a whole step at the smaller sizes, and the layer does not commute with it. At sizes that are
            not listed, 1 is less exact than `BandlimitedReLU`, and 2 is not. With 2 or more, each size is rectified on
            a grid with at least this many points for every pixel, whose side is a whole multiple of the largest size.
            The layer then commutes exactly with translations of maps of the largest size by whole pixels, and nearly
            with all others. A map of a size that is not listed is rectified at its own size just as finely.
        nonlinearity: any pointwise function or module of a tensor [..., h, w].

    Raises:
        UsageError: there are no sizes, one has no pixels, two do not fit into each other, or `oversample` is below 1.
        WrongTypeError: a size or `oversample` is not a whole number, or `nonlinearity` cannot be called.

    Example:
        >>> rectify, x = sesn.NestedReLU([96, 68]), torch.randn(2, 8, 3, 96, 96, dtype=torch.float64)
        >>> small = sesn.rescale(x, 68 / 96, "fourier")
        >>> torch.allclose(rectify(small), sesn.rescale(rectify(x), 68 / 96, "fourier"))
        True
    """

    def __init__(
        self,
        sizes: Iterable[int | Size],
        oversample: int = 2,
        *,
        nonlinearity: Callable[[Tensor], Tensor] = torch.relu,
    ) -> None:
        super().__init__()
        self.sizes = _nested(sizes)
        self.oversample = _checks.whole("oversample", oversample, 1)
        if not callable(nonlinearity):
            rule = "a function or module of one tensor"
            raise WrongTypeError(_checks.complaint("nonlinearity", nonlinearity, rule, "such as torch.relu"))
        self.nonlinearity = nonlinearity
        larger = [*self.sizes[1:], (math.inf, math.inf)]
        self._unseen = {a: (_unseen(a[0], b[0]), _unseen(a[1], b[1])) for a, b in zip(self.sizes, larger, strict=True)}
        self._store = Store(KEPT + 2 * len(self.sizes))  # those of all sizes together, and of some maps

    def forward(self, x: Tensor) -> Tensor:
        """Rectify the last two axes.

        Args:
            x: [..., h, w].

        Returns:
            A tensor of the same shape.

        Raises:
            UsageError: there are fewer axes.
            WrongTypeError: the numbers are not floating-point, or `nonlinearity` returns another shape.
        """
        _checks.floating("x", x)
        _checks.require(x.dim() >= 2, "x.shape", tuple(x.shape), "[..., h, w]")
        h, w = x.shape[-2:]
        if h == 0 or w == 0:
            return x.clone()
        own = self._held((h, w))
        rows, columns = self._waves(h, own[0], x), self._waves(w, own[1], x)
        spectrum = along_both(rows.analysis, columns.analysis, x)
        return along_both(rows.synthesis, columns.synthesis, self._nested(spectrum, (h, w)))

    def extra_repr(self) -> str:
        """Sizes, and what differs from the default."""
        told = [f"sizes={[h if h == w else (h, w) for h, w in self.sizes]}"]
        told += [f"oversample={self.oversample}"] if self.oversample != 2 else []
        return ", ".join(told)

    def _nested(self, spectrum: Tensor, own: Size) -> Tensor:
        """What each size up to a map's own gives, each frequency from the smallest that holds it."""
        inner, *others = [*(size for size in self.sizes if size[0] <= own[0] and size[1] <= own[1]), own]
        found = self._rectified(spectrum, inner)
        for size in others:
            held = self._held(size)
            if held[0] > found.shape[-2] or held[1] > found.shape[-1]:
                found = _surrounded(found, self._rectified(spectrum, size), self._unseen[inner])
            inner = size
        return found

    def _held(self, size: Size) -> Size:
        """How many waves a size holds along each axis: a listed one all below its Nyquist frequency."""
        return (below_nyquist(size[0]), below_nyquist(size[1])) if size in self.sizes else size

    def _rectified(self, spectrum: Tensor, size: Size) -> Tensor:
        """The part of a spectrum that this size holds, of the rectified values."""
        held = self._held(size)
        rows, columns = (self._waves(m, n, spectrum) for m, n in zip(self._grid(size), held, strict=True))
        values = along_both(rows.synthesis, columns.synthesis, spectrum[..., : held[0], : held[1]])
        rectified = self.nonlinearity(values)
        shape = rectified.shape if isinstance(rectified, Tensor) else None
        if shape != values.shape:
            got = type(rectified).__name__ if shape is None else f"a tensor of {tuple(shape)}"
            rule = f"return a tensor of the shape that it is given, {tuple(values.shape)}"
            raise WrongTypeError(f"`nonlinearity` must {rule}, got {got}; make it work on each number by itself")
        return along_both(rows.analysis, columns.analysis, rectified)

    def _grid(self, size: Size) -> Size:
        """The points at which a size is rectified: a multiple of the largest listed size or, if not listed, of its own.

        A map of a size that is not listed is rectified as finely as the largest one, or it would alias more than that.
        """
        if self.oversample == 1:
            return size
        pairs = list(zip(size, self.sizes[-1], strict=True))
        if size in self.sizes:
            rows, columns = (largest * math.ceil(self.oversample * side / largest) for side, largest in pairs)
        else:
            rows, columns = (side * math.ceil(self.oversample * max(side, largest) / side) for side, largest in pairs)
        return rows, columns

    def _waves(self, points: int, count: int, like: Tensor) -> _Waves:
        return self._store.get((points, count), like, partial(_sampled, points, count, like))


class _Waves(NamedTuple):
    """Values on a grid from the waves' amplitudes, and the amplitudes from such values."""

    synthesis: tuple[Block, ...]
    analysis: tuple[Block, ...]


def _sampled(points: int, count: int, like: Tensor) -> _Waves:
    """The mean, then sine and cosine of 1, 2, .. periods, at the middles of so many equal parts of the map.

    In this order the waves that a smaller size holds come first. The middles are where the resampler puts pixels. An
    even count ends with the one phase that they see of the Nyquist frequency.
    """
    numbers = partial(torch.arange, device=like.device)
    turns = torch.outer(2 * numbers(points) + 1, numbers(count // 2 + 1)) % (2 * points)
    angles = turns.to(torch.float64) * (math.pi / points)
    synthesis = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, 1 : count + 1]  # without sin(0)
    single = (numbers(count) == 0) | (numbers(count) == (count - 1 if count % 2 == 0 else 0))
    analysis = (synthesis * torch.where(single, 1.0, 2.0).to(torch.float64) / points).t()
    return _Waves(whole(synthesis, like), whole(analysis, like))


def below_nyquist(size: int) -> int:
    """How many waves lie below the Nyquist frequency of a size."""
    return 2 * ((size - 1) // 2) + 1


def _unseen(size: int, larger: float) -> int:
    """How many waves of larger maps are dropped: those of an even size's Nyquist frequency, if there are others."""
    return 2 if size % 2 == 0 and larger > size + 2 else 0


def _surrounded(inner: Tensor, outer: Tensor, unseen: Size) -> Tensor:
    """The spectrum `outer`, with `inner`, that of a smaller size, in place of its lowest frequencies."""
    height, width = (min(inner.shape[axis] + unseen[axis], outer.shape[axis]) for axis in (-2, -1))
    inner = nn.functional.pad(inner, (0, width - inner.shape[-1], 0, height - inner.shape[-2]))
    upper = torch.cat([inner, outer[..., :height, width:]], dim=-1)
    return torch.cat([upper, outer[..., height:, :]], dim=-2)


def _nested(sizes: Iterable[int | Size]) -> tuple[Size, ...]:
    """The sizes as pairs, the smallest first."""
    if not isinstance(sizes, Iterable) or isinstance(sizes, str):
        remedy = "such as [96, 68], or [(96, 128), (68, 91)]"
        raise WrongTypeError(_checks.complaint("sizes", sizes, "several sides, or pairs (h, w)", remedy))
    pairs = sorted({_checks.pair("sizes", size, 1) for size in sizes})
    _checks.require(bool(pairs), "sizes", sizes, "at least one size", "name those that are to be exact")
    for smaller, larger in pairwise(pairs):
        rule = f"nested: {smaller} does not fit into {larger}"
        _checks.require(smaller[1] <= larger[1], "sizes", pairs, rule, "use pairs of one shape")
    return tuple(pairs)
