"""The command `reproduce`: the whole chain, from the plan to the page, at the smallest budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.commands import options
from harness.commands.report import check_folder, render
from sesn.tools.consoles import consoles
from sesn.tools.options import Force


def reproduce(
    out: Annotated[Path, typer.Option(help="Folder for the rows, figures, tables and the page.")] = Path("reproduced"),
    budget: options.BudgetName = "smoke",
    data: options.Data = None,
    jobs: options.Jobs = None,
    device: options.Device = "auto",
    force: Force = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only failures and the last lines.")] = False,
) -> None:
    """Run every experiment of the paper and draw the results.

    You can stop the command at any moment. Run it again, and it continues where it stopped. It uses the
    data that come with the packages, unless you name a folder of data sets. The exit status is that of `sesn run`.
    """
    with consoles(quiet=False) as (console, errors):
        from harness.commands.asked import Asked
        from harness.commands.campaign import campaign
        from harness.commands.engines import Where

        rows = out / "rows"
        check_folder(out, force=force)
        where = Where("local", jobs, device, data=data, scratch=rows / options.CHECKPOINTS)
        asked = Asked(options.Choice(budget=budget, data=data, rows=rows))
        done = campaign(asked, where, console, errors, quiet=quiet, draw=lambda: render(out, rows, errors, force=force))
        page = out / "index.html"
        console.print(
            f"the page is {page}; open {page.absolute().as_uri()} in a browser", highlight=False, soft_wrap=True
        )
    raise typer.Exit(1 if done.counts["failed"] else 0)
