"""`sesn tune`: kernels with the smallest Delta for their cost."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from sesn.tools import options
from sesn.tools.consoles import consoles, progress_bar

#: The tuner measures on grey images of this side, whatever the side that the cost is for.
SIDE = 96


def tune(
    context: typer.Context,
    scales: Annotated[int, typer.Option(help="Number of scales, at least 2.")] = 3,
    range_: Annotated[float, typer.Option("--range", help="The largest sigma divided by the smallest.")] = 2.0,
    macs: Annotated[
        float | None,
        typer.Option(
            help="Most multiply-adds allowed with the separable algorithm. By default those of the published STL-10 "
            "kernels."
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
    """Propose the kernels with the smallest Δ of one layer for a given number of multiply-adds."""
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
