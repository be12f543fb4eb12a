"""The experiments' commands: `sesn` takes them in where this package is installed."""

from __future__ import annotations

import typer

from harness.commands import experiments, methods, report, reproduce

commands = typer.Typer()
for _part in (experiments, report, reproduce, methods):
    commands.add_typer(_part.commands)


def main() -> None:
    """Left until every environment is installed anew: its console script is here."""
    from sesn.tools.command import main as run

    run()
