"""SI-ConvNet: sizes and borders as released, the layer against its definition, gradients, bad input."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sesn.methods.si_convnet import SIConv, rescaled_size, warp

MNIST = (0.3, 0.45, 0.67, 1, 1.49, 2.23, 3.33)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def slow_warp(x: Tensor, scale: float) -> Tensor:
    """torch's own resizing, then the crop or the zeros."""
    sides = [math.floor(side * scale) for side in x.shape[-2:]]
    resized = F.interpolate(x, size=sides, mode="bilinear", align_corners=True)
    before = [(old - new) // 2 for old, new in zip(x.shape[-2:], sides, strict=True)]
    after = [old - new - b for old, new, b in zip(x.shape[-2:], sides, before, strict=True)]
    return F.pad(resized, (before[1], after[1], before[0], after[0]))


def slow_layer(x: Tensor, layer: SIConv) -> Tensor:
    maps = []
    for scale in layer.scales:
        warped = slow_warp(x, scale)
        response = F.conv2d(warped, layer.weight, layer.bias, layer.stride, layer.kernel_size // 2)
        maps.append(slow_warp(response, 1 / scale))
    return torch.stack(maps).amax(dim=0)


def test_the_released_sizes() -> None:
    assert [rescaled_size(28, scale) for scale in MNIST] == [8, 12, 18, 28, 41, 62, 93]
    assert [rescaled_size(28, 1 / scale) for scale in MNIST] == [93, 62, 41, 28, 18, 12, 8]


@pytest.mark.parametrize(("scale", "rows"), [(1.49, (5, 22)), (2.23, (8, 19)), (3.33, (10, 17))])
def test_enlarged_scales_answer_in_the_middle_only(scale: float, rows: tuple[int, int]) -> None:
    used = warp(28, 1 / scale).sum(dim=1).nonzero()[:, 0].tolist()
    assert used == list(range(rows[0], rows[1] + 1))
    layer = SIConv(1, 2, 3, (scale,))
    torch.nn.init.constant_(layer.bias, -1.0)  # type: ignore[arg-type]
    out = layer(torch.zeros(1, 1, 28, 28))
    seen = out[0, 0].nonzero()
    assert (int(seen.min()), int(seen.max())) == rows
    assert float(out.max().detach()) == 0.0  # exactly, beyond the middle


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [(7, 7), (14, 9), (28, 28)])
def test_the_layer_is_its_definition(stride: int, bias: bool, size: tuple[int, int]) -> None:
    layer = SIConv(2, 3, 5, MNIST, stride=stride, bias=bias, dtype=torch.float64)
    image = normal(2, 2, *size).requires_grad_()
    out, expected = layer(image), slow_layer(image, layer)
    assert out.shape[-2:] == tuple(math.ceil(side / stride) for side in size)
    torch.testing.assert_close(out, expected)
    seed = normal(*out.shape)
    leaves = [image, *layer.parameters()]
    gradients = [torch.autograd.grad(y, leaves, seed) for y in (out, expected)]
    for found, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(found, wanted)


def test_shrunk_scales_compute_only_what_survives() -> None:
    layer = SIConv(1, 1, 3, (0.3, 1))
    responses = layer._back(28, 0.3).shape[1]
    assert responses <= 28 * 0.3 + 2
    assert layer._to(28, 0.3).shape == (responses + 2, 28)


def test_constants_are_made_once_and_not_saved() -> None:
    layer = SIConv(1, 2, 3, (0.5, 1, 2))
    image = torch.zeros(1, 1, 8, 8)
    layer(image)
    kept = dict(layer._store._kept)
    layer(image)
    assert kept
    assert all(layer._store._kept[key] is value for key, value in kept.items())
    assert list(layer.state_dict()) == ["weight", "bias"]
    assert layer.double()(image.double()).dtype == torch.float64


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"kernel_size.*odd"):
        SIConv(1, 2, 4, (1,))
    with pytest.raises(ValueError, match=r"scales.*positive"):
        SIConv(1, 2, 3, ())
    layer = SIConv(2, 3, 3, (0.5, 1, 4), bias=False)
    with pytest.raises(ValueError, match=r"image side.*=3.*at scale 4"):
        layer(torch.zeros(1, 2, 3, 3))
    with pytest.raises(ValueError, match=r"image.shape\[1\].*in_channels"):
        layer(torch.zeros(1, 1, 8, 8))
    assert repr(layer) == "SIConv(2 -> 3, kernel_size=3, scales=(0.5, 1, 4), bias=False)"
