"""The command `data`: the data sets, found or fetched."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.commands import options
from sesn.tools.consoles import consoles


def data(
    fetch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Download a data set: mnist (12 MB), fashion-mnist (31 MB) or stl10 (2.6 GB)."
        ),
    ] = None,
    data: options.Data = None,
) -> None:
    """List the data sets that are available and what is used in place of the others. Download them on request."""
    with consoles(quiet=False) as (console, _):
        from harness.commands.overview import data_folders, data_table
        from harness.data.sources import fetch as fetch_set
        from harness.data.sources import status as found

        for name in fetch or ():
            console.print(f"{name} is in {fetch_set(name, data)}", highlight=False, soft_wrap=True)
        sets = found(data)
        console.print(data_table(sets))
        if folders := data_folders(sets):
            console.print(folders, highlight=False, soft_wrap=True)
