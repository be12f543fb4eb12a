"""The commands of `sesn`: those for any torch module, and the experiments' where the harness is installed.

They import torch when they run, so that help is quick.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from sesn.tools import options
from sesn.tools.command import harness_part
from sesn.tools.consoles import consoles, progress_bar

#: The tuner measures on grey images of this side, whatever the side that the cost is for.
SIDE = 96
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


@app.command()
def check(
    context: typer.Context,
    target: options.Factory,
    with_: options.With = None,
    weights: options.Weights = None,
    output: options.OutputName = None,
    tokens: options.Tokens = None,
    input_: options.InputShape = None,
    downscale: Annotated[
        str | None, typer.Option(metavar="D,D,...", help="1/s: 2 halves, 0.5 doubles. By default 1.41,2 or near.")
    ] = None,
    images: options.ImageSet = "embedded",
    count: Annotated[int | None, typer.Option(min=1, help="Images; by default 16, or all if fewer.")] = None,
    data: options.DataRoot = None,
    mean: options.Mean = None,
    std: options.Std = None,
    resampler: options.ResamplerName = "lanczos3",
    kind: Annotated[str, typer.Option(help="How to read the output: auto, field, map, scale, invariant.")] = "auto",
    crop: Annotated[str, typer.Option(metavar="auto|N", help="Pixels to leave out at each border.")] = "auto",
    ends: options.EndsName = "auto",
    canvas: options.CanvasName = "follow",
    grid: Annotated[
        str | None, typer.Option(metavar="S,S,...", help="The output's sigmas, if not the module's.")
    ] = None,
    draws: Annotated[
        int, typer.Option(min=1, help="Most weight draws; they stop when the interval is narrow enough.")
    ] = 1,
    tolerance: Annotated[float | None, typer.Option(help="Exit with status 1 if a relative Δ is above it.")] = None,
    absolute: Annotated[
        bool, typer.Option("--absolute", help="Judge Δ itself, not relative to what unrelated images give.")
    ] = False,
    json: options.JsonPath = None,
    picture: options.PicturePath = None,
    force: options.Force = False,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Measure the equivariance error Δ of any torch module; 1 above the tolerance, 2 on bad usage, 70 after a bug.

    Δ = ‖L_s Φ(f) − Φ(L_s f)‖² / ‖L_s Φ(f)‖², s = 1/downscale. The module is put into eval mode.

    The verdict is on Δ relative to what unrelated images give: 0 is equivariant, 1 no better than chance.
    """
    with consoles(quiet, json == options.STDOUT) as (console, progress):
        from sesn import Meter
        from sesn._checks import require
        from sesn.tools import check as checking
        from sesn.tools.arguments import load_subject, parse_crop, parse_grid
        from sesn.tools.output import OutputFiles
        from sesn.tools.verdict import likely_causes, passes, say

        how: Any = {"resampler": resampler, "kind": kind, "ends": ends, "canvas": canvas}
        meter = Meter(**how, crop=parse_crop(crop), grid=parse_grid(grid))
        files = OutputFiles(context.params)
        require(tolerance is None or tolerance >= 0, "tolerance", tolerance, "at least 0")
        subject = load_subject(context, meter, checking.BATCH)

        def build(draw: int) -> Any:
            return subject.target.build(seed + draw)

        with subject.measuring():
            with progress_bar(progress) as on_step:
                results = checking.check(build, subject.images, subject.factors, meter, draws, on_step)
            causes = likely_causes(build(0), subject.images, results)
            say(console, target, f"{subject.how(meter)}; in eval mode", results, tolerance, causes, absolute)
            well = all(passes(result, tolerance, absolute) for result in results)
            found = {"module": repr(build(0)), "passes": well, "results": [result.row() for result in results]}

            def drawn() -> Any:
                from sesn.tools.picture import draw

                return draw(build(0), subject.images, results)

            files.write(subject.images_name, {**found, "diagnosis": causes}, console, drawn)
    raise typer.Exit(0 if well else 1)


@app.command()
def profile(
    context: typer.Context,
    target: options.Factory,
    with_: options.With = None,
    weights: options.Weights = None,
    output: options.OutputName = None,
    tokens: options.Tokens = None,
    input_: options.InputShape = None,
    downscale: options.OneDownscale = None,
    images: options.ImageSet = "embedded",
    count: options.Count = 4,
    data: options.DataRoot = None,
    mean: options.Mean = None,
    std: options.Std = None,
    resampler: options.ResamplerName = "lanczos3",
    ends: options.EndsName = "auto",
    canvas: options.CanvasName = "follow",
    json: options.JsonPath = None,
    force: options.Force = False,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Measure Δ after every submodule of a network, to see which layer breaks its equivariance."""
    with consoles(quiet, json == options.STDOUT) as (console, _):
        from sesn import Meter
        from sesn.errors import UsageError
        from sesn.tools import profile as profiling
        from sesn.tools.arguments import load_subject
        from sesn.tools.machine import machine_line
        from sesn.tools.output import OutputFiles

        how: Any = {"resampler": resampler, "ends": ends, "canvas": canvas}
        meter, files = Meter(**how), OutputFiles(context.params)
        subject = load_subject(context, meter)
        [factor], module = subject.factors, subject.target.build(seed)
        with subject.measuring():
            rows = profiling.profile(module, subject.images, factor, meter)
        console.print(profiling.profile_table(rows, f"layer profile of {target}, downscale {1 / factor:.4g}"))
        console.print(f"{subject.how(meter)}; {machine_line()}", highlight=False)
        files.write(subject.images_name, {"rows": [asdict(row) for row in rows]}, console)
        if all(math.isnan(row.delta) for row in rows):
            raise UsageError(f"Δ of no submodule of {target} could be taken: the notes say why")


@app.command()
def causes(
    context: typer.Context,
    target: options.Factory,
    with_: options.With = None,
    weights: options.Weights = None,
    output: options.OutputName = None,
    tokens: options.Tokens = None,
    input_: options.InputShape = None,
    downscale: options.OneDownscale = None,
    images: options.ImageSet = "embedded",
    count: options.Count = 4,
    data: options.DataRoot = None,
    mean: options.Mean = None,
    std: options.Std = None,
    resampler: options.ResamplerName = "lanczos3",
    ends: options.EndsName = "auto",
    json: options.JsonPath = None,
    picture: options.PicturePath = None,
    force: options.Force = False,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Split the observed Δ of a network into its causes by switching each off in turn; draw it as a waterfall."""
    with consoles(quiet, json == options.STDOUT) as (console, progress):
        from sesn import Meter
        from sesn.tools import causes as splitting
        from sesn.tools.arguments import load_subject
        from sesn.tools.machine import machine_line
        from sesn.tools.output import OutputFiles

        how: Any = {"resampler": resampler, "ends": ends}
        meter, files = Meter(**how), OutputFiles(context.params)
        subject = load_subject(context, meter)
        [factor], module = subject.factors, subject.target.build(seed)
        with progress_bar(progress) as on_step, subject.measuring():
            split = splitting.causes(module, subject.images, factor, replace(meter, crop=0), on_step=on_step)
        console.print(splitting.causes_table(split))
        console.print(f"{subject.how(meter)}, observed without crop; {machine_line()}", highlight=False)

        def draw() -> Any:
            from sesn.tools.waterfall import draw_causes

            return draw_causes(split, Path(target).name)

        found = {"causes": asdict(split), "shares": split.shares, "largest": split.largest}
        files.write(subject.images_name, found, console, draw)


@app.command()
def tune(
    context: typer.Context,
    scales: Annotated[int, typer.Option(help="Number of scales, at least 2.")] = 3,
    range_: Annotated[float, typer.Option("--range", help="The largest sigma over the smallest.")] = 2.0,
    macs: Annotated[
        float | None,
        typer.Option(
            help="Most multiply-adds on the separable path; by default those of the published STL-10 kernels."
        ),
    ] = None,
    side: Annotated[int, typer.Option(help="Side of the maps that the cost is for.")] = 48,
    channels: Annotated[int, typer.Option(help="Channels in and out that the cost is for.")] = 128,
    images: options.ImageSet = "embedded",
    count: options.Count = 8,
    data: options.DataRoot = None,
    json: options.JsonPath = None,
    picture: options.PicturePath = None,
    force: options.Force = False,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Propose the kernels with the smallest Δ of one layer for a number of multiply-adds."""
    with consoles(quiet, json == options.STDOUT) as (console, progress):
        from sesn._checks import require
        from sesn.tools import tune as tuning
        from sesn.tools.arguments import check_sizes
        from sesn.tools.images import image_set
        from sesn.tools.output import OutputFiles
        from sesn.tools.tradeoff import draw_tuning, tuning_table

        files = OutputFiles(context.params)
        require(macs is None or math.isfinite(macs), "macs", macs, "a finite number")
        check_sizes((1, SIDE, SIDE), (), count, count)
        pictures, name = image_set(images, 1, SIDE, SIDE, count, seed, data)
        with progress_bar(progress) as advance:
            most = None if macs is None else round(macs)
            found = tuning.tune(pictures, scales, range_, macs=most, side=side, channels=channels, on_step=advance)
        console.print(tuning_table(found, name))
        said = f"{found.gain:,.0f} times below the published STL-10 kernels: {found.proposal.code}"
        console.print(said, highlight=False)
        document = {
            "macs": found.macs,
            "gain": found.gain,
            "proposal": {**found.proposal.row(), "code": found.proposal.code},
            "published": found.published.row(),
            "candidates": [each.row() for each in found.candidates],
        }
        files.write(name, document, console, lambda: draw_tuning(found))


if _EXPERIMENTS is not None:
    app.add_typer(_EXPERIMENTS.commands)
