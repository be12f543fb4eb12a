"""SiCNN (Xu et al. 2014): Scalar and Vector on MNIST-scale, columns throughout on STL-10."""

from __future__ import annotations

from functools import partial

from torch import nn

from sesn.baselines.sicnn import SiCNNConv, SiCNNLift
from sesn.conv import ScaleConv1x1
from sesn.models import mnist, wrn
from sesn.models.carriers import FIELD, Carrier, ColumnBatchNorm
from sesn.models.recipes import Recipe, Regime
from sesn.models.steerable import shortcut
from sesn.models.wrn import Place
from sesn.pool import GlobalPool, ScaleProjection

MNIST_SCALES = (0.3, 0.45, 0.67, 1.0, 1.49, 2.23, 3.33)
STL10_SCALES = (0.67, 1.0, 1.5)


def columns(scales: int) -> Carrier:
    """A field whose scales are normalised one by one: the published counts of parameters say so."""
    return FIELD._replace(norm=partial(ColumnBatchNorm, scales=scales))


def mnist_scalar(regime: Regime) -> mnist.Parts:
    """The maximum over the columns after every convolution; the paper gives its times only."""
    recipe = regime.recipe
    return mnist.Parts(
        lambda stage, i, o: nn.Sequential(SiCNNLift(i, o, 7, MNIST_SCALES, recipe=recipe), ScaleProjection())
    )


def mnist_vector(regime: Regime) -> mnist.Parts:
    """Columns throughout; their maximum is taken after the last norm."""

    def layer(stage: int, in_channels: int, out_channels: int) -> nn.Module:
        make = SiCNNConv if stage else SiCNNLift
        return make(in_channels, out_channels, 7, MNIST_SCALES, recipe=regime.recipe)

    carrier = columns(len(MNIST_SCALES))
    return mnist.Parts(layer, (carrier, carrier, carrier), projection=ScaleProjection)


def wrn_parts(recipe: Recipe) -> wrn.Parts:
    """Columns throughout; their maximum is taken after the mean over positions."""
    carrier = columns(len(STL10_SCALES))

    def conv(place: Place, in_channels: int, out_channels: int, stride: int) -> nn.Module:
        return SiCNNConv(in_channels, out_channels, 3, STL10_SCALES, stride, recipe=recipe)

    def head(channels: int) -> nn.Module:
        return nn.Sequential(carrier.activated(channels), GlobalPool("mean"), ScaleProjection())

    return wrn.Parts(
        stem=lambda i, o: SiCNNLift(i, o, 3, STL10_SCALES, recipe=recipe),
        conv=conv,
        shortcut=shortcut,
        carrier=carrier,
        head=head,
        fan_out=(SiCNNLift, SiCNNConv, ScaleConv1x1),
    )
