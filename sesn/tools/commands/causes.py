"""`sesn causes`: what the Delta of a network is made of."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer

from sesn.tools import options
from sesn.tools.consoles import consoles, progress_bar
from sesn.tools.wording import in_options


def causes(
    context: typer.Context,
    target: options.Factory,
    with_: options.With = None,
    weights: options.Weights = None,
    output: options.OutputName = None,
    tokens: options.Tokens = None,
    input_: options.InputShape = None,
    downscale: options.OneDownscale = None,
    images: options.ImageSet = options.USUAL_IMAGES,
    count: options.Count = 4,
    data: options.DataRoot = None,
    mean: options.Mean = None,
    std: options.Std = None,
    resampler: options.ResamplerName = "lanczos3",
    ends: options.EndsName = "auto",
    canvas: options.CanvasName = "follow",
    json: options.JsonPath = None,
    picture: options.PicturePath = None,
    force: options.Force = False,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Split the observed Δ of a network into its causes by switching each off in turn, and draw it as a waterfall.

    If no layer works at several scales, there is nothing to switch off. Then Δ and the reason are printed at once.
    """
    with consoles(quiet, json == options.STDOUT) as (console, progress):
        from sesn import Meter
        from sesn.tools.arguments import load_subject
        from sesn.tools.causes import causes as split_into
        from sesn.tools.machine import machine_line
        from sesn.tools.output import OutputFiles
        from sesn.tools.split import causes_table, in_words
        from sesn.tools.verdict import leniency

        how: Any = {"resampler": resampler, "ends": ends, "canvas": canvas}
        meter, files = Meter(**how), OutputFiles(context.params)
        subject = load_subject(context, meter)
        meter = subject.meter
        [factor], module = subject.factors, subject.target.build(seed)
        with progress_bar(progress, doing="switching causes off") as on_step, subject.measuring():
            found = split_into(module, subject.images, factor, replace(meter, crop=0), on_step=on_step)
        split = replace(found, steps=tuple(replace(step, note=in_options(step.note)) for step in found.steps))
        if split.steps:
            console.print(causes_table(split))
        console.print(in_words(split), highlight=False)
        console.print(f"{subject.how()}, observed without crop; {machine_line()}", highlight=False)
        for line in leniency(images):
            console.print(line, highlight=False)

        def draw() -> Any:
            from sesn.tools.waterfall import draw_causes

            return draw_causes(split, Path(target).name)

        shared = {"shares": split.shares, "unshared": split.unshared, "largest": split.largest}
        files.write(subject.images_name, {"causes": asdict(split), **shared}, console, draw)
