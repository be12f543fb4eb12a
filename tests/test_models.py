"""The two skeletons, and what the SESN networks put into them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sesn import ScaleConv, ScaleConv1x1, ScaleLift, ScaleProjection
from sesn.methods import cnn, steerable
from sesn.methods.steerable import Features
from sesn.networks import MNISTScaleNet, Regime, WideResNet, wrn
from sesn.networks.skeleton import ColumnBatchNorm
from sesn.networks.wrn import BlockPlace


def complains(error: type[Exception], *words: str) -> Any:
    return pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, words)))


def plain(regime: Regime, **options: Any) -> MNISTScaleNet:
    return MNISTScaleNet(cnn.mnist_parts(regime), regime, **options)


# MNIST-scale

#: The sigmas and boxes of the eight released networks.
RELEASED: list[tuple[Features, int, bool, list[float], list[int]]] = [
    ("scalar", 28, False, [1.7, 2.45, 3.54, 5.1], [5, 7, 11, 15]),
    ("scalar", 28, True, [1.5, 2.16, 3.12, 4.5], [5, 7, 9, 13]),
    ("vector", 28, False, [1.5, 2.6, 4.5], [5, 7, 13]),
    ("vector", 28, True, [1.5, 2.6, 4.5], [5, 9, 15]),
    ("scalar", 56, False, [2.0, 2.83, 4.0], [7, 11, 15]),
    ("scalar", 56, True, [1.0, 1.73, 3.0], [5, 9, 17]),
    ("vector", 56, False, [2.0, 2.52, 3.17, 4.0], [7, 9, 11, 15]),
    ("vector", 56, True, [1.5, 1.89, 2.38, 3.0], [7, 9, 11, 13]),
]


@pytest.mark.parametrize(("features", "resolution", "augmented", "sigmas", "boxes"), RELEASED)
def test_released_sesn_kernels(
    features: Features, resolution: int, augmented: bool, sigmas: list[float], boxes: list[int]
) -> None:
    basis = steerable.kernels(features, Regime(resolution, augmented, "released")).basis()
    assert (list(basis.grid), list(basis.boxes), len(basis)) == (sigmas, boxes, 49)


@pytest.mark.parametrize("features", ["scalar", "vector"])
@pytest.mark.parametrize("augmented", [False, True])
@pytest.mark.parametrize(("resolution", "sigmas"), [(28, [1.7, 2.45, 3.54, 5.1]), (56, [2.0, 2.52, 3.17, 4.0])])
def test_the_paper_has_one_setting_per_resolution(
    features: Features, augmented: bool, resolution: int, sigmas: list[float]
) -> None:
    basis = steerable.kernels(features, Regime(resolution, augmented)).basis()
    assert (list(basis.grid), basis.kernel_size) == (sigmas, 15)


@pytest.mark.parametrize(("recipe", "mode"), [("paper", "bilinear"), ("released", "nearest")])
def test_the_network_at_56_upsamples_its_input(recipe: Any, mode: str) -> None:
    network = plain(Regime(56, recipe=recipe))
    image = torch.rand(2, 1, 28, 28)
    options = {"align_corners": False} if mode == "bilinear" else {}
    expected = nn.functional.interpolate(image, scale_factor=2, mode=mode, **options)
    torch.testing.assert_close(network.upsample(image), expected)


@pytest.mark.parametrize(("resolution", "window"), [(28, 4), (56, 8)])
def test_the_last_pool_leaves_two_by_two(resolution: int, window: int) -> None:
    network = plain(Regime(resolution))
    pool = network.stages[2][2]  # type: ignore[index]
    assert (pool.kernel_size, pool.stride, pool.padding) == (window, window, 2)
    assert network.stages(network.upsample(torch.rand(1, 1, 28, 28))).shape == (1, 95, 2, 2)


def test_vector_projects_in_the_last_stage_and_scalar_in_each() -> None:
    regime = Regime()
    shapes = {}
    for name, parts in (("scalar", steerable.mnist_scalar(regime)), ("vector", steerable.mnist_vector(regime))):
        network = MNISTScaleNet(parts, regime, channels=(2, 2, 2))
        x, shapes[name] = torch.rand(1, 1, 28, 28), []
        for stage in network.stages:
            x = stage(x)
            shapes[name].append(tuple(x.shape[1:]))
    assert shapes["scalar"] == [(2, 14, 14), (2, 7, 7), (2, 2, 2)]
    assert shapes["vector"] == [(2, 4, 14, 14), (2, 4, 7, 7), (2, 2, 2)]


def test_columns_are_normalised_one_by_one() -> None:
    norm = ColumnBatchNorm(2, 3)
    field = torch.randn(4, 2, 3, 5, 5) * torch.tensor([1.0, 10.0, 100.0])[:, None, None]
    torch.testing.assert_close(norm(field).std(dim=(0, 3, 4)), torch.ones(2, 3), rtol=0.02, atol=0)
    with complains(ValueError, "field.shape[2]", "3"):
        norm(field[:, :, :2])


BAD_REGIMES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"resolution": 32}, ("`resolution` (=32)", "28 or 56")),
    ({"resolution": 28.0}, ("`resolution` (=28.0)", "28 or 56")),
    ({"recipe": "papre"}, ("`recipe` (='papre')", "'paper', 'released'")),
]


@pytest.mark.parametrize(("options", "words"), BAD_REGIMES)
def test_bad_regimes(options: dict[str, Any], words: tuple[str, ...]) -> None:
    with complains(ValueError, *words):
        Regime(**options)


@pytest.mark.parametrize("channels", [(1, 2), (1, 2, 0), 5])
def test_bad_channels(channels: Any) -> None:
    with complains(ValueError, "channels"):
        plain(Regime(), channels=channels)


# The wide ResNet


def wide(letter: str = "a", **options: Any) -> WideResNet:
    parts = steerable.wrn_parts(steerable.DESIGNS[letter])
    return WideResNet(parts, **{"depth": 10, "width": 1, "resolution": 8, **options})


def test_wrn_16_8_has_the_published_shape() -> None:
    with torch.device("meta"):
        network = WideResNet(cnn.wrn_parts("paper"))
        x, shapes = network.stem(torch.ones(1, 3, 96, 96)), []
        for group in network.groups:
            x = group(x)
            shapes.append(tuple(x.shape[1:]))
    assert shapes == [(128, 96, 96), (256, 48, 48), (512, 24, 24)]
    assert [len(group) for group in network.groups] == [2, 2, 2]  # type: ignore[arg-type]


def test_a_block_whose_width_changes_activates_its_skip_and_another_does_not() -> None:
    changing = wrn.WideBlock(cnn.wrn_parts("paper"), 0, 0, 2, 4, 1).eval()
    keeping = wrn.WideBlock(cnn.wrn_parts("paper"), 0, 1, 4, 4, 1).eval()
    for block in (changing, keeping):
        nn.init.zeros_(block.conv2.weight)  # type: ignore[arg-type]
    assert keeping.shortcut is None
    assert changing.shortcut is not None
    x, y = -torch.rand(1, 2, 6, 6), -torch.rand(1, 4, 6, 6)
    assert not changing(x).any()  # the ReLU before the skip
    torch.testing.assert_close(keeping(y), y)


def test_sesn_b_projects_the_residual_branch_only() -> None:
    firsts = [group[0] for group in wide("b").groups]  # type: ignore[index]
    assert [isinstance(block.conv1, nn.Sequential) for block in firsts] == [False, True, True]
    for block in firsts[1:]:
        assert [type(module) for module in block.conv1] == [ScaleProjection, ScaleLift]
        assert isinstance(block.shortcut, ScaleConv1x1)
        assert isinstance(block.conv2, ScaleConv)


def test_sesn_c_looks_across_scales_in_one_layer_and_has_wider_kernels() -> None:
    convs = [m for m in wide("c").modules() if isinstance(m, ScaleConv)]
    assert [conv.interscale for conv in convs] == [2, 1, 1, 1, 1, 1]
    assert [round(sigma, 3) for sigma in convs[0].grid] == [1.1, 1.551, 2.187]
    assert [round(sigma, 3) for sigma in wide("a").stem.grid] == [0.9, 1.269, 1.789]  # type: ignore[union-attr]


def test_weights_start_from_fan_out() -> None:
    torch.manual_seed(0)
    network = WideResNet(steerable.wrn_parts(steerable.DESIGNS["a"]), depth=10, width=2, resolution=8)
    for name, weights_per_input in (("groups.2.0.conv2", 128 * 9), ("groups.2.0.shortcut", 128)):
        weight: Tensor = network.get_submodule(name).weight  # type: ignore[assignment]
        assert float(weight.detach().std()) == pytest.approx((2 / weights_per_input) ** 0.5, rel=0.05)
    assert not network.classifier.bias.any()


def test_places_know_the_entry_of_a_group() -> None:
    places = BlockPlace(0, 0), BlockPlace(0, 0, False), BlockPlace(0, 1)
    assert [place.enters_group for place in places] == [True, False, False]


BAD_SIZES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"depth": 12}, ("`depth` (=12)", "6 n + 4", "16")),
    ({"depth": 4}, ("`depth` (=4)", "at least 10")),
    ({"width": 0}, ("`width` (=0)", "at least 1")),
    ({"resolution": 10}, ("`resolution` (=10)", "multiple of 4")),
]


@pytest.mark.parametrize(("options", "words"), BAD_SIZES)
def test_bad_sizes(options: dict[str, Any], words: tuple[str, ...]) -> None:
    with complains(ValueError, *words):
        wide(**options)
