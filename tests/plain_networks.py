"""Ordinary networks to convert: a residual network as torchvision writes it, a U-Net, and code with functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    def __init__(self, in_channels: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or in_channels != channels:
            shortcut = nn.Conv2d(in_channels, channels, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    """The layers and the names of torchvision's, with fewer channels."""

    def __init__(self, width: int = 4, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        for place in range(4):
            first = BasicBlock(widths[place], widths[place + 1], 1 if place == 0 else 2)
            setattr(self, f"layer{place + 1}", nn.Sequential(first, BasicBlock(widths[place + 1], widths[place + 1])))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def twice(in_channels: int, channels: int) -> nn.Sequential:
    first, second = nn.Conv2d(in_channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, padding="same")
    return nn.Sequential(first, nn.BatchNorm2d(channels), nn.ReLU(), second, nn.BatchNorm2d(channels), nn.ReLU())


class UNet(nn.Module):
    """Two levels down and up; with `functions` it pools and upsamples by functions."""

    def __init__(self, width: int = 4, functions: bool = False) -> None:
        super().__init__()
        self.inner, self.middle, self.outer = twice(2 * width, 4 * width), twice(width, 2 * width), twice(1, width)
        self.after_inner, self.after_middle = twice(6 * width, 2 * width), twice(3 * width, width)
        self.pool, self.up = nn.MaxPool2d(2), nn.Upsample(scale_factor=2, mode="bilinear")
        self.out = nn.Conv2d(width, 2, 1)
        self.functions = functions

    def forward(self, x: Tensor) -> Tensor:
        pool = (lambda x: F.max_pool2d(x, 2)) if self.functions else self.pool
        up = (lambda x: F.interpolate(x, scale_factor=2.0)) if self.functions else self.up
        outer = self.outer(x)
        middle = self.middle(pool(outer))
        middle = self.after_inner(torch.cat([middle, up(self.inner(pool(middle)))], dim=1))
        return self.out(self.after_middle(torch.cat([outer, up(middle)], dim=1)))


class Code(nn.Module):
    """A convolution, and then a function of its own."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.conv, self.function = nn.Conv2d(1, 2, 3, padding=1), function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.conv(x))


def settled(network: nn.Module, *shape: int) -> nn.Module:
    """In eval mode and float64, with statistics of batch norms that are not those of the start."""
    generator = torch.Generator().manual_seed(0)
    network.double().train()
    with torch.no_grad():
        for _ in range(3):
            network(torch.randn(4, *shape, generator=generator, dtype=torch.float64))
    return network.eval()


def seeded(seed: int, make: Callable[[], Any]) -> Any:
    """What is made, with weights from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()
