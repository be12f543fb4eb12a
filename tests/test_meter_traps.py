"""Ways to fool a meter: shared layers, few images, dead outputs, work in place, complex numbers, borrowed weights."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from sesn import ScaleConv, ScaleGrid, ScaleLift, assert_equivariant, basis_a, diagnose, equivariance_error
from sesn.methods.dss import DSSConv, DSSLift
from sesn.tools.images import random_images

IMAGES = random_images(0, (4, 1, 64, 64), 1.0, None)
WIDE = basis_a(ScaleGrid.geometric(1.5, 2**0.5, 5), "wide", 2)


def weighted(layer: ScaleLift | ScaleConv) -> ScaleLift | ScaleConv:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator))
    return layer.eval()


class Does(nn.Module):
    """A module of one function."""

    def __init__(self, function: object, *layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.layers)  # type: ignore[operator]


def test_a_layer_that_runs_twice_spoils_twice() -> None:
    lift, mixing = weighted(ScaleLift(1, 2, WIDE)), weighted(ScaleConv(2, 2, WIDE, interscale=2))
    copies = equivariance_error(nn.Sequential(lift, mixing, copy.deepcopy(mixing)), IMAGES, 2**-0.5)
    shared = equivariance_error(nn.Sequential(lift, mixing, mixing), IMAGES, 2**-0.5)
    looped = equivariance_error(Does(lambda x, a, b: b(b(a(x))), lift, mixing), IMAGES, 2**-0.5)
    assert copies.lost == shared.lost == looped.lost == 3
    assert copies.crop == shared.crop == looped.crop
    assert shared.valid.max() < 1e-3


def test_the_median_of_two_images_is_not_the_smaller() -> None:
    network = nn.Conv2d(1, 4, 7, padding=3).double()
    error = equivariance_error(network, IMAGES[:2], 0.5)
    between = float(error.relative.min() * 0.9 + error.relative.max() * 0.1)
    assert error.relative.min() < between < error.relative.mean()
    with pytest.raises(AssertionError, match="exceeds the tolerance"):
        assert_equivariant(network, IMAGES[:2], 0.5, tolerance=between)


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_a_dead_network_is_not_equivariant(level: float) -> None:
    lift = ScaleLift(1, 2, WIDE)
    nn.init.zeros_(lift.weight)
    nn.init.constant_(lift.bias, level)
    error = equivariance_error(lift, IMAGES, 2**-0.5)
    assert error.centred.isnan().all()
    assert diagnose(lift, IMAGES, error)[0].cause == "no signal"
    with pytest.raises(AssertionError, match="no signal"):
        assert_equivariant(lift, IMAGES, 2**-0.5)


def test_complex_outputs_are_refused() -> None:
    with pytest.raises(TypeError, match="view_as_real"):
        equivariance_error(Does(lambda x: torch.complex(x, x.roll(3, -1))), IMAGES, 0.5)


def test_an_output_of_another_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="first axis must be the batch"):
        equivariance_error(Does(lambda x: x.mean(0, keepdim=True)), IMAGES, 0.5)


@pytest.mark.parametrize("factor", [0.5, 1.0])
def test_a_module_that_works_in_place_leaves_the_images_alone(factor: float) -> None:
    images = IMAGES.clone()
    error = equivariance_error(nn.ReLU(inplace=True), images, factor)
    assert torch.equal(images, IMAGES)
    assert torch.equal(error.floor, equivariance_error(nn.ReLU(), images, factor).floor)


def test_an_action_honours_a_crop_and_refuses_a_grid() -> None:
    def act(output: Tensor, factor: float) -> Tensor:
        from sesn import rescale

        return rescale(output, factor)

    assert equivariance_error(nn.Identity(), IMAGES, 0.5, action=act, crop=5).crop == 5
    with pytest.raises(ValueError, match="without `grid`"):
        equivariance_error(nn.Identity(), IMAGES, 0.5, action=act, grid=WIDE.grid)


@pytest.mark.parametrize("algorithm", ["dense", "separable"])
def test_weights_assigned_to_a_meta_layer_bring_their_basis(algorithm: str) -> None:
    source = weighted(ScaleLift(1, 2, WIDE, algorithm=algorithm, dtype=torch.float64))
    with torch.device("meta"):
        made = ScaleLift(1, 2, WIDE, algorithm=algorithm)
    made.load_state_dict(source.state_dict(), assign=True)
    torch.testing.assert_close(made(IMAGES), source(IMAGES), rtol=0, atol=1e-12)


def test_the_reference_is_a_normalised_basis() -> None:
    """The floor is that of a type-A lift with one output channel per function, computed here by the layers."""
    grid = ScaleGrid([1.5, 3.0])
    from sesn import SteerableBasis

    boxes = [2 * math.ceil(6 * sigma) + 1 for sigma in grid]
    basis = SteerableBasis(grid, boxes, pairs=basis_a(grid, "wide", 3).pairs)
    lift = ScaleLift(1, 9, basis, bias=False, dtype=torch.float64)
    with torch.no_grad():
        lift.weight.copy_(torch.eye(9)[:, None, :])
    error = equivariance_error(lift, IMAGES, 0.5)
    torch.testing.assert_close(error.valid, error.floor, rtol=1e-6, atol=0)


def test_interscale_truncation_is_not_taken_for_padding() -> None:
    """A network without borders has no padding to blame."""
    basis = basis_a(ScaleGrid.geometric(1.5, 2.0, 4), "wide", 2)
    ratios = []
    for draw in range(5):
        torch.manual_seed(draw)
        layers = [
            ScaleLift(1, 2, basis, padding_mode="circular", bias=False),
            nn.ReLU(),
            ScaleConv(2, 2, basis, interscale=2, padding_mode="circular", bias=False),
        ]
        network = nn.Sequential(*layers).double().eval()
        error = equivariance_error(network, IMAGES, 0.5, resampler="fourier")
        ratios.append(float(error.all.median() / error.valid.median()))
        causes = {finding.cause for finding in diagnose(network, IMAGES, error, resampler="fourier")}
        assert "truncation of the scale axis" in causes
        assert "padding" not in causes
    assert sorted(ratios)[2] > 100


def test_scales_that_a_baselines_interscale_layer_spoils_are_left_out() -> None:
    grid = ScaleGrid.geometric(1.0, 2.0, 4)
    network = nn.Sequential(DSSLift(4, zero_scale=1.0), DSSConv(1, 2, 3, 4, interscale=2)).eval()
    counted, told = (
        equivariance_error(network, IMAGES[:, :1], 0.5, grid=grid, spoiled=spoiled) for spoiled in (None, 1)
    )
    assert counted.lost == told.lost == 2
    assert torch.equal(counted.valid, told.valid)


def test_the_meter_ignores_the_default_device() -> None:
    network = ScaleLift(IMAGES.shape[1], 2, basis_a(ScaleGrid.geometric(1.5, 2.0, 3), "wide", 2)).eval()
    wanted = equivariance_error(network, IMAGES, 0.5)
    with torch.device("meta"):
        found = equivariance_error(network, IMAGES, 0.5)
    assert torch.equal(found.valid, wanted.valid)
    assert torch.equal(found.floor, wanted.floor)
