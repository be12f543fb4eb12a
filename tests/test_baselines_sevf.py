"""SEVF: scales, angles and sizes, the layers against their definition, gradients at zero, vector pooling and norm."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesn import equivariance_error
from sesn.methods._vectors import VectorBatchNorm, VectorMagnitude, VectorMaxPool
from sesn.methods.sevf import SEVFConv, SEVFLift, rescaled_size, sevf_angles, sevf_scales

SCALES, ANGLES = sevf_scales(), sevf_angles()


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def slow_scale(x: Tensor, weight: Tensor, scale: float, stride: int) -> Tensor:
    side = weight.shape[-1]
    sizes = [round(size * scale) for size in x.shape[-2:]]
    resized = F.interpolate(x, size=sizes, mode="bilinear", align_corners=False)
    response = F.conv2d(resized, weight, stride=stride, padding=side // 2)
    outputs = [(size + 1 + 2 * (side // 2) - side) // stride for size in x.shape[-2:]]
    return F.interpolate(response, size=outputs, mode="bilinear", align_corners=False)


def slow_vectors(responses: list[Tensor]) -> Tensor:
    value, index = torch.stack(responses).max(dim=0)
    angle = torch.tensor(ANGLES, dtype=value.dtype)[index]
    return torch.stack([value.relu() * angle.cos(), value.relu() * angle.sin()], dim=2)


# Scales, angles, sizes


def test_the_eight_scales_and_angles() -> None:
    assert pytest.approx((0.397, 0.5, 0.63, 0.794, 1, 1.26, 1.588, 2.0), abs=6e-4) == SCALES
    degrees = [math.degrees(angle) for angle in ANGLES]
    assert (degrees[0], degrees[4], degrees[7]) == pytest.approx((-68.57, 0, 51.43), abs=5e-3)
    assert [math.degrees(angle) for angle in sevf_angles(3)] == pytest.approx([-17.14, 0, 17.14], abs=5e-3)


@pytest.mark.parametrize(
    ("size", "sizes"),
    [
        (7, [3, 3, 4, 6, 7, 9, 11, 14]),
        (14, [6, 7, 9, 11, 14, 18, 22, 28]),
        (28, [11, 14, 18, 22, 28, 35, 44, 56]),
        (56, [22, 28, 35, 44, 56, 71, 89, 112]),
    ],
)
def test_the_sizes(size: int, sizes: list[int]) -> None:
    assert [rescaled_size(size, scale) for scale in SCALES] == sizes


# The layers


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(7, 7), (12, 9)])
def test_the_lift_is_its_definition(stride: int, size: tuple[int, int]) -> None:
    layer = SEVFLift(2, 3, 7, SCALES, ANGLES, stride=stride, dtype=torch.float64)
    image = normal(2, 2, *size)
    expected = slow_vectors([slow_scale(image, layer.weight, scale, stride) for scale in SCALES])
    torch.testing.assert_close(layer(image), expected)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel_size", [1, 3, 7])
def test_the_convolution_is_its_definition(stride: int, kernel_size: int) -> None:
    layer = SEVFConv(2, 3, kernel_size, SCALES, ANGLES, stride=stride, dtype=torch.float64)
    field = normal(2, 2, 2, 8, 11).requires_grad_()
    u, v = field.unbind(2)
    responses = []
    for scale, a in zip(SCALES, ANGLES, strict=True):
        turned_u = layer.weight_u * math.cos(a) + layer.weight_v * math.sin(a)
        turned_v = -layer.weight_u * math.sin(a) + layer.weight_v * math.cos(a)
        responses.append(slow_scale(u, turned_u, scale, stride) + slow_scale(v, turned_v, scale, stride))
    out, expected = layer(field), slow_vectors(responses)
    torch.testing.assert_close(out, expected)
    seed, leaves = normal(*out.shape), [field, *layer.parameters()]
    gradients = [torch.autograd.grad(y, leaves, seed) for y in (out, expected)]
    for found, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(found, wanted)


def test_of_equal_scales_the_first_gives_the_direction() -> None:
    layer = SEVFLift(1, 1, 3, (0.4, 0.45), (0.5, 1.0))
    assert [rescaled_size(7, scale) for scale in layer.scales] == [3, 3]
    out = layer(torch.randn(4, 1, 7, 7))
    length = VectorMagnitude()(out)
    torch.testing.assert_close(out[:, :, 0], length * math.cos(0.5))


def test_gradients_at_zero_are_finite() -> None:
    lift, conv = SEVFLift(1, 2, 3, SCALES, ANGLES), SEVFConv(2, 2, 3, SCALES, ANGLES)
    norm, pool, magnitude = VectorBatchNorm(2), VectorMaxPool(2), VectorMagnitude()
    image = torch.zeros(2, 1, 8, 8, requires_grad=True)
    magnitude(norm(pool(conv(lift(image))))).sum().backward()
    leaves = [image, *lift.parameters(), *conv.parameters()]
    assert all(leaf.grad is not None and bool(leaf.grad.isfinite().all()) for leaf in leaves)


# Vectors


def test_the_magnitude_is_the_length_and_flat_at_zero() -> None:
    field = torch.tensor([[3.0, 0.0, 1e-30], [4.0, 0.0, 0.0]], requires_grad=True)
    out = VectorMagnitude()(field.reshape(1, 1, 2, 1, 3))
    assert out.flatten().tolist() == pytest.approx([5, 0, 0])
    out.sum().backward()
    assert field.grad is not None
    torch.testing.assert_close(field.grad, torch.tensor([[0.6, 0, 0], [0.8, 0, 0]]))


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, None, 0), (4, 4, 2), (3, 1, 1)])
def test_pooling_picks_the_longest_vector(kernel: int, stride: int | None, padding: int) -> None:
    field = normal(2, 3, 2, 7, 6)
    pooled = VectorMaxPool(kernel, stride, padding)(field)
    lengths = F.max_pool2d(VectorMagnitude()(field), kernel, stride, padding)
    torch.testing.assert_close(VectorMagnitude()(pooled), lengths)
    present = {tuple(pair) for pair in field[0, 0].flatten(1).T.tolist()}
    assert all(tuple(pair) in present for pair in pooled[0, 0].flatten(1).T.tolist())


def test_the_norm_divides_by_the_spread_of_the_lengths() -> None:
    norm = VectorBatchNorm(3, dtype=torch.float64)
    field = normal(2, 3, 2, 4, 5)
    lengths = VectorMagnitude()(field)
    biased = lengths.var(dim=(0, 2, 3), correction=0)
    torch.testing.assert_close(norm(field), field / (biased + 1e-5).sqrt()[:, None, None, None])
    running = 0.5 + 0.5 * lengths.var(dim=(0, 2, 3))
    torch.testing.assert_close(norm.running_var, running)
    torch.testing.assert_close(norm.eval()(field), field / (running + 1e-5).sqrt()[:, None, None, None])
    assert list(copy.deepcopy(norm).state_dict()) == ["running_var"]


def test_the_released_norm_carries_its_unused_weight() -> None:
    norm = VectorBatchNorm(23, recipe="released")
    assert sum(p.numel() for p in norm.parameters()) == 23
    assert norm.unused_parameters == ("weight",)
    assert sum(p.numel() for p in VectorBatchNorm(23).parameters()) == 0


# Bad input


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match=r"angles.*3 numbers"):
        SEVFLift(1, 2, 3, (0.5, 1, 2), (0.0,))
    with pytest.raises(ValueError, match=r"angles.*radians"):
        SEVFLift(1, 2, 3, (0.67, 1, 1.5), (-17.14, 0, 17.14))
    with pytest.raises(ValueError, match=r"base.*greater than 1"):
        sevf_scales(base=1)
    with pytest.raises(ValueError, match=r"base.*='2'.*a number"):
        sevf_scales(base="2")  # type: ignore[arg-type]
    for words in (("half", "one"), "12", 3):
        with pytest.raises(TypeError, match=r"`scales`.*a sequence of numbers"):
            SEVFLift(1, 2, 3, words, (0.0, 1.0))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"`angles`.*a sequence of numbers"):
            SEVFLift(1, 2, 3, (0.5, 1), words)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"count.*at least 1"):
        sevf_angles(0)
    with pytest.raises(ValueError, match=r"padding.*half"):
        VectorMaxPool(2, padding=2)
    with pytest.raises(ValueError, match=r"recipe.*'paper'"):
        VectorBatchNorm(2, recipe="mine")  # type: ignore[arg-type]


def test_bad_fields_are_named() -> None:
    layer = SEVFConv(2, 3, 3, SCALES, ANGLES)
    for wrong in (torch.zeros(1, 2, 3, 8, 8), torch.zeros(1, 2, 8, 8)):
        for module in (layer, VectorMagnitude(), VectorMaxPool(2), VectorBatchNorm(2)):
            with pytest.raises(ValueError, match=r"vectors\.shape.*SEVFLift"):
                module(wrong)
    with pytest.raises(ValueError, match=r"vectors.shape\[1\].*in_channels"):
        layer(torch.zeros(1, 1, 2, 8, 8))
    with pytest.raises(ValueError, match=r"input side.*large enough"):
        layer(torch.zeros(1, 2, 2, 1, 1))
    with pytest.raises(ValueError, match="more than one vector"):
        VectorBatchNorm(2)(torch.zeros(1, 2, 2, 1, 1))
    assert repr(SEVFLift(1, 2, 3, (0.5, 1), (0, 1))) == "SEVFLift(1 -> 2, kernel_size=3, scales=(0.5, 1))"


def test_lengths_in_half_precision_neither_overflow_nor_vanish() -> None:
    field = torch.tensor([[300.0, 1e-4], [0.0, 1e-4]]).reshape(1, 1, 2, 1, 2)
    lengths = VectorMagnitude()(field.half()).float()
    torch.testing.assert_close(lengths, VectorMagnitude()(field), rtol=1e-2, atol=0)
    two = torch.tensor([[300.0, 400.0], [0.0, 0.0]]).reshape(1, 1, 2, 1, 2).half()
    assert VectorMaxPool(2, 1, 1)(two).amax() == 400


def test_the_meter_refuses_a_norm_in_train_mode() -> None:
    network = nn.Sequential(SEVFLift(1, 2, 5, [1.0], [0.0]), VectorBatchNorm(2), VectorMagnitude())
    before = {key: value.clone() for key, value in network.state_dict().items()}
    with pytest.raises(ValueError, match="train mode"):
        equivariance_error(network, torch.rand(2, 1, 16, 16), 0.5)
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())
