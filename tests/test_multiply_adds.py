"""Nominal multiply-adds: by hand for every kind of layer, and the ratios of the networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sesn import ScaleConv, ScaleConv1x1, ScaleGrid, ScaleLift, basis_b
from sesn.methods import METHODS, PLAIN, methods_on
from sesn.methods.dss import DSSConv, DSSLift
from sesn.methods.harmonic import HarmonicConv
from sesn.methods.sevf import SEVFConv, SEVFLift
from sesn.methods.si_convnet import SIConv
from sesn.methods.sicnn import SiCNNConv, SiCNNLift
from sesn.methods.ss_cnn import SSConv
from sesn.networks import NETWORKS, multiply_adds

SHAPES = {"mnist": (1, 28, 28), "stl10": (3, 96, 96), "stir": (1, 64, 64)}
BASIS = basis_b(ScaleGrid([1.7, 2.45, 3.54, 5.1]), 15, 7, mult=1.5)
HALF = (0.5, 1.0)

LAYERS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "Conv2d": (nn.Conv2d(4, 6, 3, 2, 1, groups=2), (4, 9, 8), 6 * 2 * 9 * 5 * 4),
    "Conv2d, same": (nn.Conv2d(4, 6, 3, padding="same", dilation=2), (4, 9, 8), 6 * 4 * 9 * 9 * 8),
    "Linear": (nn.Linear(3, 5), (7, 3), 7 * 3 * 5),
    "1x1": (ScaleConv1x1(2, 3, stride=2), (2, 4, 5, 5), 2 * 3 * 4 * 3 * 3),
    # The linear interpolant of three taps is not zero within 2 of the centre: 7 of the taps half as far apart.
    "SiCNN": (SiCNNLift(2, 3, 3, (1.0, 2.0)), (2, 8, 8), 2 * 3 * (9 + 49) * 64),
    "SiCNN columns": (SiCNNConv(2, 3, 3, (1.0, 2.0), stride=2), (2, 2, 8, 8), 2 * 3 * (9 + 49) * 16),
    "SI-ConvNet": (SIConv(2, 3, 3, HALF), (2, 8, 8), 2 * 2 * 3 * 9 * 64 + 4 * (2 + 3) * 64),
    "SEVF": (SEVFLift(2, 3, 3, HALF, (0.0, 0.0)), (2, 8, 8), 6 * 9 * (16 + 64) + 4 * (2 * 16 + 3 * 64)),
    "SEVF vectors": (SEVFConv(2, 3, 3, HALF, (0.0, 0.0)), (2, 2, 8, 8), 12 * 9 * (16 + 64) + 4 * (4 * 16 + 3 * 64)),
    "DSS blur": (DSSLift(2), (3, 8, 8), 3 * 64 * 2 * 9),
    "DSS": (DSSConv(2, 3, 5, 3, interscale=2), (2, 3, 8, 8), 2 * 3 * 25 * (2 + 2 + 1) * 64),
    "SS-CNN": (SSConv(2, 3, (3, 5), 5, (1.0,), stride=2), (2, 7, 8), 2 * 3 * (9 + 25) * 4 * 4),
    "harmonic": (HarmonicConv(2, 3), (2, 8, 8), 2 * 3 * 9 * 64),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_counts_its_kernels_at_every_output(name: str) -> None:
    layer, shape, count = LAYERS[name]
    assert multiply_adds(layer, shape) == count


@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral", "auto"])
def test_steerable_layers_count_whole_boxes_whatever_the_algorithm_and_the_map(algorithm: Any) -> None:
    taps = sum(box**2 for box in BASIS.boxes)
    assert multiply_adds(ScaleLift(2, 3, BASIS, algorithm=algorithm), (2, 4, 5)) == 2 * 3 * taps * 20
    strided = ScaleConv(2, 3, BASIS, stride=2, algorithm=algorithm)
    assert multiply_adds(strided, (2, 4, 4, 5)) == 2 * 3 * taps * 2 * 3


def test_interscale_counts_the_scales_that_there_are() -> None:
    boxes = [box**2 for box in BASIS.boxes]
    layer = ScaleConv(2, 3, BASIS, interscale=2)
    assert multiply_adds(layer, (2, 4, 5, 5)) == 2 * 3 * 25 * (2 * sum(boxes) - boxes[-1])


class Twice(nn.Module):
    """Runs a layer twice, and another never."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        first: Tensor = self.used(x)
        second: Tensor = self.used(first)
        return second


class Own(nn.Module):
    """A new method's layer: its own count, and a part that must not be counted again."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)
        return found

    def multiply_adds(self, shape: Sequence[int]) -> int:
        return 1000 * shape[0]


def test_layers_count_as_often_as_they_run_and_a_new_layer_joins_with_its_method() -> None:
    assert multiply_adds(Twice(), (3,)) == 2 * 9
    assert multiply_adds(nn.Sequential(Own(), nn.Linear(3, 4)), (3,)) == 1000 + 12


def test_the_network_is_left_as_it_was() -> None:
    network = METHODS["sesn-vector"].build("mnist", channels=(2, 2, 2)).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    assert multiply_adds(network, (1, 28, 28)) > 0
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize(("network", "key"), [(n, row.key) for n in NETWORKS for row in methods_on(n)])
def test_every_network_has_a_count(network: str, key: str) -> None:
    """At least one product per used weight and image; in the paper's comparison no less than the plain network's."""
    method = METHODS[key]
    options: dict[str, Any] = {} if network == "mnist" else dict(NETWORKS[network].tried[0])
    with torch.device("meta"):
        built = method.build(network, "paper", **options)
        plain = METHODS[PLAIN[network]].build(network, "paper", **options)
    count = multiply_adds(built, SHAPES[network])
    assert count >= sum(p.numel() for p in built.parameters() if p.dim() > 1)
    assert count >= multiply_adds(plain, SHAPES[network]) or method.later


def test_the_papers_sesn_does_about_nine_times_the_work_of_the_cnn() -> None:
    """Boxes of 5, 7, 11 and 15 against 7: 420 / 49 = 8.57 in the convolutions, which are nearly all of the work."""
    counts = {}
    for key in ("cnn", "sesn-scalar", "sesn-vector"):
        with torch.device("meta"):
            counts[key] = multiply_adds(METHODS[key].build("mnist"), (1, 28, 28))
    convolutions = 784 * 32 * 49 + 196 * 32 * 63 * 49 + 49 * 63 * 95 * 49
    head = 380 * 256 + 256 * 10
    assert counts["cnn"] == convolutions + head
    assert counts["sesn-scalar"] == counts["sesn-vector"] == convolutions // 49 * 420 + head
