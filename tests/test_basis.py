"""Bases A and B and any function made steerable, against an independent evaluation and the release's numbers."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from dataclasses import dataclass

import hypothesis.strategies as st
import numpy as np
import pytest
import slow
import torch
from hypothesis import given
from scipy.special import eval_hermitenorm

from sesn import ScaleConv, ScaleGrid, ScaleLift, SteerableBasis, basis_a, basis_b
from sesn.basis import Window


def plane_hermite(row: int, column: int, divisor: float = 1.0):
    """psi(x, y) with x to the right and y downwards, without the prefactor that steering adds."""

    def psi(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        down, across = (torch.from_numpy(eval_hermitenorm(n, divisor * t.numpy())) for n, t in ((row, y), (column, x)))
        return divisor**2 * down * across * torch.exp(-(divisor**2) * (x**2 + y**2) / 2)

    return psi


# Against scipy


@given(slow.bases(max_scales=4))
def test_the_functions_are_the_papers(pair: slow.Bases) -> None:
    functions = pair.library.functions
    assert functions.dtype == torch.float64
    assert functions.shape == pair.slow.shape == (len(pair.library), *pair.slow.shape[1:])
    np.testing.assert_allclose(functions.numpy(), pair.slow, rtol=1e-12, atol=1e-14)


@given(slow.bases())
def test_every_function_has_norm_one_at_the_smallest_scale(pair: slow.Bases) -> None:
    norms = pair.library.functions[:, 0].flatten(1).norm(dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms), rtol=1e-13, atol=0)


@given(slow.bases())
def test_a_scale_on_its_own_box_is_a_cut_of_the_whole(pair: slow.Bases) -> None:
    basis = pair.library
    for k, box in enumerate(basis.boxes):
        margin = (basis.kernel_size - box) // 2
        inner = basis.functions[:, k, margin : margin + box, margin : margin + box]
        assert torch.equal(basis.scale_functions(k), inner)
        assert basis.functions[:, k].count_nonzero() == inner.count_nonzero()


@given(slow.sigma_lists(4), st.integers(1, 3), st.none() | st.integers(0, 2))
def test_wide_windows_reach_four_and_a_half_sigmas(sigmas: list[float], size: int, limit: int | None) -> None:
    basis = basis_a(ScaleGrid(sigmas), "wide", size, max_order=limit)
    assert basis.boxes == tuple(slow.wide_boxes(sigmas))
    assert basis.kernel_size == 2 * math.ceil(4.5 * max(sigmas)) + 1
    expected = slow.functions(sigmas, basis.boxes, slow.orders_a(size, limit))
    np.testing.assert_allclose(basis.functions.numpy(), expected, rtol=1e-12, atol=1e-14)


@given(slow.sigma_lists(3, smallest=1.3))
def test_wide_type_b_shares_the_box_among_its_sub_sigmas(sigmas: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        basis = basis_b(ScaleGrid(sigmas), "wide", 3, max_order=1)
    expected = slow.functions(sigmas, slow.wide_boxes(sigmas), slow.orders_b(3, 1, 1.4))
    np.testing.assert_allclose(basis.functions.numpy(), expected, rtol=1e-12, atol=1e-14)


# Order of the functions


def test_type_a_lists_the_row_order_fastest() -> None:
    basis = basis_a(ScaleGrid([1.0]), 5, 3)
    x = torch.arange(-2.0, 3.0, dtype=torch.float64)
    row_one = basis.functions[1, 0]
    torch.testing.assert_close(row_one, row_one.flip(1))
    torch.testing.assert_close(row_one[:, 2] / row_one[-1, 2], x * torch.exp(-(x**2) / 2) / (2 * math.exp(-2)))
    assert torch.equal(basis.functions[3, 0], row_one.t())


def test_six_functions_up_to_total_order_two() -> None:
    grid = ScaleGrid([1.0, 1.5])
    few, all_nine = (basis_a(grid, 5, 3, max_order=limit) for limit in (2, None))
    assert (len(few), len(all_nine)) == (6, 9)
    assert torch.equal(few.functions, all_nine.functions[[0, 1, 2, 3, 4, 6]])


def test_the_last_sub_sigma_of_type_b_is_cut_off() -> None:
    basis = basis_b(ScaleGrid([1.7, 2.45]), 15, 7, mult=1.5)
    last = basis_a(ScaleGrid([1.7 / 1.5**3]), basis.boxes[0], 4)
    torch.testing.assert_close(basis.scale_functions(0)[45:], last.scale_functions(0)[:4])


# The steering property: psi at q sigma and q x is q^-2 psi at sigma and x


@given(st.sampled_from([2, 3]), st.floats(1.0, 2.0), st.integers(1, 3))
def test_type_a_steers(q: int, sigma: float, size: int) -> None:
    basis = basis_a(ScaleGrid([sigma, q * sigma]), "wide", size)
    assert_steers(basis, q)


@given(st.sampled_from([2, 3]), st.floats(1.7, 2.0))
def test_type_b_steers(q: int, sigma: float) -> None:
    assert_steers(basis_b(ScaleGrid([sigma, q * sigma]), "wide", 3, max_order=2), q)


@given(st.sampled_from([2, 3]), st.floats(0.8, 2.0), st.floats(-1, 1))
def test_any_function_steers(q: int, sigma: float, skew: float) -> None:
    grid = ScaleGrid([sigma, q * sigma])
    assert_steers(SteerableBasis.from_function(lambda x, y: torch.cos(x - y + skew * x * y), grid, 4 * q + 1), q)


def assert_steers(basis: SteerableBasis, q: int) -> None:
    small, large = basis.scale_functions(0), basis.scale_functions(1)
    radius = min(small.shape[-1] // 2, large.shape[-1] // 2 // q)
    inner = slice(small.shape[-1] // 2 - radius, small.shape[-1] // 2 + radius + 1)
    centre = large.shape[-1] // 2
    spread = slice(centre - q * radius, centre + q * radius + 1, q)
    torch.testing.assert_close(large[:, spread, spread], small[:, inner, inner] / q**2, rtol=1e-10, atol=1e-13)


# Any function


@given(slow.sigma_lists(3), st.integers(1, 3), st.booleans())
def test_from_function_reproduces_type_a(sigmas: list[float], size: int, wide: bool) -> None:
    grid = ScaleGrid(sigmas)
    window: Window = "wide" if wide else 2 * math.ceil(3 * sigmas[-1] / sigmas[0]) + 1
    functions = [plane_hermite(row, column) for row, column, _ in slow.orders_a(size)]
    made = SteerableBasis.from_function(functions, grid, window)
    expected = basis_a(grid, window, size)
    assert made.boxes == expected.boxes
    torch.testing.assert_close(made.functions, expected.functions, rtol=1e-10, atol=1e-13)


def test_from_function_reproduces_type_b() -> None:
    grid = ScaleGrid([1.5, 2.6])
    functions = [plane_hermite(*orders) for orders in slow.orders_b(4, 2, 1.4)]
    made = SteerableBasis.from_function(functions, grid, 13)
    torch.testing.assert_close(made.functions, basis_b(grid, 13, 4, max_order=2).functions, rtol=1e-10, atol=1e-13)


def test_one_callable_may_return_several_functions() -> None:
    grid, singles = ScaleGrid([1.0, 1.5]), [plane_hermite(0, 0), plane_hermite(1, 0), plane_hermite(0, 1)]
    stacked = SteerableBasis.from_function(lambda x, y: torch.stack([psi(x, y) for psi in singles]), grid, 5)
    assert len(stacked) == 3
    assert torch.equal(stacked.functions, SteerableBasis.from_function(singles, grid, 5).functions)
    assert not stacked.separable


# The release's numbers


@dataclass(frozen=True)
class Published:
    """One row of the release's configurations and what its own code gives for it."""

    name: str
    sigmas: tuple[float, ...]
    kernel_size: int
    mult: float | None
    boxes: tuple[int, ...]
    ranks: tuple[int, ...]
    norms: tuple[float, ...]
    sums: tuple[float, ...]

    def basis(self) -> SteerableBasis:
        grid = ScaleGrid(self.sigmas)
        return basis_a(grid, 7, 3) if self.mult is None else basis_b(grid, self.kernel_size, 7, mult=self.mult)


# fmt: off
PUBLISHED = [
    Published("28 scalar", (1.7, 2.45, 3.54, 5.1), 15, 1.5, (5, 7, 11, 15), (25, 45, 49, 49),
              (1, .718, .517, .355), (4.653, 4.496, 4.833, 4.597)),
    Published("28+ scalar", (1.5, 2.16, 3.12, 4.5), 13, 1.4, (5, 7, 9, 13), (25, 45, 49, 49),
              (1, .763, .533, .370), (4.473, 4.350, 3.921, 3.918)),
    Published("28 vector", (1.5, 2.6, 4.5), 13, 1.5, (5, 7, 13), (25, 45, 49), (1, .629, .372), (4.473, 3.667, 3.918)),
    Published("28+ vector", (1.5, 2.6, 4.5), 15, 1.4, (5, 9, 15), (25, 49, 49), (1, .656, .379), (4.473, 4.551, 4.420)),
    Published("56 scalar", (2.0, 2.83, 4.0), 15, 1.4, (7, 11, 15), (45, 49, 49),
              (1, .722, .509), (6.111, 6.463, 6.336)),
    Published("56+ scalar", (1.0, 1.73, 3.0), 17, 1.4, (5, 9, 17), (25, 49, 49),
              (1, .813, .494), (3.481, 3.486, 3.514)),
    Published("56 vector", (2.0, 2.52, 3.17, 4.0), 15, 1.5, (7, 9, 11, 15), (45, 49, 49, 49),
              (1, .868, .719, .578), (6.111, 6.173, 6.051, 6.336)),
    Published("56+ vector", (1.5, 1.89, 2.38, 3.0), 13, 1.4, (7, 9, 11, 13), (45, 49, 49, 49),
              (1, .846, .708, .568), (5.137, 5.152, 5.111, 5.011)),
    Published("STL A, B", (0.9, 1.269, 1.789), 7, None, (3, 5, 7), (9, 9, 9), (1, .737, .519), (2.732, 2.946, 2.919)),
    Published("STL C", (1.1, 1.551, 2.187), 7, None, (3, 5, 7), (9, 9, 9), (1, .778, .548), (2.878, 3.278, 3.237)),
]
# fmt: on


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row.name)
def test_check_values_of_the_release(row: Published) -> None:
    basis = row.basis()
    flat = basis.functions.flatten(2)
    assert basis.boxes == row.boxes
    assert basis.kernel_size == row.kernel_size
    assert tuple(int(torch.linalg.matrix_rank(flat[:, k], rtol=1e-12)) for k in range(len(row.sigmas))) == row.ranks
    assert flat.norm(dim=2).mean(0).tolist() == pytest.approx(row.norms, abs=5.1e-4)
    assert flat[0].sum(1).tolist() == pytest.approx(row.sums, abs=5.1e-4)


def test_check_value_of_one_function_of_the_release() -> None:
    row_one = basis_a(ScaleGrid([0.9, 1.269, 1.789]), 7, 3).functions[1, 0]
    expected = torch.tensor([[-0.303, -0.562, -0.303], [0, 0, 0], [0.303, 0.562, 0.303]], dtype=torch.float64)
    torch.testing.assert_close(row_one[2:5, 2:5], expected, atol=5.1e-4, rtol=0)
    assert row_one.count_nonzero() == 6


# Warnings, sharing and size


def test_type_b_warns_where_a_wide_window_cannot_help() -> None:
    with pytest.warns(UserWarning, match=r"smallest sub-sigma is 0\.62 pixels, below 1\.2"):
        basis_b(ScaleGrid([1.7, 2.4]), "wide", 7)


@pytest.mark.parametrize(("smallest", "window"), [(1.2 * 1.4**3 + 1e-9, "wide"), (0.8, 15)])
def test_type_b_does_not_warn_otherwise(smallest: float, window: Window) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        basis_b(ScaleGrid([smallest, 2 * smallest]), window, 7)


def test_copies_and_pickles_are_the_same_basis() -> None:
    basis = basis_b(ScaleGrid([1.5, 2.6]), 9, 3)
    for same in (copy.deepcopy(basis), pickle.loads(pickle.dumps(basis))):
        assert torch.equal(same.functions, basis.functions)
        assert (same.grid, same.boxes) == (basis.grid, basis.boxes)


def test_repr_says_what_it_is() -> None:
    text = repr(basis_a(ScaleGrid([1.0, 2.0]), 7, 2))
    assert text == "basis_a(4 functions, sigmas [1.0, 2.0], boxes [3, 7])"


def test_thirteen_wide_scales_stay_small(device: torch.device) -> None:
    basis = basis_a(ScaleGrid.geometric(1.5, math.sqrt(2), 13), "wide", 3, max_order=2)
    layers = ScaleLift(1, 2, basis, device=device), ScaleConv(2, 2, basis, interscale=2, device=device)
    out = layers[1](layers[0](torch.ones(1, 1, 32, 32, device=device)))
    assert out.shape == (1, 2, 13, 32, 32)
    assert "functions" not in basis.__dict__
    for layer in layers:
        assert sum(buffer.nbytes for buffer in layer.buffers()) < 1e6
