"""SEVF (Marcos et al. 2018): Scalar and Vector on MNIST-scale, vector fields throughout on STL-10."""

from __future__ import annotations

from functools import partial

from torch import nn

from sesn.baselines.sevf import (
    SEVFConv,
    SEVFLift,
    VectorBatchNorm,
    VectorMagnitude,
    VectorMaxPool,
    sevf_angles,
    sevf_scales,
)
from sesn.models import mnist, wrn
from sesn.models.carriers import MAP, Carrier, no_norm
from sesn.models.recipes import Recipe, Regime
from sesn.models.wrn import Place
from sesn.pool import GlobalPool

MNIST_SCALES, MNIST_ANGLES = sevf_scales(), sevf_angles()
#: Neither the paper nor the release says how SEVF went on STL-10: our choice.
STL10_SCALES = (0.67, 1.0, 1.5)
STL10_ANGLES = sevf_angles(3)


def vectors(recipe: Recipe) -> Carrier:
    """A vector field [b, c, 2, h, w]; its layers end in the ReLU already."""
    return Carrier(nn.Identity, VectorMaxPool, partial(VectorBatchNorm, recipe=recipe))


def mnist_scalar(regime: Regime) -> mnist.Parts:
    """The length of the vector after every convolution; no norm after the last."""
    return mnist.Parts(
        lambda stage, i, o: nn.Sequential(SEVFLift(i, o, 7, MNIST_SCALES, MNIST_ANGLES), VectorMagnitude()),
        carriers=(MAP, MAP, MAP._replace(norm=no_norm)),
        hidden_bias=True,
    )


def mnist_vector(regime: Regime) -> mnist.Parts:
    """Vector fields throughout; their length is taken after the last pooling, and no norm stands there."""

    def layer(stage: int, in_channels: int, out_channels: int) -> nn.Module:
        make = SEVFConv if stage else SEVFLift
        return make(in_channels, out_channels, 7, MNIST_SCALES, MNIST_ANGLES)

    carrier = vectors(regime.recipe)
    return mnist.Parts(
        layer,
        carriers=(carrier, carrier, carrier._replace(norm=no_norm)),
        channels=(23, 45, 68),
        projection=VectorMagnitude,
        hidden_bias=True,
    )


def wrn_parts(recipe: Recipe) -> wrn.Parts:
    """Our completion: vector fields throughout, in the shortcuts too, and their length after the last norm."""
    carrier = vectors(recipe)

    def conv(place: Place, in_channels: int, out_channels: int, stride: int) -> nn.Module:
        return SEVFConv(in_channels, out_channels, 3, STL10_SCALES, STL10_ANGLES, stride)

    def shortcut(place: Place, in_channels: int, out_channels: int, stride: int) -> nn.Module:
        return SEVFConv(in_channels, out_channels, 1, STL10_SCALES, STL10_ANGLES, stride)

    def head(channels: int) -> nn.Module:
        return nn.Sequential(carrier.activated(channels), VectorMagnitude(), GlobalPool("mean"))

    return wrn.Parts(
        stem=lambda i, o: SEVFLift(i, o, 3, STL10_SCALES, STL10_ANGLES),
        conv=conv,
        shortcut=shortcut,
        carrier=carrier,
        head=head,
        base=(11, 23, 45),
        stem_width=11,
    )
