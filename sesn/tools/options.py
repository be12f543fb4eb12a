"""Options that several commands have. `--downscale` is 1/s, as docs/checking-your-network.md says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Factory = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py:NAME|package.module:NAME|timm:NAME",
        help="A torch module, or a function (or class) that returns one.",
    ),
]
With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="NAME=VALUE", help="An argument of that function; repeat for more."),
]
Weights = Annotated[Path | None, typer.Option(metavar="FILE", help="Weights to load: safetensors, or by torch.save.")]
OutputName = Annotated[
    str | None, typer.Option("--output", metavar="KEY|INDEX", help="Which output to measure; dots for nested ones.")
]
Tokens = Annotated[str | None, typer.Option(metavar="HxW", help="The grid that the output's tokens [b, n, c] lie on.")]
#: The same for several networks.
EACH = "For all networks; 2:VALUE for the second alone. Repeat for more."
EachWith = Annotated[list[str] | None, typer.Option("--with", metavar="[N:]NAME=VALUE", help=f"An argument. {EACH}")]
EachWeights = Annotated[
    list[str] | None, typer.Option("--weights", metavar="[N:]FILE", help=f"Weights to load. {EACH}")
]
EachOutput = Annotated[
    list[str] | None, typer.Option("--output", metavar="[N:]KEY|INDEX", help=f"Which output to measure. {EACH}")
]
EachTokens = Annotated[
    list[str] | None, typer.Option("--tokens", metavar="[N:]HxW", help=f"The grid of tokens. {EACH}")
]
InputShape = Annotated[
    str | None,
    typer.Option("--input", metavar="CxHxW", help="Channels, height and width. By default 3x96x96, or what fits."),
]
OneDownscale = Annotated[
    str | None,
    typer.Option(metavar="D", help="1/s: 2 halves the image. By default 1.41 or near."),
]
Motion = Annotated[
    str | None,
    typer.Option(
        "--action",
        metavar="scale|translate|rotate",
        help="What is done to images; by how much, --downscale, --translate or --rotate say.",
    ),
]
Translate = Annotated[
    str | None,
    typer.Option(
        metavar="N,N,...|stride",
        help="Shift images by N pixels instead of rescaling them: 1 shows aliasing, the network's stride does not.",
    ),
]
Rotate = Annotated[
    str | None,
    typer.Option(metavar="A,A,...", help="Rotate images by A degrees instead; multiples of 90 need no interpolation."),
]
ImageSet = Annotated[
    str,
    typer.Option(
        metavar="SET|DIR", help="1/f, 1/f2, white, embedded photographs, stl10 (harness), or a directory of pictures."
    ),
]
#: What a network is judged on, unless others are asked for: photographs are a lenient test.
USUAL_IMAGES = "1/f"
Mean = Annotated[
    str | None,
    typer.Option("--mean", metavar="M,M,...", help="Mean that the network expects taken off pictures in 0..1."),
]
Std = Annotated[str | None, typer.Option("--std", metavar="D,D,...", help="Deviation that it expects them divided by.")]
Count = Annotated[int, typer.Option(min=1, help="Images to measure on.")]
DataRoot = Annotated[Path | None, typer.Option(help="Folder of downloaded data sets, if not $SESN_DATA.")]
ResamplerName = Annotated[str, typer.Option(help="lanczos3, fourier (circular padding), bicubic, legacy.")]
EndsName = Annotated[
    str, typer.Option(help="What lies past the border: auto, zeros, inside, circular, reflection, mean.")
]
CanvasName = Annotated[
    str, typer.Option(help="follow, or keep: rescale the picture on its canvas, as is chosen for networks of one size.")
]
Tolerance = Annotated[float | None, typer.Option(help="Exit with status 1 if a relative Δ is above it.")]
JsonPath = Annotated[
    Path | None, typer.Option(metavar="FILE|-", help="Write raw values and provenance to this file; - prints them.")
]
PicturePath = Annotated[Path | None, typer.Option(help="Draw the result: PNG and SVG of this name.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that sesn did not write, too.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, metavar="N", help="Of the weights and the choice of images.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors only.")]
#: In place of a file, the standard output.
STDOUT = Path("-")
