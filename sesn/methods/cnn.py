"""The plain networks that the others are compared with: the CNN of Ghosh & Gupta 2019, and WRN-16-8."""

from __future__ import annotations

from torch import nn

from sesn.methods.method import CHANNELS, COLOURS, MNIST_SIDE, WIDE_SIDE, Method, Source, no_scales
from sesn.networks import mnist, stir, wrn
from sesn.networks.skeleton import Recipe, Regime
from sesn.networks.wrn import BlockPlace


def mnist_parts(regime: Regime) -> mnist.StageParts:
    """7 x 7 convolutions with a bias."""
    return mnist.StageParts(lambda stage, i, o: nn.Conv2d(i, o, 7, padding=3))


def conv1x1(place: BlockPlace, in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """A 1 x 1 convolution without a bias."""
    return nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)


def wrn_parts(recipe: Recipe) -> wrn.BlockParts:
    """3 x 3 convolutions without biases."""
    return wrn.BlockParts(
        stem=lambda i, o: nn.Conv2d(i, o, 3, padding=1, bias=False),
        conv=lambda place, i, o, stride: nn.Conv2d(i, o, 3, stride, padding=1, bias=False),
        shortcut=conv1x1,
    )


def plain(side: int) -> nn.Module:
    """The convolution that the layers of the other methods are compared with."""
    if side == MNIST_SIDE:
        return nn.Conv2d(COLOURS, CHANNELS, 7, padding=3, bias=False)
    return nn.Conv2d(COLOURS, CHANNELS, 3, padding=1, bias=False)


CNN = Method(
    "cnn",
    "CNN",
    Source("Ghosh & Gupta 2019, arXiv:1906.03861"),
    "#000000",
    {"mnist": mnist.MNISTSkeleton(mnist_parts), "stir": stir.STIRSkeleton(mnist_parts)},
    no_scales,
    absences={"stl10": "on STL-10 the plain network is the wide ResNet; use wrn"},
)
WRN = Method(
    "wrn",
    "WRN",
    Source("Zagoruyko & Komodakis 2016, arXiv:1605.07146"),
    "#000000",
    {"stl10": wrn.WRNSkeleton(wrn_parts)},
    no_scales,
    side=WIDE_SIDE,
    absences={"mnist": "on MNIST-scale the plain network is the CNN; use cnn"},
)
