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
        help="Methods to compare, all by default; `sesn methods` lists them. FILE.py:NAME adds one of your own.",
    ),
]
BudgetName = Annotated[
    str, typer.Option(help="How much to compute: smoke (seconds per cell), lite (hours) or paper (as published).")
]
Jobs = Annotated[
    int | None,
    typer.Option(metavar="N", help="How many cells to run at once. By default one per GPU, or one without a GPU."),
]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", help="Threads per cell. By default each cell gets its share of the cores."),
]
Device = Annotated[
    str, typer.Option(help="Where to compute: auto (all GPUs, or the CPU without one), cpu, cuda or cuda:N.")
]
Order = Annotated[
    str,
    typer.Option(
        help="Which cells to run first: listed (the order of the plan), or worth (one realisation of every method "
        "before the second of any, and quick cells before slow ones)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Print every line, and every reason why cells are skipped.")]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which cells, and where they run: what `plan`, `status` and `run` are told by the same options."""

    experiments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXPERIMENT]...",
            help="Experiments, all by default; `sesn plan` lists them. FILE.py:NAME adds one of your own.",
        ),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option(
            help="How much to compute: smoke (seconds per cell), lite (hours) or paper (as published). "
            "By default smoke; `status` shows every budget that has rows."
        ),
    ] = None
    methods: Methods = None
    recipe: Annotated[
        str,
        typer.Option(
            help="How to build the networks: paper (as its text says) or released (as the authors' code does)."
        ),
    ] = "paper"
    data: Data = None
    images: Annotated[
        str | None,
        typer.Option(
            metavar="SET",
            help="Images on which to measure Δ, or a folder of pictures, whose path is stored as you give it. "
            "By default STL-10 if it is available, otherwise the embedded photographs.",
        ),
    ] = None
    rows: Annotated[Path, typer.Option(help="Folder where results are stored as rows.")] = ROWS
    jobs: Jobs = None
    threads: Threads = None
    device: Device = "auto"
    precision: Annotated[str | None, typer.Option(help="Precision of training: fp32, or amp on CUDA.")] = None
    ranks: Annotated[
        int | None, typer.Option(metavar="N", help="Number of processes that share each training batch.")
    ] = None
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Select only cells with this setting, such as resolution=28 or seed=0."
        ),
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
