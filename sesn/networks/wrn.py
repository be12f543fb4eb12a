"""The wide residual network for STL-10 (Zagoruyko & Komodakis 2016): its skeleton, written once.

A 3 x 3 stem; three groups of pre-activation blocks BN-ReLU-conv-BN-ReLU-dropout-conv plus a skip, with strides 1, 2, 2;
then norm, ReLU, global mean and a Linear. WRN-16-8 has two blocks per group and widths 128, 256, 512. Where a block
changes the width, its first BN-ReLU feeds both branches, and the skip is a 1 x 1 convolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor, nn

from sesn import _checks
from sesn.layers.pool import GlobalPool
from sesn.networks.skeleton import MAP, OTHER_CHANNELS, Carrier, NetworkTask, Recipe, Skeleton

CLASSES, COLOURS = 10, 3
DROPOUT = 0.3
STRIDES = (1, 2, 2)


class BlockPlace(NamedTuple):
    """Where a layer stands: group 0..2, block 0.. in it, and whether it is a block's first or second convolution."""

    group: int
    block: int
    first: bool = True

    @property
    def enters_group(self) -> bool:
        """Whether it is the first convolution of its group."""
        return self.first and self.block == 0


@dataclass(frozen=True)
class BlockParts:
    """What a method supplies.

    Attributes:
        stem: makes the first layer from (in_channels, out_channels).
        conv: makes a block's layer from (place, in_channels, out_channels, stride).
        shortcut: makes the 1 x 1 layer of a skip, from the same.
        carrier: what the layers hand on.
        head: makes what turns the last group's features into [b, c]: for a map BN, ReLU and the mean over positions.
        base: the width of each group before widening.
        stem_width: the channels after the stem.
        trim: makes what the second convolution and the skip read their input through.
        fan_out: the layers whose weights start from N(0, 2 / n), n being weights per input channel; the others keep
            their own start.
    """

    stem: Callable[[int, int], nn.Module]
    conv: Callable[[BlockPlace, int, int, int], nn.Module]
    shortcut: Callable[[BlockPlace, int, int, int], nn.Module]
    carrier: Carrier = MAP
    head: Callable[[int], nn.Module] = lambda channels: nn.Sequential(MAP.activated(channels), GlobalPool("mean"))
    base: tuple[int, int, int] = (16, 32, 64)
    stem_width: int = 16
    trim: Callable[[BlockPlace], nn.Module] = lambda place: nn.Identity()
    fan_out: tuple[type[nn.Module], ...] = (nn.Conv2d,)


#: A method's file offers one of these for each of its networks.
PartsOf = Callable[[Recipe], BlockParts]
TASK = NetworkTask(
    (COLOURS, 96, 96), CLASSES, options={"depth": 16, "width": 8, "resolution": 96}, tried=({"depth": 10, "width": 1},)
)


@dataclass(frozen=True)
class WRNSkeleton(Skeleton):
    """The wide residual network over a method's parts."""

    parts: PartsOf

    def __call__(
        self,
        recipe: Recipe = "paper",
        depth: int = 16,
        width: int = 8,
        resolution: int = 96,
        num_classes: int = CLASSES,
        in_channels: int = COLOURS,
    ) -> nn.Module:
        """The network with fresh weights, for images of side `resolution`."""
        return WideResNet(self.parts(recipe), depth, width, resolution, num_classes, in_channels)

    def first_layer(self, in_channels: int, out_channels: int, recipe: Recipe) -> nn.Module:
        """All that stands before the first norm."""
        return self.parts(recipe).stem(in_channels, out_channels)

    def next_layer(self, channels: int, recipe: Recipe) -> nn.Module:
        """The first convolution of the second block."""
        return self.parts(recipe).conv(BlockPlace(0, 1), channels, channels, 1)

    def widths(self, recipe: Recipe) -> tuple[int, int, int]:
        """The channels of the groups before widening."""
        return self.parts(recipe).base


class WideBlock(nn.Module):
    """A pre-activation residual block with dropout between its two convolutions."""

    def __init__(
        self, parts: BlockParts, group: int, block: int, in_channels: int, out_channels: int, stride: int
    ) -> None:
        super().__init__()
        first, second = BlockPlace(group, block), BlockPlace(group, block, first=False)
        self.norm1 = parts.carrier.activated(in_channels)
        self.conv1 = parts.conv(first, in_channels, out_channels, stride)
        self.norm2 = parts.carrier.activated(out_channels)
        self.dropout = nn.Dropout(DROPOUT)
        self.trim = parts.trim(first)
        self.conv2 = parts.conv(second, out_channels, out_channels, 1)
        changes = in_channels != out_channels or stride != 1
        self.shortcut = parts.shortcut(first, in_channels, out_channels, stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """The residual branch plus the skip."""
        active = self.norm1(x)
        skip: Tensor = self.trim(x) if self.shortcut is None else self.shortcut(self.trim(active))
        residual: Tensor = self.conv2(self.trim(self.dropout(self.norm2(self.conv1(active)))))
        return residual + skip


class WideResNet(nn.Module):
    """WRN-depth-width over a method's parts: images [b, 3, side, side] to scores [b, 10] of ten classes or of others.

    Args:
        parts: the method's parts.
        depth: 6 n + 4 for n blocks per group (16 in the paper, 10 is the shallowest).
        width: the widening factor (8 in the paper).
        resolution: the side of the images (96 on STL-10), a multiple of 4.
        num_classes: how many scores it returns.
        in_channels: of the images.
    """

    def __init__(
        self,
        parts: BlockParts,
        depth: int = 16,
        width: int = 8,
        resolution: int = 96,
        num_classes: int = CLASSES,
        in_channels: int = COLOURS,
    ) -> None:
        super().__init__()
        self.num_classes = _checks.whole("num_classes", num_classes, 1)
        self.in_channels = _checks.whole("in_channels", in_channels, 1)
        self.depth, self.width = _checks.whole("depth", depth, 10), _checks.whole("width", width, 1)
        _checks.require((depth - 4) % 6 == 0, "depth", depth, "6 n + 4 for n blocks per group", "use 10, 16 or 22")
        self.resolution = _checks.whole("resolution", resolution, 4)
        _checks.require(resolution % 4 == 0, "resolution", resolution, "a multiple of 4", "the maps are halved twice")
        widths = [channels * self.width for channels in parts.base]
        self.stem = parts.stem(self.in_channels, parts.stem_width)
        entries = [parts.stem_width, *widths]
        self.groups = nn.Sequential()
        for group, (before, after) in enumerate(pairwise(entries)):
            blocks = [WideBlock(parts, group, 0, before, after, STRIDES[group])]
            blocks += [WideBlock(parts, group, block, after, after, 1) for block in range(1, (depth - 4) // 6)]
            self.groups.append(nn.Sequential(*blocks))
        self.head = parts.head(widths[2])
        self.classifier = nn.Linear(widths[2], self.num_classes)
        for module in self.modules():
            weight = getattr(module, "weight", None)
            if isinstance(module, parts.fan_out) and isinstance(weight, Tensor):
                nn.init.normal_(weight, 0.0, math.sqrt(2 * weight.shape[1] / weight.numel()))
        nn.init.zeros_(self.classifier.bias)

    def forward(self, image: Tensor) -> Tensor:
        """Scores of the classes."""
        _checks.real_tensor("image", image, "b c h w")
        _checks.extent("image", image, 1, self.in_channels, "network's in_channels", OTHER_CHANNELS)
        for axis in (2, 3):
            remedy = "resize it, or build the network with resolution="
            _checks.extent("image", image, axis, self.resolution, "network's resolution", remedy)
        scores: Tensor = self.classifier(self.head(self.groups(self.stem(image))))
        return scores

    def extra_repr(self) -> str:
        """`in -> out` and the size."""
        side = self.resolution
        return f"{self.in_channels}x{side}x{side} -> {self.num_classes}, WRN-{self.depth}-{self.width}"
