"""The networks whose Delta is swept: random weights, no biases, and a nonlinearity or none after every layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from harness.experiment import CellSettings
from sesn import Meter, ScaleConv, ScaleGrid, ScaleLift, SteerableBasis, basis_a
from sesn._checks import looked_up
from sesn.algorithms.axis import PaddingMode
from sesn.algorithms.resample import resampled_size
from sesn.errors import UsageError
from sesn.layers.nested import NestedReLU
from sesn.layers.nonlinearity import BandlimitedReLU
from sesn.methods.method import COLOURS

#: Type A has orders 0..2 along each axis, nine functions; `total_order` may leave out the highest.
ORDERS = 3


@dataclass(frozen=True, kw_only=True)
class SweepSettings(CellSettings):
    """What the cells of every sweep are told: the kernels, the network, the images and the meter.

    Attributes:
        window: "published" kernels have `kernel_size`, "wide" ones reach `half_width` sigmas, and so do "periodic" ones
            on maps that repeat; the layers of a method are its "own", which decide all about kernels and scales.
        padding_mode: of the layers; "zeros" if absent.
        extent: of the layers along the scale axis; 1 if absent.
        crop: how many pixels of the border do not count, or "auto", the meter's own choice.
    """

    window: str
    nonlinearity: str
    images: str
    scales: int | None = None
    step: float | None = None
    smallest_sigma: float | None = None
    kernel_size: int | None = None
    half_width: float | None = None
    total_order: int | None = None
    extent: int | None = None
    padding_mode: PaddingMode | None = None
    side: int
    image_count: int
    channels: int
    resampler: str
    ends: str
    crop: int | str


@dataclass(frozen=True, kw_only=True)
class DepthSettings(SweepSettings):
    """Of a network of so many layers."""

    layers: int


@dataclass(frozen=True, kw_only=True)
class DownscaleSettings(SweepSettings):
    """Of one lift, up to the largest downscale; small images are enlarged to `side`."""

    largest_downscale: float
    enlarging: str


class Amount(NamedTuple):
    """How much is measured: images (of 96 pixels, of 384 pixels), weight draws, layers, factors."""

    images: int
    large_images: int
    draws: int
    layers: int
    downscale_96: float
    downscale_384: float


class Layer(nn.Module):
    """A convolution, a nonlinearity, and a scalar that is the same for every image and branch.

    Biases are zero and the nonlinearities homogeneous, so the scalar leaves Delta as it is: it only keeps the numbers
    of a deep network within the range of floating point.
    """

    gain: Tensor

    def __init__(self, convolution: nn.Module, nonlinearity: nn.Module) -> None:
        super().__init__()
        self.convolution = convolution
        self.nonlinearity = nonlinearity
        self.register_buffer("gain", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Image or field to field."""
        return self.gain * self.nonlinearity(self.convolution(x))  # type: ignore[no-any-return]


class CopiedAlongScale(nn.Module):
    """An image copied along the scale axis, then one interscale layer: truncation and nothing else."""

    def __init__(self, convolution: nn.Module, scales: int) -> None:
        super().__init__()
        self.convolution, self.scales = convolution, scales

    def forward(self, image: Tensor) -> Tensor:
        """Image to field."""
        return self.convolution(image[:, :, None].expand(-1, -1, self.scales, -1, -1))  # type: ignore[no-any-return]


def meter_of(settings: SweepSettings) -> Meter:
    """How a cell measures."""
    return Meter(settings.resampler, settings.ends, settings.crop)  # type: ignore[arg-type]


def kernels(settings: SweepSettings) -> SteerableBasis:
    """The functions that a cell names.

    Wide windows reach `half_width` sigmas; published ones have the sides that the released code gives to V =
    `kernel_size`.
    """
    sigma, step, scales, order = settings.smallest_sigma, settings.step, settings.scales, settings.total_order
    if sigma is None or step is None or scales is None or order is None:
        raise UsageError("`settings` must have `smallest_sigma`, `step`, `scales` and `total_order`; look at the plan")
    grid = ScaleGrid.geometric(sigma, step, scales)
    if settings.window == "published" and settings.kernel_size is not None:
        return basis_a(grid, settings.kernel_size, ORDERS, max_order=order)
    if settings.window not in ("wide", "periodic") or settings.half_width is None:
        raise UsageError(
            f"`window` (={settings.window!r}) must be 'published', with a `kernel_size`, or 'wide' or 'periodic', with "
            "a `half_width`"
        )
    pairs = basis_a(grid, "wide", ORDERS, max_order=order).pairs
    return SteerableBasis(grid, [2 * math.ceil(settings.half_width * sigma) + 1 for sigma in grid], pairs=pairs)


def deep_network(settings: SweepSettings, seed: int, layers: int) -> nn.Sequential:
    """A lift and `layers` - 1 convolutions; a shallower network of the same seed is the beginning of a deeper one."""
    basis, channels, draws = kernels(settings), settings.channels, torch.Generator().manual_seed(seed)
    options: dict[str, Any] = {"bias": False, "padding_mode": settings.padding_mode or "zeros"}
    network = nn.Sequential()
    for depth in range(layers):
        convolution: ScaleLift | ScaleConv = (
            ScaleConv(channels, channels, basis, interscale=settings.extent or 1, **options)
            if depth
            else ScaleLift(COLOURS, channels, basis, **options)
        )
        network.append(Layer(drawn(convolution, draws), nonlinearity(settings)))
    return network.eval()


def interscale_network(settings: SweepSettings, seed: int) -> nn.Sequential:
    """One interscale layer on an image that is the same at all scales."""
    extent = settings.extent or 1
    convolution = ScaleConv(COLOURS, settings.channels, kernels(settings), interscale=extent, bias=False)
    drawn(convolution, torch.Generator().manual_seed(seed))
    copied = CopiedAlongScale(convolution, len(convolution.grid))
    return nn.Sequential(Layer(copied, nonlinearity(settings))).eval()


def drawn(convolution: ScaleLift | ScaleConv, draws: torch.Generator) -> ScaleLift | ScaleConv:
    """The layer with normal weights of variance 1 / fan-in."""
    weight = convolution.weight
    with torch.no_grad():
        weight.copy_(torch.randn(weight.shape, generator=draws) / math.sqrt(weight[0].numel()))
    return convolution


#: All of them commute with a positive factor.
NONLINEARITIES: dict[str, Callable[[SweepSettings], nn.Module]] = {
    "linear": lambda settings: nn.Identity(),
    "relu": lambda settings: nn.ReLU(),
    "bandlimited": lambda settings: BandlimitedReLU(settings.padding_mode or "zeros"),
    "nested": lambda settings: NestedReLU(sides_of(settings)),
}


def sides_of(settings: SweepSettings) -> list[int]:
    """The sides that images of the sweep have: as they are, and shrunk by the step or by all powers of it."""
    step = settings.step or 1.0
    downscales = [step]
    if isinstance(settings, DownscaleSettings):
        downscales = powers(step, settings.scales, settings.largest_downscale)
    return [settings.side, *(resampled_size(settings.side, 1 / downscale) for downscale in downscales)]


def powers(step: float, scales: int | None, largest: float) -> list[float]:
    """The powers of the step up to the largest that have a partner on a grid of so many scales; of a map all have."""
    count = scales or math.ceil(math.log(largest) / math.log(step)) + 2
    found = [float(f"{step**k:.12g}") for k in range(1, count)]
    return [power for power in found if power <= largest * (1 + 1e-9)]


def nonlinearity(settings: SweepSettings) -> nn.Module:
    """The one that a cell names."""
    return looked_up("nonlinearity", settings.nonlinearity, NONLINEARITIES)(settings)


@torch.no_grad()
def calibrate(network: nn.Sequential, images: Tensor) -> None:
    """Set the layers' scalars so that each puts out a root mean square of 1 on these images, and freeze them."""
    x = images
    for layer in network:
        assert isinstance(layer, Layer)
        layer.gain.fill_(1.0)
        x = layer(x)
        root_mean_square = float(x.to(torch.float64).square().mean().sqrt())
        layer.gain.fill_(1 / root_mean_square if root_mean_square > 0 else 1.0)
        x = x * layer.gain
