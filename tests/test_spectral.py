"""The spectral algorithm against the ordinary convolution: values, gradients, periods, pieces, and when it is taken."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import Tensor

from sesn import ScaleConv, ScaleGrid, basis_a
from sesn.algorithms import Axis, Work, dense_convolution, spectral, spectral_convolution
from sesn.algorithms.choose import SPECTRAL_KERNEL, spectral_cost
from sesn.algorithms.spectral import Taps, period
from sesn.methods._layer import convolve_inside, correlate

#: Rounding of sums of some hundred products, relative to the largest value.
TOLERANCE = {torch.float64: 1e-14, torch.float32: 2e-6}


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Tensor, Tensor, Axis, Axis]:
    """A map, an odd kernel, and the two axes, in float64."""
    sizes = [draw(st.integers(1, 11)) for _ in range(2)]
    radius, stride, circular = draw(st.integers(0, 6)), draw(st.integers(1, 3)), draw(st.booleans())
    side = 2 * radius + 1
    least = max(0, -(-(side - min(sizes)) // 2))
    padding = draw(st.integers(least, radius + 2))
    rows, columns = (Axis.of(size, side, stride, padding, circular) for size in sizes)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    channels = [draw(st.integers(1, 3)) for _ in range(3)]
    x = torch.rand(channels[0], channels[1], *sizes, generator=generator, dtype=torch.float64) - 0.5
    kernel = torch.rand(channels[2], channels[1], side, side, generator=generator, dtype=torch.float64) - 0.5
    return x, kernel, rows, columns


def error(actual: Tensor, expected: Tensor, scale: float) -> float:
    """The largest difference, in units of the sum of the absolute values of the products."""
    assert actual.shape == expected.shape
    return float((actual.double() - expected).abs().max()) / scale if expected.numel() else 0.0


@pytest.mark.parametrize("dtype", TOLERANCE)
@given(case=convolutions())
def test_equals_the_dense_convolution(dtype: torch.dtype, case: Any) -> None:
    x, kernel, rows, columns = case
    expected = dense_convolution(x, kernel, None, rows, columns)
    found = spectral_convolution(x.to(dtype), kernel.to(dtype), None, rows, columns)
    assert found.dtype == dtype
    scale = 1 + float(kernel.abs().sum(dim=(1, 2, 3)).max() * x.abs().max())
    assert error(found, expected, scale) < TOLERANCE[dtype]


@given(case=convolutions(), chunk=st.sampled_from([1, spectral.CHUNK_BYTES]))
def test_has_the_gradients_of_the_dense_convolution(case: Any, chunk: int) -> None:
    x, kernel, rows, columns = case
    found = []
    for convolution in (spectral_convolution, dense_convolution):
        inputs = [tensor.clone().requires_grad_() for tensor in (x, kernel)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spectral, "CHUNK_BYTES", chunk)
            out = convolution(inputs[0], inputs[1], None, rows, columns)
            out.backward(torch.cos(3 * dense_convolution(x, kernel, None, rows, columns)))
        found.append([tensor.grad for tensor in inputs])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_derivatives(stride: int, circular: bool) -> None:
    rows, columns = (Axis.of(size, 5, stride, 2, circular) for size in (4, 3))
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 2, 4, 3), (2, 2, 5, 5), (2,)
    inputs = [torch.rand(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]

    def function(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
        return spectral_convolution(x, kernel, bias, rows, columns)

    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)
    found = torch.autograd.grad(function(*inputs).square().sum(), inputs, create_graph=True)
    assert all(gradient.requires_grad for gradient in found)  # gradgradcheck passes over gradients that have no graph


@pytest.mark.parametrize(("size", "radius", "expected"), [(14, 7, 21), (14, 11, 25), (7, 0, 7), (28, 27, 55)])
def test_the_period_of_same_padding_is_the_map_and_half_a_window(size: int, radius: int, expected: int) -> None:
    side = 2 * radius + 1
    assert period(Axis.of(size, side, 1, radius, circular=False), Taps.centred(side)) == expected
    assert period(Axis.of(size, side, 1, radius, circular=True), Taps.centred(side)) == size


@given(case=convolutions())
def test_a_shorter_period_would_wrap_around(case: Any) -> None:
    """The period is the least: if a window reaches beyond the map, with one pixel less some output changes."""
    x, kernel, rows, columns = case
    whole = period(rows, Taps.centred(kernel.shape[-1]))
    expected = dense_convolution(torch.ones_like(x), torch.ones_like(kernel), None, rows, columns)
    if whole == rows.size or not expected.any():  # strides and padding may leave windows that see no pixel
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spectral, "period", lambda axis, taps: period(axis, taps) - (axis is rows))
        transforms = spectral.make_transforms(
            rows, columns, *[Taps.centred(kernel.shape[-1])] * 2, x.device, torch.float64
        )
    ones = spectral.spectral_plain(torch.ones_like(x), torch.ones_like(kernel), transforms)
    assert not torch.allclose(ones, expected, atol=1e-6)


@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    sides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def test_taps_may_lie_apart(sizes: tuple[int, int], sides: tuple[int, int], dilation: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(2, 2, *sizes, generator=generator, dtype=torch.float64)
    kernel = torch.rand(3, 2, *(2 * side - 1 for side in sides), generator=generator, dtype=torch.float64)
    reach = [dilation * (side - 1) for side in sides]
    expected = F.conv2d(x, kernel, padding=reach, dilation=dilation)
    axes = [Axis(size, size, 0, 1, circular=False) for size in sizes]
    taps = [Taps(-r, 2 * side - 1, dilation) for r, side in zip(reach, sides, strict=True)]
    found = spectral_convolution(x, kernel, None, *axes, (taps[0], taps[1]))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@given(case=convolutions(), first=st.integers(-7, 0), stride=st.integers(1, 3))
def test_the_baselines_convolutions_are_the_same_both_ways(case: Any, first: int, stride: int) -> None:
    x, kernel, _, _ = case
    if not first > -x.shape[-1] - 12 or first + kernel.shape[-1] <= 0:
        return
    found = []
    for pays in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sesn.methods._layer.spectral_pays", lambda *_, _pays=pays: _pays)
            inside = min(x.shape[-2:]) >= kernel.shape[-1]
            fits = first > -min(x.shape[-2:]) and first + kernel.shape[-1] > 0
            found.append([correlate(x, kernel, first, stride)] if fits else [])
            found[-1] += [convolve_inside(x, kernel, None, stride)] if inside else []
    for dense, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, dense, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_single(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    axis = Axis.of(6, 5, 1, 2, circular=False)
    x, kernel = (torch.rand(s, generator=generator).to(dtype) for s in ((1, 4, 6, 6), (2, 4, 5, 5)))
    found = spectral_convolution(x, kernel, None, axis, axis)
    exact = dense_convolution(x.double(), kernel.double(), None, axis, axis)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-5)


def test_autocast_gives_its_own_dtype_and_no_less_precision() -> None:
    axis = Axis.of(6, 5, 1, 2, circular=False)
    generator = torch.Generator().manual_seed(0)
    x, kernel = torch.rand(1, 4, 6, 6, generator=generator), torch.rand(2, 4, 5, 5, generator=generator)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = spectral_convolution(x, kernel, None, axis, axis)
    assert found.dtype == torch.bfloat16
    exact = dense_convolution(x, kernel, None, axis, axis)
    torch.testing.assert_close(found.float(), exact, rtol=2**-8, atol=0)


def work(batch: int = 16, channels: int = 32, out: int = 32, dtype: torch.dtype = torch.float32) -> Work:
    axis = Axis.of(14, 15, 1, 7, circular=False)
    return Work.on(torch.empty(batch, channels, 14, 14, dtype=dtype), channels, out, axis, axis)


def test_it_is_out_of_the_question_for_huge_kernels_and_half_precision() -> None:
    taps = Taps.centred(15), Taps.centred(15)
    assert spectral_cost(work(), *taps) < float("inf")
    assert spectral_cost(work(channels=1 + SPECTRAL_KERNEL // (2 * 11 * 21), out=1), *taps) == float("inf")
    assert spectral_cost(work(dtype=torch.bfloat16), *taps) == float("inf")
    with torch.autocast("cpu"):
        assert spectral_cost(work(), *taps) == float("inf")


def test_matrices_are_made_once_for_each_kind_of_map() -> None:
    axis = Axis.of(13, 5, 1, 2, circular=False)
    x, kernel = torch.ones(1, 4, 13, 13), torch.ones(1, 4, 5, 5)
    with torch.inference_mode():
        spectral_convolution(x, kernel, None, axis, axis)
    before = spectral._kept_transforms.cache_info()
    kernel.requires_grad_()
    spectral_convolution(x, kernel, None, axis, axis).sum().backward()
    after = spectral._kept_transforms.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 1)


MEMORY = """
import torch

from harness.stopwatch import peak_bytes
from sesn.algorithms import Axis, dense_convolution, spectral_convolution

axis = Axis.of(28, 15, 1, 7, circular=False)
x, kernel = torch.ones(128, 8, 28, 28, requires_grad=True), torch.ones(16, 8, 15, 15, requires_grad=True)
for run in (spectral_convolution, dense_convolution):

    def step():
        # No gradient is left behind: the profiler would count it as freed by the next step, or not, as its address is
        # one that it has seen before.
        torch.autograd.grad(run(x, kernel, None, axis, axis).sum(), [x, kernel])

    step()
    print(peak_bytes(step, torch.device("cpu")))
"""


def test_a_step_holds_less_than_twice_the_memory_of_the_dense_convolution() -> None:
    """At a batch and map where activations outweigh the kernel, as in training; in a process of its own."""
    said = subprocess.run([sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True).stdout
    spectral_bytes, dense_bytes = map(int, said.split()[-2:])
    assert 0 < spectral_bytes <= 2 * dense_bytes


@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral"])
@pytest.mark.parametrize("cast_forward", [True, False])
def test_gradients_asked_for_under_autocast(algorithm: str, cast_forward: bool) -> None:
    layer = ScaleConv(8, 8, basis_a(ScaleGrid.geometric(1.5, 1.41, 3), 7, 3), algorithm=algorithm)  # type: ignore[arg-type]
    field = torch.linspace(-1, 1, 8 * 3 * 14 * 14).reshape(1, 8, 3, 14, 14).sin()
    wanted = torch.autograd.grad(layer(field).square().sum(), [layer.weight])[0]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast_forward):
        out = layer(field)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.autograd.grad(out.float().square().sum(), [layer.weight])[0]
    assert (found - wanted).norm() < 4 * torch.finfo(torch.bfloat16).eps * wanted.norm()
