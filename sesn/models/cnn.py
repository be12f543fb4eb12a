"""The plain networks that the others are compared with: the CNN of Ghosh & Gupta 2019, and WRN-16-8."""

from __future__ import annotations

from torch import nn

from sesn.models import mnist, wrn
from sesn.models.recipes import Recipe, Regime
from sesn.models.wrn import Place


def mnist_parts(regime: Regime) -> mnist.Parts:
    """7 x 7 convolutions with a bias."""
    return mnist.Parts(lambda stage, i, o: nn.Conv2d(i, o, 7, padding=3))


def conv3x3(place: Place, in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """A 3 x 3 convolution without a bias."""
    return nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)


def conv1x1(place: Place, in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """A 1 x 1 convolution without a bias."""
    return nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)


def wrn_parts(recipe: Recipe) -> wrn.Parts:
    """3 x 3 convolutions without biases."""
    return wrn.Parts(stem=lambda i, o: nn.Conv2d(i, o, 3, padding=1, bias=False), conv=conv3x3, shortcut=conv1x1)
