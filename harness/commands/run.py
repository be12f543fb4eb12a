"""The command `run`: what is not done yet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.commands import options
from sesn.tools.consoles import consoles


@options.with_choice
def run(
    choice: options.Choice,
    order: options.Order = "listed",
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
    """Run what is not done yet and store its rows.

    Stopped or killed at any moment, the same command continues where it stopped.

    Exit status: 0 all is well, 1 a cell failed, 2 bad usage or a store that cannot be written, 130 stopped by Ctrl-C
    (or 128 and the number of another signal; 141 if nobody reads the output any more).
    """
    with consoles(quiet=False) as (console, errors):
        from harness.commands.asked import Asked
        from harness.commands.campaign import campaign
        from harness.commands.engines import Where
        from harness.commands.overview import print_next

        folder = scratch or choice.rows / options.CHECKPOINTS
        place = Where(engine, choice.jobs, choice.device, threads, address, choice.data, folder)
        asked = Asked(choice, order)
        failed = campaign(asked, place, console, errors, quiet=quiet).counts["failed"]
        if not quiet:
            print_next(console, choice, failed)
    raise typer.Exit(1 if failed else 0)
