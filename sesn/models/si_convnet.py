"""SI-ConvNet (Kanazawa et al. 2014): the plain networks with every convolution run on rescaled inputs."""

from __future__ import annotations

from torch import nn

from sesn.baselines.si_convnet import SIConv
from sesn.models import mnist, wrn
from sesn.models.cnn import conv1x1
from sesn.models.recipes import Recipe, Regime
from sesn.models.wrn import Place

MNIST_SCALES = (0.3, 0.45, 0.67, 1.0, 1.49, 2.23, 3.33)
STL10_SCALES = (0.5, 1.0, 2.0)


def mnist_parts(regime: Regime) -> mnist.Parts:
    """7 x 7 convolutions with a bias, at seven scales."""
    return mnist.Parts(lambda stage, i, o: SIConv(i, o, 7, MNIST_SCALES))


def wrn_parts(recipe: Recipe) -> wrn.Parts:
    """3 x 3 convolutions at three scales; the shortcuts are plain."""

    def conv(place: Place, in_channels: int, out_channels: int, stride: int) -> nn.Module:
        return SIConv(in_channels, out_channels, 3, STL10_SCALES, stride, bias=False)

    return wrn.Parts(
        stem=lambda i, o: SIConv(i, o, 3, STL10_SCALES, bias=False),
        conv=conv,
        shortcut=conv1x1,
        fan_out=(SIConv, nn.Conv2d),
    )
