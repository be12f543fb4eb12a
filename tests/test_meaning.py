"""A saved state knows which constants its weights belong to, and is not loaded into a layer with others."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sesn import ScaleConv, ScaleGrid, ScaleLift, SteerableBasis, basis_a, basis_b
from sesn._meaning import meanings
from sesn.basis import Window
from sesn.methods.dss import DSSConv
from sesn.methods.sevf import SEVFConv, SEVFLift, sevf_angles, sevf_scales
from sesn.methods.si_convnet import SIConv
from sesn.methods.sicnn import SiCNNConv, SiCNNLift
from sesn.methods.ss_cnn import SSConv
from sesn.strategies import SEEDS, bases, random_images, random_network, scale_grids

GRID = ScaleGrid([1.5, 2.1])


def lift(grid: ScaleGrid = GRID, window: Window = 9) -> ScaleLift:
    return ScaleLift(1, 2, basis_a(grid, window, 2))


def written_and_read(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)  # type: ignore[no-any-return]


def any_basis(power: float) -> SteerableBasis:
    return SteerableBasis.from_function(lambda x, y: torch.exp(-((x**2 + y**2) ** power)), GRID, 9)


B = basis_b(GRID, 9, 2, max_order=1, mult=1.4)
DIFFERENT: dict[str, tuple[nn.Module, nn.Module, str]] = {
    "sigmas": (lift(), lift(ScaleGrid([2.5, 3.5])), r"`sigmas` is \(1.5, 2.1\) there and \(2.5, 3.5\) here"),
    "window": (lift(), lift(window=11), r"`boxes` is \(7, 9\) there and \(7, 11\) here"),
    "functions": (
        ScaleConv(1, 2, B),
        ScaleConv(1, 2, basis_b(GRID, 9, 2, max_order=1, mult=1.5)),
        "`functions` is .* at index .* of 8 there and .* here",
    ),
    "any function": (ScaleLift(1, 2, any_basis(1.0)), ScaleLift(1, 2, any_basis(1.1)), "`functions`"),
    "DSS": (DSSConv(1, 2, 3, 2), DSSConv(1, 2, 3, 2, base=3), r"`base` is \(2\) there and \(3\) here"),
    "SiCNN": (SiCNNLift(1, 2, 3, (1, 2)), SiCNNLift(1, 2, 3, (1, 1.5)), "`scales`"),
    "SiCNN's recipe": (
        SiCNNConv(1, 2, 3, (1, 2)),
        SiCNNConv(1, 2, 3, (1, 2), recipe="released"),
        "`recipe` is 'paper' there and 'released' here",
    ),
    "SI-ConvNet": (SIConv(1, 2, 3, (1, 2)), SIConv(1, 2, 3, (0.5, 1)), "`scales`"),
    "SEVF's scales": (
        SEVFLift(1, 2, 3, sevf_scales(3), sevf_angles(3)),
        SEVFLift(1, 2, 3, sevf_scales(3, 1.4), sevf_angles(3)),
        "`scales`",
    ),
    "SEVF's angles": (
        SEVFConv(1, 2, 3, sevf_scales(3), sevf_angles(3)),
        SEVFConv(1, 2, 3, sevf_scales(3), sevf_angles(3, 0.1)),
        "`angles`",
    ),
    "SS-CNN": (SSConv(1, 2, (5, 7), 5, (0.5, 1)), SSConv(1, 2, (5, 7), 7, (0.5, 1)), "`nominal`"),
}


@pytest.mark.parametrize("case", DIFFERENT)
@pytest.mark.parametrize("strict", [True, False])
def test_weights_of_other_constants_are_refused_with_both_values_and_the_remedy(case: str, strict: bool) -> None:
    trained, other, reason = DIFFERENT[case]
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(RuntimeError, match=rf"(?s){type(other).__name__}.*{reason}.*make the layer with the constants"):
        other.load_state_dict(written_and_read(trained.state_dict()), strict=strict)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


def test_the_layer_is_named_as_the_network_names_it() -> None:
    trained, other = (nn.Sequential(nn.ReLU(), lift(grid)) for grid in (GRID, ScaleGrid([2.5, 3.5])))
    with pytest.raises(RuntimeError, match=r"the weights of 1 \(ScaleLift\)"):
        other.load_state_dict(trained.state_dict())


@pytest.mark.parametrize("case", DIFFERENT)
def test_the_same_constants_are_loaded_and_so_is_a_state_that_names_none(case: str) -> None:
    trained, other, _ = DIFFERENT[case]
    twin = copy.deepcopy(trained)
    for parameter in twin.parameters():
        nn.init.zeros_(parameter)
    twin.load_state_dict(written_and_read(copy.deepcopy(trained.state_dict())))
    assert all(torch.equal(one, two) for one, two in zip(twin.parameters(), trained.parameters(), strict=True))
    other = copy.deepcopy(other)
    other.load_state_dict(dict(trained.state_dict()))  # also what an older version, or safetensors, has kept
    assert all(torch.equal(one, two) for one, two in zip(other.parameters(), trained.parameters(), strict=True))


def test_rounding_of_another_machine_is_no_difference() -> None:
    trained, other = lift(), lift(ScaleGrid([1.5 + 1e-12, 2.1 - 1e-12]))
    other.load_state_dict(trained.state_dict())


def test_wrapped_and_moved_networks_keep_their_constants() -> None:
    trained, other = nn.Sequential(lift()), nn.Sequential(lift(ScaleGrid([2.5, 3.5])))
    compiled: Any = torch.compile(trained, backend="eager")
    for wrapped in (compiled, nn.DataParallel(trained), copy.deepcopy(trained).double()):
        state = wrapped.state_dict()
        for prefix in ("_orig_mod.", "module."):
            nn.modules.utils.consume_prefix_in_state_dict_if_present(state, prefix)
        with pytest.raises(RuntimeError, match="`sigmas`"):
            other.load_state_dict(state)
        copy.deepcopy(trained).load_state_dict(state)


def test_weights_may_be_swapped_on_conversion_and_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, image = lift().eval(), torch.ones(1, 1, 12, 12)
    with torch.no_grad():
        layer(image)  # which keeps kernels, and a reference to the weight they were made from
    monkeypatch.setattr(torch.__future__, "_swap_module_params_on_conversion", True)
    layer.double()
    with torch.no_grad():
        layer(image.double())
    layer.load_state_dict(lift().double().state_dict())


# Laws, over drawn bases

CHANGES = st.sampled_from(["sigmas", "window", "type"])
FACTORS = st.floats(1.01, 2.0)
ORDERS = st.integers(2, 3)  # of one function both types have the same
LOADING = st.fixed_dictionaries({"strict": st.booleans(), "assign": st.booleans()})


def changed(basis: SteerableBasis, change: str, factor: float, orders: int) -> SteerableBasis:
    """A basis of as many functions, with another range of sigmas, another window or of the other type."""
    grid, window = basis.grid, basis.kernel_size
    if change == "type":
        return basis_b(grid, window, orders, max_order=2, mult=1.1)
    if change == "window":
        return basis_a(grid, window + 2, orders)
    return basis_a(ScaleGrid([sigma * factor for sigma in grid.sigmas]), window, orders)


def wrapped(network: nn.Module, data_parallel: bool) -> dict[str, Any]:
    """The state of a network, also by way of a wrapper that prefixes every name."""
    state = nn.DataParallel(network).state_dict() if data_parallel else network.state_dict()
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    return written_and_read(state)


@given(basis=bases(kind=st.sampled_from(["a", "b"])), seed=SEEDS, parallel=st.booleans(), loading=LOADING)
def test_what_was_saved_is_loaded_to_the_bit(
    basis: SteerableBasis, seed: int, parallel: bool, loading: dict[str, bool]
) -> None:
    trained, fresh = (random_network(basis, each, depth=0) for each in (seed, seed + 1))
    fresh.load_state_dict(wrapped(trained, parallel), **loading)
    image = random_images(seed, (1, 1, 6, 6))
    assert torch.equal(fresh(image), trained(image))


@given(st.data(), scale_grids(), CHANGES, FACTORS, ORDERS, SEEDS, st.booleans(), LOADING)
def test_another_basis_is_refused_and_loaded_when_one_insists(
    data: st.DataObject,
    grid: ScaleGrid,
    change: str,
    factor: float,
    orders: int,
    seed: int,
    parallel: bool,
    loading: dict[str, bool],
) -> None:
    basis = data.draw(bases(grid=grid, orders=orders))
    trained = random_network(basis, seed)
    other = random_network(changed(basis, change, factor, orders), seed + 1)
    before = [value.clone() for value in other.parameters()]
    with pytest.raises(RuntimeError, match=r"belong to other constants.*there and.*here.*pass dict\(state_dict\)"):
        other.load_state_dict(wrapped(trained, parallel), **loading)
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), before, strict=True))
    other.load_state_dict(dict(wrapped(trained, parallel)), **loading)
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), trained.parameters(), strict=True))


def test_safetensors_keep_no_constants_and_are_loaded_unchecked(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    trained, other = lift(), lift(ScaleGrid([2.5, 3.5]))
    safetensors.save_file(trained.state_dict(), tmp_path / "weights.safetensors")
    other.load_state_dict(safetensors.load_file(tmp_path / "weights.safetensors"))
    assert torch.equal(other.weight, trained.weight)


def test_a_network_lists_its_constants_as_plain_json() -> None:
    found = meanings(nn.Sequential(lift(), nn.ReLU(), DSSConv(1, 2, 3, 2)))
    assert found.keys() == {"0", "2"}
    assert found["2"] == {"base": [2]}
    assert found["0"]["sigmas"] == [1.5, 2.1]
