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
    engine: Annotated[str, typer.Option(help="Where cells run: local (this machine) or ray (a cluster).")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster. By default one is started on this machine.")
    ] = None,
    scratch: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints. On a cluster it must be visible to every machine.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only failures and the last line.")] = False,
) -> None:
    """Run the cells that are not done yet and store their rows.

    A cell is one unit of work, such as one network to train. A row is one number that it measured.
    You can stop the command at any moment. Run it again, and it continues where it stopped.

    Exit status: 0 if all is well, 1 if a cell failed, 2 for bad usage or a store that cannot be written, 130 after
    Ctrl-C (128 plus the number of any other signal; 141 if the output is no longer read).
    """
    with consoles(quiet=False) as (console, errors):
        from harness.commands.asked import Asked
        from harness.commands.campaign import campaign
        from harness.commands.engines import Where
        from harness.commands.overview import print_next
        from harness.store.writing import LOCK
        from sesn.tools.files import check_writable_folder

        check_writable_folder("rows", choice.rows, LOCK)
        folder = scratch or choice.rows / options.CHECKPOINTS
        place = Where(engine, choice.jobs, choice.device, choice.threads, address, choice.data, folder)
        asked = Asked(choice, order)
        ended = campaign(asked, place, console, errors, quiet=quiet)
        failed = ended.counts["failed"]
        if not quiet and not ended.ledger.all_skipped:
            print_next(console, choice, failed)
    raise typer.Exit(1 if failed else 0)
