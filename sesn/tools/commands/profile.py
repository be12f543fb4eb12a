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
    input_: options.InputShape = "3x96x96",
    downscale: options.OneDownscale = "1.41",
    images: options.ImageSet = "embedded",
    count: options.Count = 4,
    data: options.DataRoot = None,
    resampler: options.ResamplerName = "lanczos3",
    ends: options.EndsName = "auto",
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
        from sesn.tools.machine import machine_line
        from sesn.tools.output import OutputFiles
        from sesn.tools.target import load_subject

        how: Any = {"resampler": resampler, "ends": ends}
        meter, output = Meter(**how), OutputFiles(json, force=force)
        subject = load_subject(target, input_, downscale, images, count, data, seed)
        [factor], module = subject.factors, subject.target.build(seed)
        with subject.measuring():
            rows = profiling.profile(module, subject.images, factor, meter)
        console.print(profiling.profile_table(rows, f"layer profile of {target}, downscale {1 / factor:.4g}"))
        console.print(f"{subject.images_name}; {meter}; {machine_line()}", highlight=False)
        layers = [asdict(row) for row in rows]
        document = {"settings": options.settings(context), "images": subject.images_name, "rows": layers}
        output.write(document, console)
        if all(math.isnan(row.delta) for row in rows):
            raise UsageError(f"Δ of no submodule of {target} could be taken: the notes say why")
