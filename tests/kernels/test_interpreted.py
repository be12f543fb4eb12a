"""The fused kernels in Triton's interpreter: against `dense` over drawn layers, values and gradients of both orders."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
import slow
import torch
from hypothesis import given, settings
from test_algorithms import assert_all_near, assert_near, gradient_case, gradients

triton = pytest.importorskip("triton", reason="nox -s kernels installs Triton")

from interpreting import geometry_of, tiled, tiles  # noqa: E402

from sesn import ScaleConv, ScaleGrid, ScaleLift, UsageError, basis_a, basis_b  # noqa: E402
from sesn.algorithms.fused import fused_convolution, launch, operators, trust  # noqa: E402

pytestmark = pytest.mark.usefixtures("interpreter")
EVERYTHING = ("field", "weight", "bias")


@settings(max_examples=20)
@given(case=slow.cases(), sizes=tiles())
def test_equals_the_papers_sum(case: slow.Case, sizes: dict[str, Any]) -> None:
    with tiled(sizes):
        assert_near(case.layer("fused")(case.field), case.answer(), 1e-11)


@settings(max_examples=10)
@given(case=slow.cases())
def test_equals_the_papers_sum_in_float32(case: slow.Case) -> None:
    layer = case.layer("fused", "cpu", torch.float32)
    assert_near(layer(case.field.float()), case.answer(), 1e-5)


@settings(max_examples=12)
@given(case=slow.cases(), sizes=tiles())
def test_has_the_gradients_of_dense(case: slow.Case, sizes: dict[str, Any]) -> None:
    with tiled(sizes):
        found = gradients(case, "fused", *EVERYTHING)
    assert_all_near(found, gradients(case, "dense", *EVERYTHING))


@pytest.mark.parametrize("wanted", EVERYTHING[:2])
def test_a_gradient_may_be_asked_for_alone(wanted: str) -> None:
    function, (x, weight, bias) = gradient_case("conv", "zeros", "fused", (5, 4))
    chosen = {"field": x, "weight": weight}[wanted]
    others = [one.detach() for one in (x, weight, bias)]
    inputs = [chosen if one is chosen else other for one, other in zip((x, weight, bias), others, strict=True)]
    (alone,) = torch.autograd.grad(function(*inputs).square().sum(), chosen)
    (all_of_them,) = torch.autograd.grad(function(x, weight, bias).square().sum(), chosen)
    assert torch.equal(alone, all_of_them)


@st.composite
def layers(draw: st.DrawFn) -> tuple[Any, torch.Tensor]:
    """A ScaleConv with groups, borders of each kind, and strides and paddings that differ by axis; and a field."""
    basis = draw(st.sampled_from([basis_a(ScaleGrid([0.9, 1.3]), 5, 2), basis_b(ScaleGrid([1.0, 1.5]), 7, 3)]))
    groups = draw(st.integers(1, 2))
    options = {
        "groups": groups,
        "interscale": draw(st.integers(1, 2)),
        "scale_padding": draw(st.sampled_from(["zeros", "replicate", "truncate"])),
        "padding_mode": draw(st.sampled_from(["zeros", "circular", "reflect", "replicate"])),
        "padding": (draw(st.integers(0, 4)), draw(st.integers(0, 4))),
        "stride": (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
    }
    channels = groups * draw(st.integers(1, 2)), groups * draw(st.sampled_from([1, 2, 17]))
    sides = draw(st.integers(7, 13)), draw(st.integers(7, 13))
    torch.manual_seed(draw(st.integers(0, 99)))
    field = slow.uniform(draw(st.integers(0, 99)), 2, channels[0], 2, *sides)
    return lambda algorithm: ScaleConv(*channels, basis, algorithm=algorithm, dtype=torch.float64, **options), field


@settings(max_examples=12)
@given(drawn=layers(), sizes=tiles())
def test_equals_dense_with_every_option(drawn: tuple[Any, torch.Tensor], sizes: dict[str, Any]) -> None:
    make, field = drawn
    dense, fused = make("dense"), make("fused")
    fused.load_state_dict(dense.state_dict())
    with tiled({**sizes, "OUTPUTS": 16}), torch.no_grad():
        assert_near(fused(field), dense(field), 1e-11)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("project", [False, True])
def test_the_epilogue_is_relu_and_the_maximum_over_scales(relu: bool, project: bool) -> None:
    layer = ScaleLift(2, 3, basis_a(ScaleGrid([0.9, 1.3, 2.0]), 9, 2), algorithm="dense", dtype=torch.float64)
    torch.nn.init.uniform_(layer.bias, -1, 1)
    geometry, tables = geometry_of(layer, (9, 18)), layer._tables()
    image = slow.uniform(1, 2, 2, 9, 18).requires_grad_()
    inputs = image, layer.weight, layer.bias
    expected = layer(image).relu() if relu else layer(image)
    expected = expected.amax(2) if project else expected
    fused = fused_convolution(
        image.unsqueeze(2), layer.weight.unsqueeze(2), layer.bias, tables, geometry, relu=relu, project=project
    )
    slope = slow.uniform(2, *expected.shape)
    found = [fused, *torch.autograd.grad(fused, inputs, slope)]
    assert_all_near(found, [expected, *torch.autograd.grad(expected, inputs, slope)])


@pytest.mark.parametrize("mode", ["zeros", "circular"])
@pytest.mark.parametrize("kind", ["lift", "conv"])
def test_second_derivatives(kind: str, mode: str) -> None:
    function, inputs = gradient_case(kind, mode, "fused", (4, 3))
    exact, _ = gradient_case(kind, mode, "dense", (4, 3))
    found, expected = (second_order(each, inputs) for each in (function, exact))
    assert_all_near(found, expected)


def second_order(function: Any, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    first = torch.autograd.grad(function(*inputs).pow(3).sum(), inputs, create_graph=True)
    return list(torch.autograd.grad(sum(each.square().sum() for each in first), inputs))


def test_torch_finds_nothing_wrong_with_the_operators() -> None:
    layer = ScaleLift(2, 3, basis_a(ScaleGrid([0.9, 1.3]), 5, 2), algorithm="dense", dtype=torch.float64)
    geometry, tables = geometry_of(layer, (6, 5)), layer._tables()
    field = slow.uniform(1, 1, 2, 1, 6, 5).requires_grad_()
    weight = tables.packed(layer.weight.detach().unsqueeze(2)).requires_grad_()
    rest = tables.down, tables.across, geometry.encoded()
    grad = slow.uniform(2, 1, 3, 2, 6, 5).requires_grad_()
    for relu, project in ((False, False), (True, True)):
        torch.library.opcheck(operators.fused, (field, weight, layer.bias, *rest, relu, project))
    torch.library.opcheck(operators.field_gradient, (grad, weight, *rest))
    torch.library.opcheck(operators.weight_gradient, (field, grad, *rest))


def test_compiles_and_exports() -> None:
    layer = ScaleConv(2, 3, basis_a(ScaleGrid([0.9, 1.3]), 5, 2), interscale=2, stride=2, algorithm="fused")
    field = torch.randn(2, 2, 2, 7, 6, requires_grad=True)
    expected = layer(field)
    (slope,) = torch.autograd.grad(expected.square().sum(), field)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")(field)
    torch.testing.assert_close(compiled, expected)
    torch.testing.assert_close(torch.autograd.grad(compiled.square().sum(), field)[0], slope)
    exported = torch.export.export(layer, (field.detach(),))
    torch.testing.assert_close(exported.module()(field.detach()), expected)


def test_takes_any_strides_and_an_empty_batch() -> None:
    layer = ScaleConv(2, 3, basis_a(ScaleGrid([0.9, 1.3]), 5, 2), algorithm="fused", dtype=torch.float64)
    turned = slow.uniform(1, 2, 7, 6, 2, 2).permute(0, 4, 3, 2, 1)
    torch.testing.assert_close(layer(turned), layer(turned.contiguous()))
    layer(turned).sum().backward()  # whose gradient has strides of zero
    empty = torch.zeros(0, 2, 2, 7, 6, dtype=torch.float64, requires_grad=True)
    out = layer(empty)
    out.sum().backward()
    assert out.shape == (0, 3, 2, 7, 6)


def test_autocast_decides_the_dtype() -> None:
    layer = ScaleConv(2, 3, basis_a(ScaleGrid([0.9, 1.3]), 5, 2), algorithm="fused")
    field = torch.randn(2, 2, 2, 9, 8)
    with torch.autocast("cpu", torch.float16):
        out = layer(field)
    assert out.dtype == torch.float16
    assert_near(out, layer(field).detach().double(), 5e-3)
    out.sum().backward()
    assert layer.weight.grad.dtype == torch.float32


def test_bfloat16_which_the_interpreter_gets_wrong_is_refused() -> None:
    layer = ScaleConv(2, 3, basis_a(ScaleGrid([0.9, 1.3]), 5, 2), algorithm="fused")
    field = torch.randn(2, 2, 2, 9, 8)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(UsageError, match=r"interpreter .* bfloat16 wrong"):
        layer(field)
    with pytest.raises(UsageError, match=r"interpreter .* bfloat16 wrong"):
        layer.bfloat16()(field.bfloat16())


def test_no_number_of_an_index_overflows(interpreter: pytest.MonkeyPatch) -> None:
    from triton.runtime import interpreter as module

    layer = ScaleLift(1, 1, basis_a(ScaleGrid([1.0]), 5, 2), algorithm="fused", dtype=torch.float64)
    image = slow.uniform(1, 1, 1, 5, 5).requires_grad_()
    with interpreter.context() as patch:
        patch.setattr(module.interpreter_builder, "options", module.InterpreterOptions(sanitize_overflow=True))
        layer(image).sum().backward()


# The self-check


def test_the_self_check_passes() -> None:
    assert trust.fault(torch.device("cpu")) is None


def test_the_self_check_finds_a_kernel_that_looks_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    right = launch.line_of
    monkeypatch.setattr(launch, "line_of", lambda *args: (line := right(*args))._replace(first=line.first + 1))
    assert "the output differs by" in trust.fault(torch.device("cpu"))


@pytest.mark.parametrize("name", ["field", "weight"])
def test_the_self_check_finds_a_wrong_gradient(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(operators, f"{name}_gradient")
    monkeypatch.setattr(operators, f"{name}_gradient", lambda *args: right(*args) * 1.01)
    assert f"the gradient of the {name} differs by" in trust.fault(torch.device("cpu"))
