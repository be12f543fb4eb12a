"""Hypothesis strategies: images of a chosen spectrum, scale grids, factors, bases, layers and small networks.

Whatever is random is drawn by Hypothesis: as the values themselves, or as a seed for a generator of its own. So a
failing example replays, shrinks (small sizes, few channels, seed 0), and is printed as the call of this module that
makes it. Everything is made on the CPU in float64.

    @given(image=images(), layer=lifts(channels=(1, 2)))
    def test_my_property(image, layer): ...

An argument that takes a strategy takes a plain value as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor, nn

import sesn
from sesn.algorithms.axis import PaddingMode
from sesn.basis import Window
from sesn.tools.images import random_images

T = TypeVar("T")
Module = TypeVar("Module", bound=nn.Module)
Drawn: TypeAlias = T | SearchStrategy[T]
Nonlinearity = Literal["none", "relu", "bandlimited"]
Head = Literal["field", "map", "scale", "invariant"]

PADDING_MODES: tuple[PaddingMode, ...] = ("zeros", "circular")
NONLINEARITIES: tuple[Nonlinearity, ...] = ("none", "relu", "bandlimited")
HEADS: tuple[Head, ...] = ("field", "map", "scale", "invariant")

#: A seed means nothing beyond itself; few digits read well in a failing example.
SEEDS = st.integers(0, 2**16 - 1)
SIDES = st.integers(4, 32)
PAIRS_OF_CHANNELS = st.tuples(st.integers(1, 3), st.integers(1, 3))
BATCH_AND_CHANNELS = st.tuples(st.integers(1, 2), st.integers(1, 2))
#: From where pixels resolve a Gaussian, and the narrower ones of type B, to where wide windows still fit small images.
SIGMAS = st.floats(1.35, 2.0)
RATIOS = st.floats(1.2, 2.0)
COUNTS = st.integers(1, 4)
ORDERS = st.integers(1, 3)
DEPTHS = st.integers(0, 2)


def _strategy(value: Drawn[T]) -> SearchStrategy[T]:
    return value if isinstance(value, SearchStrategy) else st.just(value)


def _strategies(options: dict[str, Any]) -> dict[str, SearchStrategy[Any]]:
    return {name: _strategy(value) for name, value in options.items()}


# --- images


def images(
    height: Drawn[int] = SIDES,
    width: Drawn[int] | None = None,
    *,
    leading: Drawn[tuple[int, ...]] = BATCH_AND_CHANNELS,
    exponent: Drawn[float] = 1.0,
    cutoff: Drawn[float | None] = None,
) -> SearchStrategy[Tensor]:
    """Images `[*leading, h, w]` (by default `[b, c, h, w]`) made by `random_images`; square unless `width` is given."""
    rows = _strategy(height)
    sides = rows.map(lambda side: (side, side)) if width is None else st.tuples(rows, _strategy(width))
    shape = st.tuples(_strategy(leading), sides).map(lambda parts: (*parts[0], *parts[1]))
    return st.builds(random_images, SEEDS, shape, _strategy(exponent), _strategy(cutoff))


# --- the group


def scale_grids(
    smallest: Drawn[float] = SIGMAS, ratio: Drawn[float] = RATIOS, count: Drawn[int] = COUNTS
) -> SearchStrategy[sesn.ScaleGrid]:
    """Geometric grids."""
    return st.builds(sesn.ScaleGrid.geometric, _strategy(smallest), _strategy(ratio), _strategy(count))


def factors(low: float = 0.5, high: float = 2.0) -> SearchStrategy[float]:
    """Any real factor s in [low, high]; below 1 shrinks."""
    return st.floats(low, high)


def integer_factors(most: int = 4) -> SearchStrategy[float]:
    """1/n for n = 2 .. most: the image becomes a whole number of times smaller."""
    return st.integers(2, most).map(lambda n: 1 / n)


def grid_factors(grid: sesn.ScaleGrid) -> SearchStrategy[float]:
    """The factors below 1 that take a scale of the grid to its smallest; the grid has at least two."""
    return st.integers(1, len(grid) - 1).map(lambda step: grid.smallest / grid.sigmas[step])


# --- bases and layers

GRIDS = scale_grids()


@st.composite
def bases(
    draw: st.DrawFn,
    grid: Drawn[sesn.ScaleGrid] = GRIDS,
    kind: Drawn[Literal["a", "b"]] = "a",
    window: Drawn[Literal["paper", "wide"]] = "wide",
    orders: Drawn[int] = ORDERS,
) -> sesn.SteerableBasis:
    """Hermite-Gauss bases of E x E functions, E = orders: type A, or type B with sub-sigmas a factor 1.1 apart."""
    shape = draw(_strategy(window))
    scales, size = draw(_strategy(grid)), draw(_strategy(orders))
    side: Window = "wide" if shape == "wide" else draw(_kernel_sizes(scales))
    if draw(_strategy(kind)) == "a":
        return sesn.basis_a(scales, side, size)
    return sesn.basis_b(scales, side, size, max_order=2, mult=1.1)


def _kernel_sizes(grid: sesn.ScaleGrid) -> SearchStrategy[int]:
    """Odd sizes that give the smallest scale at least 3 x 3 taps: on a single tap an odd function vanishes."""
    least = math.ceil(grid.largest / grid.smallest)
    return st.integers(least, least + 4).map(lambda half: 2 * half + 1)


BASES = bases()


def random_lift(basis: sesn.SteerableBasis, channels: tuple[int, int], seed: int, **options: Any) -> sesn.ScaleLift:
    """A ScaleLift of (in, out) channels in float64 with weights and biases from the seed."""
    return _seeded(lambda: sesn.ScaleLift(*channels, basis, dtype=torch.float64, **options), seed)


def random_conv(basis: sesn.SteerableBasis, channels: tuple[int, int], seed: int, **options: Any) -> sesn.ScaleConv:
    """A ScaleConv of (in, out) channels in float64 with weights and biases from the seed."""
    return _seeded(lambda: sesn.ScaleConv(*channels, basis, dtype=torch.float64, **options), seed)


def _seeded(make: Callable[[], Module], seed: int) -> Module:
    """The module in eval mode with parameters from the seed: normal, of variance 1 / fan-in."""
    with torch.random.fork_rng(devices=[]):  # torch initialises from the global generator; leave that as it was
        module = make().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            deviation = parameter[0].numel() ** -0.5
            parameter.copy_(deviation * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def lifts(
    basis: Drawn[sesn.SteerableBasis] = BASES, channels: Drawn[tuple[int, int]] = PAIRS_OF_CHANNELS, **options: Any
) -> SearchStrategy[sesn.ScaleLift]:
    """ScaleLift layers made by `random_lift`; options (padding_mode, bias, ...) are values or strategies."""
    return st.builds(random_lift, _strategy(basis), _strategy(channels), SEEDS, **_strategies(options))


def convs(
    basis: Drawn[sesn.SteerableBasis] = BASES, channels: Drawn[tuple[int, int]] = PAIRS_OF_CHANNELS, **options: Any
) -> SearchStrategy[sesn.ScaleConv]:
    """ScaleConv layers made by `random_conv`; options (interscale, ...) are values or strategies."""
    return st.builds(random_conv, _strategy(basis), _strategy(channels), SEEDS, **_strategies(options))


# --- networks

ANY_NONLINEARITY = st.sampled_from(NONLINEARITIES)
ANY_HEAD = st.sampled_from(HEADS)


def random_network(
    basis: sesn.SteerableBasis,
    seed: int,
    depth: int = 1,
    nonlinearity: Nonlinearity = "relu",
    head: Head = "field",
    *,
    channels: int = 2,
    interscale: int = 1,
    padding_mode: PaddingMode = "zeros",
) -> nn.Sequential:
    """A lift of one-channel images, `depth` ScaleConvs each after a nonlinearity, and pooling to what `head` says."""
    options: dict[str, Any] = {"padding_mode": padding_mode, "bias": False, "dtype": torch.float64}

    smooth = partial(sesn.BandlimitedReLU, padding_mode)
    rectifiers: dict[str, Callable[[], nn.Module]] = {"none": nn.Identity, "relu": nn.ReLU, "bandlimited": smooth}
    over_scale = [sesn.ScaleProjection()] if head in ("map", "invariant") else []
    over_space = [sesn.GlobalPool()] if head in ("scale", "invariant") else []

    def make() -> nn.Sequential:
        layers: list[nn.Module] = [sesn.ScaleLift(1, channels, basis, **options)]
        for _ in range(depth):
            layers.append(rectifiers[nonlinearity]())
            layers.append(sesn.ScaleConv(channels, channels, basis, interscale=interscale, **options))
        return nn.Sequential(*layers, *over_scale, *over_space)

    return _seeded(make, seed)


def networks(
    basis: Drawn[sesn.SteerableBasis] = BASES,
    depth: Drawn[int] = DEPTHS,
    nonlinearity: Drawn[Nonlinearity] = ANY_NONLINEARITY,
    head: Drawn[Head] = ANY_HEAD,
    **options: Any,
) -> SearchStrategy[nn.Sequential]:
    """Networks made by `random_network`; options (channels, interscale, padding_mode) are values or strategies."""
    arguments = (_strategy(basis), SEEDS, _strategy(depth), _strategy(nonlinearity), _strategy(head))
    return st.builds(random_network, *arguments, **_strategies(options))
