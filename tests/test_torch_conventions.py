"""The layers behave as torch's own: state, copies, dtypes, layouts, inference, transforms, compiling and exporting."""

from __future__ import annotations

import copy
import io
import math
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import slow
import torch
from hypothesis import given
from measures import EXPORTS
from torch import Tensor, nn
from torch.autograd import forward_ad

from sesn import (
    BandlimitedReLU,
    GlobalPool,
    ScaleBatchNorm,
    ScaleConv,
    ScaleConv1x1,
    ScaleGrid,
    ScaleLift,
    ScaleProjection,
    SpatialMaxPool,
    SteerableBasis,
    basis_a,
    basis_b,
)

ALGORITHMS = ["dense", "separable", "spectral"]
GRID = ScaleGrid([0.9, 1.3, 1.8])
A, B = basis_a(GRID, 7, 2), basis_b(GRID, 7, 3)
ANY = SteerableBasis.from_function(lambda x, y: torch.exp(-(x**2) - y**2 + x * y), GRID, 7)
LAYERS: dict[str, Any] = {
    "lift": lambda **options: ScaleLift(2, 3, A, **options),
    "conv": lambda **options: ScaleConv(2, 3, B, interscale=2, **options),
    "any function": lambda **options: ScaleConv(2, 3, ANY, **options),
    "1x1": lambda **options: ScaleConv1x1(2, 3, **options),
}


@pytest.fixture(params=LAYERS)
def make(request: pytest.FixtureRequest) -> Any:
    """Makes one of the layers with parameters, each 2 -> 3 channels on three scales."""
    return LAYERS[request.param]


def input_for(layer: nn.Module, side: int = 9, dtype: torch.dtype = torch.float32) -> Tensor:
    shape = (2, 2, side, side + 1) if isinstance(layer, ScaleLift) else (2, 2, 3, side, side + 1)
    return slow.uniform(1, *shape).to(dtype)


def network(algorithm: Any, channels: int = 3) -> nn.Sequential:
    """Every kind of layer once: an image [b, 1, h, w] to [b, channels]."""
    torch.manual_seed(0)
    return nn.Sequential(
        ScaleLift(1, channels, A, algorithm=algorithm),
        ScaleBatchNorm(channels),
        nn.ReLU(),
        ScaleConv(channels, channels, A, interscale=2, algorithm=algorithm),
        SpatialMaxPool(2),
        ScaleProjection(),
        GlobalPool("mean"),
    )


# State


def test_the_state_is_the_weight_and_the_bias(make: Any) -> None:
    assert list(make().state_dict()) == ["weight", "bias"]
    assert list(make(bias=False).state_dict()) == ["weight"]


def test_the_state_moves_between_layers(make: Any) -> None:
    one, other = make(), make()
    x = input_for(one)
    assert not torch.equal(one(x), other(x))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(x), other(x))


def test_the_state_moves_between_algorithms() -> None:
    dense, separable = (ScaleConv(2, 3, B, algorithm=algorithm).double() for algorithm in ("dense", "separable"))
    separable.load_state_dict(dense.state_dict())
    x = input_for(dense, dtype=torch.float64)
    torch.testing.assert_close(separable(x), dense(x), rtol=1e-11, atol=1e-12)


def saved(layer: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)  # type: ignore[no-any-return]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, saved], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("name", ["lift", "conv", "1x1"])
def test_copies_compute_the_same_and_stand_alone(name: str, duplicate: Any) -> None:
    layer = LAYERS[name]().eval()
    x = input_for(layer)
    with torch.no_grad():
        expected = layer(x)
        double = duplicate(layer)
        layer.weight.zero_()
        assert torch.equal(double(x), expected)
    assert list(double.state_dict()) == ["weight", "bias"]


def test_a_basis_may_be_shared_by_many_layers_and_copied_with_them() -> None:
    net = copy.deepcopy(network("auto"))
    assert net[0].basis is net[3].basis is not A


def test_repr_says_in_to_out(make: Any) -> None:
    assert "2 -> 3" in repr(make())


def test_repr_says_what_is_not_default() -> None:
    layer = ScaleConv(
        2, 3, A, interscale=2, stride=3, padding="valid", padding_mode="circular", bias=False, algorithm="dense"
    )
    for word in ("stride=3", "padding=0", "'circular'", "bias=False", "'dense'", "interscale=2", "4 functions"):
        assert word in repr(layer)


# Initialisation


@pytest.mark.parametrize(("name", "fan_in"), [("lift", 2 * 4), ("conv", 2 * 2 * 9), ("any function", 2), ("1x1", 2)])
def test_weights_start_uniform_within_the_fan_in_and_biases_at_zero(name: str, fan_in: int) -> None:
    layer, bound = LAYERS[name](), 1 / math.sqrt(fan_in)
    torch.manual_seed(0)
    drawn = []
    for _ in range(200):
        nn.init.constant_(layer.bias, 7.0)
        layer.reset_parameters()
        drawn.append(layer.weight.detach().flatten().clone())
        assert not layer.bias.any()
    values = torch.cat(drawn)
    assert float(values.abs().max()) <= bound
    assert float(values.abs().max()) > 0.98 * bound
    assert float(values.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)


# Dtypes and devices


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_factory_arguments_reach_the_parameters_and_the_output(make: Any, dtype: torch.dtype, device: Any) -> None:
    if device.type == "mps" and dtype == torch.float64:
        pytest.skip("float64 does not exist on mps")
    layer = make(device=device, dtype=dtype)
    out = layer(input_for(layer).to(device, dtype))
    assert {(t.dtype, t.device.type) for t in (*layer.parameters(), *layer.buffers(), out)} == {(dtype, device.type)}


def test_double_takes_the_basis_in_full_precision(make: Any) -> None:
    layer, exact = make().double(), make(dtype=torch.float64)
    exact.load_state_dict(layer.state_dict())
    x = input_for(layer, dtype=torch.float64)
    assert torch.equal(layer(x), exact(x))


def test_a_layer_may_be_made_under_a_default_device(make: Any) -> None:
    with torch.device("meta"):
        layer = make()
    layer.to_empty(device="cpu").reset_parameters()
    other = make()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(input_for(layer)), other(input_for(layer)))


def test_a_basis_ignores_the_default_device() -> None:
    with torch.device("meta"):
        made = basis_a(GRID, 7, 2)
        any_function = SteerableBasis.from_function(lambda x, y: torch.exp(-(x**2) - y**2 + x * y), GRID, 7)
        functions = made.functions, any_function.functions
    assert torch.equal(functions[0], A.functions)
    assert torch.equal(functions[1], ANY.functions)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(case=slow.cases(), order=st.permutations(range(5)))
def test_memory_layout_does_not_matter(algorithm: str, case: slow.Case, order: list[int]) -> None:
    layer = case.layer(algorithm)
    axes = [axis for axis in order if axis < case.field.dim()]
    scattered = case.field.permute(axes).contiguous().permute([axes.index(axis) for axis in range(len(axes))])
    wide = torch.stack([case.field, -case.field], dim=-1)[..., 0]
    last = torch.channels_last if case.field.dim() == 4 else torch.channels_last_3d
    for same in (scattered, wide, case.field.to(memory_format=last)):
        leaf = same.detach().requires_grad_()
        out = layer(leaf)
        torch.testing.assert_close(out, layer(case.field), rtol=1e-11, atol=1e-11)
        out.sum().backward()


# Inference mode and torch.func


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_training_works_after_inference_mode(algorithm: Any) -> None:
    basis = basis_a(GRID, 7, 2)
    net = nn.Sequential(ScaleLift(1, 2, basis, algorithm=algorithm), BandlimitedReLU(), BandlimitedReLU("circular"))
    net.append(ScaleConv(2, 2, basis, interscale=2, algorithm=algorithm))
    image = slow.uniform(1, 1, 1, 9, 9).float()
    with torch.inference_mode():
        net.eval()(image)
    net.train()(image).square().sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_functions_first_asked_for_in_inference_mode_can_be_trained_with() -> None:
    basis = basis_a(GRID, 7, 2)
    with torch.inference_mode():
        assert basis.functions.shape == (4, 3, 7, 7)
    weight = torch.ones(len(basis), dtype=torch.float64, requires_grad=True)
    torch.einsum("n,nsvu->svu", weight, basis.functions).sum().backward()


@pytest.mark.parametrize("kind", ["A", "any function"])
def test_a_basis_made_in_inference_mode_can_be_trained_with(kind: str) -> None:
    with torch.inference_mode():
        made = basis_a(GRID, 7, 2) if kind == "A" else SteerableBasis.from_function(torch.hypot, GRID, 7)
    layer = ScaleLift(2, 3, made, dtype=torch.float64)
    layer(input_for(layer, dtype=torch.float64)).sum().backward()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_torch_func_differentiates_a_layer(algorithm: Any) -> None:
    layer = ScaleConv(2, 3, A, interscale=2, algorithm=algorithm)
    parameters, x = dict(layer.named_parameters()), input_for(layer)
    found = torch.func.grad(lambda p: torch.func.functional_call(layer, p, (x,)).square().sum())(parameters)
    layer(x).square().sum().backward()
    torch.testing.assert_close(found["weight"], layer.weight.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_torch_func_runs_an_ensemble(algorithm: Any, gradient: bool) -> None:
    layers = [ScaleConv(2, 3, A, interscale=2, algorithm=algorithm).eval() for _ in range(2)]
    parameters, buffers = torch.func.stack_module_state(layers)
    x = input_for(layers[0])
    with torch.set_grad_enabled(gradient):
        out = torch.func.vmap(lambda p, b: torch.func.functional_call(layers[0], (p, b), (x,)))(parameters, buffers)
        torch.testing.assert_close(out, torch.stack([layer(x) for layer in layers]), rtol=1e-5, atol=1e-6)


# Compiling and exporting


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_compiling_the_whole_graph_changes_nothing(algorithm: Any) -> None:
    torch._dynamo.reset()  # torch 2.6 counts what all tests of a process have compiled, and has a limit
    net, image = network(algorithm), slow.uniform(1, 2, 1, 10, 9).float()
    compiled = torch.compile(copy.deepcopy(net), backend="aot_eager", fullgraph=True)
    for run in (net, compiled):
        run(image).square().sum().backward()
    torch.testing.assert_close(compiled(image), net(image))
    for ours, theirs in zip(net.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(theirs.grad, ours.grad, rtol=1e-4, atol=1e-5)


@EXPORTS
@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "auto"])
def test_an_exported_program_takes_any_batch(algorithm: Any) -> None:
    net, image = network(algorithm).eval(), slow.uniform(1, 5, 1, 10, 9).float()
    with torch.no_grad():
        net(image)
        program = torch.export.export(net, (image[:2],), dynamic_shapes=({0: torch.export.Dim("batch")},))
        torch.testing.assert_close(program.module()(image), net(image))


@EXPORTS
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_onnxruntime_computes_the_same(algorithm: Any, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    net, image = network(algorithm).eval(), slow.uniform(1, 2, 1, 10, 9).float()
    path = tmp_path / "network.onnx"
    torch.onnx.export(net, (image,), path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: image.numpy()})
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(found), net(image), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own, on first use
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_forward_mode_differentiates_a_layer(algorithm: Any) -> None:
    layer = ScaleConv(2, 3, A, interscale=2, algorithm=algorithm, bias=False)
    x = input_for(layer)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, x))).tangent
    torch.testing.assert_close(found, layer(x), rtol=1e-4, atol=1e-5)  # the layer is linear
