"""What breaks scale equivariance is seen by the meter, and what only looks as if it did is not.

On zero-mean images of 1/f amplitude, where nothing hides behind a large mean.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from measures import put
from torch import Tensor, nn

from sesn import EquivarianceError, ScaleGrid, ScaleLift, basis_a, equivariance_error, rescale
from sesn.strategies import SEEDS, random_images, random_lift

#: How far above the probe's floor a violator comes out at least; drawn ones come out 300 to a million times above.
SEEN = 100
#: How far above it an honest layer may come out: its weights prefer other functions than the reference's equal ones.
HONEST = 5

FACTORS = st.sampled_from([0.5, 0.5**0.5])


class Altered(nn.Module):
    """A lift whose use is altered."""

    def __init__(self, lift: ScaleLift, use: Callable[[ScaleLift, Tensor], Tensor]) -> None:
        super().__init__()
        self.lift, self.use = lift, use

    def forward(self, image: Tensor) -> Tensor:
        return self.use(self.lift, image)


def kernels_transposed(lift: ScaleLift, image: Tensor) -> Tensor:
    return lift(image.mT).mT


def transposed_at_one_scale(lift: ScaleLift, image: Tensor) -> Tensor:
    field = lift(image)
    return torch.cat([field[:, :, :1], kernels_transposed(lift, image)[:, :, 1:2], field[:, :, 2:]], dim=2)


def moved_by_half_a_pixel(lift: ScaleLift, image: Tensor) -> Tensor:
    return rescale(lift(image), 1.0, offset=0.5)


def next_scale(lift: ScaleLift, image: Tensor) -> Tensor:
    field = lift(image)
    return torch.cat([field[:, :, 1:], torch.zeros_like(field[:, :, :1])], dim=2)


VIOLATIONS = {
    "the scale axis reversed": lambda lift, image: lift(image).flip(2),
    "the scale axis rolled cyclically": lambda lift, image: lift(image).roll(1, dims=2),
    "kernels transposed at one scale": transposed_at_one_scale,
    "the output half a pixel off": moved_by_half_a_pixel,
}


def measure(
    use: Callable[[ScaleLift, Tensor], Tensor], factor: float, seed: int, device: torch.device, **options: int
) -> EquivarianceError:
    grid = ScaleGrid.geometric(1.5, 1 / factor, 3)
    lift = random_lift(basis_a(grid, "wide", 3), (1, 4), seed, bias=False)
    images = random_images(seed, (1, 1, 96, 96))
    return equivariance_error(put(Altered(lift, use), device), put(images, device), factor, **options)


@given(seed=SEEDS, factor=FACTORS)
def test_the_honest_lift_is_at_the_floor(device, seed, factor):
    error = measure(lambda lift, image: lift(image), factor, seed, device)
    assert error.valid.item() < HONEST * error.floor.item()


@pytest.mark.parametrize("name", VIOLATIONS)
@given(seed=SEEDS, factor=FACTORS)
def test_a_violator_stands_out(device, name, seed, factor):
    error = measure(VIOLATIONS[name], factor, seed, device)
    assert error.valid.item() > SEEN * error.floor.item()
    assert not error.at_floor


@given(seed=SEEDS, factor=FACTORS, size=st.sampled_from([3, 5, 7]))
def test_an_ordinary_convolution_stands_out(device, seed, factor, size):
    layer = nn.Conv2d(1, 4, size, padding=size // 2, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(seed)))
    images = random_images(seed, (1, 1, 96, 96))
    error = equivariance_error(put(layer, device), put(images, device), factor)
    assert error.kind == "map"
    assert error.valid.item() > SEEN * error.floor.item()


def shifted_action(output: Tensor, factor: float) -> Tensor:
    """L_s with sampling points half a source pixel off."""
    return rescale(output, factor, offset=0.5)


def corner_action(output: Tensor, factor: float) -> Tensor:
    """L_s as a resize that keeps the corner pixels instead of the centre."""
    side = round(output.shape[-1] * factor)
    return F.interpolate(output, (side, side), mode="bicubic", align_corners=True)


@pytest.mark.parametrize("action", [shifted_action, corner_action])
@given(seed=SEEDS)
def test_a_misregistered_action_stands_out_even_without_a_network(device, action, seed):
    """The mildest violation: the corner grid is half a pixel off at the border, and right at the centre."""
    images = put(random_images(seed, (1, 1, 96, 96)), device)
    error = equivariance_error(nn.Identity(), images, 0.5, action=action)
    assert error.valid.item() > SEEN * error.floor.item()


# --- what is no violation


@given(seed=SEEDS, factor=FACTORS)
def test_transposing_all_kernels_alike_is_no_violation(device, seed, factor):
    error = measure(kernels_transposed, factor, seed, device)
    assert error.valid.item() < HONEST * error.floor.item()


@given(seed=SEEDS, factor=FACTORS)
def test_shifting_the_scale_axis_without_wrap_is_no_violation(device, seed, factor):
    """What enters at the large end is zero, which is what a spoilt channel is."""
    error = measure(next_scale, factor, seed, device, spoiled=1)
    assert error.lost == 2
    assert error.valid.item() < HONEST * error.floor.item()
    assert error.all.item() > SEEN * error.floor.item()


@given(seed=SEEDS, factor=FACTORS)
def test_leaving_out_the_smallest_scale_is_no_violation(device, seed, factor):
    error = measure(
        lambda lift, image: lift(image)[:, :, 1:], factor, seed, device, grid=ScaleGrid([1.5 / factor, 1.5 / factor**2])
    )
    assert error.lost == 1
    assert error.valid.item() < HONEST * error.floor.item()
