"""`sesn check`: the verdict on a module."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sesn.tools import options
from sesn.tools.consoles import consoles, progress_bar
from sesn.tools.wording import in_options


def check(
    context: typer.Context,
    target: options.Factory,
    with_: options.With = None,
    weights: options.Weights = None,
    output: options.OutputName = None,
    tokens: options.Tokens = None,
    input_: options.InputShape = None,
    downscale: Annotated[
        str | None,
        typer.Option(
            metavar="D,D,...",
            help="How many times smaller to make images; 2 halves them, 0.5 doubles. By default 1.41,2 or near these.",
        ),
    ] = None,
    motion: options.Motion = None,
    translate: options.Translate = None,
    rotate: options.Rotate = None,
    images: options.ImageSet = options.USUAL_IMAGES,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many images. By default 16 (8 or 4 for costly networks), or all if there are fewer."
        ),
    ] = None,
    data: options.DataRoot = None,
    mean: options.Mean = None,
    std: options.Std = None,
    resampler: options.ResamplerName = "lanczos3",
    kind: Annotated[
        str,
        typer.Option(
            help="How to read the output: auto, field (b,c,s,h,w), map (b,c,h,w), scale (b,c,s) or invariant (b,c)."
        ),
    ] = "auto",
    crop: Annotated[str, typer.Option(metavar="auto|N", help="Pixels to leave out at each border.")] = "auto",
    ends: options.EndsName = "auto",
    canvas: options.CanvasName = "follow",
    grid: Annotated[
        str | None, typer.Option(metavar="S,S,...", help="The output's sigmas, if they are not the module's.")
    ] = None,
    draws: Annotated[
        int,
        typer.Option(min=1, help="Most draws of random weights; drawing stops once the interval is narrow enough."),
    ] = 1,
    tolerance: options.Tolerance = None,
    absolute: Annotated[
        bool, typer.Option("--absolute", help="Judge Δ itself, and not relative to what unrelated images give.")
    ] = False,
    json: options.JsonPath = None,
    picture: options.PicturePath = None,
    force: options.Force = False,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Measure the equivariance error Δ of any torch module, and say what causes it.

    Δ = ‖L_s Φ(f) − Φ(L_s f)‖² / ‖L_s Φ(f)‖² with s = 1/downscale. L_s may also be a shift or a rotation (--action).
    The module is put into eval mode.

    The verdict is about Δ relative to what unrelated images give: 0 is equivariant, and 1 is no better than chance.
    The exit status is 1 above the tolerance, 2 on bad usage and 70 after a bug.
    """
    with consoles(quiet, json == options.STDOUT) as (console, progress):
        from sesn import Meter
        from sesn._checks import require
        from sesn.tools import check as checking
        from sesn.tools.arguments import load_subject, parse_crop, parse_grid
        from sesn.tools.output import OutputFiles
        from sesn.tools.verdict import leniency, likely_causes, passes, say

        how: Any = {"resampler": resampler, "kind": kind, "ends": ends, "canvas": canvas}
        meter = Meter(**how, crop=parse_crop(crop), grid=parse_grid(grid))
        files = OutputFiles(context.params)
        require(tolerance is None or tolerance >= 0, "tolerance", tolerance, "at least 0")
        subject = load_subject(context, meter, checking.BATCH)
        meter = subject.meter

        def build(draw: int) -> Any:
            return subject.target.build(seed + draw)

        with subject.measuring():
            with progress_bar(progress) as on_step:
                results = checking.check(build, subject.images, subject.elements, meter, draws, on_step)
            # Of a costly network, for which fewer images were chosen, half of them and the worst result.
            costly = context.params["count"] != count
            few = subject.images[: len(subject.images) // 2] if costly else subject.images
            worst = [max(results, key=lambda one: one.delta.median)] if costly else results
            causes = [*map(in_options, likely_causes(build(0), few, worst))]
            say(console, target, f"{subject.how()}; in eval mode", results, tolerance, causes, absolute)
            for line in leniency(images):
                console.print(line, highlight=False)
            well = all(passes(result, tolerance, absolute) for result in results)
            found = {"module": repr(build(0)), "passes": well, "results": [result.row() for result in results]}

            def drawn() -> Any:
                from sesn.tools.picture import draw

                return draw(build(0), subject.images, results)

            files.write(subject.images_name, {**found, "diagnosis": causes}, console, drawn)
    raise typer.Exit(0 if well else 1)
