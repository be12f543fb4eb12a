"""Harm WRN (Ulicny et al. 2019): the wide ResNet whose 3 x 3 kernels are combinations of DCT filters."""

from __future__ import annotations

from torch import nn

from sesn.baselines.harmonic import HarmonicConv
from sesn.models import wrn
from sesn.models.cnn import conv1x1
from sesn.models.recipes import Recipe
from sesn.models.wrn import Place


def wrn_parts(recipe: Recipe) -> wrn.Parts:
    """DCT kernels in the stem and in all 3 x 3 convolutions; the shortcuts are plain."""

    def conv(place: Place, in_channels: int, out_channels: int, stride: int) -> nn.Module:
        return HarmonicConv(in_channels, out_channels, stride)

    return wrn.Parts(
        stem=HarmonicConv,
        conv=conv,
        shortcut=conv1x1,
        fan_out=(HarmonicConv, nn.Conv2d),
    )
