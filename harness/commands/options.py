"""Options that several commands of the experiments have."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from sesn.tools.options import DataRoot

ROWS = Path("reports/rows")
#: Below the folder of rows; not committed.
CHECKPOINTS = ".checkpoints"

Data = DataRoot
Methods = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY,KEY",
        help="By default all; `sesn methods` lists them. FILE.py:NAME is a method of your own.",
    ),
]
BudgetName = Annotated[str, typer.Option(help="smoke (seconds a cell), lite (hours), paper (as published).")]
Jobs = Annotated[int | None, typer.Option(metavar="N", help="Cells at a time; by default one a GPU, or one.")]
Device = Annotated[str, typer.Option(help="auto (all GPUs, else the processor), cpu, cuda or cuda:N.")]
Order = Annotated[
    str,
    typer.Option(
        help="listed, as the plan lists them; or worth: one realisation of every method before the second of any, and "
        "the quick cells of a column before the slow ones."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Every line, and every reason why cells are left out.")]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which cells, and where they run: what `plan`, `status` and `run` are told by the same options."""

    experiments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXPERIMENT]...",
            help="By default all; `sesn plan` lists them. FILE.py:NAME is an experiment of your own.",
        ),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option(
            help="smoke (seconds a cell), lite (hours), paper (as published); by default smoke, and for `status` those "
            "with rows."
        ),
    ] = None
    methods: Methods = None
    recipe: Annotated[str, typer.Option(help="paper, or released: as the authors' code builds the networks.")] = "paper"
    data: Data = None
    images: Annotated[
        str | None,
        typer.Option(
            metavar="SET",
            help="Images for Δ, or a folder of pictures, whose path is stored as given; by default STL-10 if it is "
            "there, else embedded.",
        ),
    ] = None
    rows: Annotated[Path, typer.Option(help="Folder of the rows.")] = ROWS
    jobs: Jobs = None
    device: Device = "auto"
    precision: Annotated[str | None, typer.Option(help="Of training: fp32, or amp on CUDA.")] = None
    ranks: Annotated[int | None, typer.Option(metavar="N", help="Processes that share each training batch.")] = None
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only cells of this setting, such as resolution=28 or seed=0."),
    ] = None

    def command(self, name: str, *more: str) -> str:
        """The command of this name with the same options and more, as one types it."""
        return shlex.join(["sesn", name, *(self.experiments or ()), *self._options(), *more])

    def _options(self) -> Iterator[str]:
        for one in fields(self)[1:]:
            if (given := getattr(self, one.name)) != one.default:
                for value in given if isinstance(given, list) else [given]:
                    yield from (f"--{one.name}", str(value))


def with_choice(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of Choice in place of its first parameter."""
    hints, shared = (get_type_hints(of, include_extras=True) for of in (command, Choice))
    _, *own = inspect.signature(command).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(one.name, keyword, default=one.default) for one in fields(Choice)] + own

    @wraps(command)
    def given(**options: Any) -> None:
        command(Choice(**{name: options.pop(name) for name in shared}), **options)

    given.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=keyword, annotation=(shared | hints)[one.name]) for one in parameters]
    )
    return given
