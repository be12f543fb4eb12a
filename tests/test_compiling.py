"""Every public layer compiles with its default arguments, in train and eval mode, and is exported."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slow
import torch
from measures import EXPORTS
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

import sesn
from sesn.algorithms import ALGORITHMS
from sesn.layers.nonlinearity import _bessel
from sesn.methods import _vectors, dss, harmonic, sevf, si_convnet, sicnn, ss_cnn
from sesn.methods.si_convnet import pixels_seen, warp

FILES = (_vectors, dss, harmonic, sevf, si_convnet, sicnn, ss_cnn)
#: They stand between layers of two kinds, in one network or measurement, or choose what is measured.
ADAPTERS = {"FirstScales", "OutputOf", "ScalesToVectors", "VectorsToScales"}

GRID = sesn.ScaleGrid([0.9, 1.3])
A = sesn.basis_a(GRID, 5, 2)
ANY = sesn.SteerableBasis.from_function(lambda x, y: torch.exp(-(x**2) - y**2 + x * y), GRID, 5)
SEVF = sevf.sevf_scales(3), sevf.sevf_angles(3)
IMAGE, FIELD = (2, 2, 9, 8), (2, 2, 2, 9, 8)
#: Every layer by its class's name: how it is made, with no more arguments than it asks for, and what it takes.
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "ScaleLift": (lambda: sesn.ScaleLift(2, 3, A), IMAGE),
    "ScaleConv": (lambda: sesn.ScaleConv(2, 3, A), FIELD),
    "ScaleConvTranspose": (lambda: sesn.ScaleConvTranspose(2, 3, A, stride=2), FIELD),
    "ScaleConv1x1": (lambda: sesn.ScaleConv1x1(2, 3), FIELD),
    "ScaleProjection": (sesn.ScaleProjection, FIELD),
    "PartneredProjection": (lambda: sesn.PartneredProjection(GRID, side=8, reduce="soft"), FIELD),
    "ScaleBatchNorm": (lambda: sesn.ScaleBatchNorm(2), FIELD),
    "SpatialMaxPool": (lambda: sesn.SpatialMaxPool(2), FIELD),
    "SpatialAvgPool": (lambda: sesn.SpatialAvgPool(2), FIELD),
    "GlobalPool": (sesn.GlobalPool, IMAGE),
    "ScaleGroupNorm": (lambda: sesn.ScaleGroupNorm(1, 2), FIELD),
    "ScaleLayerNorm": (lambda: sesn.ScaleLayerNorm(2), FIELD),
    "ScaleDropout": (lambda: sesn.ScaleDropout(p=0.0), FIELD),
    "ScaleUpsample": (sesn.ScaleUpsample, FIELD),
    "ScaleDownsample": (sesn.ScaleDownsample, FIELD),
    "SpatialAdaptivePool": (lambda: sesn.SpatialAdaptivePool(3), FIELD),
    "EachScale": (lambda: sesn.EachScale(nn.MaxPool2d(2)), FIELD),
    "BandlimitedReLU": (sesn.BandlimitedReLU, FIELD),
    "NestedReLU": (lambda: sesn.NestedReLU([6, 9]), FIELD),
    "DSSLift": (lambda: dss.DSSLift(2), IMAGE),
    "DSSConv": (lambda: dss.DSSConv(2, 3, 3, 2), FIELD),
    "HarmonicConv": (lambda: harmonic.HarmonicConv(2, 3), IMAGE),
    "SEVFLift": (lambda: sevf.SEVFLift(2, 3, 3, *SEVF), IMAGE),
    "SEVFConv": (lambda: sevf.SEVFConv(2, 3, 3, *SEVF), FIELD),
    "VectorBatchNorm": (lambda: _vectors.VectorBatchNorm(2), FIELD),
    "VectorMagnitude": (_vectors.VectorMagnitude, FIELD),
    "VectorMaxPool": (lambda: _vectors.VectorMaxPool(2), FIELD),
    "SIConv": (lambda: si_convnet.SIConv(2, 3, 3, (0.5, 1, 2)), IMAGE),
    "SiCNNLift": (lambda: sicnn.SiCNNLift(2, 3, 3, (0.67, 1.5)), IMAGE),
    "SiCNNConv": (lambda: sicnn.SiCNNConv(2, 3, 3, (0.67, 1.5)), FIELD),
    "SSConv": (lambda: ss_cnn.SSConv(2, 3, (5, 7), 5, (0.5, 1)), IMAGE),
}


@pytest.fixture(autouse=True)
def compiled_anew() -> Iterator[None]:
    """Nothing that another test compiled counts."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def agree(layer: nn.Module, shape: tuple[int, ...], backend: str = "aot_eager") -> None:
    """The compiled layer gives the layer's outputs and gradients."""
    twin = copy.deepcopy(layer)
    compiled = torch.compile(twin, backend=backend, fullgraph=True)
    x = slow.uniform(1, *shape).float()
    found = []
    for run, module in ((layer, layer), (compiled, twin)):
        leaf = x.clone().requires_grad_()
        out = run(leaf)
        out.square().sum().backward()
        found.append([out, leaf.grad, *(p.grad for p in module.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


def test_every_public_layer_is_here() -> None:
    found = {name: getattr(sesn, name) for name in sesn.__all__}
    for module in FILES:
        found |= {
            name: value for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
        }
    layers = {name for name, value in found.items() if isinstance(value, type) and issubclass(value, nn.Module)}
    public = {name for name in layers if not name.startswith("_")}
    assert public - ADAPTERS == LAYERS.keys()


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_compiles_whole_with_its_defaults(name: str, training: bool) -> None:
    make, shape = LAYERS[name]
    agree(make().train(training), shape)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", ["lift", "conv", "any function"])
def test_every_algorithm_compiles_whole(kind: str, algorithm: Any, training: bool) -> None:
    if (kind, algorithm) == ("any function", "separable"):
        pytest.skip("such a basis has no one-dimensional functions")
    basis = ANY if kind == "any function" else A
    make = sesn.ScaleConv if kind == "conv" else sesn.ScaleLift
    agree(make(2, 3, basis, algorithm=algorithm).train(training), FIELD if kind == "conv" else IMAGE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")  # inductor's
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_inductor_compiles_a_network(algorithm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # In the common cache, a compiler that was interrupted may have left half a file.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch.manual_seed(0)
    lift, conv = (
        sesn.ScaleLift(2, 3, A, algorithm=algorithm),
        sesn.ScaleConv(3, 2, A, interscale=2, algorithm=algorithm),
    )
    agree(nn.Sequential(lift, sesn.BandlimitedReLU(), conv, sesn.ScaleProjection()), IMAGE, "inductor")


#: Batches and sides in turn, and how often torch has compiled by then: with its default settings, which leave the batch
#: open from the second on, and with dynamic=True. A batch of one is compiled by itself.
TURNS = {
    (4, 9, 8): (1, 1),
    (5, 9, 8): (2, 1),
    (7, 9, 8): (2, 1),
    (4, 10, 11): (3, 2),
    (6, 10, 11): (3, 2),
    (1, 10, 11): (4, 3),
}


def compiles_as_it_runs(layer: nn.Module, turns: Iterable[tuple[int, ...]], dynamic: bool | None) -> list[int]:
    """How often torch has compiled after each shape, forward and backward; outputs and gradients are the layer's."""
    counted, times = CompileCounterWithBackend("aot_eager"), []
    compiled = torch.compile(layer, backend=counted, fullgraph=True, dynamic=dynamic)
    for shape in turns:
        x = slow.uniform(1, *shape).float().requires_grad_()
        inputs = [x, *layer.parameters()]
        found, expected = ((out, *torch.autograd.grad(out.square().sum(), inputs)) for out in (compiled(x), layer(x)))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        times.append(counted.frame_count)
    return times


#: The default algorithm is tried both ways by the quick tests.
WAYS = [pytest.param("auto", True), *((each, None) for each in ALGORITHMS)]
WAYS += [pytest.param(each, True, marks=pytest.mark.slow) for each in ALGORITHMS if each != "auto"]


@pytest.mark.parametrize(("algorithm", "dynamic"), WAYS)
def test_only_other_sides_are_compiled_anew(algorithm: Any, dynamic: bool | None) -> None:
    shapes = [(batch, 2, *sides) for batch, *sides in TURNS]
    times = compiles_as_it_runs(sesn.ScaleLift(2, 3, A, algorithm=algorithm), shapes, dynamic)
    assert times == [counts[bool(dynamic)] for counts in TURNS.values()]


def test_torch_compiles_a_dense_convolution_anew_for_large_batches() -> None:
    """As docs/compiling-and-saving.md says."""
    layer, shapes = sesn.ScaleLift(2, 3, A, algorithm="dense"), [(batch, 2, 9, 8) for batch in (4, 15, 16, 20)]
    assert compiles_as_it_runs(layer, shapes, True) == [1, 1, 2, 2]


def test_torch_takes_a_batch_for_the_side_that_it_equals() -> None:
    """As docs/compiling-and-saving.md says."""
    layer, shapes = sesn.ScaleLift(2, 3, A), [(batch, 2, 9, 8) for batch in (8, 5, 7)]
    assert compiles_as_it_runs(layer, shapes, True) == [1, 2, 2]


#: Those of the library that once failed with open batches or sides are tried by the quick tests.
ONCE_BROKEN = {"ScaleDownsample", "PartneredProjection"}


@pytest.mark.parametrize("dynamic", [None, True], ids=["default", "dynamic"])
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in ONCE_BROKEN else pytest.mark.slow) for n in LAYERS])
def test_every_layer_compiles_for_other_batches_and_sides(name: str, dynamic: bool | None) -> None:
    make, (_, *channels, h, w) = LAYERS[name]
    torch.manual_seed(0)
    compiles_as_it_runs(make(), [(3, *channels, h, w), (5, *channels, h, w), (4, *channels, h + 1, w + 1)], dynamic)


def test_beyond_a_limit_torch_compiles_no_further_sides() -> None:
    """As docs/compiling-and-saving.md says; it names the limit that torch has."""
    config = torch._dynamo.config
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # its name in torch 2.6
    assert getattr(config, limit) == 8
    compiled = torch.compile(sesn.ScaleLift(2, 3, A), backend="eager", fullgraph=True)
    with config.patch(**{limit: 1}):
        compiled(torch.zeros(3, 2, 8, 8))
        with pytest.raises(Exception, match=f"{limit}|fullgraph=True"):
            compiled(torch.zeros(3, 2, 9, 8))


@EXPORTS
def test_an_export_with_open_sides_says_that_they_are_fixed() -> None:
    """As the README says."""
    layer, x = sesn.ScaleLift(2, 3, A).eval(), slow.uniform(1, *IMAGE).float()
    sides = {2: torch.export.Dim("h", min=4, max=64)}
    with pytest.raises(Exception, match=r"marked h as dynamic but your code specialized it to be a constant \(9\)"):
        torch.export.export(layer, (x,), dynamic_shapes=(sides,))


RECTIFIERS = [sesn.BandlimitedReLU("zeros"), sesn.BandlimitedReLU("circular"), sesn.NestedReLU([6, 9])]


@pytest.mark.parametrize("layer", RECTIFIERS, ids=str)
def test_a_low_pass_relu_runs_in_onnxruntime(layer: nn.Module, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    layer, x = layer.eval(), slow.uniform(1, *FIELD).float()
    torch.onnx.export(layer, (x,), tmp_path / "layer.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "layer.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), layer(x), rtol=1e-4, atol=1e-5)


def test_the_bessel_function_is_numpys() -> None:
    x = torch.linspace(0, 7, 1001, dtype=torch.float64)
    torch.testing.assert_close(_bessel(x), torch.from_numpy(np.i0(x.numpy())), rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_gradients_are_computed_for_many_directions_at_once(algorithm: Any) -> None:
    layer = sesn.ScaleConv(2, 3, A, interscale=2, algorithm=algorithm, dtype=torch.float64)
    x = slow.uniform(1, *FIELD).requires_grad_()
    out = layer(x)
    inputs, directions = [x, *layer.parameters()], slow.uniform(2, 4, *out.shape)
    found = torch.autograd.grad(out, inputs, directions, is_grads_batched=True, retain_graph=True)
    single: list[tuple[Tensor, ...]] = [torch.autograd.grad(out, inputs, d, retain_graph=True) for d in directions]
    for ours, theirs in zip(found, zip(*single, strict=True), strict=True):
        torch.testing.assert_close(ours, torch.stack(theirs), rtol=1e-10, atol=1e-10)
        assert not ours.requires_grad


@pytest.mark.parametrize("scale", [0.3, 0.5, 0.71, 0.9, 1.2, 1.41, 2.0, 3.3])
def test_the_pixels_that_a_warp_reads_are_those_of_its_matrix(scale: float) -> None:
    for size in range(1, 41):
        if int(size * scale) >= 1:
            used = warp(size, scale).abs().sum(dim=0).nonzero()[:, 0].tolist()
            assert pixels_seen(size, scale) == (used[0], used[-1]), size


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("sides", [(1, 1), (1, 9), (9, 1)])
def test_a_window_that_sees_zeros_alone_gives_the_bias(algorithm: Any, sides: tuple[int, int]) -> None:
    basis = sesn.basis_a(sesn.ScaleGrid([0.3]), 1, 1)
    layer = sesn.ScaleLift(1, 1, basis, padding=2, stride=5, algorithm=algorithm)
    nn.init.constant_(layer.get_parameter("bias"), 3.0)
    out = layer(torch.ones(1, 1, *sides))
    assert out.shape == (1, 1, 1, *[(side + 3) // 5 + 1 for side in sides])
    torch.testing.assert_close(out, torch.full_like(out, 3.0))
