"""The two ways to build a network: as the paper prints it, or as its authors released it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from sesn import _checks

Recipe = Literal["paper", "released"]
RECIPES: tuple[Recipe, ...] = ("paper", "released")

#: Sides of the map that the first layer of the MNIST-scale network sees.
RESOLUTIONS = (28, 56)


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
        good = hasattr(self.resolution, "__index__") and self.resolution in RESOLUTIONS
        _checks.require(good, "resolution", self.resolution, "28 or 56")
