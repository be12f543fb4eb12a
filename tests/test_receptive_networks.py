"""How far networks with branches look, against the slow definition: the gradient of a pixel over the whole input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from sesn import diagnose, equivariance_error
from sesn.meter.extent import seen_by
from sesn.meter.reading import read
from sesn.tools.images import random_images


def positive(network: nn.Module) -> nn.Module:
    """With weights above zero: nothing cancels, and no rectifier is shut."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(0.5 + torch.rand(parameter.shape))
    return network.double().eval()


def footprint(network: nn.Module, side: int, place: int) -> tuple[int, int]:
    """The first and the last column of the input that an output at this row and column depends on."""
    image = (0.5 + torch.rand(1, 1, side, side, dtype=torch.float64)).requires_grad_()
    (slopes,) = torch.autograd.grad(network(image)[..., place, place].sum(), image)
    used = (slopes[0, 0].abs().amax(0) > 1e-14 * slopes.abs().max()).nonzero().flatten()
    return int(used[0]), int(used[-1])


class Residual(nn.Module):
    """A basic block: two convolutions, and a shortcut that is strided as they are."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1), nn.ReLU(), nn.Conv2d(after, after, 3, padding=1)
        )
        changes = stride > 1 or before != after
        self.shortcut = nn.Conv2d(before, after, 1, stride) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        made = self.branch(x)
        made += self.shortcut(x)
        return F.relu(made)


def resnet18(pool: nn.Module | None = None) -> nn.Module:
    """With one channel; an average in place of the maximum shows all that it sees."""
    layers: list[nn.Module] = [nn.Conv2d(1, 1, 7, 2, 3), nn.ReLU(), pool or nn.AvgPool2d(3, 2, 1)]
    for stride in (1, 2, 2, 2):
        layers += [Residual(1, 1, stride), Residual(1, 1, 1)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Two levels down; up again by a layer, or by a function to the size of what is joined."""

    def __init__(self, up: nn.Module | None) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(1, 1, 3, padding=1) for _ in range(3))
        self.across = nn.ModuleList(nn.Conv2d(2, 1, 3, padding=1) for _ in range(2))
        self.up = up

    def forward(self, x: Tensor) -> Tensor:
        first = self.down[0](x)
        second = self.down[1](F.avg_pool2d(first, 2))
        x = self.down[2](F.avg_pool2d(second, kernel_size=2))
        for conv, kept in zip(self.across, (second, first), strict=True):
            size = kept.shape[-2:]
            large = F.interpolate(x, size, mode="bilinear") if self.up is None else self.up(x)
            x = conv(torch.cat([kept, large], 1))
        return x


class Beside(nn.Module):
    """Branches beside each other, joined by a function."""

    def __init__(self, join: Callable[[list[Tensor]], Tensor], *branches: nn.Module) -> None:
        super().__init__()
        self.join, self.branches = join, nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return self.join([branch(x) for branch in self.branches])


def concatenated(tensors: list[Tensor]) -> Tensor:
    return torch.cat(tensors, dim=1)


def inception(stride: int) -> nn.Module:
    return Beside(
        concatenated,
        nn.Conv2d(1, 1, 1, stride),
        nn.Sequential(nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 3, stride, 1)),
        nn.Sequential(nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 5, stride, 2)),
        nn.Sequential(nn.AvgPool2d(3, stride, 1), nn.Conv2d(1, 1, 1)),
    )


def pyramid() -> nn.Module:
    dilated = [nn.Conv2d(1, 1, 3, padding=d, dilation=d) for d in (2, 4, 6)]
    return nn.Sequential(nn.Conv2d(1, 1, 3, 2, 1), Beside(concatenated, nn.Conv2d(1, 1, 1), *dilated))


#: Radius and stride by hand. ResNet-18's receptive field of 435 pixels is known.
KNOWN: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "resnet18": (resnet18, 217, 32),
    # down: 1, pool 1, 2, pool 2, 4; up: from 4 to 2 it takes one of 4 more, then 2; from 2 to 1 one of 2 more, then 1.
    "u-net": (lambda: UNet(None), 1 + 1 + 2 + 2 + 4 + 4 + 2 + 2 + 1, 1),
    "u-net of layers": (
        lambda: UNet(nn.Upsample(scale_factor=2, mode="bilinear")),
        1 + 1 + 2 + 2 + 4 + 4 + 2 + 2 + 1,
        1,
    ),
    "inception": (lambda: nn.Sequential(inception(1), nn.Conv2d(4, 1, 1), inception(2)), 2 + 2, 2),
    "dilated pyramid": (pyramid, 1 + 6 * 2, 2),
}


@pytest.mark.parametrize(("make", "radius", "stride"), KNOWN.values(), ids=KNOWN)
def test_what_is_said_of_a_network_with_branches_is_known_and_seen(
    make: Callable[[], nn.Module], radius: int, stride: int
) -> None:
    side = 2 * radius + 1 + 2 * stride + -(2 * radius + 1) % stride
    side += -side % 4  # two pools
    network = positive(make())
    said = seen_by(network, torch.zeros(1, 1, side, side))
    assert (said.radius, said.stride, said.measured) == (radius, stride, ())
    place = round((side - 1) / 2 / stride)
    first, last = footprint(network, side, place)
    centre = said.first + place * stride
    # Of a pool of two pixels and of an interpolation more is said than they see: half a pixel, up to one.
    slack = 0 if stride > 1 else 6
    assert centre - radius <= first <= centre - radius + slack
    assert centre + radius - slack <= last <= centre + radius


BRANCH = st.tuples(st.integers(0, 2), st.integers(1, 3))


@given(
    blocks=st.lists(st.tuples(st.integers(1, 2), st.lists(BRANCH, min_size=1, max_size=3)), min_size=1, max_size=3),
    adds=st.booleans(),
)
def test_branches_combine_as_the_gradient_shows(blocks: list[tuple[int, list[tuple[int, int]]]], adds: bool) -> None:
    layers: list[nn.Module] = []
    for stride, branches in blocks:
        windows = [nn.Conv2d(1, 1, 2 * half + 1, stride, half * d, d) for half, d in branches]
        layers.append(Beside(sum if adds else concatenated, *windows))  # type: ignore[arg-type]
        layers += [] if adds else [nn.Conv2d(len(branches), 1, 1)]
    network = positive(nn.Sequential(*layers))
    said = seen_by(network, torch.zeros(1, 1, 129, 129))
    place = round(64 / said.stride)
    assert footprint(network, 129, place) == (
        said.first + place * said.stride - said.radius,
        said.first + place * said.stride + said.radius,
    )


class SqueezeExcite(nn.Module):
    def __init__(self, squeeze: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.gate, self.squeeze = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 2, 1), squeeze

    def forward(self, x: Tensor) -> Tensor:
        maps = self.conv(x)
        return maps * torch.sigmoid(self.gate(self.squeeze(maps)))  # type: ignore[no-any-return]


class Attending(nn.Module):
    """Overlapping patches as tokens; keys and values of a coarser map, as hierarchical transformers have them."""

    def __init__(self, before: int = 1, patch: int = 7, stride: int = 4, coarser: int = 2, width: int = 4) -> None:
        super().__init__()
        self.cut = nn.Conv2d(before, width, patch, stride, patch // 2)
        self.coarser = nn.Conv2d(width, width, coarser, coarser)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.cut(x)
        tokens, fewer = (one.flatten(2).transpose(1, 2) for one in (maps, self.coarser(maps)))
        found = (self.query(tokens) @ self.key(fewer).transpose(1, 2)).softmax(-1) @ fewer
        return maps + found.transpose(1, 2).reshape(maps.shape)  # type: ignore[no-any-return]


class Segformer(nn.Module):
    """Two stages, brought to the size of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = Attending(), Attending(4, 3, 2), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.first(x)
        coarse = F.interpolate(self.second(fine), fine.shape[-2:], mode="bilinear", align_corners=False)
        return self.last(torch.cat([fine, coarse], 1))  # type: ignore[no-any-return]


EVERYWHERE: dict[str, tuple[Callable[[], nn.Module], float, tuple[str, ...]]] = {
    "squeeze and excite": (lambda: SqueezeExcite(nn.AdaptiveAvgPool2d(1)), 1, ()),
    "squeeze by a mean": (lambda: SqueezeExcite(lambda x: x.mean((2, 3), keepdim=True)), 1, ()),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.GroupNorm(1, 2)), 1, ()),
    "layer norm over space": (lambda: nn.LayerNorm([1, 64, 64]), 1, ()),
    "segformer": (Segformer, 4, ("Linear", "matmul in Attending")),
    "linear over space": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3, 2, 1), nn.Flatten(2), nn.Linear(1024, 1024), nn.Unflatten(2, (32, 32))
        ),
        2,
        ("Linear",),
    ),
}


@pytest.mark.parametrize(("make", "stride", "measured"), EVERYWHERE.values(), ids=EVERYWHERE)
def test_what_looks_everywhere(make: Callable[[], nn.Module], stride: float, measured: tuple[str, ...]) -> None:
    torch.manual_seed(1)
    network = make().eval()
    said = seen_by(network, random_images(0, (1, 1, 64, 64)))
    assert (said.stride, said.measured) == (stride, measured)
    assert said.radius >= 24
    assert footprint(network.double(), 64, round(32 / stride)) == (0, 63)


def off_centre(network: nn.Module, side: int) -> tuple[float, float]:
    with torch.no_grad():
        return read(network.eval(), torch.zeros(1, 1, side, side)).sampling


@pytest.mark.parametrize(
    ("kernel", "padding", "side", "off"),
    [
        # Two layers of stride 2. Windows of 3 with padding 1 lie at 0, 4, 8 and so on: on 96 pixels the last of 24 lies
        # at 92, their middle at 46, and that of the image at 47.5.
        (3, 1, 96, -1.5),
        (3, 1, 97, 0.0),
        # Windows of 4 with padding 1 lie at 0.5 + 2 * 0.5 = 1.5, 5.5 and so on to 93.5: the middle is 47.5.
        (4, 1, 96, 0.0),
        (4, 1, 97, -0.5),
        # Windows of 2 without padding: at 1.5 as well.
        (2, 0, 96, 0.0),
    ],
)
def test_the_place_of_strided_windows_by_hand(kernel: int, padding: int, side: int, off: float) -> None:
    layers = [nn.Conv2d(1, 1, kernel, 2, padding) for _ in range(2)]
    assert off_centre(nn.Sequential(*layers), side) == (4, off)

    def functional(x: Tensor) -> Tensor:
        for layer in layers:
            x = F.conv2d(F.pad(x, [padding] * 4), layer.weight, stride=2)
        return x

    assert off_centre(Called(functional, *layers), side) == (4, off)


class Called(nn.Module):
    """A function of layers that it is told of."""

    def __init__(self, function: Callable[[Tensor], Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize(
    ("make", "side", "sampling"),
    [
        (resnet18, 96, (32, -15.5)),  # at 0, 32 and 64
        (resnet18, 97, (32, 0.0)),
        (Segformer, 96, (16, -3.5)),  # the keys of the second stage, pairs of windows at 0, 8, 16: at 4, 20 up to 84
        (lambda: UNet(None), 96, (4, 0.0)),
    ],
    ids=["resnet18", "resnet18 centred", "segformer", "u-net"],
)
def test_the_coarsest_map_lies_where_it_does(make: Callable[[], Any], side: int, sampling: tuple[float, float]) -> None:
    assert off_centre(make(), side) == sampling


def test_centred_strides_of_branches_are_not_blamed() -> None:
    torch.manual_seed(0)
    network, images = resnet18().eval(), random_images(0, (2, 1, 97, 97))
    error = equivariance_error(network, images, 65 / 97)
    assert not [finding for finding in diagnose(network, images, error) if "off the centre" in finding.evidence]
