"""DSS (Worrall & Welling 2019): Scalar and Vector on MNIST-scale, scale-spaces throughout on STL-10."""

from __future__ import annotations

from torch import Tensor, nn

from sesn.baselines.dss import DSSConv, DSSLift
from sesn.models import mnist, wrn
from sesn.models.carriers import FIELD
from sesn.models.recipes import Recipe, Regime
from sesn.models.wrn import Place
from sesn.pool import GlobalPool, ScaleProjection

#: Dilations 1, 2, 4, 8 by the paper; the release has the first two.
MNIST_SCALES: dict[Recipe, int] = {"paper": 4, "released": 2}
MNIST_ZERO_SCALE = 0.25
STL10_ZERO_SCALE = 0.5
#: Scales that a group gets; groups 0 and 1 enter by a convolution over two scales and lose one.
STL10_SCALES = (4, 3, 2, 2)


def mnist_scalar(regime: Regime) -> mnist.Parts:
    """A new scale-space before every convolution, and the maximum over scales after it."""
    scales = MNIST_SCALES[regime.recipe]

    def layer(stage: int, in_channels: int, out_channels: int) -> nn.Module:
        lift = DSSLift(scales, zero_scale=MNIST_ZERO_SCALE)
        return nn.Sequential(lift, DSSConv(in_channels, out_channels, 7, scales), ScaleProjection())

    return mnist.Parts(layer)


def mnist_vector(regime: Regime) -> mnist.Parts:
    """Lifted once; the maximum over scales is taken after the last norm."""
    scales = MNIST_SCALES[regime.recipe]

    def layer(stage: int, in_channels: int, out_channels: int) -> nn.Module:
        conv = DSSConv(in_channels, out_channels, 7, scales)
        return conv if stage else nn.Sequential(DSSLift(scales, zero_scale=MNIST_ZERO_SCALE), conv)

    return mnist.Parts(layer, (FIELD, FIELD, FIELD), projection=ScaleProjection)


# STL-10


class FirstScales(nn.Module):
    """Keep the first `count` scales of a field: those whose filters saw all the scales that they ask for."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, field: Tensor) -> Tensor:
        """[b, c, s, h, w] -> [b, c, count, h, w]."""
        return field[:, :, : self.count]

    def extra_repr(self) -> str:
        """How many."""
        return str(self.count)


def _loses_a_scale(place: Place) -> bool:
    return place.block == 0 and STL10_SCALES[place.group + 1] < STL10_SCALES[place.group]


def _conv(place: Place, in_channels: int, out_channels: int, stride: int) -> nn.Module:
    enters = place.enters_group
    scales = STL10_SCALES[place.group + (0 if enters else 1)]
    seen = 2 if enters and _loses_a_scale(place) else 1
    return DSSConv(in_channels, out_channels, 3, scales, interscale=seen, stride=stride, init="delta")


def _shortcut(place: Place, in_channels: int, out_channels: int, stride: int) -> nn.Module:
    return DSSConv(in_channels, out_channels, 1, STL10_SCALES[place.group + 1], stride=stride, init="delta")


def _trim(place: Place) -> nn.Module:
    return FirstScales(STL10_SCALES[place.group + 1]) if _loses_a_scale(place) else nn.Identity()


def _stem(in_channels: int, out_channels: int) -> nn.Module:
    lift = DSSLift(STL10_SCALES[0], zero_scale=STL10_ZERO_SCALE)
    return nn.Sequential(lift, DSSConv(in_channels, out_channels, 3, STL10_SCALES[0], init="delta"))


def _head(channels: int) -> nn.Module:
    return nn.Sequential(FIELD.activated(channels), ScaleProjection(), GlobalPool("mean"))


def wrn_parts(recipe: Recipe) -> wrn.Parts:
    """Four scales at first; filters over two scales, which cost one of them, enter groups 1 and 2.

    The middle group is narrower (30 instead of 32), which pays for the filters' extent, under both recipes.
    """
    return wrn.Parts(
        stem=_stem, conv=_conv, shortcut=_shortcut, carrier=FIELD, head=_head, base=(16, 30, 64), trim=_trim, fan_out=()
    )
