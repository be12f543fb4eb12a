"""What the skeletons share: the recipes they are built by, what their layers hand on, and what they must offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from torch import Tensor, nn

from sesn import _checks
from sesn.layers.norm import ScaleBatchNorm
from sesn.layers.pool import SpatialMaxPool

#: As the paper prints a network, or as its authors released it.
Recipe = Literal["paper", "released"]
RECIPES: tuple[Recipe, ...] = ("paper", "released")

#: Sides of the map that the first layer of the MNIST-scale network sees.
RESOLUTIONS = (28, 56)
#: What to do about images of other channels than a network's.
OTHER_CHANNELS = "build the network with in_channels="


def known_recipe(recipe: str) -> Recipe:
    """Return the recipe, or say which ones there are."""
    return cast(Recipe, _checks.one_of("recipe", recipe, RECIPES))


@dataclass(frozen=True)
class Regime:
    """A column of the paper's MNIST-scale table, and the recipe to build its network by.

    Attributes:
        resolution: 28, or 56 where the network upsamples its input by two.
        augmented: whether it is trained with random scaling ("+"); only the released SESN networks differ by it.
        recipe: "paper" or "released".
    """

    resolution: int = 28
    augmented: bool = False
    recipe: Recipe = "paper"

    def __post_init__(self) -> None:
        known_recipe(self.recipe)
        _checks.flag("augmented", self.augmented)
        good = hasattr(self.resolution, "__index__") and self.resolution in RESOLUTIONS
        _checks.require(good, "resolution", self.resolution, "28 or 56")


class Skeleton(ABC):
    """A network over the parts of one method."""

    #: The network with fresh weights, from a recipe and the options of its task.
    __call__: Callable[..., nn.Module]

    @abstractmethod
    def first_layer(self, in_channels: int, out_channels: int, recipe: Recipe) -> nn.Module:
        """All that stands before the first norm and nonlinearity."""

    @abstractmethod
    def next_layer(self, channels: int, recipe: Recipe) -> nn.Module:
        """A layer from what the first hands on to the same."""

    @abstractmethod
    def widths(self, recipe: Recipe) -> tuple[int, ...]:
        """The channels of its stages or groups, before widening."""


class NetworkTask(NamedTuple):
    """What every network of a name has in common, whoever made it.

    Attributes:
        image: channels, height and width of what it reads.
        classes: how many scores it returns.
        options: what it can be built with besides a recipe, and the defaults.
        tried: options that show quickly whether a network works.
    """

    image: tuple[int, int, int]
    classes: int
    options: Mapping[str, Any]
    tried: tuple[Mapping[str, Any], ...]


# --- what layers hand on


class Carrier(NamedTuple):
    """The modules that treat one kind of features: maps, fields, or a method's own.

    Attributes:
        activation: makes the nonlinearity.
        pool: makes a spatial max-pooling from (kernel_size, stride, padding).
        norm: makes a normalisation from the number of channels.
    """

    activation: Callable[[], nn.Module]
    pool: Callable[[int, int, int], nn.Module]
    norm: Callable[[int], nn.Module]

    def activated(self, channels: int) -> nn.Sequential:
        """Norm, then nonlinearity: how a pre-activation residual block begins."""
        return nn.Sequential(self.norm(channels), self.activation())


class ColumnBatchNorm(nn.BatchNorm2d):
    """Batch norm of a field [b, c, s, h, w] with statistics, weights and biases of their own at every scale."""

    def __init__(self, channels: int, scales: int) -> None:
        self.channels, self.scales = channels, scales
        super().__init__(channels * scales)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise each channel and scale by itself."""
        _checks.with_channels("field", input, "b c s h w", self.channels, "channels")
        _checks.extent("field", input, 2, self.scales, "layer's scales", "use the same scales throughout")
        return super().forward(input.flatten(1, 2)).reshape(input.shape)


#: A map [b, c, h, w].
MAP = Carrier(nn.ReLU, nn.MaxPool2d, nn.BatchNorm2d)
#: A field [b, c, s, h, w], normalised over its scales together.
FIELD = Carrier(nn.ReLU, SpatialMaxPool, ScaleBatchNorm)
