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


@app.command()
def check(
    target: Annotated[str, typer.Argument(metavar="FILE.py:factory", help="A function that returns a torch module.")],
    input_: Annotated[str, typer.Option("--input", metavar="CxHxW", help="Channels, height and width.")] = "3x96x96",
    downscale: Annotated[str, typer.Option(metavar="D,D,...", help="1/s: 2 halves, 0.5 doubles.")] = "1.41,2",
    images: Annotated[
        str, typer.Option(metavar="SET|DIR", help="embedded, stl10, 1/f, 1/f2, white, or a directory of pictures.")
    ] = "embedded",
    count: Annotated[int | None, typer.Option(min=1, help="Images; by default 16, or all if fewer.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of downloaded data sets, if not $SESN_DATA.")] = None,
    resampler: Annotated[str, typer.Option(help="lanczos3, fourier (circular padding), bicubic, legacy.")] = "lanczos3",
    draws: Annotated[
        int, typer.Option(min=1, help="Most weight draws; they stop when the interval is narrow enough.")
    ] = 1,
    tolerance: Annotated[float | None, typer.Option(help="Exit with status 1 if a median Δ is above it.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write raw values and provenance to this file.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the two branches: PNG and SVG of this name.")] = None,
    seed: Annotated[int, typer.Option(help="Of the weights and the choice of images.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
) -> None:
    """Measure the equivariance error Δ of any torch module; 1 above the tolerance, 2 on bad usage.

    Δ = ‖L_s Φ(f) − Φ(L_s f)‖² / ‖L_s Φ(f)‖², s = 1/downscale. The module is put into eval mode.
    """
    from rich.console import Console

    from harness.check.command import Settings
    from harness.check.command import check as run_check

    console, errors = Console(quiet=quiet), Console(stderr=True)
    try:
        settings = Settings(
            target, input_, downscale, images, count, data, resampler, draws, tolerance, seed, json, picture
        )
        report = run_check(settings, console, None if quiet else errors)
    except (ValueError, TypeError, OSError) as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from error
    raise typer.Exit(0 if report.passes else 1)


def main() -> None:
    """Run the command line (the console script's entry point)."""
    app()
