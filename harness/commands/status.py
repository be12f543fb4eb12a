"""The command `status`: what is done, what failed, what remains."""

from __future__ import annotations

from json import dumps
from typing import Annotated

import typer

from harness.commands import options
from sesn.tools.consoles import consoles


def status(
    experiments: options.Experiments = None,
    budget: Annotated[str | None, typer.Option(help="smoke, lite or paper; by default those with rows.")] = None,
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
    json: options.AsJson = False,
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
            found = {**as_dict(shown, cells=False), "running": running_as_dict(asked.rows)}
            typer.echo(dumps(found, indent=1))
        else:
            print_status(shown, asked, console)
