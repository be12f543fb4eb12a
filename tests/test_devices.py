"""Every tensor stays on the layer's device, forward and backward: shown on the meta device, where nothing computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from one_device import train_and_evaluate
from torch import Tensor, nn

from sesn import (
    BandlimitedReLU,
    GlobalPool,
    NestedReLU,
    ScaleBatchNorm,
    ScaleConv,
    ScaleConv1x1,
    ScaleDownsample,
    ScaleDropout,
    ScaleGrid,
    ScaleGroupNorm,
    ScaleLayerNorm,
    ScaleLift,
    ScaleProjection,
    ScaleUpsample,
    SpatialAdaptivePool,
    SpatialAvgPool,
    SpatialMaxPool,
    SteerableBasis,
    basis_a,
)
from sesn.layers.store import Store


@pytest.fixture(params=["meta", "present"])
def home(request: pytest.FixtureRequest, device: torch.device) -> torch.device:
    """The meta device, and every device that is present."""
    return torch.device("meta") if request.param == "meta" else device


def psi(x: Tensor, y: Tensor) -> Tensor:
    return torch.exp(-(x**2) - y**2 + x * y)


GRID = ScaleGrid([0.9, 1.3])
NARROW, WIDE = basis_a(GRID, 5, 2), basis_a(GRID, "wide", 2)
ANY = SteerableBasis.from_function(psi, GRID, 5)
FIELD, IMAGE = (2, 2, 2, 9, 8), (2, 2, 9, 8)
STEERABLE: dict[str, tuple[Any, tuple[int, ...]]] = {
    "lift": (lambda **o: ScaleLift(2, 3, NARROW, **o), IMAGE),
    "lift on a map smaller than the kernel": (lambda **o: ScaleLift(2, 3, WIDE, **o), (2, 2, 4, 5)),
    "strided lift": (lambda **o: ScaleLift(2, 3, WIDE, stride=2, padding_mode="circular", **o), IMAGE),
    "conv": (lambda **o: ScaleConv(2, 3, NARROW, interscale=2, **o), FIELD),
    "strided conv": (lambda **o: ScaleConv(2, 3, WIDE, stride=2, padding_mode="circular", **o), FIELD),
    "padded conv": (lambda **o: ScaleConv(2, 3, NARROW, padding=1, **o), FIELD),
}
OTHERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "any function": (lambda **o: ScaleConv(2, 3, ANY, **o), FIELD),
    "1x1": (lambda **o: ScaleConv1x1(2, 3, stride=2, **o), FIELD),
    "batch norm": (lambda **o: ScaleBatchNorm(2, **o), FIELD),
    "group norm": (lambda **o: ScaleGroupNorm(1, 2, **o), FIELD),
    "layer norm": (lambda **o: ScaleLayerNorm(2, **o), FIELD),
    "dropout": (lambda **o: ScaleDropout(), FIELD),
    "upsampling": (lambda **o: ScaleUpsample(), FIELD),
    "downsampling": (lambda **o: ScaleDownsample(), FIELD),
    "adaptive pool": (lambda **o: SpatialAdaptivePool(3), FIELD),
    "projection": (lambda **o: ScaleProjection(), FIELD),
    "mean": (lambda **o: ScaleProjection(reduce="mean"), FIELD),
    "tapered soft projection": (lambda **o: ScaleProjection(reduce="soft", taper=1), FIELD),
    "max pool": (lambda **o: SpatialMaxPool(2), FIELD),
    "average pool": (lambda **o: SpatialAvgPool(3, stride=2, padding=1), FIELD),
    "global max": (lambda **o: GlobalPool("max"), FIELD),
    "global mean": (lambda **o: GlobalPool("mean"), FIELD),
    "bandlimited": (lambda **o: BandlimitedReLU(), FIELD),
    "nested": (lambda **o: NestedReLU([6, 9]), FIELD),
    "bandlimited, periodic": (lambda **o: BandlimitedReLU("circular"), FIELD),
}


@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral", "auto"])
@pytest.mark.parametrize("name", STEERABLE)
def test_steerable_layers_stay_on_their_device(name: str, algorithm: str, home: torch.device) -> None:
    make, shape = STEERABLE[name]
    assert train_and_evaluate(make(algorithm=algorithm, device=home), shape, home).operations > 10


@pytest.mark.parametrize("name", OTHERS)
def test_other_layers_stay_on_their_device(name: str, home: torch.device) -> None:
    make, shape = OTHERS[name]
    layer = make(device=home)
    layer(torch.ones(shape, device=home))  # constants are made on the CPU, once
    assert train_and_evaluate(layer, shape, home).operations > 0


@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral"])
def test_a_moved_layer_leaves_nothing_behind(algorithm: Any, home: torch.device) -> None:
    layer = ScaleConv(2, 3, NARROW, interscale=2, algorithm=algorithm).eval()
    with torch.no_grad():
        layer(torch.ones(FIELD))  # constants and kernels are kept for the CPU
    train_and_evaluate(layer.to(home), FIELD, home)


# The check itself sees a stray tensor


class StrayFactor(nn.Module):
    """Convolves with a kernel that is no buffer, so that it never moves."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = torch.ones(3, 2, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(x, self.kernel)


class StrayFactory(nn.Module):
    """Makes a tensor on the default device."""

    def forward(self, x: Tensor) -> Tensor:
        torch.arange(3)
        return 2 * x


class Backward(torch.autograd.Function):
    """The identity, whose gradient meets a CPU tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.reshape(-1, 8) @ torch.ones(8, 8) + 0 * grad.reshape(-1, 8)


class StrayGradient(nn.Module):
    """Its forward is clean."""

    def forward(self, x: Tensor) -> Tensor:
        return Backward.apply(x)  # type: ignore[no-any-return, no-untyped-call]


@pytest.mark.parametrize(
    "layer", [StrayFactor(), StrayFactory(), StrayGradient()], ids=lambda layer: type(layer).__name__
)
def test_a_planted_stray_tensor_is_seen(layer: nn.Module) -> None:
    with pytest.raises(AssertionError, match="elsewhere"):
        train_and_evaluate(layer, IMAGE, torch.device("meta"))


def test_the_meta_device_alone_would_not_see_it() -> None:
    StrayFactor()(torch.ones(IMAGE, device="meta"))


# What is kept is kept per size, device and dtype


@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral"])
def test_constants_are_built_once(algorithm: Any, monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    built: list[int] = []
    get = Store.get

    def counting(self: Any, key: Any, samples: Tensor, make: Any) -> Any:
        return get(self, key, samples, lambda: built.append(1) or make())

    monkeypatch.setattr(Store, "get", counting)
    layer = ScaleConv(2, 2, NARROW, algorithm=algorithm, device=device)
    for _ in range(3):
        layer(torch.ones(FIELD, device=device)).sum().backward()
    assert len(built) == 2  # one for each scale
    layer.eval()(torch.ones(1, 2, 2, 7, 7, device=device))
    assert len(built) == 4


def test_a_new_weight_at_an_old_address_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an accelerator, which reuses freed memory, and where the weights' values are not compared."""
    monkeypatch.setattr(torch, "equal", lambda a, b: True)
    memory = np.ones((3, 2, 4), dtype=np.float32)
    layer = ScaleLift(2, 3, NARROW, bias=False, algorithm="dense").eval()
    image = torch.ones(IMAGE)
    outputs = []
    for value in (1, 2):
        memory[...] = value
        layer.weight = nn.Parameter(torch.from_numpy(memory))
        with torch.no_grad():
            outputs.append(layer(image))
    torch.testing.assert_close(outputs[1], 2 * outputs[0])


# Autocast, where it is meant to be used


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="autocast is for CUDA")
@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral", "auto"])
def test_autocast_computes_in_half_precision_and_leaves_no_trace(algorithm: Any) -> None:
    layer = ScaleConv(2, 3, NARROW, interscale=2, algorithm=algorithm, device="cuda")
    field = torch.rand(FIELD, device="cuda")
    exact = layer(field)
    for gradient in (True, False):
        layer.train(gradient)
        with torch.set_grad_enabled(gradient):
            with torch.autocast("cuda", dtype=torch.float16):
                out = layer(field)
            assert out.dtype == torch.float16
            torch.testing.assert_close(out.float(), exact, rtol=2e-2, atol=2e-2)
            torch.testing.assert_close(layer(field), exact)
