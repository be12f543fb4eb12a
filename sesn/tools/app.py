"""The commands of `sesn`: those for any torch module, and the experiments' where the harness is installed."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from sesn.tools.command import harness_part
from sesn.tools.commands.causes import causes
from sesn.tools.commands.check import check
from sesn.tools.commands.compare import compare
from sesn.tools.commands.metrics import metrics
from sesn.tools.commands.profile import profile
from sesn.tools.commands.tune import tune
from sesn.tools.wording import flowing, speaking_options

_EXPERIMENTS = harness_part("cli")
_WITHOUT = "The paper's experiments (plan, run, report, ...) come with a clone of the repository."

app = typer.Typer(
    name="sesn",
    help="Scale-equivariant steerable networks: the error Δ of any module, and the paper's experiments.",
    epilog=None if _EXPERIMENTS else _WITHOUT,
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


for _command in (check, compare, profile, causes, metrics, tune):
    app.command(help=flowing(_command))(speaking_options(_command))
if _EXPERIMENTS is not None:
    app.add_typer(_EXPERIMENTS.commands)
