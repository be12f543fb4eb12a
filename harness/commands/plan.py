"""The command `plan`: what there is to run, and how long it takes."""

from __future__ import annotations

from json import dumps
from typing import Annotated

import typer

from harness.commands import options
from sesn.tools.consoles import consoles


def plan(
    experiments: options.Experiments = None,
    budget: options.BudgetName = "smoke",
    methods: options.Methods = None,
    recipe: options.Recipe = "paper",
    data: options.Data = None,
    images: options.Images = None,
    rows: options.Rows = options.ROWS,
    jobs: options.Jobs = None,
    device: options.Device = "auto",
    precision: options.Precision = None,
    ranks: options.Ranks = None,
    where: options.Settings = None,
    order: options.Order = "listed",
    cells: Annotated[bool, typer.Option("--cells", help="List every cell.")] = False,
    json: options.AsJson = False,
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
            typer.echo(dumps(as_dict([ledger], cells=cells), indent=1))
        else:
            print_plan(ledger, asked, console, cells=cells)
