"""The command `methods`: what the experiments compare."""

from __future__ import annotations

from typing import Annotated

import typer

from sesn.tools.consoles import consoles


def methods(
    own: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE.py:NAME]...", help="Methods of your own, listed as well.")
    ] = None,
    recipe: Annotated[str, typer.Option(help="paper, or released: as the authors' code builds them.")] = "paper",
) -> None:
    """List the methods that the experiments compare: keys, sources, sizes of their networks, and what they lack."""
    with consoles(quiet=False) as (console, _):
        from harness.experiment import Request
        from harness.report.methods import methods_table

        # What is wrong with a method is said here as it is when one is run.
        Request(methods=tuple(own or ()))
        console.print(methods_table(recipe))
        if not own:
            told = "`sesn methods FILE.py:NAME` lists a method of your own as well; --methods takes the same form."
            console.print(told, highlight=False, soft_wrap=True)
