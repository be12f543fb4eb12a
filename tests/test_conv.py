"""Laws of the layers: linearity, shapes, which scales a filter sees; and the kernels kept in eval mode."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
import slow
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import Tensor, nn

import sesn.layers.steerable
from sesn import ScaleConv, ScaleConv1x1, ScaleGrid, ScaleLift, basis_a, basis_b

ALGORITHMS = ["dense", "separable", "spectral"]
seeds = st.integers(0, 2**16)


@pytest.fixture(scope="session")
def float64_device(device: torch.device) -> torch.device:
    if device.type == "mps":
        pytest.skip("float64 does not exist on mps")
    return device


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def convs() -> st.SearchStrategy[slow.Case]:
    """Cases of ScaleConv alone."""
    return slow.cases().filter(lambda case: case.interscale is not None)


def with_parameters(layer: nn.Module, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    found = {"weight": weight} | ({} if bias is None else {"bias": bias})
    return lambda x: torch.func.functional_call(layer, found, (x,))


# Linearity


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(case=slow.cases(), seed=seeds, a=st.floats(-2, 2))
def test_linear_in_the_field(
    algorithm: str, float64_device: torch.device, case: slow.Case, seed: int, a: float
) -> None:
    layer = case.layer(algorithm, float64_device)
    f, g = (x.to(float64_device) for x in (case.field, slow.uniform(seed, *case.field.shape)))
    offset = layer(torch.zeros_like(f))  # the bias
    assert_same(layer(a * f + g) - offset, a * (layer(f) - offset) + layer(g) - offset)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(case=slow.cases(), seed=seeds, a=st.floats(-2, 2))
def test_linear_in_the_weight_and_bias(
    algorithm: str, float64_device: torch.device, case: slow.Case, seed: int, a: float
) -> None:
    layer, field = case.layer(algorithm, float64_device), case.field.to(float64_device)
    first = [p.detach() for p in layer.parameters()]
    second = [slow.uniform(seed, *p.shape).to(float64_device) for p in first]
    sums = [a * p + q for p, q in zip(first, second, strict=True)]
    at = [with_parameters(layer, *(*found, None)[:2])(field) for found in (first, second, sums)]
    assert_same(at[2], a * at[0] + at[1])


@given(case=slow.cases())
def test_the_bias_is_one_number_per_channel(case: slow.Case) -> None:
    layer = case.layer("auto")
    if layer.bias is not None:
        out = layer(torch.zeros_like(case.field))
        assert_same(out, layer.bias[:, None, None, None].expand(out.shape))


# Shapes


@given(case=slow.cases())
def test_same_padding_gives_the_side_divided_by_the_stride(case: slow.Case) -> None:
    sides = [math.ceil(side / case.stride) for side in case.field.shape[-2:]]
    kind, extent = (ScaleLift, {}) if case.interscale is None else (ScaleConv, {"interscale": case.interscale})
    layer = kind(case.weight.shape[1], 4, case.basis, stride=case.stride, **extent)
    assert layer(case.field.float()).shape == (case.field.shape[0], 4, len(case.basis.grid), *sides)
    assert layer.weight.shape == (4, *case.weight.shape[1:])


@given(case=slow.cases())
def test_layers_expose_their_basis_and_grid(case: slow.Case) -> None:
    layer = case.layer("auto")
    assert layer.basis is case.basis
    assert layer.grid is case.basis.grid


# Which scales a filter sees


def textbook(case: slow.Case) -> Tensor:
    """K_S = 1 as one grouped convolution: kernels padded to V x V, activations arranged scale-major."""
    kernel = torch.einsum("oikn,nsvu->sokivu", case.weight, torch.from_numpy(case.slow))
    scales, outputs, _, inputs, side, _ = kernel.shape
    field = case.field.transpose(1, 2).flatten(1, 2)
    pad = case.pixels_of_padding()
    field = F.pad(field, (pad,) * 4, mode="circular" if case.circular else "constant")
    out = F.conv2d(field, kernel.reshape(scales * outputs, inputs, side, side), stride=case.stride, groups=scales)
    out = out.unflatten(1, (scales, outputs)).transpose(1, 2)
    return out if case.bias is None else out + case.bias[:, None, None, None]


def fits_torchs_wrapping(case: slow.Case) -> bool:
    """torch wraps an image around once at most."""
    return not case.circular or case.pixels_of_padding() <= min(case.field.shape[-2:])


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "auto"])
@given(case=convs().filter(lambda case: case.interscale == 1 and fits_torchs_wrapping(case)))
def test_interscale_one_is_the_grouped_textbook_form(algorithm: str, case: slow.Case) -> None:
    assert_same(case.layer(algorithm)(case.field), textbook(case))


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "auto"])
@given(case=convs())
def test_interscale_sums_plain_layers_over_larger_scales(algorithm: str, case: slow.Case) -> None:
    """Filter i of the sum is a plain layer on the field moved i scales down, with zeros after the largest."""
    layer = case.layer(algorithm)
    plain = replace(case, interscale=1, weight=case.weight[:, :, :1], bias=None).layer(algorithm)
    total = torch.zeros(()) if case.bias is None else case.bias[:, None, None, None]
    for i in range(case.interscale):
        moved = torch.cat([case.field[:, :, i:], torch.zeros_like(case.field[:, :, :i])], dim=2)
        total = total + with_parameters(plain, case.weight[:, :, i : i + 1], None)(moved)
    assert_same(layer(case.field), total)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("interscale", [1, 2, 3, 4])
def test_a_filter_sees_its_own_and_the_next_larger_scales(algorithm: Any, interscale: int) -> None:
    basis = basis_a(ScaleGrid.geometric(1.0, 1.3, 4), 7, 2)
    layer = ScaleConv(1, 1, basis, interscale=interscale, algorithm=algorithm, dtype=torch.float64)
    field = slow.uniform(0, 1, 1, 4, 6, 6).requires_grad_()
    for k, out in enumerate(layer(field).unbind(2)):
        (grad,) = torch.autograd.grad(out.square().sum(), field, retain_graph=True)
        seen = [j for j in range(4) if grad[0, 0, j].any()]
        assert seen == list(range(k, min(k + interscale, 4)))


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "auto"])
@given(case=slow.cases().filter(lambda case: case.interscale is None))
def test_a_lift_convolves_the_image_repeated_over_the_scales(algorithm: str, case: slow.Case) -> None:
    field = case.field[:, :, None].expand(-1, -1, len(case.basis.grid), -1, -1)
    conv = replace(case, interscale=1, weight=case.weight[:, :, None]).layer(algorithm)
    assert_same(case.layer(algorithm)(case.field), conv(field))


@given(seed=seeds, stride=st.integers(1, 3), bias=st.booleans())
def test_the_1x1_layer_mixes_channels_at_every_scale_and_position(seed: int, stride: int, bias: bool) -> None:
    layer = ScaleConv1x1(3, 2, stride=stride, bias=bias, dtype=torch.float64)
    field = slow.uniform(seed, 2, 3, 2, 5, 4)
    with torch.no_grad():
        for offset, parameter in enumerate(layer.parameters()):
            parameter.copy_(slow.uniform(seed + 1 + offset, *parameter.shape))
    expected = torch.einsum("oc,bcshw->boshw", layer.weight, field[..., ::stride, ::stride])
    assert_same(layer(field), expected + (layer.bias[:, None, None, None] if bias else 0))


# The kernels kept in eval mode


@pytest.fixture
def composed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A list that grows by one for every kernel that is composed."""
    calls: list[Any] = []
    compose = sesn.layers.steerable.compose_kernel
    monkeypatch.setattr(sesn.layers.steerable, "compose_kernel", lambda *args: calls.append(1) or compose(*args))
    return calls


def eval_layer() -> tuple[ScaleConv, Tensor]:
    layer = ScaleConv(2, 2, basis_b(ScaleGrid([1.0, 1.5]), 5, 2), interscale=2, algorithm="dense").eval()
    return layer, slow.uniform(1, 1, 2, 2, 6, 6).float()


def test_kernels_are_composed_once_in_eval_mode(composed: list[Any]) -> None:
    layer, field = eval_layer()
    with torch.no_grad():
        outputs = [layer(field) for _ in range(3)]
    assert len(composed) == 2  # one per scale
    assert all(torch.equal(out, outputs[0]) for out in outputs)


@pytest.mark.parametrize("mode", ["training", "gradient"])
def test_kernels_are_composed_anew_where_a_gradient_may_be_wanted(mode: str, composed: list[Any]) -> None:
    layer, field = eval_layer()
    layer.train(mode == "training")
    with torch.set_grad_enabled(mode == "gradient"):
        layer(field)
        layer(field)
    assert len(composed) == 4


def optimizer_step(layer: ScaleConv) -> None:
    layer(slow.uniform(3, 1, 2, 2, 6, 6).float()).square().sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()


def write_through_data(layer: ScaleConv) -> None:
    layer.weight.data.mul_(2)


def write_under_no_grad(layer: ScaleConv) -> None:
    with torch.no_grad():
        layer.weight[0].zero_()


def load(layer: ScaleConv) -> None:
    layer.load_state_dict(eval_layer()[0].state_dict())


def load_by_assignment(layer: ScaleConv) -> None:
    layer.load_state_dict(eval_layer()[0].state_dict(), assign=True)


def replace_parameter(layer: ScaleConv) -> None:
    layer.weight = nn.Parameter(layer.weight.detach() + 1)


def replace_data(layer: ScaleConv) -> None:
    layer.weight.data = layer.weight.detach() + 1


def cast_there_and_back(layer: ScaleConv) -> None:
    layer.half().float()


CHANGES = [
    optimizer_step,
    write_through_data,
    write_under_no_grad,
    load,
    load_by_assignment,
    replace_parameter,
    replace_data,
    cast_there_and_back,
    ScaleConv.reset_parameters,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_kept_kernels_follow_the_weights(change: Callable[[ScaleConv], None]) -> None:
    layer, field = eval_layer()
    with torch.no_grad():
        before = layer(field)
    change(layer)
    expected = layer(field)  # with gradient: composed anew
    assert not torch.equal(expected, before)
    with torch.no_grad():
        torch.testing.assert_close(layer(field), expected, rtol=1e-6, atol=1e-7)


def test_a_cast_layer_composes_kernels_of_its_own_dtype() -> None:
    layer, field = eval_layer()
    with torch.no_grad():
        layer(field)
        out = layer.double()(field.double())
    assert out.dtype == torch.float64
    torch.testing.assert_close(out, layer(field.double()).detach(), rtol=1e-12, atol=1e-12)


def test_kept_kernels_are_bypassed_while_compiling() -> None:
    layer, field = eval_layer()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        layer(field), compiled(field)
        layer.weight.mul_(2)
        torch.testing.assert_close(compiled(field), layer(field))


def test_kept_kernels_made_in_inference_mode_serve_no_grad() -> None:
    layer, field = eval_layer()
    with torch.inference_mode():
        first = layer(field)
    with torch.no_grad():
        assert torch.equal(layer(field), first)
    layer(field).sum().backward()
    assert layer.weight.grad is not None
