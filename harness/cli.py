"""The `sesn` command: the only place that joins stages.

A command is a function here under `@app.command()`. It imports the stages it joins inside its body, so that
`sesn --help` does not wait for torch.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
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


@app.command()
def reproduce(
    out: Annotated[Path, typer.Option(help="Folder for the rows and pictures.")] = Path("reproduced"),
    images: Annotated[int, typer.Option(min=2, help="Embedded photographs to measure on.")] = 64,
    draws: Annotated[int, typer.Option(min=1, help="Random weights per method.")] = 4,
) -> None:
    """Run the main job on embedded data: draw the basis, measure Delta of three layers, say what was found."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TimeRemainingColumn

    from harness.drawing import save
    from harness.report.first_look import draw, report_table, save_rows
    from harness.run.first_look import MODULES, first_look, wide_basis

    console = Console()
    with Progress(SpinnerColumn(), *Progress.get_default_columns()[:-1], TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("measuring Delta", total=len(MODULES) * draws)
        rows = first_look(images, draws, on_step=lambda: bar.advance(task))
    written = [save_rows(rows, out, "first-look"), *save(draw(rows, wide_basis()), out, "first-look")]
    console.print(report_table(rows))
    console.print("wrote " + ", ".join(str(path) for path in written))


@app.command()
def explain(
    out: Annotated[Path, typer.Option(help="Folder for the rows and the picture.")] = Path("reproduced"),
    images: Annotated[int, typer.Option(min=2, help="Embedded photographs to measure on.")] = 32,
) -> None:
    """Measure what an observed Delta is made of, one ingredient at a time, and draw it."""
    from rich.console import Console
    from rich.progress import Progress

    from harness.drawing import save
    from harness.report.first_look import save_rows
    from harness.report.measurement import draw
    from harness.run.measurement import MEASURES, measure_ingredients

    console = Console()
    with Progress(console=console) as bar:
        task = bar.add_task("measuring", total=len(MEASURES))
        rows = measure_ingredients(images, on_step=lambda: bar.advance(task))
    written = [save_rows(rows, out, "measurement"), *save(draw(rows), out, "measurement")]
    console.print("wrote " + ", ".join(str(path) for path in written))


def main() -> None:
    """Run the command line (the console script's entry point)."""
    app()
