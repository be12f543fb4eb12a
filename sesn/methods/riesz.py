"""Riesz networks: Riesz transforms in place of kernels, which depend on the direction of a frequency and not its size.

M. Barisin, K. Schladitz and C. Redenbach, "Riesz networks: scale-invariant neural networks in a single forward pass",
Journal of Mathematical Imaging and Vision 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesn import _checks
from sesn.layers.pool import GlobalPool
from sesn.methods._layer import EVERYWHERE, BaselineLayer, transform_work
from sesn.methods.method import CHANNELS, COLOURS, Method, Source
from sesn.networks import Recipe, Regime, mnist, stir

#: The transforms R1, R2, R1 R1, R1 R2 and R2 R2 of every channel.
TRANSFORMS = 5
WIDTHS = (12, 16, 24, 32, 80)


def riesz_multipliers(height: int, width: int) -> Tensor:
    """[5, h, w // 2 + 1, 2]: the multipliers of the transforms at the frequencies of `rfft2`, real and imaginary parts.

    -i xi_j / |xi| and -xi_j xi_k / |xi|^2. Zero at frequency 0, which has no direction, and at the Nyquist frequency of
    an even side, where a wave and its opposite direction cannot be told apart.
    """
    precise = {"dtype": torch.float64}
    down, right = torch.fft.fftfreq(height, **precise), torch.fft.rfftfreq(width, **precise)
    y, x = torch.meshgrid(down, right, indexing="ij")
    known = (y.abs() < 0.5) & (x.abs() < 0.5) & ((y != 0) | (x != 0))
    length = torch.where(known, (y.square() + x.square()).sqrt(), 1.0)
    y, x = (part * known / length for part in (y, x))
    zero = torch.zeros_like(y)
    first = [torch.stack([zero, -part], dim=-1) for part in (y, x)]
    second = [torch.stack([-a * b, zero], dim=-1) for a, b in ((y, y), (y, x), (x, x))]
    return torch.stack(first + second)


class RieszConv(BaselineLayer):
    """Five Riesz transforms of every channel and their mixtures, [b, c, h, w] -> [b, c', h, w].

    The transforms commute with rescaling by any factor, so the layer has no scales; the map counts as periodic. It is
    blind to the mean of its input.

    Args:
        in_channels, out_channels: channels of the two maps.
        bias: one number per output channel.
        device, dtype: of the parameters.
    """

    receptive_radius = EVERYWHERE
    taps = TRANSFORMS

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, 1)
        inputs = TRANSFORMS * self.in_channels
        self.mix = nn.Conv2d(inputs, self.out_channels, 1, bias=bias, device=device, dtype=dtype)

    def forward(self, image: Tensor) -> Tensor:
        """Transform and mix. Spectra are mixed, which is the same and takes fewer transforms back."""
        self._check_image(image, self.mix.weight)
        spectra = torch.view_as_real(self._spectra(image))
        mixed = F.conv2d(spectra.flatten(-2), self.mix.weight)
        mixed = mixed.reshape(*mixed.shape[:-1], -1, 2)
        maps: Tensor = torch.fft.irfft2(torch.view_as_complex(mixed), s=image.shape[-2:])
        return maps if self.mix.bias is None else maps + self.mix.bias[:, None, None]

    def transforms(self, image: Tensor) -> Tensor:
        """The five transforms of each channel, [b, 5 c, h, w]."""
        maps: Tensor = torch.fft.irfft2(self._spectra(image), s=image.shape[-2:])
        return maps

    def _spectra(self, image: Tensor) -> Tensor:
        h, w = image.shape[-2:]
        pairs = self._store.constant((h, w), image, partial(riesz_multipliers, h, w))
        spectra: Tensor = torch.fft.rfft2(image).unsqueeze(2) * torch.view_as_complex(pairs)
        return spectra.flatten(1, 2)

    def multiply_adds(self, shape: Sequence[int]) -> int:
        """Nominal multiply-adds for a map of this shape: the mixtures, and the transforms there and back."""
        maps = shape[0] * (self.in_channels + self.out_channels)
        return super().multiply_adds(shape) + maps * transform_work(shape)


def layers_of(widths: Sequence[int]) -> nn.Sequential:
    """Layers from width to width, each of Riesz transforms, batch norm and ReLU."""
    return nn.Sequential(*(nn.Sequential(RieszConv(i, o), nn.BatchNorm2d(o), nn.ReLU()) for i, o in pairwise(widths)))


def stir_network(
    recipe: Recipe = "paper",
    design: str = stir.PUBLISHED,
    channels: Sequence[int] | None = None,
    num_classes: int = stir.CLASSES,
    in_channels: int = 1,
) -> nn.Module:
    """The authors' layers for images of any size; the maximum over positions finds what is not in the middle."""
    _checks.looked_up("design", design, {stir.PUBLISHED: WIDTHS})
    widths = [_checks.whole(f"channels[{i}]", width, 1) for i, width in enumerate(channels or WIDTHS)]
    classifier = nn.Linear(widths[-1], _checks.whole("num_classes", num_classes, 1))
    return nn.Sequential(
        *layers_of([_checks.whole("in_channels", in_channels, 1), *widths]), GlobalPool("max"), classifier
    )


class RieszNet(nn.Module):
    """Layers of Riesz transforms, batch norm and ReLU; the scores are those of the central pixel. No pooling.

    Args:
        regime: the resolution, and how an image is upsampled to it.
        channels: the widths of the layers.
        num_classes: how many scores it returns.
        in_channels: of the images.
    """

    def __init__(
        self, regime: Regime, channels: Sequence[int] = WIDTHS, num_classes: int = mnist.CLASSES, in_channels: int = 1
    ) -> None:
        super().__init__()
        self.in_channels = _checks.whole("in_channels", in_channels, 1)
        widths = [self.in_channels, *(_checks.whole(f"channels[{i}]", width, 1) for i, width in enumerate(channels))]
        self.regime, self.upsample = regime, mnist.upsampling(regime)
        self.layers = layers_of(widths)
        self.classifier = nn.Conv2d(widths[-1], _checks.whole("num_classes", num_classes, 1), 1)

    def extra_repr(self) -> str:
        """`in -> out` and the regime."""
        return mnist.shown(self.in_channels, self.classifier.out_channels, self.regime)

    def forward(self, image: Tensor) -> Tensor:
        """Scores of the classes."""
        mnist.check_image(image, self.in_channels)
        features: Tensor = self.layers(self.upsample(image))
        row, column = (side // 2 for side in features.shape[-2:])
        scores: Tensor = self.classifier(features[..., row : row + 1, column : column + 1])
        return scores.flatten(1)


def at_step(step: float) -> nn.Module:
    """The one layer that there is: it commutes with any factor."""
    return RieszConv(COLOURS, CHANNELS, bias=False)


RIESZ = Method(
    "riesz",
    "Riesz",
    Source("Barisin et al. 2024, Journal of Mathematical Imaging and Vision", "Scale-Free Operators"),
    "#F8C078",
    {"mnist": mnist.OwnNetwork(RieszNet, RieszConv, lambda c: RieszConv(c, c), WIDTHS), "stir": stir_network},
    at_step,
    ends="circular",
    later=True,
    representative=False,
    absences={"stl10": "the network reads the scores off the central pixel, which suits centred objects alone"},
)
