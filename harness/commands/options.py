"""Options that several commands of the experiments have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sesn.tools.options import DataRoot

Experiments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[EXPERIMENT]...",
        help="By default all; `sesn plan` lists them. FILE.py:NAME is an experiment of your own.",
    ),
]
BudgetName = Annotated[
    str, typer.Option("--budget", help="smoke (seconds a cell), lite (hours), paper (as published).")
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--methods",
        metavar="KEY,KEY",
        help="By default all; `sesn methods` lists them. FILE.py:NAME is a method of your own.",
    ),
]
Recipe = Annotated[str, typer.Option(help="paper, or released: as the authors' code builds the networks.")]
Data = DataRoot
Images = Annotated[
    str | None,
    typer.Option(
        metavar="SET",
        help="Images for Δ, or a folder of pictures, whose path is stored as given; by default STL-10 if it is there, "
        "else embedded.",
    ),
]
Rows = Annotated[Path, typer.Option(help="Folder of the rows.")]
Jobs = Annotated[int | None, typer.Option(metavar="N", help="Cells at a time; by default one a GPU, or one.")]
Device = Annotated[str, typer.Option(help="auto (all GPUs, else the processor), cpu, cuda or cuda:N.")]
Precision = Annotated[str | None, typer.Option(help="Of training: fp32, or amp on CUDA.")]
Ranks = Annotated[int | None, typer.Option(metavar="N", help="Processes that share each training batch.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="NAME=VALUE", help="Only cells of this setting, such as resolution=28 or seed=0."),
]
Order = Annotated[
    str,
    typer.Option(
        help="listed, as the plan lists them; or worth: one realisation of every method before the second of any, and "
        "the quick cells of a column before the slow ones."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ROWS = Path("reports/rows")
#: Below the folder of rows; not committed.
CHECKPOINTS = ".checkpoints"
