"""SS-CNN (Ghosh & Gupta 2019): locally invariant networks of log-radial steerable filters."""

from __future__ import annotations

from torch import nn

from sesn.baselines.ss_cnn import SSConv
from sesn.models import mnist, wrn
from sesn.models.cnn import conv1x1
from sesn.models.recipes import Recipe, Regime
from sesn.models.wrn import Place

#: Sides of the kernels, one per scale, by recipe and resolution.
MNIST_SIZES: dict[tuple[Recipe, int], tuple[int, ...]] = {
    ("paper", 28): (5, 7, 9, 11, 13, 15),
    ("paper", 56): (7, 9, 11, 13, 15, 17),
    ("released", 28): (5, 7, 9, 11, 13),
    ("released", 56): (7, 9, 11, 13, 15, 17),
}
MNIST_NOMINAL, MNIST_ORDERS = 11, (0.5, 1.0, 2.0)
STL10_SIZES, STL10_NOMINAL, STL10_ORDERS = (3, 5, 7), 3, (1.0,)
#: The release does not hand the list of sizes on to its blocks, so that they have a single scale.
BLOCK_SIZES: dict[Recipe, tuple[int, ...]] = {"paper": STL10_SIZES, "released": (3,)}


def mnist_parts(regime: Regime) -> mnist.Parts:
    """54 weights per pair of channels; the released network counts a batch norm that it never runs."""
    sizes = MNIST_SIZES[regime.recipe, regime.resolution]

    def layer(stage: int, in_channels: int, out_channels: int) -> nn.Module:
        return SSConv(in_channels, out_channels, sizes, MNIST_NOMINAL, MNIST_ORDERS, recipe=regime.recipe)

    leftover = nn.BatchNorm2d if regime.recipe == "released" else None
    return mnist.Parts(layer, channels=(30, 60, 90), hidden_bias=True, leftover=leftover)


def wrn_parts(recipe: Recipe) -> wrn.Parts:
    """18 weights per pair of channels, and plain shortcuts."""

    def conv(place: Place, in_channels: int, out_channels: int, stride: int) -> nn.Module:
        sizes = BLOCK_SIZES[recipe]
        return SSConv(in_channels, out_channels, sizes, STL10_NOMINAL, STL10_ORDERS, stride=stride, recipe=recipe)

    return wrn.Parts(
        stem=lambda i, o: SSConv(i, o, STL10_SIZES, STL10_NOMINAL, STL10_ORDERS, recipe=recipe),
        conv=conv,
        shortcut=conv1x1,
        base=(11, 22, 44),
        stem_width=11,
    )
