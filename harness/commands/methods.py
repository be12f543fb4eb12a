"""The command `methods`: what the experiments compare."""

from __future__ import annotations

from typing import Annotated

import typer

from sesn.tools.consoles import consoles


def methods(
    recipe: Annotated[str, typer.Option(help="paper, or released: as the authors' code builds them.")] = "paper",
) -> None:
    """List the methods that the experiments compare: keys, sources, sizes of their networks, and what they lack."""
    with consoles(quiet=False) as (console, _):
        from harness.report.methods import methods_table

        console.print(methods_table(recipe))
