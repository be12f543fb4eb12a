"""A network is exported to a program of ordinary convolutions that runs without sesn, and in ONNX."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import slow
import torch
from hypothesis import given
from hypothesis import strategies as st
from measures import EXPORTS
from plain_networks import UNet, seeded, settled
from slow import Case, cases
from test_compiling import LAYERS
from torch import Tensor, nn

import sesn
from sesn.conversion.plain import PlainConv, plain_layer

pytestmark = EXPORTS
SLOW = pytest.mark.slow
BASIS = sesn.basis_a(sesn.ScaleGrid([0.9, 1.3]), 5, 2)


class Residual(nn.Module):
    """A block of one's own."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.conv = sesn.ScaleConv(3, 3, BASIS, interscale=2, **options)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(x)], dim=1)


def network(every_layer: bool) -> nn.Module:
    """A small network, or one with layers that take torch long to export with open sides, too."""
    layers = [sesn.ScaleBatchNorm(3), nn.ReLU(), sesn.SpatialMaxPool(2), Residual(), sesn.ScaleConv1x1(6, 4)]
    if every_layer:
        layers = [sesn.ScaleLift(1, 3, BASIS, stride=2), *layers, sesn.BandlimitedReLU()]
        layers[4] = Residual(padding_mode="circular")
        layers += [sesn.ScaleConv(4, 2, BASIS, padding="valid"), sesn.SpatialAvgPool(3, 1, 1)]
        layers += [sesn.EachScale(nn.Upsample(scale_factor=2, mode="bilinear")), sesn.ScaleProjection(reduce="soft")]
    else:
        layers = [sesn.ScaleLift(1, 3, BASIS), *layers, sesn.ScaleConvTranspose(4, 2, BASIS, stride=2)]
        layers += [sesn.ScaleProjection()]
    return settled(nn.Sequential(*layers), 1, 28, 28)


EVERY = pytest.mark.parametrize("every_layer", [False, pytest.param(True, marks=SLOW)], ids=["small", "every layer"])


def same(program: torch.export.ExportedProgram, model: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(program.module()(x), model(x), rtol=1e-6, atol=1e-6)


@given(cases())
def test_plain_convolutions_are_the_layer(case: Case) -> None:
    layer = case.layer("dense")
    if case.circular and case.pixels_of_padding() >= min(case.field.shape[-2:]):
        return  # an ordinary convolution wraps around once
    with torch.no_grad():
        torch.testing.assert_close(PlainConv(layer)(case.field), layer(case.field), rtol=1e-9, atol=1e-9)


@given(st.sampled_from([1, 2, 3, (2, 1), (1, 5)]), st.booleans(), st.integers(1, 6), st.integers(1, 6))
def test_plain_transposed_convolutions_are_the_layer(stride: Any, bias: bool, h: int, w: int) -> None:
    layer = seeded(0, lambda: sesn.ScaleConvTranspose(2, 3, BASIS, stride=stride, bias=bias, dtype=torch.float64))
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    field = slow.uniform(1, 2, 2, 2, h, w)
    with torch.no_grad():
        torch.testing.assert_close(plain_layer(layer)(field), layer(field), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in LAYERS if name in sesn.__all__])
def test_every_layer_is_exported(name: str) -> None:
    make, shape = LAYERS[name]
    layer, x = make().eval(), slow.uniform(0, *shape).float()
    same(sesn.export_plain(layer, x), layer, x)


@EVERY
def test_a_program_takes_any_batch_and_any_sides(every_layer: bool) -> None:
    model = network(every_layer)
    program = sesn.export_plain(model, slow.uniform(0, 1, 1, 28, 28))
    for batch, height, width in ((1, 28, 28), (5, 28, 28), (2, 40, 33), (3, 31, 64)):
        same(program, model, slow.uniform(batch, batch, 1, height, width))
    assert isinstance(model[0], sesn.ScaleLift)


def test_kernels_are_composed_before_the_program_runs() -> None:
    program = sesn.export_plain(network(False), slow.uniform(0, 2, 1, 28, 28))
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert len([name for name in called if "conv2d" in name]) == 4
    assert not [name for name in called if "matmul" in name or "einsum" in name]


@pytest.mark.parametrize(
    ("key", "task", "options", "shape"),
    [
        ("sesn-vector", "mnist", {"channels": (4, 5, 6)}, (1, 28, 28)),
        ("sesn-b", "stl10", {"depth": 10, "width": 1, "resolution": 32}, (3, 32, 32)),
        pytest.param("sesn-scalar", "mnist", {"channels": (4, 5, 6), "resolution": 56}, (1, 28, 28), marks=SLOW),
        pytest.param("sesn-c", "stl10", {"depth": 10, "width": 1, "resolution": 32}, (3, 32, 32), marks=SLOW),
    ],
)
def test_the_networks_of_the_paper_are_exported(key: str, task: Any, options: Any, shape: tuple[int, ...]) -> None:
    model = seeded(0, lambda: sesn.build(key, task, **options)).eval()
    program = sesn.export_plain(model, slow.uniform(0, 2, *shape).float())
    same(program, model, slow.uniform(1, 3, *shape).float())


@SLOW
def test_a_converted_network_is_exported() -> None:
    model = sesn.convert(settled(seeded(0, lambda: UNet(2)), 1, 32, 32)).network
    same(sesn.export_plain(model, slow.uniform(0, 2, 1, 32, 32)), model, slow.uniform(1, 1, 1, 48, 40))


ALONE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("sesn", "harness"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
import torch

program = torch.export.load(sys.argv[1])
image, wanted = torch.load(sys.argv[2])
torch.testing.assert_close(program.module()(image), wanted, rtol=1e-6, atol=1e-6)
assert not any(name.split(".")[0] == "sesn" for name in sys.modules)
"""


@EVERY
def test_a_saved_program_runs_where_there_is_no_sesn(every_layer: bool, tmp_path: Path) -> None:
    model, image = network(every_layer), slow.uniform(1, 3, 1, 36, 30)
    torch.export.save(sesn.export_plain(model, slow.uniform(0, 2, 1, 28, 28)), tmp_path / "network.pt2")
    with torch.no_grad():
        torch.save((image, model(image)), tmp_path / "tensors.pt")
    done = subprocess.run(
        [sys.executable, "-c", ALONE, tmp_path / "network.pt2", tmp_path / "tensors.pt"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@EVERY
def test_a_program_goes_to_onnx_with_open_batch_and_sides(every_layer: bool, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = network(every_layer).float()
    program = sesn.export_plain(model, slow.uniform(0, 2, 1, 28, 28).float())
    torch.onnx.export(program, (), tmp_path / "network.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "network.onnx", providers=["CPUExecutionProvider"])
    (given_,) = session.get_inputs()
    assert [isinstance(extent, str) for extent in given_.shape] == [True, False, True, True]
    for shape in ((1, 28, 28), (4, 33, 40)):
        image = slow.uniform(1, shape[0], 1, *shape[1:]).float()
        (found,) = session.run(None, {given_.name: image.numpy()})
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(found), model(image), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", [sesn.ScaleDownsample(), sesn.ScaleDownsample(3, "bilinear")], ids=repr)
def test_a_low_pass_sees_the_same_pixels_in_onnx_where_a_side_is_no_multiple_of_its_factor(
    layer: nn.Module, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    program = sesn.export_plain(layer, torch.randn(2, 1, 2, 12, 12))
    torch.onnx.export(program, (), tmp_path / "layer.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "layer.onnx", providers=["CPUExecutionProvider"])
    for height, width in ((12, 12), (13, 11), (8, 19), (31, 22)):
        field = slow.uniform(height, 3, 1, 2, height, width).float()
        (found,) = session.run(None, {session.get_inputs()[0].name: field.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), layer(field), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, torch.zeros(1, 1, 8, 8)), r"`model` \(=3\) must be a torch module"),
        ((nn.ReLU(), torch.zeros(8, 8)), r"`example.shape` \(=\(8, 8\)\) must be 4-dimensional"),
        ((nn.Conv2d(1, 1, 3), None), "`example` must be a torch tensor"),
        ((nn.Conv2d(2, 1, 3), torch.zeros(1, 1, 8, 8)), r"exporting `model` with `example` \[1, 1, 8, 8\] failed"),
    ],
)
def test_bad_arguments_are_named(arguments: Any, message: str) -> None:
    with pytest.raises(sesn.UsageError, match=message):
        sesn.export_plain(*arguments)
