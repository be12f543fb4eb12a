"""The command `plan`: what there is to run, and how long it takes."""

from __future__ import annotations

from json import dumps
from typing import Annotated

import typer

from harness.commands import options
from sesn.tools.consoles import consoles


@options.with_choice
def plan(
    choice: options.Choice,
    order: options.Order = "listed",
    cells: Annotated[bool, typer.Option("--cells", help="List every cell, not only totals.")] = False,
    verbose: options.Verbose = False,
    json: options.AsJson = False,
) -> None:
    """List what can be run, how much of it is done, what is skipped and why, and how long the rest will take.

    A cell is one unit of work of an experiment, such as one network to train.
    """
    with consoles(quiet=False, data_on_stdout=json) as (console, _):
        from harness.commands.asked import Asked
        from harness.commands.engines import Where
        from harness.commands.overview import as_dict, print_plan

        asked = Asked(choice, order)
        ledger = asked.ledger(Where("local", choice.jobs, choice.device, choice.threads))
        if json:
            console.data.write(dumps(as_dict([ledger], cells=cells), indent=1) + "\n")
        else:
            print_plan(ledger, asked, console, cells=cells, verbose=verbose)
