"""The paper's definitions, evaluated slowly and directly in float64, and drawn cases to hold the library against.

Nothing here calls the library's bases or algorithms: the functions come from scipy's Hermite polynomials, and the
scale convolution is the paper's sum over scales, taps and functions, one output position at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special
import torch
from hypothesis import strategies as st

from sesn import ScaleConv, ScaleGrid, ScaleLift, SteerableBasis, basis_a, basis_b

#: (order along rows, order along columns, by how much the function is narrower than its scale)
Orders = list[tuple[int, int, float]]


def hermite_gauss(order: int, sigma: float, side: int) -> np.ndarray:
    """(1/sigma) He_n(x/sigma) exp(-x^2/(2 sigma^2)) on the integers -(side//2) .. side//2."""
    t = np.arange(-(side // 2), side // 2 + 1) / sigma
    return np.asarray(scipy.special.eval_hermitenorm(order, t) * np.exp(-(t**2) / 2) / sigma)


def orders_a(effective_size: int, max_total_order: int | None = None) -> Orders:
    """Type A: index = (column order) E + (row order), those above the total order left out."""
    pairs = [(index % effective_size, index // effective_size) for index in range(effective_size**2)]
    return [(row, column, 1.0) for row, column in pairs if max_total_order is None or row + column <= max_total_order]


def orders_b(effective_size: int, max_order: int, mult: float) -> Orders:
    """Type B: sub-sigma after sub-sigma, in each all pairs up to the total order, cut off after E^2 functions."""
    found: Orders = []
    j = 0
    while len(found) < effective_size**2:
        for column in range(max_order + 1):
            for row in range(max_order + 1):
                if row + column <= max_order:
                    found.append((row, column, mult**j))
        j += 1
    return found[: effective_size**2]


def paper_boxes(sigmas: Sequence[float], kernel_size: int) -> list[int]:
    """2 floor(floor(V s / s_max) / 2) + 1."""
    return [2 * math.floor(math.floor(kernel_size * sigma / max(sigmas)) / 2) + 1 for sigma in sigmas]


def wide_boxes(sigmas: Sequence[float]) -> list[int]:
    """Half-width ceil(4.5 sigma)."""
    return [2 * math.ceil(4.5 * sigma) + 1 for sigma in sigmas]


def functions(sigmas: Sequence[float], boxes: Sequence[int], orders: Orders) -> np.ndarray:
    """[N_b, S, V, V], every function divided by its norm at the smallest scale."""
    side = max(boxes)
    values = np.zeros((len(orders), len(sigmas), side, side))
    for n, (row, column, divisor) in enumerate(orders):
        for k, (sigma, box) in enumerate(zip(sigmas, boxes, strict=True)):
            margin = (side - box) // 2
            down = hermite_gauss(row, sigma / divisor, box)
            across = hermite_gauss(column, sigma / divisor, box)
            values[n, k, margin : margin + box, margin : margin + box] = np.outer(down, across)
    return values / np.linalg.norm(values[:, 0], axis=(-2, -1))[:, None, None, None]


def scale_convolution(
    field: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    basis: np.ndarray,
    stride: int,
    padding: int,
    circular: bool,
) -> np.ndarray:
    """out[k](y) = bias + sum_i sum_v field[k + i](y + v) kernel_i,k(v), kernel_i,k = sum_n w_i,n psi_n at sigma_k.

    field [b, c, s, h, w], weight [o, c, K_S, n], basis [n, s, V, V]; scales past the largest are zero.
    """
    scales, side = basis.shape[1], basis.shape[-1]
    h, w = field.shape[-2:]
    out_h, out_w = ((size + 2 * padding - side) // stride + 1 for size in (h, w))
    out = np.zeros((field.shape[0], weight.shape[0], scales, out_h, out_w)) + bias[:, None, None, None]
    kernel = np.einsum("oikn,nsvu->ksvuoi", weight, basis)
    for i, k, y, x, v, u in np.ndindex(weight.shape[2], scales, out_h, out_w, side, side):
        row, column = y * stride - padding + v, x * stride - padding + u
        if circular:
            row, column = row % h, column % w
        if k + i < scales and 0 <= row < h and 0 <= column < w:
            out[:, :, k, y, x] += field[:, :, k + i, row, column] @ kernel[i, k, v, u].T
    return out


@dataclass(frozen=True)
class Bases:
    """The same basis twice: the library's, and its slow evaluation [N_b, S, V, V]."""

    library: SteerableBasis
    slow: np.ndarray


@st.composite
def sigma_lists(draw: st.DrawFn, max_scales: int = 3, smallest: float = 0.7) -> list[float]:
    """One to `max_scales` increasing widths."""
    first, count = draw(st.floats(smallest, 1.4)), draw(st.sampled_from(range(max_scales, 0, -1)))
    steps = draw(st.lists(st.floats(1.1, 1.8), min_size=count - 1, max_size=count - 1))
    return [first * math.prod(steps[:k]) for k in range(count)]


@st.composite
def bases(draw: st.DrawFn, max_scales: int = 3) -> Bases:
    """A type-A or type-B basis; its smallest box has a ring of pixels, so that no function vanishes on it."""
    kind, size = draw(st.sampled_from(["B", "A", "wide"])), draw(st.sampled_from([2, 3, 1]))
    limit = draw(st.none() | st.integers(0, 3))
    if kind == "wide":
        sigmas = [sigma / 2 for sigma in draw(sigma_lists(2))]  # small, or the sum would take too long
        library = basis_a(ScaleGrid(sigmas), "wide", size, max_order=limit)
        return Bases(library, functions(sigmas, wide_boxes(sigmas), orders_a(size, limit)))
    sigmas = draw(sigma_lists(max_scales))
    least = math.ceil(3 * sigmas[-1] / sigmas[0]) // 2 * 2 + 1
    kernel_size = least + 2 * draw(st.integers(0, 1))
    grid, boxes = ScaleGrid(sigmas), paper_boxes(sigmas, kernel_size)
    if kind == "A":
        library = basis_a(grid, kernel_size, size, max_order=limit)
        return Bases(library, functions(sigmas, boxes, orders_a(size, limit)))
    order, mult = draw(st.sampled_from([2, 1, 0])), draw(st.floats(1.1, 1.5))
    library = basis_b(grid, kernel_size, size, max_order=order, mult=mult)
    return Bases(library, functions(sigmas, boxes, orders_b(size, order, mult)))


def uniform(seed: int, *shape: int) -> torch.Tensor:
    """Numbers in [-1, 1] in float64; the seed is drawn, so that a failing case replays."""
    return torch.from_numpy(np.random.default_rng(seed).uniform(-1, 1, shape))


@dataclass(frozen=True)
class Case:
    """A layer's arguments, an input and parameters for it, and the answer by the slow definition."""

    basis: SteerableBasis
    slow: np.ndarray
    interscale: int | None  # None: a lift
    stride: int
    padding: str | int
    circular: bool
    field: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None

    def layer(self, algorithm: str, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float64) -> Any:
        """The library's layer with this case's parameters."""
        mode = "circular" if self.circular else "zeros"
        options: dict[str, Any] = {"stride": self.stride, "padding": self.padding, "padding_mode": mode}
        options |= {"bias": self.bias is not None, "algorithm": algorithm, "device": device, "dtype": dtype}
        if self.interscale is not None:
            options["interscale"] = self.interscale
        kind = ScaleLift if self.interscale is None else ScaleConv
        layer = kind(self.weight.shape[1], self.weight.shape[0], self.basis, **options)
        with torch.no_grad():
            layer.weight.copy_(self.weight)
            if self.bias is not None:
                layer.bias.copy_(self.bias)
        return layer

    def answer(self) -> torch.Tensor:
        """The slow definition; a lift is a convolution of the image repeated along the scale axis."""
        field, weight = self.field.numpy(), self.weight.numpy()
        if self.interscale is None:
            field, weight = np.repeat(field[:, :, None], len(self.basis.grid), axis=2), weight[:, :, None]
        bias = np.zeros(weight.shape[0]) if self.bias is None else self.bias.numpy()
        return torch.from_numpy(
            scale_convolution(field, weight, bias, self.slow, self.stride, self.pixels_of_padding(), self.circular)
        )

    def pixels_of_padding(self) -> int:
        """The padding in pixels."""
        named = {"same": self.slow.shape[-1] // 2, "valid": 0}
        return named[self.padding] if isinstance(self.padding, str) else self.padding


@st.composite
def cases(draw: st.DrawFn, drawn_bases: st.SearchStrategy[Bases] | None = None) -> Case:
    """Any layer on any image: odd, even, not square, or smaller than the kernel where the padding allows it."""
    pair = draw(bases() if drawn_bases is None else drawn_bases)
    scales, side = len(pair.library.grid), pair.library.kernel_size
    interscale = draw(st.sampled_from([*range(scales, 0, -1), None]))
    padding = draw(st.sampled_from(["same", "valid", *range(side // 2 + 3)]))
    stride, circular = draw(st.sampled_from([1, 2, 3])), draw(st.booleans())
    case = Case(pair.library, pair.slow, interscale, stride, padding, circular, *[torch.empty(0)] * 3)
    least = max(1, side - 2 * case.pixels_of_padding())
    h, w = (draw(st.integers(least, max(least, 9) + 2)) for _ in range(2))
    batch, inputs, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    seed = draw(st.integers(0, 2**16))
    middle = () if interscale is None else (scales,)
    extent = () if interscale is None else (interscale,)
    field = uniform(seed, batch, inputs, *middle, h, w)
    weight = uniform(seed + 1, outputs, inputs, *extent, len(pair.slow))
    bias = uniform(seed + 2, outputs) if draw(st.booleans()) else None
    return Case(pair.library, pair.slow, interscale, stride, padding, circular, field, weight, bias)
