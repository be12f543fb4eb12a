"""Small networks of the kinds that people check: none but the wide SESN fields is scale-equivariant.

Each ordinary one comes with random weights, with large biases, and briefly trained.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sesn import BandlimitedReLU, ScaleConv, ScaleGrid, ScaleLift, basis_a
from sesn.tools.images import random_images

SIDE = 64
#: By how much every bias of a network is raised: it hides Delta, as its denominator is then mostly the bias.
SHIFT = 30.0


class Residual(nn.Module):
    """The sum of a branch and its input, which a convolution fits where the branch changes the shape."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.branch, self.shortcut = branch, shortcut or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.branch(x)  # type: ignore[no-any-return]


class UNet(nn.Module):
    """Down by two, across, up by two; maps of the image's size."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU())
        self.inner = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU())
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.last = nn.Sequential(nn.Conv2d(3 * width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 3, 1))

    def forward(self, x: Tensor) -> Tensor:
        across = self.first(x)
        return self.last(torch.cat([across, self.up(self.inner(across))], dim=1))  # type: ignore[no-any-return]


class Patches(nn.Module):
    """Patches as tokens [b, n, c] that know their place; blocks between them; maps of the tokens."""

    def __init__(self, *blocks: nn.Module, patch: int = 4, width: int = 16) -> None:
        super().__init__()
        self.cut = nn.Conv2d(1, width, patch, stride=patch)
        self.position = nn.Parameter(0.5 * torch.randn(1, width, SIDE // patch, SIDE // patch))
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.cut(x)
        # As vision transformers do at other sizes than that of their training.
        place = nn.functional.interpolate(self.position, patches.shape[-2:], mode="bilinear", align_corners=False)
        tokens = (patches + place).flatten(2).transpose(1, 2)
        return self.norm(self.blocks(tokens)).transpose(1, 2).reshape(patches.shape)  # type: ignore[no-any-return]


class Across(nn.Module):
    """Linear layers that mix so many neighbouring tokens of each channel, at every size of the image."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens, self.mix = tokens, nn.Sequential(nn.Linear(tokens, tokens), nn.GELU(), nn.Linear(tokens, tokens))

    def forward(self, x: Tensor) -> Tensor:
        groups = x.unflatten(1, (-1, self.tokens)).transpose(2, 3)
        return self.mix(groups).transpose(2, 3).flatten(1, 2)  # type: ignore[no-any-return]


def scored(network: nn.Module, width: int) -> nn.Module:
    """The mean over space of its maps, and five scores."""
    return nn.Sequential(network, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 5))


def cnn() -> nn.Module:
    """Three convolutions; maps."""
    middle = [nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()]
    return nn.Sequential(nn.Conv2d(1, 8, 7, padding=3), nn.ReLU(), *middle, nn.Conv2d(8, 4, 3, padding=1))


def shallow() -> nn.Module:
    """The mean of one layer's maps, without biases: it follows the contrast of the image; scores."""
    return scored(nn.Sequential(nn.Conv2d(1, 8, 5, padding=2, bias=False), nn.ReLU()), 8)


def resnet() -> nn.Module:
    """Two residual blocks, the second with stride 2; scores."""

    def block(before: int, after: int, stride: int) -> nn.Module:
        first = [nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        branch = nn.Sequential(*first, nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after))
        return Residual(branch, nn.Conv2d(before, after, 1, stride))

    stem = [nn.Conv2d(1, 8, 5, 2, 2, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    blocks = [block(8, 8, 1), nn.ReLU(), block(8, 16, 2), nn.ReLU()]
    return scored(nn.Sequential(*stem, *blocks), 16)


def vit() -> nn.Module:
    """Attention between the tokens; scores."""
    layers = [nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True) for _ in range(2)]
    return scored(Patches(*layers), 16)


def mixer() -> nn.Module:
    """Linear layers across the tokens and across the channels; maps."""
    channels = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
    return Patches(Residual(Across(8)), Residual(channels))


ORDINARY: dict[str, Callable[[], nn.Module]] = {
    "cnn": cnn,
    "classifier": lambda: scored(cnn(), 4),
    "shallow": shallow,
    "unet": UNet,
    "resnet": resnet,
    "vit": vit,
    "mixer": mixer,
}


def random(network: nn.Module) -> nn.Module:
    """As it was made."""
    return network


def shifted(network: nn.Module) -> nn.Module:
    """Every bias raised, as if by a normalisation that went wrong."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("bias"):
                parameter.add_(SHIFT)
    return network


def trained(network: nn.Module, steps: int = 12) -> nn.Module:
    """A few steps towards telling spectra apart, or towards a map of the edges."""
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for step in range(steps):
        kinds = [random_images(3 * step + kind, (4, 1, SIDE, SIDE), kind).float() for kind in range(3)]
        images = torch.cat(kinds)
        output = network.train()(images)
        if output.dim() == 2:
            loss = nn.functional.cross_entropy(output, torch.arange(3).repeat_interleave(4))
        else:
            edges = (images - images.roll(1, -1)).abs()
            wanted = nn.functional.adaptive_avg_pool2d(edges, output.shape[-2:])
            loss = nn.functional.mse_loss(output, wanted.expand_as(output))
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return network


WEIGHTS: dict[str, Callable[[nn.Module], nn.Module]] = {"random": random, "shifted": shifted, "trained": trained}


def ordinary(name: str, weights: str, seed: int = 0) -> nn.Module:
    """A network of the zoo."""
    torch.manual_seed(seed)
    return WEIGHTS[weights](ORDINARY[name]()).eval()


def small(seed: int = 0) -> nn.Module:
    """A single convolution of 3 x 3 pixels."""
    torch.manual_seed(seed)
    return nn.Conv2d(1, 1, 3, padding=1).eval()


def biased_field() -> nn.Module:
    """A wide lift with large biases: as equivariant as without."""
    return shifted(wide_field(1))


def wide_field(depth: int = 2, seed: int = 0) -> nn.Module:
    """A lift and convolutions of fields on wide windows, with a band-limited nonlinearity between them."""
    torch.manual_seed(seed)
    basis = basis_a(ScaleGrid.geometric(2.0, 2**0.5, 4), "wide", 3, max_order=2)
    layers: list[nn.Module] = [ScaleLift(1, 4, basis)]
    for _ in range(depth - 1):
        layers += [BandlimitedReLU(), ScaleConv(4, 4, basis)]
    return nn.Sequential(*layers).eval()
