"""`sesn profile`: Delta after every submodule."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import typer

from sesn.tools import options
from sesn.tools.consoles import consoles


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
        meter = subject.meter
        [factor], module = subject.factors, subject.target.build(seed)
        with subject.measuring():
            rows = profiling.profile(module, subject.images, factor, meter)
        console.print(profiling.profile_table(rows, f"layer profile of {target}, downscale {1 / factor:.4g}"))
        console.print(f"{subject.how()}; {machine_line()}", highlight=False)
        files.write(subject.images_name, {"rows": [asdict(row) for row in rows]}, console)
        if all(math.isnan(row.delta) for row in rows):
            raise UsageError(f"Δ of no submodule of {target} could be taken: the notes say why")
