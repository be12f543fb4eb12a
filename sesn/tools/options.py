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
    typer.Option("--with", metavar="NAME=VALUE", help="An argument of that function; repeat the option for more."),
]
Weights = Annotated[Path | None, typer.Option(metavar="FILE", help="Weights to load, from safetensors or torch.save.")]
OutputName = Annotated[
    str | None,
    typer.Option("--output", metavar="KEY|INDEX", help="Which output to measure; write a.b for an output b inside a."),
]
Tokens = Annotated[
    str | None,
    typer.Option(metavar="HxW", help="Grid (rows x columns) that the output's tokens lie on, or set if there is none."),
]
#: The same for several networks.
EACH = "A plain value is for all networks, and 2:VALUE is for the second alone. Repeat the option for more."
EachWith = Annotated[
    list[str] | None, typer.Option("--with", metavar="[N:]NAME=VALUE", help=f"An argument of the function. {EACH}")
]
EachWeights = Annotated[
    list[str] | None, typer.Option("--weights", metavar="[N:]FILE", help=f"Weights to load. {EACH}")
]
EachOutput = Annotated[
    list[str] | None, typer.Option("--output", metavar="[N:]KEY|INDEX", help=f"Which output to measure. {EACH}")
]
EachTokens = Annotated[
    list[str] | None, typer.Option("--tokens", metavar="[N:]HxW", help=f"Grid of the tokens, or set. {EACH}")
]
InputShape = Annotated[
    str | None,
    typer.Option("--input", metavar="CxHxW", help="Size of the images. By default 3x96x96, or the nearest that fits."),
]
OneDownscale = Annotated[
    str | None,
    typer.Option(
        metavar="D",
        help="How many times smaller to make images; 2 halves them. By default 1.41, or the nearest that fits.",
    ),
]
Motion = Annotated[
    str | None,
    typer.Option(
        "--action",
        metavar="scale|translate|rotate",
        help="What to do to images; --downscale, --translate or --rotate says by how much.",
    ),
]
Translate = Annotated[
    str | None,
    typer.Option(
        metavar="N,N,...|stride",
        help="Shift images by N pixels down and right (negative: up and left) instead of rescaling. "
        "A shift by 1 shows aliasing, one by the stride does not.",
    ),
]
Rotate = Annotated[
    str | None,
    typer.Option(metavar="A,A,...", help="Rotate images by A degrees instead. Multiples of 90 need no interpolation."),
]
ImageSet = Annotated[
    str,
    typer.Option(
        metavar="SET|DIR",
        help="Images: 1/f, 1/f2, white, embedded (photographs), stl10 (in a clone only), or a directory.",
    ),
]
#: What a network is judged on, unless others are asked for: photographs are a lenient test.
USUAL_IMAGES = "1/f"
Mean = Annotated[
    str | None,
    typer.Option(
        "--mean", metavar="M,M,...", help="Mean to subtract from pictures in 0..1, for networks that expect it."
    ),
]
Std = Annotated[str | None, typer.Option("--std", metavar="D,D,...", help="Standard deviation to divide pictures by.")]
Count = Annotated[int, typer.Option(min=1, help="How many images to measure on.")]
DataRoot = Annotated[Path | None, typer.Option(help="Folder of downloaded data sets. By default $SESN_DATA.")]
ResamplerName = Annotated[
    str, typer.Option(help="How to rescale: lanczos3, fourier (for circular padding), bicubic or legacy.")
]
EndsName = Annotated[
    str, typer.Option(help="What to assume past the border: auto, zeros, inside, circular, reflection or mean.")
]
CanvasName = Annotated[
    str,
    typer.Option(
        help="Rescale the image (follow), or the picture on a fixed canvas (keep). Networks of one size get keep."
    ),
]
Tolerance = Annotated[float | None, typer.Option(help="Exit with status 1 if a relative Δ is above this.")]
JsonPath = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE|-",
        help="Write raw values and provenance to this file, whose folder is made if it is missing; - prints them.",
    ),
]
PicturePath = Annotated[
    Path | None,
    typer.Option(help="Draw the result as PNG and SVG files of this name. A folder that is missing is made."),
]
Force = Annotated[bool, typer.Option("--force", help="Also replace files that sesn did not write.")]
Seed = Annotated[
    int, typer.Option(min=0, max=2**63 - 1, metavar="N", help="Seed of the weights and the choice of images.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors only.")]
#: In place of a file, the standard output.
STDOUT = Path("-")
