"""`sesn profile`: Delta after every submodule."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from sesn.tools import options
from sesn.tools.consoles import consoles, progress_bar
from sesn.tools.wording import in_options


def profile(
    context: typer.Context,
    target: options.Factory,
    with_: options.With = None,
    weights: options.Weights = None,
    output: options.OutputName = None,
    tokens: options.Tokens = None,
    input_: options.InputShape = None,
    downscale: options.OneDownscale = None,
    translate: options.Translate = None,
    rotate: options.Rotate = None,
    images: options.ImageSet = options.USUAL_IMAGES,
    count: options.Count = 4,
    data: options.DataRoot = None,
    mean: options.Mean = None,
    std: options.Std = None,
    resampler: options.ResamplerName = "lanczos3",
    ends: options.EndsName = "auto",
    canvas: options.CanvasName = "follow",
    depth: Annotated[
        int | None, typer.Option(metavar="N", help="Show submodules nested at most N deep. By default as deep as fits.")
    ] = None,
    sort: Annotated[
        str, typer.Option(help="Sort by order (of the calls), or by added or delta, the largest first.")
    ] = "order",
    all_: Annotated[bool, typer.Option("--all", help="Also show submodules that add nothing.")] = False,
    json: options.JsonPath = None,
    picture: options.PicturePath = None,
    force: options.Force = False,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Measure Δ after every submodule of a network, to see which layer breaks its equivariance.

    The column "rel. Δ" is relative to what unrelated images give: 0 is equivariant, and 1 is no better than chance.
    """
    with consoles(quiet, json == options.STDOUT) as (console, progress):
        from sesn import Meter
        from sesn.errors import UsageError
        from sesn.tools import profile as profiling
        from sesn.tools import profile_table as tables
        from sesn.tools.arguments import load_subject
        from sesn.tools.machine import machine_line
        from sesn.tools.output import OutputFiles
        from sesn.tools.verdict import leniency

        how: Any = {"resampler": resampler, "ends": ends, "canvas": canvas}
        shown: Any = {"sort": sort, "unfolded": all_}
        meter, files = Meter(**how), OutputFiles(context.params)
        tables.lines([], depth=depth, **shown)  # wrong options are refused before anything is measured
        subject = load_subject(context, meter)
        meter = subject.meter
        [moved], module = subject.elements, subject.target.build(seed)
        with progress_bar(progress) as on_step, subject.measuring():
            found = profiling.profile(module, subject.images, moved, meter, on_step)
            floor = profiling.floor_of(module, subject.images, moved, meter)
        rows = [replace(row, note=in_options(row.note)) for row in found]
        title = f"layer profile of {target}, {subject.moves}"
        deep = depth or (None if all_ or sort != "order" else tables.fitting_depth(rows))
        table = tables.profile_table(rows, title, floor=floor, width=console.width, depth=deep, **shown)
        console.print(table, highlight=False)
        console.print(f"{tables.LEGEND}\n{subject.how()}; {machine_line()}", highlight=False)
        for line in leniency(images):
            console.print(line, highlight=False)

        def draw() -> Any:
            from sesn.tools.profile_picture import draw_profile

            return draw_profile(rows, floor, f"{Path(target).name}, {subject.moves}")

        files.write(subject.images_name, {"floor": floor, "rows": [asdict(row) for row in rows]}, console, draw)
        if all(math.isnan(row.delta) for row in rows):
            raise UsageError(f"Δ of no submodule of {target} could be taken: the notes say why")
