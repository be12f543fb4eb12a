"""Harmonic networks: the DCT filters are orthonormal, and the layer is a convolution in rotated coordinates."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from sesn.methods.harmonic import HarmonicConv, cosine_filters


def test_the_nine_filters_are_orthonormal_cosines() -> None:
    filters = cosine_filters()
    torch.testing.assert_close(filters.flatten(1) @ filters.flatten(1).T, torch.eye(9, dtype=torch.float64))
    torch.testing.assert_close(filters[0], torch.full((3, 3), 1 / 3, dtype=torch.float64))
    down = torch.tensor([1, 0, -1], dtype=torch.float64) / math.sqrt(6)
    torch.testing.assert_close(filters[3], down[:, None].expand(3, 3), atol=1e-15, rtol=0)


@pytest.mark.parametrize("stride", [1, 2])
def test_any_convolution_can_be_written_so(stride: int) -> None:
    kernel, image = torch.randn(3, 2, 3, 3, dtype=torch.float64), torch.randn(2, 2, 7, 8, dtype=torch.float64)
    layer = HarmonicConv(2, 3, stride=stride, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.einsum("oiyx,nyx->oin", kernel, cosine_filters()))
    torch.testing.assert_close(layer(image), F.conv2d(image, kernel, stride=stride, padding=1))


def test_parameters_repr_and_bad_input() -> None:
    layer = HarmonicConv(2, 3, stride=2)
    assert [(name, tuple(p.shape)) for name, p in layer.named_parameters()] == [("weight", (3, 2, 9))]
    assert float(layer.weight.detach().abs().max()) <= 1 / math.sqrt(18)
    assert repr(layer) == "HarmonicConv(2 -> 3, stride=2)"
    with pytest.raises(ValueError, match=r"image.shape\[1\].*in_channels"):
        layer(torch.zeros(1, 1, 5, 5))
    with pytest.raises(ValueError, match="out_channels"):
        HarmonicConv(2, 0)
