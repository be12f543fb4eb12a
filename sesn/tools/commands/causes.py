"""`sesn causes`: an observed Delta split into its causes, as a table, a waterfall and JSON."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer

from sesn.tools import options
from sesn.tools.consoles import consoles, progress_bar


def causes(
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
    picture: options.PicturePath = None,
    force: options.Force = False,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Split the observed Δ of a network into its causes by switching each off in turn; draw it as a waterfall."""
    with consoles(quiet, json == options.STDOUT) as (console, progress):
        from sesn import Meter
        from sesn.tools import causes as splitting
        from sesn.tools.machine import machine_line
        from sesn.tools.output import OutputFiles
        from sesn.tools.target import load_subject

        how: Any = {"resampler": resampler, "ends": ends}
        meter, output = Meter(**how), OutputFiles(json, picture, force)
        subject = load_subject(target, input_, downscale, images, count, data, seed)
        [factor], module = subject.factors, subject.target.build(seed)
        with progress_bar(progress) as on_step, subject.measuring():
            split = splitting.causes(module, subject.images, factor, replace(meter, crop=0), on_step=on_step)
        console.print(splitting.causes_table(split))
        console.print(f"{subject.images_name}; observed with {meter}, without crop; {machine_line()}", highlight=False)

        def draw() -> Any:
            from sesn.tools.waterfall import draw_causes

            return draw_causes(split, Path(target).name)

        document = {"settings": options.settings(context), "images": subject.images_name, "causes": asdict(split)}
        output.write({**document, "shares": split.shares, "largest": split.largest}, console, draw)
