"""`sesn check`: measure, say what was found, write what was asked for."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any

import typer

from sesn.tools import options
from sesn.tools.consoles import consoles, progress_bar


def check(
    context: typer.Context,
    target: options.Factory,
    input_: options.InputShape = "3x96x96",
    downscale: Annotated[
        str, typer.Option(metavar="D,D,...", help="1/s, the inverse of `factor` in Python: 2 halves, 0.5 doubles.")
    ] = "1.41,2",
    images: options.ImageSet = "embedded",
    count: Annotated[int | None, typer.Option(min=1, help="Images; by default 16, or all if fewer.")] = None,
    data: options.DataRoot = None,
    resampler: options.ResamplerName = "lanczos3",
    kind: Annotated[str, typer.Option(help="How to read the output: auto, field, map, scale, invariant.")] = "auto",
    crop: Annotated[str, typer.Option(metavar="auto|N", help="Pixels to leave out at each border.")] = "auto",
    ends: options.EndsName = "auto",
    grid: Annotated[
        str | None, typer.Option(metavar="S,S,...", help="The output's sigmas, if not the module's.")
    ] = None,
    draws: Annotated[
        int, typer.Option(min=1, help="Most weight draws; they stop when the interval is narrow enough.")
    ] = 1,
    tolerance: Annotated[float | None, typer.Option(help="Exit with status 1 if a median Δ is above it.")] = None,
    json: options.JsonPath = None,
    picture: options.PicturePath = None,
    force: options.Force = False,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Measure the equivariance error Δ of any torch module; 1 above the tolerance, 2 on bad usage, 70 after a bug.

    Δ = ‖L_s Φ(f) − Φ(L_s f)‖² / ‖L_s Φ(f)‖², s = 1/downscale. The module is put into eval mode.
    """
    with consoles(quiet, json == options.STDOUT) as (console, progress):
        from sesn import Meter
        from sesn._checks import require
        from sesn.tools import check as checking
        from sesn.tools.arguments import parse_crop, parse_grid
        from sesn.tools.output import OutputFiles
        from sesn.tools.target import load_subject
        from sesn.tools.verdict import likely_causes, passes, say

        how: Any = {"resampler": resampler, "kind": kind, "ends": ends}
        meter, output = Meter(**how, crop=parse_crop(crop), grid=parse_grid(grid)), OutputFiles(json, picture, force)
        require(tolerance is None or tolerance >= 0, "tolerance", tolerance, "at least 0")
        subject = load_subject(target, input_, downscale, images, count, data, seed, checking.BATCH)
        # The same draw serves every downscale: building may mean reading weights from a file.
        build = lru_cache(maxsize=1)(lambda draw: subject.target.build(seed + draw))
        with subject.measuring():
            with progress_bar(progress) as on_step:
                results = checking.check(build, subject.images, subject.factors, meter, draws, on_step)
            causes = likely_causes(build(0), subject.images, results)
            say(console, target, f"{subject.images_name}; {meter}; in eval mode", results, tolerance, causes)
            well = all(passes(result, tolerance) for result in results)
            document = {
                "settings": options.settings(context),
                "images": subject.images_name,
                "module": repr(build(0)),
                "passes": well,
                "results": [result.row() for result in results],
                "diagnosis": causes,
            }

            def drawn() -> Any:
                from sesn.tools.picture import draw

                return draw(build(0), subject.images, results)

            output.write(document, console, drawn)
    raise typer.Exit(0 if well else 1)
