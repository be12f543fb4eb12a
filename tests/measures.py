"""What the tests of the laws share: float64 on a device, the relative squared difference, and the interior of a map."""

from __future__ import annotations

from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

Thing = TypeVar("Thing", Tensor, nn.Module)

#: Earlier versions of torch fix the batch's size when they export, and warn of their own graphs.
EXPORTS = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 8), reason="exporting needs torch 2.8 or later"
)
#: Relative squared error that float64 leaves after some hundred operations: (100 eps)^2 = 5e-28.
ROUNDING = 1e-27


def put(thing: Thing, device: torch.device) -> Thing:
    """The float64 tensor or module on the device; the laws are about mathematics, so they need float64."""
    if device.type == "mps":
        pytest.skip("MPS has no float64")
    return thing.to(device)


def relative(got: Tensor, expected: Tensor) -> float:
    """||got - expected||^2 / ||expected||^2, as in Delta."""
    assert got.shape == expected.shape
    return float((got - expected).square().sum() / expected.square().sum())


def assert_same(got: Tensor, expected: Tensor) -> None:
    """Equal to the rounding of float64: values here are of order 1 and come from sums of at most thousands of terms."""
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def interior(image: Tensor, margin: int) -> Tensor:
    """[..., h, w] without `margin` pixels at each border."""
    assert 2 * margin < min(image.shape[-2:])
    return image[..., margin : image.shape[-2] - margin, margin : image.shape[-1] - margin]


def gaussian_blob(size: int, width: float) -> Tensor:
    """exp(-r^2 / (2 width^2)) about the centre of an image [1, 1, size, size]."""
    x = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    profile = torch.exp(-0.5 * (x / width).square())
    return (profile[:, None] * profile)[None, None]
