"""The `sesn` command: the only place that joins stages.

A command is a function here under `@app.command()`. It imports the stages it joins inside its body, so that
`sesn --help` does not wait for torch.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

app = typer.Typer(
    name="sesn",
    help="Scale-equivariant steerable networks: the paper's experiments, from rows to figures.",
    no_args_is_help=True,
    # A traceback with every tensor of every frame is unreadable.
    pretty_exceptions_show_locals=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sesn {version('sesn')}")
        raise typer.Exit


@app.callback()
def sesn(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def main() -> None:
    """Run the command line (the console script's entry point)."""
    app()
