"""The `sesn` command: the tools for any module, and the experiments' commands where the harness is installed.

A command imports what it needs inside its body, so that `sesn --help` does not wait for torch.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from sesn.tools.consoles import consoles, degrade_marks
from sesn.tools.joining import harness_part
from sesn.tools.options import Force

#: The exit status after a bug: sysexits.h calls it EX_SOFTWARE.
BUG = 70

app = typer.Typer(
    name="sesn",
    help="Scale-equivariant steerable networks: the paper's experiments, from rows to figures.",
    no_args_is_help=True,
    # A traceback with every tensor of every frame is unreadable.
    pretty_exceptions_show_locals=False,
)
if (experiments := harness_part("cli")) is not None:
    app.add_typer(experiments.commands)


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


# --- for any torch module: what its tools are asked in the same words

Target = Annotated[str, typer.Argument(metavar="FILE.py:factory", help="A function that returns a torch module.")]
InputShape = Annotated[str, typer.Option("--input", metavar="CxHxW", help="Channels, height and width.")]
OneDownscale = Annotated[str, typer.Option(metavar="D", help="1/s: 2 halves, 0.5 doubles.")]
ImageSet = Annotated[
    str, typer.Option(metavar="SET|DIR", help="embedded, stl10, 1/f, 1/f2, white, or a directory of pictures.")
]
Count = Annotated[int, typer.Option(min=1, help="Images to measure on.")]
DataRoot = Annotated[Path | None, typer.Option(help="Folder of downloaded data sets, if not $SESN_DATA.")]
ResamplerName = Annotated[str, typer.Option(help="lanczos3, fourier (circular padding), bicubic, legacy.")]
EndsName = Annotated[str, typer.Option(help="What lies past the border: auto, zeros, inside, circular.")]
JsonPath = Annotated[
    Path | None, typer.Option(metavar="FILE|-", help="Write raw values and provenance to this file; - prints them.")
]
PicturePath = Annotated[Path | None, typer.Option(help="Draw the result: PNG and SVG of this name.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, metavar="N", help="Of the weights and the choice of images.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors only.")]
STDOUT = Path("-")


@app.command()
def check(
    target: Target,
    input_: InputShape = "3x96x96",
    downscale: Annotated[str, typer.Option(metavar="D,D,...", help="1/s: 2 halves, 0.5 doubles.")] = "1.41,2",
    images: ImageSet = "embedded",
    count: Annotated[int | None, typer.Option(min=1, help="Images; by default 16, or all if fewer.")] = None,
    data: DataRoot = None,
    resampler: ResamplerName = "lanczos3",
    kind: Annotated[str, typer.Option(help="How to read the output: auto, field, map, scale, invariant.")] = "auto",
    crop: Annotated[str, typer.Option(metavar="auto|N", help="Pixels to leave out at each border.")] = "auto",
    ends: EndsName = "auto",
    grid: Annotated[
        str | None, typer.Option(metavar="S,S,...", help="The output's sigmas, if not the module's.")
    ] = None,
    draws: Annotated[
        int, typer.Option(min=1, help="Most weight draws; they stop when the interval is narrow enough.")
    ] = 1,
    tolerance: Annotated[float | None, typer.Option(help="Exit with status 1 if a median Δ is above it.")] = None,
    json: JsonPath = None,
    picture: PicturePath = None,
    force: Force = False,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Measure the equivariance error Δ of any torch module; 1 above the tolerance, 2 on bad usage, 70 after a bug.

    Δ = ‖L_s Φ(f) − Φ(L_s f)‖² / ‖L_s Φ(f)‖², s = 1/downscale. The module is put into eval mode.
    """
    with consoles(quiet, json == STDOUT) as (console, progress):
        from sesn.tools.checking import Settings
        from sesn.tools.checking import check as run_check

        subject, probe = (target, input_, downscale, images, count, data), (resampler, kind, crop, ends, grid)
        settings = Settings(*subject, *probe, draws, tolerance, seed, json, picture, force)
        report = run_check(settings, console, progress)
    raise typer.Exit(0 if report.passes else 1)


@app.command()
def profile(
    target: Target,
    input_: InputShape = "3x96x96",
    downscale: OneDownscale = "1.41",
    images: ImageSet = "embedded",
    count: Count = 4,
    data: DataRoot = None,
    resampler: ResamplerName = "lanczos3",
    ends: EndsName = "auto",
    json: JsonPath = None,
    force: Force = False,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Measure Δ after every submodule of a network, to see which layer breaks its equivariance."""
    with consoles(quiet, json == STDOUT) as (console, _):
        from sesn.tools.asking import Subject
        from sesn.tools.asking import profile as run_profile
        from sesn.tools.output import Output

        subject = Subject(target, input_, downscale, images, count, data, resampler, seed, ends)
        run_profile(subject, Output(json, force=force), console)


@app.command()
def budget(
    target: Target,
    input_: InputShape = "3x96x96",
    downscale: OneDownscale = "1.41",
    images: ImageSet = "embedded",
    count: Count = 4,
    data: DataRoot = None,
    resampler: ResamplerName = "lanczos3",
    ends: EndsName = "auto",
    json: JsonPath = None,
    picture: PicturePath = None,
    force: Force = False,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Split the observed Δ of a network into its causes by switching each off in turn; draw it as a waterfall."""
    with consoles(quiet, json == STDOUT) as (console, progress):
        from sesn.tools.asking import Subject
        from sesn.tools.asking import budget as run_budget
        from sesn.tools.output import Output

        subject = Subject(target, input_, downscale, images, count, data, resampler, seed, ends)
        run_budget(subject, Output(json, picture, force), console, progress)


@app.command()
def tune(
    scales: Annotated[int, typer.Option(help="Number of scales, at least 2.")] = 3,
    range_: Annotated[float, typer.Option("--range", help="The largest sigma over the smallest.")] = 2.0,
    budget_macs: Annotated[
        float | None,
        typer.Option(help="Multiply-adds on the separable path; by default those of the published STL-10 kernels."),
    ] = None,
    side: Annotated[int, typer.Option(help="Side of the maps that the cost is for.")] = 48,
    channels: Annotated[int, typer.Option(help="Channels in and out that the cost is for.")] = 128,
    images: ImageSet = "embedded",
    count: Count = 8,
    data: DataRoot = None,
    json: JsonPath = None,
    picture: PicturePath = None,
    force: Force = False,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Propose the kernels with the smallest Δ of one layer for a budget of multiply-adds."""
    with consoles(quiet, json == STDOUT) as (console, progress):
        from sesn.tools.asking import Request, tuned
        from sesn.tools.output import Output

        request = Request(scales, range_, budget_macs, side, channels, images, count, data, seed)
        tuned(request, Output(json, picture, force), console, progress)


def main() -> None:
    """Run the command line (the console script's entry point)."""
    degrade_marks()
    try:
        app()
    except Exception:
        # A bug. Python would end with 1 after its traceback, and that is the verdict "above the tolerance".
        sys.excepthook(*sys.exc_info())
        sys.exit(BUG)
