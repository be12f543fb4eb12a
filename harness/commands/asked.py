"""What was asked for on the command line, checked, and beside it what data and rows there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from harness.commands.ledger import Ledger, estimates, standing
from harness.data.image_sets import IMAGE_SETS
from harness.data.root import data_root
from harness.data.sources import digit_counts, mnist_source, photograph_source, stl10_available, stl10_counts
from harness.machine import device_kind, hardware
from harness.plan import Planned, Request, plan
from harness.records import BUDGETS, Budget, Scalar
from harness.store.lines import Entry
from harness.store.reading import stored
from sesn._checks import one_of, require
from sesn.models.recipes import known_recipe


@dataclass(frozen=True)
class Asked:
    """Which cells, by the options that `plan`, `run` and `status` share.

    Attributes:
        experiments: keys; none means all.
        budget: smoke, lite or paper.
        methods: keys; none means all.
        recipe: paper or released.
        data: the folder of data sets; None: $SESN_DATA, or embedded data.
        images: the image set for Delta; None: STL-10 if it is there, else embedded.
        rows: the folder of the store.
        training: settings of training cells.
        here: whether cells that another machine or device has done are still to do.
    """

    experiments: tuple[str, ...]
    budget: Budget
    methods: tuple[str, ...]
    recipe: str
    data: Path | None
    images: str | None
    rows: Path
    training: dict[str, Scalar] = field(default_factory=dict)
    here: bool = False

    @classmethod
    def of(
        cls,
        experiments: Sequence[str] | None,
        budget: str,
        methods: Sequence[str] | None,
        recipe: str,
        data: Path | None,
        images: str | None,
        rows: Path,
        training: dict[str, Scalar],
        *,
        here: bool = False,
    ) -> Asked:
        """From the options as they are given."""
        named = ",".join(methods or ())
        keys = tuple(key.strip() for key in named.split(",") if key.strip())
        # Nothing named must not mean everything: a script's variable may be empty.
        require(bool(keys) or not methods, "methods", named, "keys of methods", "leave it out for all")
        known = cast(Budget, one_of("budget", budget, BUDGETS))
        return cls(tuple(experiments or ()), known, keys, recipe, data, images, rows, training, here)

    @cached_property
    def request(self) -> Request:
        """The same as a request to the plan; whatever is wrong is said here."""
        if self.data is not None:
            data_root(self.data)
        digits, no_stl10 = mnist_source(self.data), stl10_available(self.data)
        request = Request(
            self.budget,
            self.methods or None,
            known_recipe(self.recipe),
            digits,
            self._images(),
            no_stl10,
            self.training,
            digit_counts(digits, self.data),
        )
        return request if no_stl10 else replace(request, stl10_counts=stl10_counts(self.data))

    def _images(self) -> str:
        found = photograph_source(self.data)
        if self.images is None:
            return found
        if one_of("images", self.images, list(IMAGE_SETS)) == "stl10" != found:
            raise ValueError(f"`images` (='stl10') is not there: {stl10_available(self.data, ('train',))}")
        return self.images

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """What is stored, of all experiments."""
        return stored(self.rows)

    def counted(self, device: str) -> dict[str, Entry]:
        """Of what is stored, what a run on the device need not do again."""
        if not self.here:
            return self.entries
        here = (hardware(device), device_kind(device))
        return {name: one for name, one in self.entries.items() if one.status != "ok" or _place(one.facts) == here}

    def planned(self, budget: Budget) -> list[Planned]:
        """The cells."""
        cells = plan(replace(self.request, budget=budget), self.experiments)
        if not cells:
            raise ValueError(
                f"no cell was asked for: `experiments` (={', '.join(self.experiments)}) have none of "
                f"`methods` (={', '.join(self.methods)})"
            )
        return cells

    def ledger(self, jobs: int, device: str, budget: Budget | None = None) -> Ledger:
        """How every cell stands that was asked for, or would have been at another budget."""
        known, counted = estimates(self.request, self.entries, hardware(device), device), self.counted(device)
        return Ledger([standing(one, counted) for one in self.planned(budget or self.budget)], known, jobs)


def _place(facts: Mapping[str, Any]) -> tuple[str, str]:
    """Where a stored cell was carried out."""
    return facts["machine"], device_kind(facts["device"])
