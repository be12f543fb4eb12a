"""A convolution with padding never writes where it must not, and has one home. See docs/training.md."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
import slow
import torch
import torch.nn.functional as F
from hypothesis import given

from sesn.algorithms import padded_convolution

ROOT = Path(__file__).resolve().parents[1]
HOME = Path("sesn/algorithms/dense.py")
#: nn.Conv2d pads by itself; kernels up to this side outgrow only maps so small that nothing was seen to happen.
SMALL = 9

#: Thirty steps, every tenth compared with float64, on maps and layers that used to end the process: a child for each.
STEPS = """
import copy, os, torch
from sesn import ScaleConv, ScaleGrid, ScaleLift, SteerableBasis, basis_a, basis_b
from sesn.methods.sicnn import SiCNNLift

torch.manual_seed(0)
grid = ScaleGrid([1.5, 2.1, 3.0])
wide = basis_b(ScaleGrid([1.7, 2.45, 3.54, 5.1]), "wide", 5, mult=1.1)
anything = SteerableBasis.from_function(lambda x, y: torch.exp(-(x**2) - y**2 + x * y), grid, "wide")
CASES = {
    "type B": (ScaleLift(3, 4, wide), (2, 3, 17, 4)),
    "any function": (ScaleLift(3, 4, anything), (2, 3, 14, 7)),
    "dense": (ScaleConv(3, 4, basis_a(grid, "wide", 3), algorithm="dense"), (2, 3, 3, 14, 7)),
    "strided": (SiCNNLift(16, 16, 39, (1.0,), stride=2), (2, 16, 22, 6)),
    "SiCNN": (SiCNNLift(3, 4, 15, (1.0, 2.0)), (2, 3, 14, 7)),
}

def train(layer, shape):
    exact = copy.deepcopy(layer).double()
    for step in range(30):
        torch.manual_seed(step)
        x = torch.randn(shape, requires_grad=True)
        y = x.detach().double().requires_grad_()
        layer.zero_grad()
        layer(x).square().mean().backward()
        if step % 10:
            continue
        exact.zero_grad()
        exact(y).square().mean().backward()
        wanted = [y.grad, *(p.grad for p in exact.parameters())]
        for found, right in zip([x.grad, *(p.grad for p in layer.parameters())], wanted, strict=True):
            assert float((found - right).norm() / right.norm()) < 1e-4, step

for name, case in CASES.items():
    if (child := os.fork()) == 0:
        train(*case)
        os._exit(0)
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each case needs a process of its own, and this system cannot fork")
def test_training_on_tall_maps_survives_and_has_the_right_gradient() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # a fork has none of its parent's threads
    command = [sys.executable, "-c", STEPS]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=environment)
    assert run.stdout.splitlines() == ["type B 0", "any function 0", "dense 0", "strided 0", "SiCNN 0"], run.stderr


shapes = st.tuples(*[st.integers(1, 6)] * 2, *[st.integers(0, 6)] * 2, st.integers(1, 3), st.integers(1, 3))


@given(shape=shapes, beyond=st.integers(0, 3), groups=st.sampled_from([1, 2]))
def test_it_is_the_convolution_of_a_map_with_zeros_around_it(
    shape: tuple[int, ...], beyond: int, groups: int, device: torch.device
) -> None:
    h, w, down, across, stride, dilation = shape
    x = slow.uniform(1, 2, 2 * groups, h, w).float().to(device).requires_grad_()
    kernel = slow.uniform(2, 2 * groups, 2, 2 * down + 1, 2 * across + 1).float().to(device).requires_grad_()
    rows, columns = dilation * down + beyond, dilation * across + beyond
    zeros = F.pad(x, (columns, columns, rows, rows))
    expected = F.conv2d(zeros, kernel, None, stride, 0, dilation, groups)
    found = padded_convolution(x, kernel, None, stride, (rows, columns), dilation, groups)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    gradients = (torch.autograd.grad(out.square().sum(), (x, kernel)) for out in (found, expected))
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 3), st.sampled_from([1, 2, (1, 1), (3, 3)]))
def test_rows_are_padded_by_hand_exactly_where_the_kernel_is_tall(
    rows: int, radius: int, beyond: int, stride: int | tuple[int, int]
) -> None:
    seen: list[tuple[int, int]] = []

    class Spy(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if func is F.conv2d:
                seen.append((args[0].shape[-2], args[4][0]))
            return func(*args, **(kwargs or {}))

    window = 2 * radius + 1
    with Spy():
        padded_convolution(torch.zeros(1, 1, rows, 2), torch.zeros(1, 1, window, 1), None, stride, (radius + beyond, 0))
    padding, factor = radius + beyond, 1 if stride in (1, (1, 1)) else 2
    assert seen == [(rows + 2 * padding, 0) if window * factor > rows else (rows, padding)]


def padding_calls(source: str) -> list[str]:
    """The calls in a source file that leave padding to a convolution of torch's."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        keyword = next((k.value for k in node.keywords if k.arg == "padding"), None)
        padding = node.args[4] if len(node.args) > 4 else keyword
        if padding is None or ast.unparse(padding) == "0":
            continue
        functional = name in {f"conv{n}d" for n in (1, 2, 3)} | {f"conv_transpose{n}d" for n in (1, 2, 3)}
        side = node.args[2] if name.startswith(("Conv", "LazyConv")) and len(node.args) > 2 else None
        if functional or (side is not None and not (isinstance(side, ast.Constant) and int(str(side.value)) <= SMALL)):
            found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def test_padding_has_one_home() -> None:
    sources = {path.relative_to(ROOT): path.read_text() for path in sorted((ROOT / "sesn").rglob("*.py"))}
    assert padding_calls(sources.pop(HOME))
    assert {str(path): calls for path, source in sources.items() if (calls := padding_calls(source))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "F.conv2d(x, k, padding=3)",
        "F.conv2d(x, k, None, 1, (3, 3))",
        "torch.conv1d(x, k, padding=pad)",
        "F.conv_transpose2d(x, k, padding=1)",
        "nn.Conv2d(1, 2, 15, padding=7)",
        "nn.Conv2d(1, 2, side, 1, side // 2)",
    ],
)
def test_padding_elsewhere_is_seen(line: str) -> None:
    assert padding_calls(line)


@pytest.mark.parametrize("line", ["F.conv2d(x, k)", "F.conv2d(x, k, padding=0)", "nn.Conv2d(1, 2, 3, padding=1)"])
def test_what_is_harmless_is_let_through(line: str) -> None:
    assert not padding_calls(line)
