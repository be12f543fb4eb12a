"""What was asked for on the command line, checked, and beside it what data and rows there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import cast

from harness.commands.ledger import Ledger, estimates, standing
from harness.data import data_root
from harness.data.sources import digit_counts, mnist_source, photograph_source, stl10_available, stl10_counts
from harness.experiments import Request, experiment, plan
from harness.records import BUDGETS, Budget, Cell, Planned, Scalar
from harness.store.lines import StoredCell
from harness.store.reading import stored
from sesn._checks import complaint, one_of, require
from sesn.errors import UsageError
from sesn.networks.recipes import known_recipe
from sesn.tools.images import image_sets, picture_files
from sesn.tools.machine import hardware

#: In which order cells are carried out: as the plan lists them, or what tells most first.
ORDERS = ("listed", "worth")


class Asked:
    """Which cells, by the options that `plan`, `run` and `status` share; whatever is wrong with them is said here.

    Args:
        experiments: keys, or FILE.py:NAME of experiments from outside; none means all.
        budget: smoke, lite or paper.
        methods: keys between commas; none means all.
        recipe: paper or released.
        data: the folder of data sets; None: $SESN_DATA, or embedded data.
        images: the image set for Delta, or a folder of pictures, which cells name as it is given here; None: STL-10 if
            it is there, else embedded.
        rows: the folder of the store.
        training: settings of training cells.
        where: settings, or the seed, that a cell must have, as NAME=VALUE; none means any.
        order: one of ORDERS.
    """

    def __init__(
        self,
        experiments: Sequence[str] | None,
        budget: str,
        methods: Sequence[str] | None,
        recipe: str,
        data: Path | None,
        images: str | None,
        rows: Path,
        training: dict[str, Scalar],
        *,
        where: Sequence[str] | None = None,
        order: str = ORDERS[0],
    ) -> None:
        named = ",".join(methods or ())
        self.methods = tuple(_parts(named))
        # Nothing named must not mean everything: a script's variable may be empty.
        require(bool(self.methods) or not methods, "methods", named, "keys of methods", "leave it out for all")
        self.budget = cast(Budget, one_of("budget", budget, BUDGETS))
        self.order = one_of("order", order, ORDERS)
        self.experiments = tuple(experiment(name).key for name in experiments or ())
        self.where = _wanted(where or ())
        self.recipe, self.data, self.images, self.rows, self.training = recipe, data, images, rows, training

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
        if self.images not in image_sets():
            self._check_folder(self.images)
        elif self.images == "stl10" != found:
            raise UsageError(f"`images` (='stl10') is not there: {stl10_available(self.data, ('train',))}")
        return self.images

    @staticmethod
    def _check_folder(name: str) -> None:
        """Refuse what is neither a set of images nor a folder of pictures."""
        rule = f"one of {', '.join(map(repr, image_sets()))}, or a folder of pictures"
        require(bool(name) and Path(name).is_dir(), "images", name, rule)
        try:
            picture_files(Path(name))
        except OSError as error:
            raise UsageError(complaint("images", name, rule, str(error))) from error

    @cached_property
    def entries(self) -> dict[str, StoredCell]:
        """What is stored, of all experiments."""
        return stored(self.rows)

    def planned(self, budget: Budget) -> list[Planned]:
        """The cells."""
        cells = plan(replace(self.request, budget=budget), self.experiments)
        if not cells:
            raise UsageError(
                f"no cell was asked for: `experiments` (={', '.join(self.experiments)}) have none of "
                f"`methods` (={', '.join(self.methods)})"
            )
        chosen = [one for one in cells if self.where.items() <= _texts(one.cell).items()]
        if not chosen:
            raise UsageError(_no_such_cell(self.where, [one.cell for one in cells]))
        return chosen

    def ledger(self, jobs: int, device: str, threads: int, budget: Budget | None = None) -> Ledger:
        """How every cell stands that was asked for, or would have been at another budget."""
        known = estimates(self.entries, hardware(device), device, threads)
        ledger = Ledger([standing(one, self.entries) for one in self.planned(budget or self.budget)], known, jobs)
        return ledger.by_worth() if self.order == "worth" else ledger


def _parts(text: str) -> list[str]:
    """What stands between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _wanted(where: Sequence[str]) -> dict[str, str]:
    """From NAME=VALUE texts, each of which may hold several between commas."""
    wanted: dict[str, str] = {}
    for text in where:
        for part in _parts(text):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            require(bool(name and equals and value), "where", text, "NAME=VALUE", "such as resolution=28 or seed=0")
            require(name not in wanted, "where", text, f"one value of {name}", f"it was given {wanted.get(name)} too")
            wanted[name] = value.lower()
        require(bool(_parts(text)), "where", text, "NAME=VALUE", "leave it out for every cell")
    return wanted


def _texts(cell: Cell) -> dict[str, str]:
    """The settings of a cell and its seed, as they are written on the command line."""
    return {name: str(value).lower() for name, value in {**cell.settings, "seed": cell.seed}.items()}


def _no_such_cell(where: dict[str, str], cells: list[Cell]) -> str:
    """Which part of `where` no cell has, and what there is."""
    there: dict[str, dict[str, None]] = {}
    for cell in cells:
        for name, value in _texts(cell).items():
            there.setdefault(name, {})[value] = None
    for name, value in where.items():
        if name not in there:
            return complaint("where", f"{name}={value}", f"about one of {', '.join(there)}")
        if value not in there[name]:
            return complaint("where", f"{name}={value}", f"one of {name}={', '.join(there[name])}")
    joined = ",".join(f"{name}={value}" for name, value in where.items())
    return complaint("where", joined, "true of some cell", "each part is, but not all of them together")
