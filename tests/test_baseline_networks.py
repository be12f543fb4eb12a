"""How the baselines stand in the two networks: scales, sizes, and where they are projected and normalised."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sesn import ScaleBatchNorm, ScaleConv1x1, ScaleProjection
from sesn.methods import dss, sevf, sicnn, ss_cnn
from sesn.methods._vectors import VectorBatchNorm, VectorMagnitude
from sesn.methods.dss import DSSConv, DSSLift
from sesn.methods.sevf import SEVFConv, SEVFLift
from sesn.methods.sicnn import SiCNNConv, SiCNNLift
from sesn.methods.ss_cnn import SSConv
from sesn.networks import MNISTScaleNet, Regime, WideResNet, mnist, wrn
from sesn.networks.skeleton import ColumnBatchNorm


def small(parts: mnist.PartsOf, **regime: Any) -> MNISTScaleNet:
    chosen = Regime(**regime)
    return MNISTScaleNet(parts(chosen), chosen, channels=(2, 3, 4))


def wide(parts: wrn.BlockParts, depth: int = 10) -> WideResNet:
    return WideResNet(parts, depth, width=1, resolution=8)


def types(network: nn.Module, *wanted: type[nn.Module]) -> list[type[nn.Module]]:
    return [type(module) for module in network.modules() if isinstance(module, wanted)]


# MNIST-scale


def test_sicnn_vector_projects_after_the_last_norm_and_scalar_after_each_layer() -> None:
    order = (SiCNNLift, SiCNNConv, ColumnBatchNorm, nn.BatchNorm2d, ScaleProjection)
    assert types(small(sicnn.mnist_vector), *order) == [
        SiCNNLift, ColumnBatchNorm, SiCNNConv, ColumnBatchNorm, SiCNNConv, ColumnBatchNorm, ScaleProjection
    ]  # fmt: skip
    assert types(small(sicnn.mnist_scalar), *order) == [SiCNNLift, ScaleProjection, nn.BatchNorm2d] * 3


def test_sevf_has_no_norm_after_its_last_layer() -> None:
    order = (SEVFLift, SEVFConv, VectorBatchNorm, nn.BatchNorm2d, VectorMagnitude)
    assert types(small(sevf.mnist_vector), *order) == [
        SEVFLift, VectorBatchNorm, SEVFConv, VectorBatchNorm, SEVFConv, VectorMagnitude
    ]  # fmt: skip
    scalar = [SEVFLift, VectorMagnitude, nn.BatchNorm2d] * 3
    assert types(small(sevf.mnist_scalar), *order) == scalar[:-1]


def test_dss_vector_lifts_once_and_scalar_before_each_layer() -> None:
    order = (DSSLift, DSSConv, ScaleBatchNorm, nn.BatchNorm2d, ScaleProjection)
    assert types(small(dss.mnist_vector), *order) == [DSSLift, *[DSSConv, ScaleBatchNorm] * 3, ScaleProjection]
    assert types(small(dss.mnist_scalar), *order) == [DSSLift, DSSConv, ScaleProjection, nn.BatchNorm2d] * 3


@pytest.mark.parametrize(("recipe", "scales"), [("paper", 4), ("released", 2)])
def test_dss_has_fewer_scales_as_released(recipe: str, scales: int) -> None:
    convs = [m for m in small(dss.mnist_vector, recipe=recipe).modules() if isinstance(m, DSSConv)]
    assert [conv.scales for conv in convs] == [scales] * 3


SIZES: list[tuple[str, int, range]] = [
    ("paper", 28, range(5, 16, 2)),
    ("released", 28, range(5, 14, 2)),
    ("paper", 56, range(7, 18, 2)),
    ("released", 56, range(7, 18, 2)),
]


@pytest.mark.parametrize(("recipe", "resolution", "sizes"), SIZES)
def test_ss_cnn_sizes(recipe: str, resolution: int, sizes: range) -> None:
    network = small(ss_cnn.mnist_parts, recipe=recipe, resolution=resolution)
    assert {m.sizes for m in network.modules() if isinstance(m, SSConv)} == {tuple(sizes)}


# STL-10


def test_dss_loses_a_scale_in_each_of_two_groups() -> None:
    network = WideResNet(dss.wrn_parts("paper"), depth=16, width=8, resolution=8)
    x: Tensor = network.stem(torch.rand(1, 3, 8, 8))
    shapes = [tuple(x.shape[1:3])]
    for group in network.groups:
        x = group(x)
        shapes.append(tuple(x.shape[1:3]))
    assert shapes == [(16, 4), (128, 3), (240, 2), (512, 2)]
    convs = [m for m in network.modules() if isinstance(m, DSSConv) and m.kernel_size == 3]
    assert [conv.interscale for conv in convs] == [1, 2, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1]


def test_dss_keeps_the_start_that_passes_channels_on() -> None:
    network = wide(dss.wrn_parts("paper"))
    conv = network.get_submodule("groups.0.0.conv2")
    assert isinstance(conv, DSSConv)
    torch.testing.assert_close(conv.weight[:, :, 0, 1, 1].diagonal(), torch.ones(16))


@pytest.mark.parametrize(("recipe", "blocks"), [("paper", (3, 5, 7)), ("released", (3,))])
def test_the_released_ss_cnn_has_one_scale_in_its_blocks(recipe: Any, blocks: tuple[int, ...]) -> None:
    sizes = [m.sizes for m in wide(ss_cnn.wrn_parts(recipe)).modules() if isinstance(m, SSConv)]
    assert sizes == [(3, 5, 7), *[blocks] * 6]


def test_shortcuts_share_a_matrix_over_columns_and_turn_with_vectors() -> None:
    columns, vectors = wide(sicnn.wrn_parts("paper")), wide(sevf.wrn_parts("paper"))
    assert types(columns, ScaleConv1x1) == [ScaleConv1x1] * 2  # at width 1 the first group has none
    shortcuts = [m for m in vectors.modules() if isinstance(m, SEVFConv) and m.kernel_size == 1]
    assert [(m.in_channels, m.out_channels) for m in shortcuts] == [(11, 23), (23, 45)]


def test_where_the_wide_networks_leave_their_scales() -> None:
    order = (ColumnBatchNorm, ScaleBatchNorm, nn.ReLU, ScaleProjection, VectorBatchNorm, VectorMagnitude)
    heads = {"sicnn": sicnn.wrn_parts, "dss": dss.wrn_parts, "sevf": sevf.wrn_parts}
    assert {name: types(parts("paper").head(4), *order) for name, parts in heads.items()} == {
        "sicnn": [ColumnBatchNorm, nn.ReLU, ScaleProjection],
        "dss": [ScaleBatchNorm, nn.ReLU, ScaleProjection],
        "sevf": [VectorBatchNorm, VectorMagnitude],
    }
