"""The kernels of an ordinary convolution in a steerable basis: the same outputs at one scale."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import slow
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_networks import seeded
from torch import nn

import sesn
from sesn.layers.fit import LARGE_RESIDUAL

GRID = sesn.ScaleGrid([1.0, 1.4, 2.0])


def of_axes(*numbers: int) -> st.SearchStrategy[tuple[int, int]]:
    """One of the numbers along rows and one along columns."""
    return st.tuples(st.sampled_from(numbers), st.sampled_from(numbers))


CONVS = st.fixed_dictionaries(
    {
        "kernel_size": of_axes(3, 1, 5, 7),
        "stride": of_axes(1, 2, 3),
        "padding": of_axes(0, 1, 2, 3),
        "dilation": of_axes(1, 2),
        "groups": st.sampled_from([1, 2, 4]),
        "bias": st.booleans(),
        "padding_mode": st.sampled_from(["zeros", "circular", "reflect", "replicate"]),
    }
)


@given(CONVS, st.integers(0, 2), st.booleans(), st.integers(0, 99))
def test_a_complete_basis_keeps_a_convolution_at_its_reference_scale(
    options: dict[str, Any], reference: int, lift: bool, seed: int
) -> None:
    conv = seeded(seed, lambda: nn.Conv2d(4, 4, dtype=torch.float64, **options))
    extent = max(step * (side - 1) + 1 for step, side in zip(options["dilation"], options["kernel_size"], strict=True))
    basis = sesn.complete_basis(sesn.ScaleGrid([1.0, 1.2, 1.4]), extent, reference=reference)
    image = slow.uniform(seed, 2, 4, 15, 16)
    kind = sesn.ScaleLift if lift else sesn.ScaleConv
    layer, residual = kind.from_conv2d(conv, basis, reference=reference)
    field = image if lift else torch.stack([image + 1, image + 2, image + 3], dim=2)
    found = layer(field)[:, :, reference]
    torch.testing.assert_close(found, conv(image if lift else field[:, :, reference]), rtol=0, atol=1e-8)
    assert residual < 1e-9


@given(st.sampled_from([3, 7, 11, 13, 17, 21]), st.sampled_from([1, 2, 3]), st.integers(0, 2), st.integers(0, 99))
@settings(max_examples=12)
def test_large_and_dilated_kernels_are_kept_in_single_precision(
    side: int, dilation: int, reference: int, seed: int
) -> None:
    conv = seeded(seed, lambda: nn.Conv2d(1, 2, side, dilation=dilation if side < 9 else 1, padding="same"))
    extent = conv.dilation[0] * (side - 1) + 1
    basis = sesn.complete_basis(sesn.ScaleGrid([1.0, 1.2, 1.4]), extent, reference=reference)
    image = slow.uniform(seed, 2, 1, 24, 25).float()
    layer, residual = sesn.ScaleLift.from_conv2d(conv, basis, reference=reference)
    wanted = conv(image)
    error = (layer(image)[:, :, reference] - wanted).abs().max() / wanted.abs().max()
    assert error < 1e-5
    assert residual < 1e-6


@given(of_axes(3, 1, 5), of_axes(1, 2, 3), of_axes(1, 2), st.integers(0, 2), st.booleans(), st.integers(0, 99))
def test_a_complete_basis_keeps_a_transposed_convolution(
    sides: tuple[int, int], strides: tuple[int, int], steps: tuple[int, int], reference: int, bias: bool, seed: int
) -> None:
    padding = tuple(step * (side // 2) for step, side in zip(steps, sides, strict=True))
    options: dict[str, Any] = {"padding": padding, "output_padding": tuple(each - 1 for each in strides), "bias": bias}
    options |= {"stride": strides, "dilation": steps, "dtype": torch.float64}
    conv = seeded(seed, lambda: nn.ConvTranspose2d(4, 3, sides, **options))
    extent = 2 * max(padding) + 1
    basis = sesn.complete_basis(sesn.ScaleGrid([1.0, 1.2, 1.4]), extent, reference=reference)
    maps = slow.uniform(seed, 2, 4, 7, 8)
    layer, residual = sesn.ScaleConvTranspose.from_conv_transpose2d(conv, basis, reference=reference)
    found = layer(torch.stack([maps + 1, maps + 2, maps + 3], dim=2))[:, :, reference]
    torch.testing.assert_close(found, conv(maps + reference + 1), rtol=0, atol=1e-8)
    assert residual < 1e-9


def test_a_transposed_convolution_keeps_its_mode_and_a_large_residual_is_warned_about() -> None:
    conv = nn.ConvTranspose2d(2, 3, 3, padding=1).requires_grad_(False).eval()
    layer = sesn.ScaleConvTranspose.from_conv_transpose2d(conv, sesn.complete_basis(GRID, 3)).layer
    assert not layer.training
    assert not layer.weight.requires_grad
    with pytest.warns(UserWarning, match="relative residual") as caught:
        sesn.ScaleConvTranspose.from_conv_transpose2d(conv, sesn.basis_a(GRID, 7, 1))
    assert caught[0].filename == __file__
    with pytest.raises(TypeError, match=r"`conv` .* must be an nn.ConvTranspose2d"):
        sesn.ScaleConvTranspose.from_conv_transpose2d(nn.Conv2d(1, 1, 3), sesn.complete_basis(GRID, 3))


@given(st.integers(1, 5), st.integers(0, 8), st.integers(0, 99))
def test_the_residual_is_nothing_just_where_the_basis_is_complete(size: int, order: int, seed: int) -> None:
    conv = seeded(seed, lambda: nn.Conv2d(2, 3, 3, dtype=torch.float64))
    basis = sesn.basis_a(sesn.ScaleGrid([0.7, 1.4]), 7, size, max_order=order)  # on boxes of 3 and 7
    functions = basis.scale_functions(0).flatten(1)
    complete = int(torch.linalg.matrix_rank(functions)) == 9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer, residual = sesn.ScaleLift.from_conv2d(conv, basis)
    assert (residual < 1e-9) == complete
    # What is left is orthogonal to the basis: no weights are nearer.
    left = (layer.weight @ functions - conv.weight.flatten(2)).detach()
    assert float((left @ functions.t()).abs().max()) < 1e-9
    assert residual == pytest.approx(float(left.norm() / conv.weight.detach().norm()), abs=1e-9)


def test_a_large_residual_is_warned_about_and_a_small_one_is_not() -> None:
    conv = nn.Conv2d(1, 1, 3)
    with pytest.warns(UserWarning, match=r"relative residual of [\d.]+ of the kernels of Conv2d\(1, 1"):
        _, residual = sesn.ScaleLift.from_conv2d(conv, sesn.basis_a(GRID, 7, 1))
    assert residual > LARGE_RESIDUAL
    sesn.ScaleLift.from_conv2d(conv, sesn.complete_basis(GRID, 3))


def test_the_warning_names_the_side_that_a_dilated_kernel_needs() -> None:
    conv = nn.Conv2d(1, 1, 3, dilation=(3, 2))
    with pytest.warns(UserWarning, match=r"use complete_basis with kernel_size=7"):
        sesn.ScaleLift.from_conv2d(conv, sesn.complete_basis(GRID, 3))
    assert sesn.ScaleLift.from_conv2d(conv, sesn.complete_basis(GRID, 7)).residual < 1e-6


def test_the_warning_of_a_residual_names_a_basis_that_leaves_none() -> None:
    # A basis that is complete at another scale was answered with the advice to use that very basis.
    conv = nn.Conv2d(1, 1, 3)
    with pytest.warns(UserWarning, match="use complete_basis with kernel_size=3 and reference=1, or more functions"):
        sesn.ScaleLift.from_conv2d(conv, sesn.complete_basis(GRID, 3), reference=1)
    assert sesn.ScaleLift.from_conv2d(conv, sesn.complete_basis(GRID, 3, reference=1), reference=1).residual < 1e-6


def test_further_scales_of_an_interscale_layer_start_with_nothing() -> None:
    conv = nn.Conv2d(2, 3, 3, padding=1)
    layer, _ = sesn.ScaleConv.from_conv2d(conv, sesn.complete_basis(GRID, 3), interscale=2)
    assert layer.interscale == 2
    assert not layer.weight[:, :, 1].any()
    field = torch.randn(1, 2, 3, 9, 9)
    torch.testing.assert_close(layer(field)[:, :, 0], conv(field[:, :, 0]))


def test_what_is_frozen_and_in_train_mode_stays_so() -> None:
    conv = nn.Conv2d(2, 3, 3).eval().requires_grad_(False)
    layer, _ = sesn.ScaleLift.from_conv2d(conv, sesn.complete_basis(GRID, 3))
    assert not layer.training
    assert not layer.weight.requires_grad


class Doubled(nn.Conv2d):
    """A convolution with code of its own."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


REFUSED = {
    "kernel_size": nn.Conv2d(4, 4, (3, 2)),
    "forward": Doubled(4, 4, 3),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_convolution_that_cannot_be_says_why(name: str) -> None:
    with pytest.raises(sesn.UsageError, match=rf"`conv` \(=.*\(4, 4.* cannot be converted: its `{name}` \(="):
        sesn.ScaleConv.from_conv2d(REFUSED[name], sesn.complete_basis(GRID, 3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reference": 3}, r"`reference` \(=3\) must be less than the number of scales \(3\)"),
        ({"conv": nn.Linear(2, 2)}, r"`conv` \(=Linear.* must be an nn.Conv2d"),
        ({"conv": nn.LazyConv2d(2, 3)}, r"`conv` \(=LazyConv2d.* must be initialised; run it once on an image"),
        ({"basis": GRID}, r"`basis` \(=ScaleGrid.* must be a SteerableBasis"),
        ({"conv": nn.Conv2d(2, 2, 15)}, r"`basis.kernel_size` \(=7\) must be at least 15; use a wider window"),
    ],
)
def test_bad_arguments_of_from_conv2d_are_named(change: dict[str, Any], message: str) -> None:
    arguments = {"conv": nn.Conv2d(2, 2, 3), "basis": sesn.complete_basis(GRID, 3), **change}
    with pytest.raises(sesn.UsageError, match=message):
        sesn.ScaleLift.from_conv2d(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 3), r"`grid` \(=3\) must be a ScaleGrid"),
        ((GRID, 4), r"`kernel_size` \(=4\) must be odd"),
        ((GRID, 3, 2), r"`reference` \(=2\) must be a scale at which .* of side 3 .* use a lower `reference`"),
    ],
)
def test_bad_arguments_of_complete_basis_are_named(arguments: Any, message: str) -> None:
    with pytest.raises(sesn.UsageError, match=message):
        sesn.complete_basis(*arguments[:2], reference=next(iter(arguments[2:]), 0))


@given(st.lists(st.floats(1.05, 2.0), max_size=3), st.sampled_from([1, 3, 5, 7, 9]), st.data())
def test_a_complete_basis_is_complete_on_any_grid(steps: list[float], side: int, data: st.DataObject) -> None:
    sigmas = [1.0]
    for step in steps:
        sigmas.append(sigmas[-1] * step)
    basis = sesn.complete_basis(sesn.ScaleGrid(sigmas), side)
    assert basis.boxes[0] == side
    assert int(torch.linalg.matrix_rank(basis.scale_functions(0).flatten(1))) == side**2
