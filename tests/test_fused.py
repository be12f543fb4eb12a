"""The fused algorithm where there is no Triton: who is refused, blocks of functions, shapes, and the self-check."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
import slow
import torch
from hypothesis import given

from sesn import ScaleConv, ScaleGrid, ScaleLift, SteerableBasis, UsageError, basis_a
from sesn.algorithms import Axis, decide
from sesn.algorithms.decide import candidates_on
from sesn.algorithms.fused import Geometry, available, checked_way, geometry, make_tables, trust
from sesn.algorithms.fused.geometry import Term, function_blocks, terms_of
from sesn.algorithms.fused.traffic import Problem, fused_traffic, unfused_traffic
from sesn.algorithms.policy import PORTABLE, DevicePolicy
from sesn.basis import Profile, ProfilePairs

BASIS = basis_a(ScaleGrid([0.9, 1.3]), 5, 2)


# Who is refused


def test_without_triton_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(available, "installed", lambda: False)
    layer = ScaleLift(1, 2, BASIS, algorithm="fused")
    with pytest.raises(UsageError, match=r"`algorithm` \(='fused'\) needs Triton.*python -m pip install triton"):
        layer(torch.zeros(1, 1, 7, 7))


def test_a_cpu_tensor_is_refused_without_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(available, "installed", lambda: True)
    monkeypatch.setattr(available, "interpreted", lambda: False)
    with pytest.raises(UsageError, match=r"needs a tensor on a CUDA device, got one on 'cpu'.*TRITON_INTERPRET=1"):
        ScaleConv(2, 2, BASIS, algorithm="fused")(torch.zeros(1, 2, 2, 7, 7))


def test_a_basis_without_profiles_is_refused() -> None:
    basis = SteerableBasis.from_function(lambda x, y: torch.exp(-(x**2) - y**2), ScaleGrid([1.0]), 5)
    with pytest.raises(UsageError, match=r"`algorithm` \(='fused'\) needs products of one-dimensional functions"):
        ScaleLift(1, 2, basis, algorithm="fused")


def test_auto_on_the_cpu_never_asks_for_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "verdict", lambda device: pytest.fail("the kernels were asked for"))
    ScaleConv(2, 2, BASIS)(torch.zeros(1, 2, 2, 30, 30))


# Shapes without values


@given(case=slow.cases())
def test_shapes_without_values_are_those_of_dense(case: slow.Case) -> None:
    dense, fused = (case.layer(name, "meta") for name in ("dense", "fused"))
    field = case.field.to("meta").requires_grad_()
    out = fused(field)
    assert out.shape == dense(field).shape
    out.sum().backward()
    assert (field.grad.shape, fused.weight.grad.shape) == (field.shape, fused.weight.shape)


def test_exports_where_it_cannot_run() -> None:
    layer = ScaleConv(2, 3, BASIS, interscale=2, algorithm="fused")
    exported = torch.export.export(layer, (torch.zeros(1, 2, 2, 9, 8),))
    assert torch.ops.sesn.fused.default in [node.target for node in exported.graph.nodes]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch.func's own use
def test_inside_torch_func_the_separable_algorithm_stands_in() -> None:
    fused, plain = (ScaleConv(2, 3, BASIS, algorithm=name) for name in ("fused", "separable"))
    fused.load_state_dict(plain.state_dict())
    field = torch.randn(3, 1, 2, 2, 9, 8)
    torch.testing.assert_close(torch.func.vmap(fused)(field), torch.func.vmap(plain)(field))
    _, tangent = torch.func.jvp(fused, (field[0],), (field[1],))
    torch.testing.assert_close(tangent, plain(field[1]) - plain(torch.zeros_like(field[1])))


# Blocks of functions

PROFILES = tuple(Profile(order, divisor) for order in range(10) for divisor in (1.0, 1.3))


@st.composite
def pairs(draw: st.DrawFn) -> ProfilePairs:
    """Any products of up to twenty profiles, the same one several times included."""
    number = draw(st.integers(1, len(PROFILES)))
    indices = st.integers(0, number - 1)
    chosen = draw(st.lists(st.tuples(indices, indices), min_size=1, max_size=40))
    return ProfilePairs(PROFILES[:number], tuple(row for row, _ in chosen), tuple(column for _, column in chosen))


@given(pairs=pairs())
def test_every_function_has_the_place_of_its_two_profiles(pairs: ProfilePairs) -> None:
    blocks = function_blocks(pairs)
    p, q = len(blocks.rows[0]), len(blocks.columns[0])
    for slot, row, column in zip(blocks.slots, pairs.rows, pairs.columns, strict=True):
        block, i, j = slot // (p * q), slot // q % p, slot % q
        assert (blocks.rows[block][i], blocks.columns[block][j]) == (row, column)
    for side in (p, q):
        assert side in (geometry.LEAST_PROFILES, geometry.MOST_PROFILES)


@given(bases=slow.bases(), seed=st.integers(0, 99))
def test_tables_and_packed_weights_make_the_kernels(bases: slow.Bases, seed: int) -> None:
    basis = bases.library
    tables = make_tables([basis.scale_profiles(k) for k in range(len(basis.grid))], basis.pairs)
    weight = slow.uniform(seed, 2, 3, 1, len(basis))
    packed = tables.packed(weight).reshape(2, 3, *tables.down.shape[1:3], tables.across.shape[2])
    found = torch.einsum("oibpq,sbpy,sbqx->oisyx", packed, tables.down, tables.across)
    expected = torch.einsum("oikn,nsyx->oisyx", weight, basis.functions)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


axes = st.builds(Axis, *[st.integers(1, 99)] * 2, st.integers(-9, 9), st.integers(1, 3), st.booleans())
terms = st.lists(st.builds(Term, *[st.integers(0, 9)] * 5), min_size=1).map(tuple)


@given(whole=st.builds(Geometry, axes, axes, *[st.integers(1, 9)] * 4, terms))
def test_a_geometry_comes_back_from_its_numbers(whole: Geometry) -> None:
    assert Geometry.decoded(whole.encoded()) == whole


# The bytes that are moved


def test_bytes_of_one_tile_by_hand() -> None:
    """One image of 16 x 16 pixels, one tile: every pixel is asked for once for each scale, and so is each weight."""
    axis = Axis.of(16, 5, 1, 2, False)
    one = Geometry(axis, axis, 1, 1, 2, 1, terms_of([(0, 1), (0, 1)], range(2), BASIS.boxes))
    problem = Problem(1, 3, 5, one, BASIS.pairs)
    fused, unfused = fused_traffic(problem), unfused_traffic(problem)
    assert (fused.field, fused.weight, fused.output) == (2 * 3 * 256 * 4, 2 * 5 * 3 * 16 * 4, 2 * 5 * 256 * 4)
    assert unfused.maps == 2 * 3 * 4 * 2 * (2 * 256 + 4 * 256)
    assert unfused.field == fused.field
    assert unfused._replace(output=0).moved + fused.output == unfused.moved


def test_the_bytes_that_the_page_tells() -> None:
    basis = basis_a(ScaleGrid([1.5, 2.1, 3.0]), "wide", 3)
    axis = Axis.of(96, basis.kernel_size, 1, basis.kernel_size // 2, False)
    windows, scales = [(k, k + 1) for k in range(3)], range(3)
    problem = Problem(8, 32, 32, Geometry(axis, axis, 1, 3, 3, 1, terms_of(windows, scales, basis.boxes)), basis.pairs)
    fused, unfused = fused_traffic(problem), unfused_traffic(problem)
    told = " ".join((Path(__file__).parents[1] / "docs" / "algorithms.md").read_text("utf-8").split())
    bounds = f"{fused.once / 1e6:.0f} and {fused.moved / 1e6:.0f} MB"
    assert f"window of {basis.kernel_size}, they are {bounds} for eight images" in told
    assert f"separate passes move at least {unfused.moved / 1e6:.0f} MB" in told


# The self-check


CUDA = torch.device("cuda", 0)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """A process that has checked nothing, on a machine with Triton and a GPU, as far as it can be pretended."""
    asked: list[torch.device] = []
    monkeypatch.setattr(trust, "_VERDICTS", {})
    monkeypatch.setattr(trust, "installed", lambda: True)
    monkeypatch.setattr(trust, "versions", lambda device: "Some GPU, torch 0, triton 0")
    monkeypatch.setattr(trust, "fault", asked.append)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(decide, "policy_of", lambda device: DevicePolicy("cuda", (*PORTABLE, "fused")))
    return asked


def on_a_gpu() -> Any:
    return SimpleNamespace(is_cuda=True, device=CUDA)


def test_the_check_is_made_once_and_then_fused_is_a_candidate(checked: list[torch.device]) -> None:
    assert [candidates_on(CUDA) for _ in range(3)] == [("dense", "separable", "spectral", "fused")] * 3
    assert checked_way("fused", on_a_gpu()) == "fused"
    assert checked == [CUDA]


def test_a_failure_disables_with_one_warning_that_says_what_to_report(
    checked: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "fault", lambda device: checked.append(device) or "the output differs by 0.3")
    with pytest.warns(RuntimeWarning, match="differs by 0.3.*report.*Some GPU, torch 0, triton 0"):
        assert "fused" not in candidates_on(CUDA)
    with warnings.catch_warnings(action="error"):
        assert "fused" not in candidates_on(CUDA)
        with pytest.raises(UsageError, match="failed its self-check"):
            checked_way("fused", on_a_gpu())
    assert checked == [CUDA]


def test_without_triton_auto_keeps_quiet(checked: list[torch.device], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "installed", lambda: False)
    assert "fused" not in candidates_on(CUDA)
    assert not checked


def test_nothing_is_checked_while_a_graph_is_recorded(
    checked: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "recording", lambda: True)
    assert "fused" not in candidates_on(CUDA)
    assert checked_way("fused", on_a_gpu()) == "fused"  # nobody knows better than who asked
    assert not checked


def test_nothing_is_checked_while_a_cuda_graph_is_captured(
    checked: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert "fused" not in candidates_on(CUDA)
    assert not checked


def test_whatever_a_kernel_raises_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(trust, "fused_convolution", broken)
    assert trust.fault(torch.device("cpu")) == "RuntimeError: no kernel image is available"
