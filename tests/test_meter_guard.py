"""The guard against outputs that hardly depend on the image: no tolerance has a say in it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sesn import ScaleGrid, ScaleLift, assert_equivariant, basis_a, equivariance_error
from sesn.meter.compare import HARDLY, within
from sesn.meter.reading import RejectedError
from sesn.tools.images import random_images

IMAGES = random_images(0, (4, 1, 64, 64), 1.0, None)
#: Over seven powers of ten, with their ends, where rules change.
NUMBERS = st.floats(-6, 1).map(lambda power: 10.0**power) | st.sampled_from([0.0, HARDLY, math.nan])
LADDER = [0.0, *(10.0**power for power in range(-7, 2))]


@given(delta=NUMBERS, ceiling=NUMBERS | st.none(), drawn=st.lists(st.floats(0, 10), max_size=5))
def test_a_looser_tolerance_never_fails_what_a_stricter_one_passes(
    delta: float, ceiling: float | None, drawn: list[float]
) -> None:
    verdicts = [within(delta, ceiling, tolerance) for tolerance in sorted([*LADDER, *drawn])]
    assert verdicts == sorted(verdicts)
    assert verdicts[-1] == (delta <= 10 and not (ceiling is not None and ceiling <= HARDLY))


LEVELS = torch.tensor([1.0, 0.5, 2.0, 0.7])[:, None, None, None]


def softmax_network() -> nn.Module:
    """Probabilities that hardly differ between images: Delta 6e-4, unrelated images 2.5e-2."""
    torch.manual_seed(0)
    conv, linear = nn.Conv2d(1, 8, 3, bias=False), nn.Linear(8, 5, bias=False)
    for layer in (conv, linear):
        nn.init.normal_(layer.weight, std=0.3)
    return nn.Sequential(conv, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear, nn.Softmax(1)).double().eval()


def passes(module: nn.Module, tolerance: float | None) -> bool:
    try:
        assert_equivariant(module, LEVELS * IMAGES, 0.5, tolerance=tolerance)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("tolerance", [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0])
def test_an_output_that_hardly_depends_on_the_image_passes_at_no_tolerance(tolerance: float) -> None:
    assert not passes(softmax_network(), tolerance)


def test_a_bias_does_not_make_an_ordinary_convolution_pass() -> None:
    layer = nn.Conv2d(1, 4, 7, padding=3)
    torch.manual_seed(0)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.ones_(layer.bias)
    assert not passes(layer, None)
    assert not any(passes(layer, 10.0**power) for power in range(-5, 1))


def test_a_bug_of_the_meter_inside_a_module_is_no_refusal_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trail's hooks run inside the module: what they raise keeps its type, and what the module raises does not."""
    network = nn.Conv2d(1, 2, 3, padding=1)
    with pytest.raises(RejectedError, match="RuntimeError"):
        equivariance_error(network, torch.randn(2, 3, 16, 16), 0.5)
    with monkeypatch.context() as patch:
        patch.setattr("sesn.meter.trail.window", lambda layer: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            equivariance_error(network, torch.randn(2, 1, 16, 16), 0.5)
    monkeypatch.setattr("sesn.meter.trail.Trail.path_to", lambda trail, tensor: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        equivariance_error(network, torch.randn(2, 1, 16, 16), 0.5)


def test_a_bug_of_our_layers_is_no_refusal_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong shape is one, and so is what torch says to a module that is not ours."""
    layer = ScaleLift(1, 2, basis_a(ScaleGrid([1.0, 2.0]), 7, 3))
    network = nn.Sequential(nn.Identity(), layer)
    with pytest.raises(RejectedError, match="UsageError"):
        equivariance_error(network, torch.randn(2, 3, 16, 16), 0.5)
    # The windows are no function, so that the line of the layer that calls them raises a TypeError.
    monkeypatch.setattr(layer, "_windows", None)
    with pytest.raises(TypeError, match="not callable") as raised:
        equivariance_error(network, torch.randn(2, 1, 16, 16), 0.5)
    assert not isinstance(raised.value, RejectedError)


class Mistaken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(3)  # type: ignore[call-overload, no-any-return]


def test_a_wrong_call_of_torch_by_a_module_is_its_own_fault() -> None:
    with pytest.raises(RejectedError, match="TypeError"):
        equivariance_error(Mistaken(), torch.randn(2, 1, 16, 16), 0.5)
