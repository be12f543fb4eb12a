"""What the two skeletons have in common: each is a network for every method that supplies its parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import nn

from sesn.networks.recipes import Recipe


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
    def widths(self, recipe: Recipe) -> tuple[int, int, int]:
        """The channels of its three stages or groups, before widening."""


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
