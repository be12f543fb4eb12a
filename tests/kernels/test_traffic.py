"""The bytes that the fused kernel moves: as the interpreter counts them, and beside those of separate passes."""

from __future__ import annotations

from typing import Any

import pytest
import slow
import torch
from hypothesis import given, settings
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("triton", reason="nox -s kernels installs Triton")

from interpreting import Counted, geometry_of, tiled, tiles

from sesn import ScaleConv, ScaleGrid, basis_a
from sesn.algorithms import separable
from sesn.algorithms.fused import launch
from sesn.algorithms.fused.traffic import Problem, fused_traffic, unfused_traffic


def problem_of(layer: Any, field: torch.Tensor, **options: Any) -> Problem:
    geometry = geometry_of(layer, field.shape[-2:])
    channels = layer.in_channels, layer.out_channels
    return Problem(field.shape[0], *channels, geometry, layer.basis.pairs, field.dtype, **options)


@settings(max_examples=10)
@given(case=slow.cases(), sizes=tiles())
@pytest.mark.parametrize("project", [False, True])
@pytest.mark.usefixtures("interpreter")
def test_the_count_is_that_of_the_kernels_own_loads(project: bool, case: slow.Case, sizes: dict[str, Any]) -> None:
    layer = case.layer("fused")
    field = case.field.unsqueeze(2) if case.interscale is None else case.field
    tables, problem = layer._tables(), problem_of(layer, field, project=project)
    weight = layer.weight.unsqueeze(2) if case.interscale is None else layer.weight
    packed = tables.packed(weight.detach())
    with pytest.MonkeyPatch.context() as patch, tiled(sizes):
        counted = Counted(patch)
        for name, tensor in (("field", field), ("weight", packed), ("down", tables.down), ("across", tables.across)):
            counted.watch(name, tensor)
        launch.mix(field, packed, None, tables.down, tables.across, problem.geometry, project=project)
        expected = fused_traffic(problem)
    found = counted.bytes
    profiles = found["down"] + found["across"]
    assert (found["field"], found["weight"], profiles, 0, found["other store"]) == expected[:5]


class Moved(TorchDispatchMode):
    """Bytes that operations of torch read and write, views excepted."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [one for one in torch.utils._pytree.tree_leaves((args, kwargs, out)) if isinstance(one, torch.Tensor)]
        if not func.is_view:
            self.total += sum(one.numel() * one.element_size() for one in tensors)
        return out


SHAPES = [
    # channels, side, sigmas
    (32, 28, [1.5, 2.1, 3.0]),
    (32, 96, [1.5, 2.1, 3.0]),
    (64, 56, [2.0, 2.8, 4.0]),
    (16, 224, [3.0, 4.2, 6.0]),
]


@pytest.mark.parametrize("project", [False, True], ids=["field", "projected"])
@pytest.mark.parametrize(("channels", "side", "sigmas"), SHAPES)
def test_the_fused_kernel_moves_fewer_bytes(
    channels: int, side: int, sigmas: list[float], project: bool, record_property: Any
) -> None:
    layer = ScaleConv(channels, channels, basis_a(ScaleGrid(sigmas), "wide", 3), device="meta")
    field = torch.empty(8, channels, 3, side, side, device="meta")
    problem = problem_of(layer, field, project=project)
    fused, unfused = fused_traffic(problem), unfused_traffic(problem)
    what = f"{channels:3} channels, {side:3} pixels, window {layer.kernel_size:2}, {'map' if project else 'field':5}"
    record_property(
        "kernels",
        f"bytes, {what}: fused {fused.once / 1e6:6.1f} (each once) to {fused.moved / 1e6:6.1f} MB, and "
        f"{fused.profiles / 1e6:4.0f} MB of profiles from cache; separate passes {unfused.moved / 1e6:6.1f} MB",
    )
    assert fused.moved < unfused.moved


def test_separate_passes_move_at_least_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separable, "PLANE_PIXELS", 0)
    layer = ScaleConv(4, 6, basis_a(ScaleGrid([1.0, 1.5]), 7, 3), interscale=2, algorithm="separable", bias=False)
    field = torch.randn(2, 4, 2, 20, 18)
    with torch.no_grad():
        layer(field)  # makes the matrices
        with Moved() as moved:
            layer(field)
    least = unfused_traffic(problem_of(layer, field)).moved
    assert least <= moved.total
