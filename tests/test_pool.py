"""Pooling and batch norm: what they commute with, what they make invariant, and what they leave alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from measures import assert_same, gaussian_blob, put
from torch import nn

from sesn import (
    GlobalPool,
    ScaleBatchNorm,
    ScaleGrid,
    ScaleLift,
    ScaleProjection,
    SpatialAvgPool,
    SpatialMaxPool,
    basis_a,
    equivariance_error,
    translate,
)
from sesn.strategies import images

FIELDS = images(leading=st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 4)))
SHIFTS = st.tuples(st.integers(-6, 6), st.integers(-6, 6))


def blob_detector(grid: ScaleGrid) -> ScaleLift:
    """Minus the Laplacian of a Gaussian: on a Gaussian blob its response is largest at the blob's own width."""
    layer = ScaleLift(1, 1, basis_a(grid, "wide", 3), bias=False, dtype=torch.float64).eval()
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0, 0, [2, 6]] = -1.0  # the orders (2, 0) and (0, 2)
    return layer


# --- over space


@pytest.mark.parametrize("mode", ["max", "mean"])
@given(field=FIELDS, shift=SHIFTS)
def test_global_pooling_is_spatially_invariant_and_keeps_scale(device, mode, field, shift):
    field, pool = put(field, device) + 1, GlobalPool(mode)
    assert pool(field).shape == field.shape[:3]
    assert_same(pool(translate(field, *shift, "circular")), pool(field))
    for scale in range(field.shape[2]):
        assert_same(pool(field)[:, :, scale], pool(field[:, :, scale]))


@pytest.mark.parametrize("pool", [SpatialMaxPool, SpatialAvgPool])
@given(field=FIELDS, data=st.data())
def test_spatial_pooling_is_that_of_each_scale(device, pool, field, data):
    field = put(field, device)
    size, stride = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 3)))
    padding = data.draw(st.integers(0, size // 2))
    if data.draw(st.booleans()):  # rows and columns apart
        size, stride, padding = (size, size + 1), (stride, stride + 1), (padding, (size + 1) // 2)
    plain = {SpatialMaxPool: F.max_pool2d, SpatialAvgPool: F.avg_pool2d}[pool]
    pooled = pool(size, stride, padding)(field)
    assert pooled.shape[2] == field.shape[2]
    for scale in range(field.shape[2]):
        assert_same(pooled[:, :, scale], plain(field[:, :, scale], size, stride, padding))


def test_the_stride_of_a_spatial_pool_is_its_window():
    assert SpatialMaxPool(2)(torch.zeros(1, 1, 3, 8, 6)).shape == (1, 1, 3, 4, 3)
    assert SpatialMaxPool((2, 3))(torch.zeros(1, 1, 3, 8, 6)).shape == (1, 1, 3, 4, 2)


# --- over both


@given(sizes=st.tuples(st.integers(20, 24), st.integers(14, 18)), own=st.integers(1, 2))
def test_a_blob_keeps_its_strength_while_its_scale_moves(device, sizes, own):
    """Pooled over space, a lifted blob is a function of scale that L_s shifts; pooled over scale too, an invariant.

    The blob is as wide as a scale inside the grid, before and after, so that truncating the scales loses nothing.
    """
    before, after = (2 * half + 1 for half in sizes)  # odd: the blob's peak is on a pixel, before and after
    factor, grid = after / before, ScaleGrid.geometric(1.5, before / after, 3)
    image = put(gaussian_blob(before, grid.sigmas[own]), device)
    detector = put(blob_detector(grid), device)
    of_scale = equivariance_error(nn.Sequential(detector, GlobalPool()), image, factor, resampler="fourier")
    invariant = equivariance_error(
        nn.Sequential(detector, ScaleProjection(), GlobalPool()), image, factor, resampler="fourier"
    )
    assert (of_scale.kind, of_scale.lost, invariant.kind, invariant.lost) == ("scale", 1, "invariant", 0)
    # The windows cut off 1.4e-4 of a kernel of order 2 on each axis: (2 x 1.4e-4)^2 = 8e-8 of the kernel's weight,
    # which is a few times larger than the response to a blob.
    assert of_scale.valid.item() < 1e-6
    assert invariant.valid.item() < 1e-6


def test_truncating_the_scales_breaks_the_invariance(device):
    """A blob of the smallest width has no scale left to move to."""
    grid = ScaleGrid.geometric(1.5, 5 / 3, 2)
    network = put(nn.Sequential(blob_detector(grid), ScaleProjection(), GlobalPool()), device)
    assert equivariance_error(network, put(gaussian_blob(45, 1.5), device), 0.6).valid.item() > 0.02


# --- batch norm


@given(field=FIELDS, training=st.booleans(), affine=st.booleans())
def test_batch_norm_is_that_of_volumes(device, field, training, affine):
    field = put(field, device)
    ours, theirs = (
        kind(field.shape[1], affine=affine, dtype=torch.float64) for kind in (ScaleBatchNorm, nn.BatchNorm3d)
    )
    ours, theirs = put(ours, device).train(training), put(theirs, device).train(training)
    for _ in range(2):
        assert torch.equal(ours(field), theirs(field))
    assert all(torch.equal(a, b) for a, b in zip(ours.buffers(), theirs.buffers(), strict=True))


@given(field=images(leading=(2, 2, 3)))
def test_batch_norm_has_one_mean_and_variance_per_channel(device, field):
    field = put(field, device) + torch.arange(3, dtype=torch.float64, device=device)[:, None, None]
    mean = field.mean(dim=(0, 2, 3, 4), keepdim=True)
    variance = field.var(dim=(0, 2, 3, 4), unbiased=False, keepdim=True)
    norm = put(ScaleBatchNorm(2, dtype=torch.float64), device)
    assert_same(norm(field), (field - mean) / (variance + norm.eps).sqrt())
