"""Dense, separable, spectral and auto against the paper's sum; their gradients; how the separable path saves memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import slow
import torch
from hypothesis import given

import sesn.layers.steerable
from sesn import ScaleConv, ScaleGrid, ScaleLift, SteerableBasis, basis_a, basis_b
from sesn.algorithms import Axis, banded, separable
from sesn.algorithms.resample import resampler_line

ALGORITHMS = ["dense", "separable", "spectral", "auto"]


@pytest.fixture(scope="module", autouse=True)
def full_precision() -> Iterator[None]:
    """Some GPUs round the factors of a float32 convolution to ten bits: not here."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@pytest.fixture(scope="session")
def float64_device(device: torch.device) -> torch.device:
    if device.type == "mps":
        pytest.skip("float64 does not exist on mps")
    return device


def assert_near(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """Within the tolerance, relative to the largest value."""
    actual = actual.detach().to("cpu", torch.float64)
    assert actual.shape == expected.shape
    difference = float((actual - expected).abs().max()) if expected.numel() else 0.0
    assert difference <= tolerance * (1.0 + float(expected.abs().max()))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(case=slow.cases())
def test_equals_the_papers_sum(algorithm: str, float64_device: torch.device, case: slow.Case) -> None:
    layer = case.layer(algorithm, float64_device)
    assert_near(layer(case.field.to(float64_device)), case.answer(), 1e-11)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(case=slow.cases())
def test_equals_the_papers_sum_in_float32(algorithm: str, device: torch.device, case: slow.Case) -> None:
    layer = case.layer(algorithm, device, torch.float32)
    assert_near(layer(case.field.to(device, torch.float32)), case.answer(), 1e-5)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(case=slow.cases(), data=st.data())
def test_equals_the_papers_sum_without_gradient(
    algorithm: str, float64_device: torch.device, case: slow.Case, data: st.DataObject
) -> None:
    layer = case.layer(algorithm, float64_device).eval()
    other = slow.uniform(data.draw(st.integers(0, 9)), *case.field.shape[:-1], case.field.shape[-1] + 1)
    with torch.no_grad():
        layer(other.to(float64_device))  # what is kept for one size of image must not disturb another
        assert_near(layer(case.field.to(float64_device)), case.answer(), 1e-11)


@pytest.mark.parametrize("algorithm", ["dense", "spectral", "auto"])
@given(data=st.data(), sigmas=slow.sigma_lists())
def test_any_function_equals_the_papers_sum(algorithm: str, data: st.DataObject, sigmas: list[float]) -> None:
    a, b = data.draw(st.floats(-1, 1)), data.draw(st.floats(-1, 1))
    boxes = slow.paper_boxes(sigmas, 5)
    basis = SteerableBasis.from_function(
        lambda x, y: torch.exp(-(x**2) - y**2 + a * x + b * x * y), ScaleGrid(sigmas), 5
    )
    values = np.zeros((1, len(sigmas), 5, 5))
    for k, (sigma, box) in enumerate(zip(sigmas, boxes, strict=True)):
        for row, column in np.ndindex(box, box):
            y, x = (row - box // 2) / sigma, (column - box // 2) / sigma
            at = 2 - box // 2 + row, 2 - box // 2 + column
            values[0, k, *at] = np.exp(-(x**2) - y**2 + a * x + b * x * y) / sigma**2
    values /= np.linalg.norm(values[0, 0])
    case = data.draw(slow.cases(st.just(slow.Bases(basis, values))))
    assert_near(case.layer(algorithm)(case.field), case.answer(), 1e-11)


@given(case=slow.cases(), data=st.data())
def test_any_mixture_of_algorithms_over_the_scales_is_exact(case: slow.Case, data: st.DataObject) -> None:
    ways = data.draw(st.lists(st.sampled_from(["dense", "separable", "spectral"]), min_size=3, max_size=3))
    layer = case.layer("auto")
    layer._ways = lambda *_: ways[: len(layer._windows())]
    assert_near(layer(case.field), case.answer(), 1e-11)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("size", [7, 12])
def test_an_empty_batch_gives_an_empty_field(algorithm: Any, size: int, device: torch.device) -> None:
    basis = basis_a(ScaleGrid([1.0, 1.5]), 5, 2)
    layer = ScaleConv(2, 3, basis, interscale=2, stride=2, algorithm=algorithm, device=device)
    field = torch.zeros(0, 2, 2, size, size + 1, device=device, requires_grad=True)
    out = layer(field)
    assert out.shape == (0, 3, 2, (size + 1) // 2, (size + 2) // 2)
    out.sum().backward()
    assert not layer.weight.grad.any()


# Gradients


def gradient_case(kind: str, mode: Any, algorithm: Any, size: tuple[int, int]) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """A small strided layer as a function of its input, weight and bias."""
    basis = basis_a(ScaleGrid([0.9, 1.3]), 5, 2)
    options = {"stride": 2, "padding_mode": mode, "algorithm": algorithm, "dtype": torch.float64}
    if kind == "lift":
        layer, x = ScaleLift(2, 2, basis, **options), slow.uniform(1, 2, 2, *size)
    else:
        layer, x = ScaleConv(2, 2, basis, interscale=2, **options), slow.uniform(1, 2, 2, 2, *size)
    parameters = {"weight": slow.uniform(2, *layer.weight.shape), "bias": slow.uniform(3, 2)}
    inputs = tuple(t.requires_grad_() for t in (x, *parameters.values()))
    return lambda x, w, b: torch.func.functional_call(layer, {"weight": w, "bias": b}, (x,)), inputs


@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral"])
@pytest.mark.parametrize("mode", ["zeros", "circular"])
@pytest.mark.parametrize("kind", ["lift", "conv"])
def test_first_derivatives(kind: str, mode: str, algorithm: str) -> None:
    function, inputs = gradient_case(kind, mode, algorithm, (5, 4))
    assert torch.autograd.gradcheck(function, inputs)


@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral"])
@pytest.mark.parametrize("mode", ["zeros", "circular"])
@pytest.mark.parametrize("kind", ["lift", "conv"])
def test_second_derivatives(kind: str, mode: str, algorithm: str) -> None:
    function, inputs = gradient_case(kind, mode, algorithm, (4, 3))
    assert torch.autograd.gradgradcheck(function, inputs)
    # gradgradcheck passes over gradients that have no graph
    found = torch.autograd.grad(function(*inputs).square().sum(), inputs, create_graph=True)
    assert all(gradient.requires_grad for gradient in found)


def test_derivatives_of_the_passes_on_larger_maps() -> None:
    function, inputs = gradient_case("conv", "zeros", "separable", (3, separable.PLANE_PIXELS // 3 + 1))
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


def gradients(case: slow.Case, algorithm: str, *wanted: str) -> list[torch.Tensor]:
    """The output, and the gradients of a weighted sum of it with respect to the input and parameters named."""
    layer, field = case.layer(algorithm), case.field.clone()
    found = {"field": field, "weight": layer.weight} | ({"bias": layer.bias} if case.bias is not None else {})
    found = {name: tensor.requires_grad_(name in wanted) for name, tensor in found.items()}
    out = layer(field)
    kept = [tensor for name, tensor in found.items() if name in wanted]
    return [out, *torch.autograd.grad((out * torch.cos(out.detach())).sum(), kept)]


def assert_all_near(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for a, e in zip(actual, expected, strict=True):
        assert_near(a, e.detach(), 1e-11)


@pytest.mark.parametrize("algorithm", ["separable", "spectral"])
@given(case=slow.cases())
def test_all_algorithms_have_the_same_gradients(algorithm: str, case: slow.Case) -> None:
    everything = ("field", "weight", "bias")
    assert_all_near(gradients(case, algorithm, *everything), gradients(case, "dense", *everything))


@pytest.mark.parametrize("algorithm", ["separable", "spectral"])
@pytest.mark.parametrize("wanted", ["field", "weight"])
@given(case=slow.cases())
def test_a_gradient_may_be_asked_for_alone(wanted: str, algorithm: str, case: slow.Case) -> None:
    assert_all_near(gradients(case, algorithm, wanted), gradients(case, "dense", wanted))


# How the separable path saves memory


@given(case=slow.cases())
def test_many_chunks_equal_one(case: slow.Case) -> None:
    names = ("field", "weight", "bias")
    whole = gradients(case, "separable", *names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(separable, "CHUNK_BYTES", 1)
        chunked = gradients(case, "separable", *names)
    assert_all_near(chunked, whole)


@pytest.mark.parametrize("chunk_bytes", [1, separable.CHUNK_BYTES])
@given(case=slow.cases())
def test_kept_responses_give_the_gradients_of_responses_made_again(chunk_bytes: int, case: slow.Case) -> None:
    found = []
    for keep in (0, 10**6):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(separable, "KEEP", keep)
            patch.setattr(separable, "CHUNK_BYTES", chunk_bytes)
            found.append(gradients(case, "separable", "field", "weight"))
    assert_all_near(found[1], found[0])


@pytest.mark.parametrize(("keep", "times"), [(0, 2), (10**6, 1)])
def test_responses_are_made_again_only_where_they_were_not_kept(
    keep: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    made = separable.PlanePass.responses
    monkeypatch.setattr(separable, "KEEP", keep)
    monkeypatch.setattr(separable.PlanePass, "responses", lambda self, x: calls.append(1) or made(self, x))
    layer = ScaleLift(1, 2, basis_a(ScaleGrid([1.0]), 5, 2), algorithm="separable")
    layer(torch.zeros(1, 1, 7, 7)).sum().backward()
    assert len(calls) == times


@given(case=slow.cases())
def test_both_kinds_of_passes_agree(case: slow.Case) -> None:
    found = []
    for pixels in (0, 10**6):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(separable, "PLANE_PIXELS", pixels)
            found.append(gradients(case, "separable", "field", "weight"))
    assert_all_near(found[1], found[0])


@pytest.mark.parametrize("block", [1, 3])
@given(case=slow.cases())
def test_long_lines_in_blocks_equal_one_product(block: int, case: slow.Case) -> None:
    names = ("field", "weight", "bias")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(separable, "PLANE_PIXELS", 0)
        whole = gradients(case, "separable", *names)
        patch.setattr(banded, "LONG_LINE", 0)
        patch.setattr(banded, "BLOCK", block)
        assert_all_near(gradients(case, "separable", *names), whole)
        assert_near(case.layer("separable", torch.device("cpu"))(case.field), case.answer(), 1e-11)


@given(
    data=st.data(),
    outputs=st.integers(1, 40),
    size=st.integers(1, 40),
    reach=st.integers(0, 9),
    band=st.integers(1, 12),
)
def test_a_matrix_in_bands_is_the_matrix(data: st.DataObject, outputs: int, size: int, reach: int, band: int) -> None:
    """Whatever its rows reach, none included, on either axis."""
    seeded = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    line = banded.Line(data.draw(st.floats(-5, 5)), size / outputs, reach)
    centres = line.first + line.step * torch.arange(outputs, dtype=torch.float64)[:, None]
    near = (centres - torch.arange(size)).abs() <= reach
    matrix = torch.randn(outputs, size, generator=seeded, dtype=torch.float64) * near
    x = torch.randn(2, size, size, generator=seeded, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(banded, "BAND", band)
        patch.setattr(banded, "SPARED", -1.0)
        parts = banded.bands(matrix, line, x)
    assert [(part.start, part.stop) for part in parts][-1][1] == outputs
    assert_near(banded.along_both(parts, parts, x), matrix @ x @ matrix.t(), 1e-12)


def test_bands_leave_out_what_a_long_resampler_does_not_reach() -> None:
    like = torch.zeros((), dtype=torch.float64)
    matrix, line = sesn.resampling_matrix(384, 2**-0.5), resampler_line(384, 2**-0.5)
    assert line is not None
    parts = banded.bands(matrix, line, like)
    assert sum(part.matrix.numel() for part in parts) < 0.5 * matrix.numel()
    assert resampler_line(384, 2**-0.5, "fourier") is None


# The chooser


@pytest.mark.parametrize(
    ("basis", "channels", "size", "expected"),
    [
        (basis_a(ScaleGrid([3.0]), "wide", 3, max_order=2), 32, 28, "separable"),
        (basis_b(ScaleGrid([0.7]), 3, 3), 32, 28, "dense"),
        (basis_b(ScaleGrid([5.1]), 15, 7, mult=1.5), 32, 14, "spectral"),
    ],
    ids=["few functions in a wide window", "nine functions on a 3 x 3 box", "49 functions on a 15 x 15 box"],
)
def test_auto_takes_the_cheaper_way(
    basis: SteerableBasis, channels: int, size: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for name in ("dense_convolution", "separable_convolution", "spectral_convolution"):
        way = getattr(sesn.layers.steerable, name)
        monkeypatch.setattr(sesn.layers.steerable, name, lambda *a, _n=name, _w=way: taken.append(_n) or _w(*a))
    layer = ScaleConv(channels, channels, basis)
    layer(torch.zeros(16, channels, 1, size, size))
    assert taken == [f"{expected}_convolution"]


@given(
    size=st.integers(257, 700),
    box=st.integers(0, 40).map(lambda half: 2 * half + 1),
    stride=st.integers(1, 4),
    padding=st.integers(0, 60),
)
def test_the_blocks_of_a_long_line_are_pieces_of_its_matrix(size: int, box: int, stride: int, padding: int) -> None:
    axis = Axis.of(size, box, stride, min(padding, box // 2), False)
    profiles = torch.arange(1.0, 1 + 2 * box).reshape(2, box)
    matrix = banded.banded_matrix(profiles, axis)
    rebuilt = torch.zeros_like(matrix)
    for block in banded.blocks(profiles, axis):
        rebuilt[:, block.start : block.stop, block.low : block.high] = block.matrix
    assert torch.equal(rebuilt, matrix)
