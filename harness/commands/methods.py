"""The command `methods`: what the experiments compare."""

from __future__ import annotations

from typing import Annotated

import typer

from sesn.tools.consoles import consoles


def methods(
    own: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE.py:NAME]...", help="Methods of your own to list as well.")
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            help="How to build the networks: paper (as its text says) or released (as the authors' code does)."
        ),
    ] = "paper",
) -> None:
    """List the methods that the experiments compare, with their sources, network sizes and limitations."""
    with consoles(quiet=False) as (console, _):
        from harness.experiment import Request
        from harness.report.methods import methods_table

        # What is wrong with a method is said here as it is when one is run.
        Request(methods=tuple(own or ()))
        console.print(methods_table(recipe))
        if not own:
            told = "`sesn methods FILE.py:NAME` lists a method of your own as well; --methods takes the same form."
            console.print(told, highlight=False)
