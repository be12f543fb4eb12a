"""How far a module is said to look, against the gradients that say how far it does."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from sesn import ScaleConv1x1, ScaleLift, SpatialMaxPool, diagnose, equivariance_error
from sesn.meter.extent import seen_by
from sesn.meter.reading import read
from sesn.meter.receptive import Receptive
from sesn.methods import METHODS
from sesn.methods._vectors import VectorMaxPool
from sesn.methods.method import CHANNELS, HIDDEN_SCALES
from sesn.methods.sevf import SEVFLift
from sesn.methods.si_convnet import SIConv
from sesn.strategies import lifts

IMAGE = (1, 1, 97, 97)


def receptive_field(module: nn.Module, shape: tuple[int, ...] = IMAGE) -> Receptive:
    """As the path of an output says it, on an input of this shape."""
    with torch.no_grad():
        return read(module.eval(), torch.zeros(shape)).seen


def seen_radius(module: nn.Module, shape: tuple[int, ...], stride: float = 1) -> float:
    """How far from its own place an output in the middle depends on the input, by gradients.

    Weights and input are positive, so that nothing cancels and no rectifier is shut; what the rounding of the spectral
    algorithm leaves does not count.
    """
    generator = torch.Generator().manual_seed(0)
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 + torch.rand(parameter.shape, generator=generator, dtype=torch.float64))
    input_ = (0.5 + torch.rand(shape, generator=generator, dtype=torch.float64)).requires_grad_()
    output: Tensor = module(input_)
    place = output.shape[-1] // 2
    output[..., place, place].sum().backward()
    assert input_.grad is not None
    slopes = input_.grad.abs().flatten(0, -3).sum(dim=0)
    used = (slopes > 1e-12 * slopes.max()).nonzero()
    return float((used - place * stride).abs().max())


@given(
    half=st.integers(0, 3),
    dilation=st.integers(1, 3),
    stride=st.integers(1, 3),
    pool=st.integers(1, 3),
    second=st.integers(0, 2),
)
def test_the_radius_of_ordinary_layers_is_exact(half: int, dilation: int, stride: int, pool: int, second: int) -> None:
    network = nn.Sequential(
        nn.Conv2d(1, 2, 2 * half + 1, stride=stride, padding=half * dilation, dilation=dilation),
        nn.AvgPool2d(2 * pool - 1, stride=1, padding=pool - 1),
        nn.Conv2d(2, 1, 2 * second + 1, padding=second),
    )
    seen = receptive_field(network)
    assert seen == Receptive(half * dilation + (pool - 1 + second) * stride, stride)
    assert seen_radius(network, IMAGE, stride) == seen.radius


@given(layer=lifts(channels=(1, 1), stride=st.integers(1, 2)))
def test_no_steerable_layer_looks_farther_than_it_says(layer: ScaleLift) -> None:
    side = 4 * layer.receptive_radius + 5
    assert seen_radius(layer, (1, 1, side, side), layer.stride) <= receptive_field(layer, (1, 1, side, side)).radius


@pytest.mark.parametrize("key", sorted(METHODS))
def test_no_method_looks_farther_than_its_layer_says(key: str) -> None:
    layer = METHODS[key].first_layer(1, 2)
    assert 0 < seen_radius(layer, IMAGE) <= receptive_field(layer).radius


@pytest.mark.parametrize("key", sorted(key for key, layers in METHODS.items() if layers.between is not None))
def test_no_layer_between_fields_looks_farther_than_it_says(key: str) -> None:
    between = METHODS[key].between
    assert between is not None
    layer = between()
    field = (1, CHANNELS, HIDDEN_SCALES, *IMAGE[2:])
    assert 0 < seen_radius(layer, field) <= receptive_field(layer, field).radius


@given(
    scale=st.floats(0.3, 2.0),
    side=st.integers(40, 110),
    half=st.integers(1, 4),
    stride=st.integers(1, 2),
    layer=st.sampled_from([SIConv, partial(SEVFLift, angles=[0.0])]),
)
@example(scale=0.30078125, side=69, half=1, stride=2, layer=SIConv)
def test_methods_that_resize_look_no_farther_than_they_say(
    scale: float, side: int, half: int, stride: int, layer: Callable[..., nn.Module]
) -> None:
    made = layer(1, 1, 2 * half + 1, [scale], stride=stride)
    seen = receptive_field(made).radius
    assert seen_radius(made, (1, 1, side, side), stride) <= seen


@pytest.mark.parametrize(
    ("up", "seen"),
    [
        (nn.Upsample(scale_factor=2, mode="bilinear"), Receptive(3 + 2, 1, -0.5)),
        (nn.Upsample(scale_factor=2, mode="bicubic"), Receptive(3 + 4, 1, -0.5)),
        (nn.Upsample(scale_factor=2), Receptive(3 + 2, 1, -0.5)),
        (nn.ConvTranspose2d(1, 1, 4, stride=2, padding=1), Receptive(3 + 2, 1, -0.5)),
        (nn.ConvTranspose2d(1, 1, 7, stride=2, padding=3, output_padding=1), Receptive(3 + 4, 1, 0)),
    ],
    ids=str,
)
def test_what_upsampling_gives_back_is_no_longer_strided(up: nn.Module, seen: Receptive) -> None:
    network = nn.Sequential(nn.Conv2d(1, 1, 7, stride=2, padding=3), up)
    assert receptive_field(network) == seen
    assert seen_radius(network, IMAGE) <= seen.radius


def test_pools_and_pointwise_layers_of_the_library() -> None:
    field = 1, 1, 2, 98, 98
    network = nn.Sequential(SpatialMaxPool(3, 2), ScaleConv1x1(1, 1, stride=2))
    assert receptive_field(network, field) == Receptive(1, 4, 1)
    assert receptive_field(VectorMaxPool(4), (1, 2, 2, 98, 98)) == Receptive(2, 4, 1.5)
    assert receptive_field(nn.ReLU()) == Receptive()


class Blur(nn.Module):
    """A layer of somebody else's that says how far it sees."""

    receptive_radius = 5
    stride = 1

    def forward(self, image: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(image, 11, 1, 5)


def test_the_crop_follows_what_a_layer_of_ones_own_says() -> None:
    pictures = torch.rand(2, 1, 64, 64, generator=torch.Generator().manual_seed(0)) - 0.5
    assert equivariance_error(Blur(), pictures, 0.5).crop == 6  # 5 / 2 + 3, rounded up
    assert equivariance_error(nn.Identity(), pictures, 0.5).crop == 3


class Residual(nn.Module):
    """Two branches beside each other, both strided."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.branch = nn.Conv2d(1, 1, 5, stride=stride, padding=2)
        self.shortcut = nn.Conv2d(1, 1, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.branch(x)) + self.shortcut(x)


@given(strides=st.lists(st.integers(1, 3), min_size=1, max_size=3), side=st.integers(60, 99))
def test_strides_of_parallel_branches_do_not_multiply(strides: list[int], side: int) -> None:
    blocks = nn.Sequential(*map(Residual, strides))
    images = torch.zeros(1, 1, side, side)
    assert seen_by(blocks, images).stride == math.prod(strides)
    assert read(nn.Sequential(blocks, nn.AdaptiveAvgPool2d(1)), images).sampling[0] == math.prod(strides)


def test_shortcuts_leave_the_crop_alone() -> None:
    images = torch.arange(97.0 * 97).reshape(1, 1, 97, 97).sin()
    with_shortcut = nn.Sequential(Residual(2), Residual(2)).eval()
    without = nn.Sequential(*(block.branch for block in with_shortcut)).eval()  # type: ignore[misc]
    crops = [equivariance_error(network, images, 0.5).crop for network in (with_shortcut, without)]
    assert crops[0] >= crops[1] > 1


def test_a_convolution_over_three_axes_is_read_along_rows_and_columns() -> None:
    assert receptive_field(nn.Conv3d(1, 1, (9, 7, 5), stride=(4, 2, 1), padding=3), (1, 1, 9, 97, 97)) == Receptive(
        3, 2, 0
    )


def middle_of_window(module: nn.Module, side: int, place: int) -> float:
    """The centre of mass of what an output depends on, all weights being equal."""
    module = module.double().eval()
    for parameter in module.parameters():
        nn.init.ones_(parameter)
    image = torch.ones(1, 1, side, side, dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(module(image)[..., place, place].sum(), image)
    weights = slopes[0, 0].sum(0)
    return float((weights * torch.arange(side)).sum() / weights.sum())


@given(
    side=st.integers(1, 5),
    dilation=st.integers(1, 2),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    pool=st.integers(1, 4),
    finer=st.sampled_from([1, 2]),
)
def test_the_place_where_an_output_looks(
    side: int, dilation: int, stride: int, padding: int, pool: int, finer: int
) -> None:
    network = nn.Sequential(
        nn.Conv2d(1, 1, side, stride=stride, padding=padding, dilation=dilation),
        nn.AvgPool2d(pool, padding=pool // 2),
        nn.Upsample(scale_factor=finer, mode="bilinear"),
    )
    seen = receptive_field(network, (1, 1, 160, 160))
    place = 2 * (50 // int(2 * seen.stride))  # even: bilinear weights alternate
    two = [middle_of_window(network, 160, place + one) for one in (0, finer - 1)]
    wanted = [seen.first + seen.stride * (place + one) for one in (0, finer - 1)]
    assert sum(two) == pytest.approx(sum(wanted))


@pytest.mark.parametrize(("pool", "centred", "off"), [(2, (96, 48), (95, 47)), (3, (97, 49), (96, 48))])
def test_centred_windows_are_not_blamed_and_others_are(
    pool: int, centred: tuple[int, int], off: tuple[int, int]
) -> None:
    """Centred: a pool as wide as its stride on even sides, an odd window where N - 1 is a multiple of the stride."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.AvgPool2d(pool, 2, padding=(pool - 1) // 2)).eval()

    def blamed(side: int, small: int) -> bool:
        # Slow enough waves that half of the pixels still hold them.
        line = torch.arange(float(side))
        images = ((0.4 * line).sin()[:, None] * (0.3 * line).cos())[None, None]
        error = equivariance_error(network, images, small / side)
        return any(finding.cause.startswith("stride phase") for finding in diagnose(network, images, error))

    assert not blamed(*centred)
    assert blamed(*off)
