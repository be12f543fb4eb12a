"""`sesn metrics`: one network under every definition of an equivariance error."""

from __future__ import annotations

from typing import Any

import typer

from sesn.tools import options
from sesn.tools.consoles import consoles
from sesn.tools.wording import in_options


def metrics(
    context: typer.Context,
    target: options.Factory,
    with_: options.With = None,
    weights: options.Weights = None,
    output: options.OutputName = None,
    tokens: options.Tokens = None,
    input_: options.InputShape = None,
    downscale: options.OneDownscale = None,
    images: options.ImageSet = options.USUAL_IMAGES,
    count: options.Count = 8,
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
    """Measure a network under every definition of an equivariance error that is in use.

    Each number comes with what it sees and what fools it, so that it can be compared with what others quote.
    """
    with consoles(quiet, json == options.STDOUT) as (console, _):
        from dataclasses import replace

        from sesn import Meter
        from sesn.tools import metrics as measuring
        from sesn.tools.arguments import load_subject
        from sesn.tools.machine import machine_line
        from sesn.tools.output import OutputFiles
        from sesn.tools.verdict import leniency

        how: Any = {"resampler": resampler, "ends": ends, "canvas": canvas}
        meter, files = Meter(**how), OutputFiles(context.params)
        subject = load_subject(context, meter)
        [factor], module = subject.factors, subject.target.build(seed)
        with subject.measuring():
            measured = measuring.metrics(module, subject.images, factor, subject.meter)
        found = [replace(one, reason=in_options(one.reason)) for one in measured]
        measuring.say(console, found, f"{target}, {subject.moves}")
        console.print(f"{subject.how()}; {machine_line()}", highlight=False)
        for line in leniency(images):
            console.print(line, highlight=False)
        files.write(subject.images_name, {"factor": factor, "metrics": [*measuring.rows(found)]}, console)
