"""The commands `plan`, `run`, `status` and `data`. Each imports what it needs when it is called."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from sesn.tools.consoles import consoles

commands = typer.Typer()

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
Data = Annotated[Path | None, typer.Option(help="Folder of downloaded data sets, if not $SESN_DATA.")]
Images = Annotated[
    str | None, typer.Option(metavar="SET", help="Images for Δ; by default STL-10 if it is there, else embedded.")
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


@commands.command()
def plan(
    experiments: Experiments = None,
    budget: BudgetName = "smoke",
    methods: Methods = None,
    recipe: Recipe = "paper",
    data: Data = None,
    images: Images = None,
    rows: Rows = ROWS,
    jobs: Jobs = None,
    device: Device = "auto",
    precision: Precision = None,
    ranks: Ranks = None,
    where: Settings = None,
    order: Order = "listed",
    cells: Annotated[bool, typer.Option("--cells", help="List every cell.")] = False,
    json: AsJson = False,
) -> None:
    """List what there is to run, how much of it is done, what is left out and why, and how long the rest takes."""
    with consoles(quiet=False) as (console, _):
        from harness.commands.asked import Asked
        from harness.commands.engines import Where, training_settings
        from harness.commands.overview import as_dict, print_plan

        training = training_settings(precision, ranks)
        asked = Asked(experiments, budget, methods, recipe, data, images, rows, training, where=where, order=order)
        place = Where("local", jobs, device)
        ledger = asked.ledger(len(place.workers), place.workers[0], place.threads_each)
        if json:
            _print_json(as_dict([ledger], cells=cells))
        else:
            print_plan(ledger, asked, console, cells=cells)


@commands.command()
def status(
    experiments: Experiments = None,
    budget: Annotated[str | None, typer.Option(help="smoke, lite or paper; by default those with rows.")] = None,
    methods: Methods = None,
    recipe: Recipe = "paper",
    data: Data = None,
    images: Images = None,
    rows: Rows = ROWS,
    jobs: Jobs = None,
    device: Device = "auto",
    precision: Precision = None,
    ranks: Ranks = None,
    where: Settings = None,
    json: AsJson = False,
) -> None:
    """Say of each experiment what is done, what failed and why, what remains, and how long that takes."""
    with consoles(quiet=False) as (console, _):
        from harness.commands.asked import Asked
        from harness.commands.engines import Where, training_settings
        from harness.commands.overview import as_dict, print_status, running_as_dict
        from harness.records import BUDGETS

        training = training_settings(precision, ranks)
        place = Where("local", jobs, device)
        asked = Asked(experiments, budget or BUDGETS[0], methods, recipe, data, images, rows, training, where=where)
        budgets = [asked.budget] if budget else BUDGETS
        ledgers = [asked.ledger(len(place.workers), place.workers[0], place.threads_each, name) for name in budgets]
        shown = [ledger for ledger in ledgers if budget or ledger.is_begun]
        if json:
            _print_json({**as_dict(shown, cells=False), "running": running_as_dict(asked.rows)})
        else:
            print_status(shown, asked, console)


@commands.command()
def run(
    experiments: Experiments = None,
    budget: BudgetName = "smoke",
    methods: Methods = None,
    recipe: Recipe = "paper",
    data: Data = None,
    images: Images = None,
    rows: Rows = ROWS,
    jobs: Jobs = None,
    device: Device = "auto",
    precision: Precision = None,
    ranks: Ranks = None,
    where: Settings = None,
    order: Order = "listed",
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="Of each cell; by default its share of the cores.")
    ] = None,
    engine: Annotated[str, typer.Option(help="local, or ray: many machines.")] = "local",
    address: Annotated[str | None, typer.Option(help="Of the Ray cluster; by default one is started here.")] = None,
    scratch: Annotated[
        Path | None, typer.Option(help="Folder of checkpoints; on a cluster one that every machine sees.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print failures and the last line only.")] = False,
) -> None:
    """Run what is not done yet and store its rows. Stopped or killed at any moment, the same command goes on.

    Exit status: 0 all is well, 1 a cell failed, 2 bad usage or a store that cannot be written, 130 stopped by Ctrl-C
    (or 128 and the number of another signal; 141 if nobody reads the output any more).
    """
    with consoles(quiet=False) as (console, errors):
        from harness.commands.asked import Asked
        from harness.commands.campaign import campaign
        from harness.commands.engines import Where, training_settings

        training = training_settings(precision, ranks)
        place = Where(engine, jobs, device, threads, address, data, scratch or rows / CHECKPOINTS)
        asked = Asked(experiments, budget, methods, recipe, data, images, rows, training, where=where, order=order)
        done = campaign(asked, place, console, errors, quiet=quiet)
    raise typer.Exit(1 if done.counts["failed"] else 0)


@commands.command()
def data(
    fetch: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Download: mnist (12 MB), stl10 (2.6 GB).")
    ] = None,
    data: Data = None,
) -> None:
    """List the data sets that are found and what stands in for the others; download those that are asked for."""
    with consoles(quiet=False) as (console, _):
        from harness.commands.overview import data_table
        from harness.data.download import fetch as fetch_set
        from harness.data.sources import status as found

        for name in fetch or ():
            console.print(f"{name} is in {fetch_set(name, data)}", highlight=False, soft_wrap=True)
        console.print(data_table(found(data)))


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json_module.dumps(document, indent=1))
