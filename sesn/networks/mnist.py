"""The MNIST-scale network: its skeleton, written once over what a method supplies.

Three stages [layer, ReLU, max-pool, norm] with pools of 2, 2 and p (stride p, padding 2, p = 4 at 28 x 28 and 8 at
56 x 56), which leave 2 x 2 positions; then Linear to 256 units, batch norm, ReLU, dropout 0.7 and Linear to ten classes
(the network of Ghosh & Gupta 2019, with the layers of the compared methods). The input is always 28 x 28: the network
at 56 upsamples it, bilinearly by the paper and to the nearest pixel by the release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from sesn import _checks
from sesn.basis import SteerableBasis
from sesn.errors import UsageError
from sesn.networks.skeleton import MAP, OTHER_CHANNELS, RESOLUTIONS, Carrier, NetworkTask, Recipe, Regime, Skeleton

#: Side of the images of MNIST.
SIDE = 28
HIDDEN = 256
CLASSES = 10
DROPOUT = 0.7
#: The channels of most methods: about 495,000 parameters.
CHANNELS = (32, 63, 95)

Three = tuple[int, int, int]


@dataclass(frozen=True)
class StageParts:
    """What a method supplies.

    Attributes:
        layer: makes the layer of a stage (0, 1, 2) from (stage, in_channels, out_channels): all that stands before the
            nonlinearity, the projection over scale included where the stage ends in a map.
        carriers: what each stage hands on.
        channels: the width of each stage.
        projection: makes what stands after the last norm and leaves a map.
        hidden_bias: whether the first fully-connected layer has a bias.
        leftover: makes modules that the release counts and never runs, from the last stage's channels.
    """

    layer: Callable[[int, int, int], nn.Module]
    carriers: tuple[Carrier, Carrier, Carrier] = (MAP, MAP, MAP)
    channels: Three = CHANNELS
    projection: Callable[[], nn.Module] = nn.Identity
    hidden_bias: bool = False
    leftover: Callable[[int], nn.Module] | None = None


#: A method's file offers one of these for each of its networks.
PartsOf = Callable[[Regime], StageParts]
TASK = NetworkTask(
    (1, SIDE, SIDE),
    CLASSES,
    options={"resolution": SIDE, "augmented": False, "channels": None},
    tried=tuple({"resolution": resolution} for resolution in RESOLUTIONS),
)


@dataclass(frozen=True)
class MNISTSkeleton(Skeleton):
    """The MNIST-scale network over a method's parts.

    Attributes:
        parts: makes them from a regime.
        bases: families of bases that it was published with, by name, each made for training without or with random
            scaling. The comparison of bases has a line for each.
    """

    parts: PartsOf
    bases: Mapping[str, Callable[[bool], SteerableBasis]] = field(default_factory=dict)

    def __call__(
        self,
        recipe: Recipe = "paper",
        resolution: int = SIDE,
        augmented: bool = False,
        channels: Three | None = None,
        num_classes: int = CLASSES,
        in_channels: int = 1,
    ) -> nn.Module:
        """The network with fresh weights, at a resolution (28 or 56)."""
        regime = Regime(resolution, augmented, recipe)
        return MNISTScaleNet(self.parts(regime), regime, channels, num_classes, in_channels)

    def first_layer(self, in_channels: int, out_channels: int, recipe: Recipe) -> nn.Module:
        """All that stands before the first nonlinearity, at 28."""
        return self.parts(Regime(recipe=recipe)).layer(0, in_channels, out_channels)

    def next_layer(self, channels: int, recipe: Recipe) -> nn.Module:
        """That of the second stage, at 28."""
        return self.parts(Regime(recipe=recipe)).layer(1, channels, channels)

    def widths(self, recipe: Recipe) -> Three:
        """The channels of the stages."""
        return self.parts(Regime(recipe=recipe)).channels


@dataclass(frozen=True)
class OwnNetwork(Skeleton):
    """A network of a method's authors in place of the shared one, with the same options.

    Attributes:
        network: makes it from a regime, its widths, the number of classes and that of the image's channels.
        first: makes its first layer from (in_channels, out_channels).
        following: makes the second one from its channels.
        channels: its widths.
    """

    network: Callable[[Regime, Sequence[int], int, int], nn.Module]
    first: Callable[[int, int], nn.Module]
    following: Callable[[int], nn.Module]
    channels: tuple[int, ...]

    def __call__(
        self,
        recipe: Recipe = "paper",
        resolution: int = SIDE,
        augmented: bool = False,
        channels: Sequence[int] | None = None,
        num_classes: int = CLASSES,
        in_channels: int = 1,
    ) -> nn.Module:
        """The network with fresh weights; it has as many layers as there are channels."""
        return self.network(Regime(resolution, augmented, recipe), channels or self.channels, num_classes, in_channels)

    def first_layer(self, in_channels: int, out_channels: int, recipe: Recipe) -> nn.Module:
        """The first layer, at 28."""
        return self.first(in_channels, out_channels)

    def next_layer(self, channels: int, recipe: Recipe) -> nn.Module:
        """The second layer, at 28."""
        return self.following(channels)

    def widths(self, recipe: Recipe) -> tuple[int, ...]:
        """The channels of its layers."""
        return self.channels


class MNISTScaleNet(nn.Module):
    """The network for MNIST-scale: images [b, 1, 28, 28] to the scores [b, 10] of ten digits, or of other classes.

    Args:
        parts: the method's parts.
        regime: the resolution and the recipe.
        channels: other widths than the method's own, for smaller networks.
        num_classes: how many scores it returns.
        in_channels: of the images.
    """

    def __init__(
        self,
        parts: StageParts,
        regime: Regime,
        channels: Three | None = None,
        num_classes: int = CLASSES,
        in_channels: int = 1,
    ) -> None:
        super().__init__()
        self.regime = regime
        self.num_classes = _checks.whole("num_classes", num_classes, 1)
        self.in_channels = _checks.whole("in_channels", in_channels, 1)
        self.channels = _three(parts.channels if channels is None else channels)
        self.upsample = upsampling(regime)
        self.stages = nn.Sequential(*_stages(parts, (self.in_channels, *self.channels), regime.resolution))
        self.projection = parts.projection()
        self.head = nn.Sequential(
            nn.Linear(4 * self.channels[2], HIDDEN, bias=parts.hidden_bias),
            nn.BatchNorm1d(HIDDEN),
            nn.ReLU(),
            nn.Dropout(DROPOUT),
            nn.Linear(HIDDEN, self.num_classes),
        )
        if parts.leftover is not None:
            self.unused = parts.leftover(self.channels[2])
            self.unused_parameters = tuple(f"unused.{name}" for name, _ in self.unused.named_parameters())

    def forward(self, image: Tensor) -> Tensor:
        """Scores of the classes."""
        check_image(image, self.in_channels)
        features: Tensor = self.projection(self.stages(self.upsample(image)))
        scores: Tensor = self.head(features.flatten(1))
        return scores

    def extra_repr(self) -> str:
        """`in -> out` and the regime."""
        return shown(self.in_channels, self.num_classes, self.regime)


def _three(channels: Three) -> Three:
    if not isinstance(channels, Sequence) or len(channels) != 3:
        raise UsageError(_checks.complaint("channels", channels, "three whole numbers, one per stage"))
    a, b, c = (_checks.whole(f"channels[{i}]", value, 1) for i, value in enumerate(channels))
    return a, b, c


def shown(in_channels: int, num_classes: int, regime: Regime) -> str:
    """`in -> out` and the regime, for a network's repr."""
    shapes = f"{in_channels}x{SIDE}x{SIDE} -> {num_classes}"
    return f"{shapes}, resolution={regime.resolution}, recipe={regime.recipe!r}"


def check_image(image: Tensor, in_channels: int) -> None:
    """Refuse what is no batch of MNIST images with so many channels."""
    _checks.real_tensor("image", image, "b c h w")
    _checks.extent("image", image, 1, in_channels, "network's in_channels", OTHER_CHANNELS)
    for axis in (2, 3):
        remedy = "give the image itself: a network at 56 upsamples it"
        _checks.extent("image", image, axis, SIDE, "side of an MNIST image", remedy)


def upsampling(regime: Regime) -> nn.Module:
    """What brings an image to the resolution."""
    factor = regime.resolution // SIDE
    if factor == 1:
        return nn.Identity()
    if regime.recipe == "released":
        return nn.Upsample(scale_factor=factor, mode="nearest")
    return nn.Upsample(scale_factor=factor, mode="bilinear", align_corners=False)


def _stages(parts: StageParts, widths: tuple[int, int, int, int], resolution: int) -> list[nn.Module]:
    last = resolution // 7
    pools = ((2, 2, 0), (2, 2, 0), (last, last, 2))
    return [
        nn.Sequential(
            parts.layer(stage, widths[stage], widths[stage + 1]),
            carrier.activation(),
            carrier.pool(*pools[stage]),
            carrier.norm(widths[stage + 1]),
        )
        for stage, carrier in enumerate(parts.carriers)
    ]
