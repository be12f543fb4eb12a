"""The network of the scale-generalisation benchmark: what stands in it, at any size, for every method and design."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import sesn
from sesn.methods import METHODS, methods_on
from sesn.networks import STIRNet

KEYS = [row.key for row in methods_on("stir")]
DESIGNS = [(row.key, design) for row in methods_on("stir") for design in row.designs("stir")]


def test_the_cnn_is_the_published_network() -> None:
    network = sesn.build("cnn", "stir")
    assert isinstance(network, STIRNet)
    convolutions = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size) for c in convolutions] == [(1, 16, (7, 7)), (16, 32, (7, 7))]
    x = torch.randn(3, 1, 40, 33)
    first, second = convolutions
    by_hand = network.head(second(first(x).relu()).relu().amax((-2, -1)))
    assert torch.allclose(network(x), by_hand, atol=1e-6)


def test_sesn_has_the_published_kernels() -> None:
    layers = [layer for layer in sesn.build("sesn-vector", "stir").modules() if hasattr(layer, "basis")]
    for layer in layers:
        assert [round(sigma, 2) for sigma in layer.basis.grid] == [2.0, 2.52, 3.17, 4.0]
        assert layer.basis.kernel_size == 15


@pytest.mark.parametrize("key", KEYS)
def test_images_may_have_any_size(key: str) -> None:
    network = sesn.build(key, "stir", channels=(3, 4), num_classes=7, in_channels=2).eval()
    for side in (17, 32):
        scores = network(torch.randn(2, 2, side, side + 3))
        assert scores.shape == (2, 7)
        assert scores.isfinite().all()
    assert "2 -> 7" in repr(network) or not isinstance(network, STIRNet)


@pytest.mark.parametrize(("key", "design"), [(key, "published") for key in KEYS] + DESIGNS)
def test_every_parameter_learns(key: str, design: str) -> None:
    torch.manual_seed(0)
    network = sesn.build(key, "stir", design=design, channels=(3, 4))
    network(torch.randn(4, 1, 24, 24)).square().sum().backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().sum() > 0, name


@pytest.mark.parametrize(("key", "design"), DESIGNS)
def test_a_design_spans_a_factor_of_four(key: str, design: str) -> None:
    network = sesn.build(key, "stir", design=design, channels=(2, 2))
    grids = [layer.basis.grid for layer in network.modules() if hasattr(layer, "basis")]
    assert len(grids) == 2
    assert all(grid.largest / grid.smallest == pytest.approx(4) for grid in grids)


def test_a_wide_design_is_nearer_to_invariance_than_the_plain_network() -> None:
    torch.manual_seed(0)
    images = torch.randn(2, 1, 16, 16).repeat_interleave(8, -1).repeat_interleave(8, -2)
    images = nn.functional.avg_pool2d(images, 9, 1, 4) * torch.hann_window(128).outer(torch.hann_window(128))

    def delta(key: str, design: str = "published") -> float:
        network = sesn.build(key, "stir", design=design).eval()
        return float(sesn.equivariance_error(network, images, 0.5, kind="invariant").valid.mean())

    assert delta("sesn-vector", "wide") < delta("cnn")


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`design` \(='wid'\).*did you mean 'wide'"):
        sesn.build("sesn-vector", "stir", design="wid")
    with pytest.raises(ValueError, match=r"`design` \(='wide'\).*published"):
        sesn.build("cnn", "stir", design="wide")
    with pytest.raises(ValueError, match=r"`channels` \(=\(3,\)\) must be two whole numbers"):
        sesn.build("cnn", "stir", channels=(3,))
    with pytest.raises(ValueError, match="in_channels"):
        sesn.build("cnn", "stir")(torch.randn(1, 3, 20, 20))


def test_methods_tell_their_designs() -> None:
    assert METHODS["cnn"].designs("stir") == ()
    assert "wide" in METHODS["sesn-vector"].designs("stir")
    with pytest.raises(ValueError, match="`network`"):
        METHODS["cnn"].designs("cifar")
