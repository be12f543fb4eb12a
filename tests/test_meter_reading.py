"""What the meter reads off a module: scores with axes of one pixel, the scales of a field, parallel branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from meter_sample import GRID, IMAGES, STEP, WIDE, Does, mixing_network, weighted
from torch import Tensor, nn

from sesn import (
    GlobalPool,
    ScaleConv,
    ScaleGrid,
    ScaleLift,
    ScaleProjection,
    assert_equivariant,
    basis_a,
    diagnose,
    equivariance_error,
)
from sesn.meter.extent import seen_by
from sesn.meter.outputs import UndecidedError
from sesn.tools.images import random_images

# --- scores with axes of one pixel


def test_maps_of_one_pixel_are_scores() -> None:
    lift = weighted(ScaleLift(1, 4, WIDE))
    scores = nn.Sequential(lift, ScaleProjection(), GlobalPool("mean"))
    pixel = nn.Sequential(lift, ScaleProjection(), nn.AdaptiveAvgPool2d(1))
    flat, kept = (equivariance_error(network, IMAGES, 0.5) for network in (scores, pixel))
    assert (kept.kind, kept.crop) == ("invariant", 0)
    torch.testing.assert_close(kept.valid, flat.valid, rtol=1e-4, atol=0)


def test_fields_of_one_pixel_are_scales() -> None:
    lift = weighted(ScaleLift(1, 4, WIDE))
    scores = nn.Sequential(lift, GlobalPool("max"))
    pixel = Does(lambda x, lift: lift(x).amax((-2, -1), keepdim=True), lift)
    flat, kept = (equivariance_error(network, IMAGES, STEP) for network in (scores, pixel))
    assert (kept.kind, kept.lost) == ("scale", flat.lost)
    torch.testing.assert_close(kept.valid, flat.valid)


@pytest.mark.parametrize("kind", ["map", "invariant"])
def test_one_pixel_may_be_asked_for_as_scores_and_not_as_a_map(kind: Any) -> None:
    pixel = nn.Sequential(nn.Conv2d(1, 4, 7), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    if kind == "invariant":
        assert equivariance_error(pixel, IMAGES, 0.5, kind=kind).kind == kind
        return
    with pytest.raises(ValueError, match=r"`kind` \(='map'\) .* use 'invariant'"):
        equivariance_error(pixel, IMAGES, 0.5, kind=kind)


# --- grids and branches


def two_lifts(use: Callable[[Tensor, nn.Module, nn.Module], Tensor]) -> tuple[nn.Module, nn.Module]:
    """Lifts of different scales, the second registered last."""
    other = basis_a(ScaleGrid.geometric(1.5, 2.0, 5), "wide", 2)
    first, second = weighted(ScaleLift(1, 2, WIDE)), weighted(ScaleLift(1, 2, other))
    return Does(use, first, second).eval(), first


def test_the_grid_is_that_of_the_layer_that_made_the_field() -> None:
    network, first = two_lifts(lambda x, first, second: first(x) + 0 * second(x).mean())
    alone = equivariance_error(first, IMAGES, STEP)
    with pytest.raises(ValueError, match="more than one grid"):
        equivariance_error(network, IMAGES, STEP)
    told = equivariance_error(network, IMAGES, STEP, grid=GRID, crop=alone.crop)
    torch.testing.assert_close(told.valid, alone.valid)
    unused, first = two_lifts(lambda x, first, second: (second(x), first(x))[1])
    assert equivariance_error(unused, IMAGES, STEP).valid.max() < 1e-4
    later, first = two_lifts(lambda x, first, second: first(second(x).mean((1, 2))[:, None]))
    assert equivariance_error(later, IMAGES, STEP, spoiled=0).on_grid


def parallel(branches: int, depth: int) -> nn.Module:
    """A lift, and interscale layers behind and beside each other."""

    def through(x: Tensor, lift: nn.Module, *layers: nn.Module) -> Tensor:
        found = [lift(x)] * branches
        for layer in range(depth):
            found = [layers[layer * branches + one](field) for one, field in enumerate(found)]
        return torch.stack(found).sum(0)

    mixing = [weighted(ScaleConv(2, 2, WIDE, interscale=2), seed) for seed in range(branches * depth)]
    return Does(through, weighted(ScaleLift(1, 2, WIDE)), *mixing).eval()


@pytest.mark.parametrize(("branches", "depth"), [(1, 2), (2, 1), (3, 2)])
def test_spoilt_channels_are_counted_along_the_longest_path(branches: int, depth: int) -> None:
    error = equivariance_error(parallel(branches, depth), IMAGES, STEP)
    assert error.lost == 1 + depth
    assert error.valid.max() < 1e-3


class Block(nn.Module):
    """A block that says how far it looks, and leaves the scale axis to its layers."""

    receptive_radius = 40

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def test_a_block_that_says_how_far_it_looks_may_leave_the_scales_to_its_layers() -> None:
    error, wanted = (equivariance_error(m, IMAGES, STEP) for m in (Block(*mixing_network()), mixing_network()))
    assert error.lost == wanted.lost == 2
    assert seen_by(Block(*mixing_network()), IMAGES).radius == 40


class Inception(nn.Module):
    """Strided branches beside each other, pools among them, in a chain of two."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.branches = nn.ModuleList(
            nn.ModuleList([nn.Conv2d(c, 2, 4, 2, 1), nn.AvgPool2d(2), nn.MaxPool2d(2), nn.Conv2d(c, 2, 2, 2)])
            for c in (1, 6)
        )

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.branches:
            x = torch.cat([branch(x) for branch in stage], dim=1)  # type: ignore[union-attr]
        return x


@pytest.mark.parametrize(("side", "small", "blamed"), [(96, 48, False), (97, 49, True)])
def test_the_stride_phase_of_parallel_branches_does_not_add_up(side: int, small: int, blamed: bool) -> None:
    images = random_images(0, (2, 1, side, side), 1.0, None)
    network = Inception().eval()
    error = equivariance_error(network, images, small / side)
    found = [f for f in diagnose(network, images, error) if f.cause.startswith("stride phase")]
    assert bool(found) == blamed
    if blamed:
        assert "a total stride of 4 keeps lie -0.5 pixels off the centre on a side of 97" in found[0].evidence


def test_no_stride_phase_is_told_where_sizes_and_strides_disagree() -> None:
    """A slice that keeps every second pixel is no layer: the places of later windows cannot be counted."""
    network = Does(lambda x, conv: conv(x[..., ::2, ::2]), nn.Conv2d(1, 2, 3, stride=2, padding=1)).eval()
    images = random_images(0, (2, 1, 96, 96), 1.0, None)
    error = equivariance_error(network, images, 0.5)
    assert not [f for f in diagnose(network, images, error) if "pixels off" in f.evidence]


class FixedBatch(nn.Module):
    """A network that takes so many images at once, and no others."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch, self.conv = batch, nn.Conv2d(1, 2, 7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[0] == self.batch
        return self.conv(x)


@pytest.mark.parametrize("batch", [1, 3, 6])
def test_a_failed_check_of_a_fixed_batch_says_what_it_found(batch: int) -> None:
    images = random_images(0, (batch, 1, 64, 64), 1.0, None)
    with pytest.raises(AssertionError, match="ordinary convolution"):
        assert_equivariant(FixedBatch(batch).eval(), images, 0.5)


def test_a_map_without_channels_is_told_what_it_lacks() -> None:
    """Labels [b, h, w] have three axes as tokens have, and lie on no grid that could be proposed."""
    with pytest.raises(
        UndecidedError, match=r"a map \[b, h, w\] an axis of channels, as in output\[:, None\]$"
    ) as caught:
        equivariance_error(Does(lambda x: x[:, 0, :48]), random_images(0, (1, 1, 48, 48)), 1 / 2)
    assert caught.value.choices == []
