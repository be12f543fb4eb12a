"""Deep scale-spaces: the blur's values, the dilated convolution against its definition, shifts and bad input."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sesn.methods.dss import DSSConv, DSSLift, blur_variance, discrete_gaussian


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def slow_dss(field: Tensor, weight: Tensor, base: int, stride: int) -> Tensor:
    """Kernels with their zeros written out, and zeros appended past the coarsest scale."""
    side, interscale = weight.shape[-1], weight.shape[2]
    out = []
    for k in range(field.shape[2]):
        dilation = base**k
        full = torch.zeros(*weight.shape[:3], *[dilation * (side - 1) + 1] * 2, dtype=weight.dtype)
        full[..., ::dilation, ::dilation] = weight
        total = torch.zeros(())
        for i in range(interscale):
            seen = field[:, :, k + i] if k + i < field.shape[2] else torch.zeros_like(field[:, :, 0])
            total = total + F.conv2d(seen, full[:, :, i], stride=stride, padding=dilation * (side // 2))
        out.append(total)
    return torch.stack(out, dim=2)


# The blur


def test_the_taps_of_the_released_mnist_blur() -> None:
    t = blur_variance(1, 2, 0.25)
    taps = discrete_gaussian(t, 4 * math.ceil(math.sqrt(t)))
    assert t == pytest.approx(0.1875)
    assert len(taps) == 9
    torch.testing.assert_close(
        taps[2:7], torch.tensor([0.00365, 0.07806, 0.83633, 0.07806, 0.00365]).double(), atol=5e-6, rtol=0
    )


def test_the_blurs_of_stl() -> None:
    variances = [blur_variance(k, 2, 0.5) for k in (1, 2, 3)]
    assert variances == pytest.approx([0.75, 3.75, 15.75])
    assert [4 * math.ceil(math.sqrt(t)) for t in variances] == [4, 8, 16]


@pytest.mark.parametrize("t", [0.1, 3.75, 15.75, 200.0])
def test_the_discrete_gaussian_is_the_bessel_function(t: float) -> None:
    special = pytest.importorskip("scipy.special")
    radius = 4 * math.ceil(math.sqrt(t))
    expected = torch.from_numpy(special.ive(range(-radius, radius + 1), t))
    torch.testing.assert_close(discrete_gaussian(t, radius), expected / expected.sum(), atol=1e-14, rtol=1e-9)


def test_the_lift_blurs_each_channel_along_both_axes() -> None:
    image = normal(2, 3, 9, 11)
    field = DSSLift(3, zero_scale=0.5)(image)
    assert torch.equal(field[:, :, 0], image)
    for k, radius in ((1, 4), (2, 8)):
        taps = discrete_gaussian(blur_variance(k, 2, 0.5), radius)
        plane = (taps[:, None] * taps).expand(3, 1, -1, -1)
        torch.testing.assert_close(field[:, :, k], F.conv2d(image, plane, padding=radius, groups=3))


def test_the_lift_makes_its_matrices_once_and_follows_the_dtype() -> None:
    lift = DSSLift(2)
    image = normal(1, 1, 8, 8)
    first = lift._matrices(8, image)
    assert lift._matrices(8, image) is first
    assert lift(image.float()).dtype == torch.float32
    assert len(copy.deepcopy(lift)._store) == 0
    assert not lift.state_dict()
    with torch.inference_mode():
        lift(torch.ones(1, 1, 5, 5))
    lift(torch.ones(1, 1, 5, 5, requires_grad=True)).sum().backward()


# The convolution


@pytest.mark.parametrize("interscale", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(7, 7), (6, 17)])
def test_the_dilated_convolution_is_its_definition(interscale: int, stride: int, size: tuple[int, int]) -> None:
    layer = DSSConv(2, 3, 5, scales=4, interscale=interscale, stride=stride, dtype=torch.float64)
    field = normal(2, 2, 4, *size).requires_grad_()
    out, expected = layer(field), slow_dss(field, layer.weight, 2, stride)
    torch.testing.assert_close(out, expected)
    seed = normal(*out.shape)
    for a, b in zip(
        torch.autograd.grad(out, [field, layer.weight], seed),
        torch.autograd.grad(expected, [field, layer.weight], seed),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_he_and_delta_weights() -> None:
    torch.manual_seed(0)
    he = DSSConv(16, 64, 3, scales=2, interscale=2).weight.detach()
    assert float(he.std()) == pytest.approx(math.sqrt(2 / (9 * 2 * 16)), rel=0.03)
    square, wide = (DSSConv(c, o, 3, 2, interscale=2, init="delta").weight.detach() for c, o in ((4, 4), (16, 128)))
    assert torch.equal(square[:, :, 0, 1, 1].diagonal(), torch.ones(4))
    assert float(wide[8 * 3 + 5, 3, 1, 1, 1]) == 0.125
    assert int((wide == 0.125).sum()) == 128 * 2
    assert float(wide[wide != 0.125].abs().max()) <= 0.01


def test_shifts_commute_exactly_away_from_the_border() -> None:
    lift, layer = DSSLift(2), DSSConv(1, 2, 3, scales=2, dtype=torch.float64)
    image = torch.zeros(1, 1, 32, 32, dtype=torch.float64)
    image[..., 12:18, 12:18] = normal(1, 1, 6, 6)
    moved = image.roll((2, 3), (-2, -1))
    torch.testing.assert_close(layer(lift(moved)), layer(lift(image)).roll((2, 3), (-2, -1)), atol=1e-14, rtol=0)


# Bad input


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kernel_size": 4}, "kernel_size.*odd"),
        ({"scales": 0}, "scales.*at least 1"),
        ({"interscale": 3}, "interscale.*at most the number of scales"),
        ({"base": 1}, "base.*at least 2"),
        ({"init": "zeros"}, "init.*'he', 'delta'"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DSSConv(**{"in_channels": 1, "out_channels": 2, "kernel_size": 3, "scales": 2, **settings})  # type: ignore[arg-type]


def test_bad_fields_are_named() -> None:
    layer = DSSConv(2, 3, 3, scales=2)
    with pytest.raises(ValueError, match=r"field.shape\[2\].*number of scales"):
        layer(torch.zeros(1, 2, 3, 5, 5))
    with pytest.raises(ValueError, match=r"field.shape\[1\].*in_channels"):
        layer(torch.zeros(1, 1, 2, 5, 5))
    with pytest.raises(TypeError, match=r"field\.dtype"):
        layer(torch.zeros(1, 2, 2, 5, 5, dtype=torch.float64))
    with pytest.raises(ValueError, match="zero_scale"):
        DSSLift(2, zero_scale=0.0)
    with pytest.raises(ValueError, match=r"`zero_scale` \(='small'\)"):
        DSSLift(2, zero_scale="small")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="scales"):
        DSSLift((1.0, 2.0))  # type: ignore[arg-type]


def test_the_repr_says_in_and_out() -> None:
    assert (
        repr(DSSConv(2, 3, 3, 4, interscale=2, stride=2))
        == "DSSConv(2 -> 3, kernel_size=3, scales=4, interscale=2, stride=2)"
    )
