"""What was asked for on the command line, checked, and beside it what data and rows there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import cast

from harness.commands.engines import Where, training_settings
from harness.commands.ledger import Ledger, estimates, standing
from harness.commands.options import ROWS, Choice
from harness.data import data_root
from harness.data.sources import digit_counts, mnist_source, photograph_source, stl10_available, stl10_counts
from harness.experiments import EXPERIMENTS, Request, experiment, plan
from harness.experiments.gpu import GPU, rehearsal
from harness.records import BUDGETS, Budget, Cell, Planned
from harness.run.engines.work import devices
from harness.store.lines import StoredCell
from harness.store.reading import stored
from sesn._checks import complaint, one_of, require
from sesn.algorithms.policy import hardware
from sesn.errors import UsageError
from sesn.networks.skeleton import known_recipe
from sesn.tools.images import image_sets, picture_files
from sesn.tools.machine import device_kind

#: In which order cells are carried out: as the plan lists them, or what tells most first.
ORDERS = ("listed", "worth")
#: The rows that came with the clone.
COMMITTED = Path(__file__).parents[2] / ROWS


class Asked:
    """Which cells a choice is about; whatever is wrong with it is said here.

    Args:
        choice: the options.
        order: one of ORDERS.
    """

    def __init__(self, choice: Choice, order: str = ORDERS[0]) -> None:
        self.choice = choice
        self.training = training_settings(choice.precision, choice.ranks)
        named = ",".join(choice.methods or ())
        self.methods = tuple(_parts(named))
        # Nothing named must not mean everything: a script's variable may be empty.
        require(bool(self.methods) or not choice.methods, "methods", named, "keys of methods", "leave it out for all")
        budget = BUDGETS[0] if choice.budget is None else choice.budget
        self.budget = cast(Budget, one_of("budget", budget, BUDGETS))
        self.order = one_of("order", order, ORDERS)
        self.experiments = tuple(experiment(name).key for name in choice.experiments or ())
        self.where = _wanted(choice.where or ())
        self._plans: dict[Budget, list[Planned]] = {}

    @cached_property
    def request(self) -> Request:
        """The same as a request to the plan; whatever is wrong is said here."""
        data = self.choice.data
        if data is not None:
            data_root(data)
        digits, no_stl10 = mnist_source(data), stl10_available(data)
        request = Request(
            self.budget,
            self.methods or None,
            known_recipe(self.choice.recipe),
            digits,
            self._images(),
            no_stl10,
            self.training,
            digit_counts(digits, data),
            gpu=self._gpu(),
        )
        return request if no_stl10 else replace(request, stl10_counts=stl10_counts(data))

    def _gpu(self) -> str:
        """What the cells about a GPU are about. On the processor they are rehearsed if they are asked for by name."""
        try:
            device = devices(self.choice.device)[0]
        except UsageError:
            if GPU.key in self.experiments:
                raise
            return ""  # a cluster may have it; where cells run, it is said what is wrong
        if device_kind(device) != "cpu":
            return hardware(device)
        return rehearsal() if self.choice.device == "cpu" and GPU.key in self.experiments else ""

    def _images(self) -> str:
        """The image set for Delta, or a folder of pictures, which cells name as it is given here."""
        found, given = photograph_source(self.choice.data), self.choice.images
        if given is None:
            return found
        if given not in image_sets():
            _pictures(given)
        elif given == "stl10" != found:
            raise UsageError(f"`images` (='stl10') is not there: {stl10_available(self.choice.data, ('train',))}")
        return given

    @cached_property
    def entries(self) -> dict[str, StoredCell]:
        """What is stored, of all experiments."""
        return stored(self.choice.rows)

    @cached_property
    def teachers(self) -> dict[str, StoredCell]:
        """What tells how long cells take: what is stored here, and what came with the clone."""
        keys = set(self.experiments or EXPERIMENTS)
        keys |= {EXPERIMENTS[key].timed_by for key in keys} - {""}
        own = self.entries
        return own if self.choice.rows.resolve() == COMMITTED else {**stored(COMMITTED, sorted(keys)), **own}

    def has_rows(self, ledger: Ledger) -> bool:
        """Whether anything was run of the same experiments and budget, be it on other data."""
        run = (entry.cell for entry in self.entries.values() if entry.status != "skipped")
        kinds = {(cell.experiment, cell.version, cell.budget) for cell in run}
        cells = (one.cell for one in ledger.standings)
        return any((cell.experiment, cell.version, cell.budget) in kinds for cell in cells)

    def planned(self, budget: Budget) -> list[Planned]:
        """The cells; they are planned once, since layers of methods may have to be tried for it."""
        if budget not in self._plans:
            self._plans[budget] = self._planned(budget)
        return self._plans[budget]

    def _planned(self, budget: Budget) -> list[Planned]:
        cells = plan(replace(self.request, budget=budget), self.experiments)
        if not cells:
            raise UsageError(
                f"no cell was asked for: `experiments` (={', '.join(self.experiments)}) have none of "
                f"`methods` (={', '.join(self.methods)})"
            )
        chosen = [one for one in cells if self.where.items() <= _texts(one.cell).items()]
        if not chosen:
            raise UsageError(_no_such_cell(self.where, [one.cell for one in cells]))
        self._check_pictures(chosen)
        return chosen

    def _check_pictures(self, planned: Sequence[Planned]) -> None:
        """Refuse a folder that has fewer pictures than a cell wants."""
        folder = self.request.images
        if folder not in image_sets():
            there = len(_pictures(folder))
            for cell in (one.cell for one in planned if one.to_do and one.cell.settings.get("images") == folder):
                wanted = int(cell.settings.get("image_count", 0))
                what = f"a folder of at least {wanted} pictures for {cell.experiment} at the {cell.budget} budget"
                require(wanted <= there, "images", folder, what, f"it holds {there}")

    def ledger(self, place: Where, budget: Budget | None = None) -> Ledger:
        """How every cell stands that was asked for, or would have been at another budget."""
        device = place.workers[0]
        known = estimates(self.teachers, hardware(device), device, place.threads_each)
        standings = [standing(one, self.entries) for one in self.planned(budget or self.budget)]
        ledger = Ledger(standings, known, len(place.workers))
        return ledger.by_worth() if self.order == "worth" else ledger


def _pictures(folder: str) -> list[Path]:
    """The pictures of a folder; what is neither a set of images nor a folder of pictures is refused."""
    rule = f"one of {', '.join(map(repr, image_sets()))}, or a folder of pictures"
    require(bool(folder) and Path(folder).is_dir(), "images", folder, rule)
    try:
        return picture_files(Path(folder))
    except OSError as error:
        raise UsageError(complaint("images", folder, rule, str(error))) from error


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
