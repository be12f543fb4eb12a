"""The network of the scale-generalisation benchmark STIR (Altstidl et al. 2022), written once over a method's parts.

A layer to 16 channels, ReLU, a layer to 32 channels, ReLU, the projection over scale if there are scales, the maximum
over positions, and a Linear. No pooling, no norm and no stride, so that images may have any size. The layers are the
first and the last that a method has in the MNIST-scale network at 56 x 56: the last ends in what can be projected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

from sesn import _checks
from sesn.layers.pool import GlobalPool
from sesn.networks.mnist import PartsOf, StageParts
from sesn.networks.skeleton import OTHER_CHANNELS, NetworkTask, Recipe, Regime, Skeleton

CLASSES = 10
CHANNELS = (16, 32)
RESOLUTION = 56
#: Of the images that a network is tried on.
SIDE = 64
PUBLISHED = "published"
FIRST, LAST = 0, 2

Two = tuple[int, int]
TASK = NetworkTask((1, SIDE, SIDE), CLASSES, options={"design": PUBLISHED, "channels": None}, tried=({},))


@dataclass(frozen=True)
class STIRSkeleton(Skeleton):
    """The network over a method's parts.

    Attributes:
        parts: the method's parts of the MNIST-scale network.
        designs: other choices of its kernels and nonlinearity, by name.
    """

    parts: PartsOf
    designs: Mapping[str, PartsOf] = field(default_factory=dict)

    def __call__(
        self,
        recipe: Recipe = "paper",
        design: str = PUBLISHED,
        channels: Two | None = None,
        num_classes: int = CLASSES,
        in_channels: int = 1,
    ) -> nn.Module:
        """The network with fresh weights."""
        return STIRNet(self._parts(recipe, design), channels or CHANNELS, num_classes, in_channels)

    def first_layer(self, in_channels: int, out_channels: int, recipe: Recipe) -> nn.Module:
        """All that stands before the first nonlinearity."""
        return self._parts(recipe).layer(FIRST, in_channels, out_channels)

    def next_layer(self, channels: int, recipe: Recipe) -> nn.Module:
        """A layer from what the first hands on to the same."""
        return self._parts(recipe).layer(FIRST + 1, channels, channels)

    def widths(self, recipe: Recipe) -> tuple[int, ...]:
        """The channels of the two layers."""
        return CHANNELS

    def _parts(self, recipe: Recipe, design: str = PUBLISHED) -> StageParts:
        made = _checks.looked_up("design", design, {PUBLISHED: self.parts, **self.designs})
        return made(Regime(RESOLUTION, recipe=recipe))


class STIRNet(nn.Module):
    """Images [b, c, h, w] of any size to the scores [b, n] of n classes.

    Args:
        parts: the method's parts of the MNIST-scale network.
        channels: the widths of the two layers.
        num_classes: how many scores it returns.
        in_channels: of the images.
    """

    def __init__(self, parts: StageParts, channels: Two, num_classes: int, in_channels: int) -> None:
        super().__init__()
        self.num_classes = _checks.whole("num_classes", num_classes, 1)
        self.in_channels = _checks.whole("in_channels", in_channels, 1)
        good = isinstance(channels, tuple | list) and len(channels) == 2
        _checks.require(good, "channels", channels, "two whole numbers, one per layer")
        self.channels = tuple(_checks.whole(f"channels[{i}]", width, 1) for i, width in enumerate(channels))
        first, last = self.channels
        self.features = nn.Sequential(
            parts.layer(FIRST, self.in_channels, first),
            parts.carriers[FIRST].activation(),
            parts.layer(LAST, first, last),
            parts.carriers[LAST].activation(),
            parts.projection(),
        )
        self.pool = GlobalPool("max")
        self.head = nn.Linear(last, self.num_classes)

    def forward(self, image: Tensor) -> Tensor:
        """Scores of the classes."""
        _checks.real_tensor("image", image, "b c h w")
        _checks.extent("image", image, 1, self.in_channels, "network's in_channels", OTHER_CHANNELS)
        scores: Tensor = self.head(self.pool(self.features(image)))
        return scores

    def extra_repr(self) -> str:
        """`in -> out`."""
        return f"{self.in_channels} -> {self.num_classes}"
