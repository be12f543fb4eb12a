"""What users write in words: the input's shape, the downscales, the crop and the scales of the output."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Literal

from sesn._checks import complaint, require
from sesn.errors import UsageError
from sesn.scales import ScaleGrid
from sesn.tools.images import USUAL_COUNT

#: An image of more than this would not fit into the memory with what a network makes of it.
MOST_NUMBERS = 1 << 26
#: Nor would more than this in all images together: 2 GB in float64.
MOST_TOGETHER = 1 << 28
FULL = "more would not fit into the memory with what a network makes of it"
_SHAPE = re.compile(r"(\d+)\s*[x×,]\s*(\d+)\s*[x×,]\s*(\d+)", re.IGNORECASE)


def parse_input(text: Any) -> tuple[int, int, int]:
    """Channels, height and width from "3x96x96", or from a tuple of the three."""
    written = "x".join(str(part) for part in text) if isinstance(text, tuple | list) else str(text)
    match = _SHAPE.fullmatch(written.strip())
    numbers = [int(group) for group in match.groups()] if match else []
    if len(numbers) != 3 or min(numbers) < 1:
        raise UsageError(
            f"`input` (={text!r}) must be CHANNELSxHEIGHTxWIDTH, three whole numbers above 0; for example 3x96x96"
        )
    require(math.prod(numbers) <= MOST_NUMBERS, "input", text, f"at most {MOST_NUMBERS:,} numbers an image", FULL)
    return numbers[0], numbers[1], numbers[2]


def check_sizes(shape: tuple[int, int, int], downscales: Iterable[float], count: int | None, at_once: int) -> None:
    """Refuse images that would fill the memory, as they are or rescaled, before any is made.

    Args:
        shape: channels, height and width.
        downscales: 1/s each.
        count: of the images; None for the usual number.
        at_once: how many images are rescaled at once, at most.
    """
    written, numbers = "x".join(map(str, shape)), math.prod(shape)
    wanted = USUAL_COUNT if count is None else count
    most = MOST_TOGETHER // numbers
    require(wanted <= most, "count", wanted, f"at most {most:,} for images of {written}", FULL)
    largest = min(MOST_NUMBERS, MOST_TOGETHER // min(wanted, at_once))
    least = math.ceil(1000 * math.sqrt(numbers / largest)) / 1000
    for downscale in downscales:
        rule = f"at least {least:g} for images of {written}, so that each becomes at most {largest:,} numbers"
        require(downscale >= least, "downscale", downscale, rule, FULL)


def parse_downscales(given: Any) -> list[float]:
    """The downscales from "1.41,2", or from a number or several; repeats are dropped."""
    several = given.split(",") if isinstance(given, str) else given if isinstance(given, Iterable) else [given]
    found = list(dict.fromkeys(_downscale(part, given) for part in several))
    if not found:
        raise UsageError(f"`downscale` (={given!r}) must name at least one downscale; for example 1.41,2")
    return found


def _downscale(part: Any, given: Any) -> float:
    try:
        number = float(str(part))
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise UsageError(
            f"`downscale` (={given!r}) must be numbers above 0: 2 halves the image, 0.5 doubles it; for example 1.41,2"
        )
    return number


def parse_crop(text: str) -> int | Literal["auto"]:
    """Pixels to leave out at each border from "8", or "auto"."""
    if text == "auto":
        return "auto"
    try:
        pixels = int(text)
    except ValueError:
        pixels = -1
    require(pixels >= 0, "crop", text, "auto or a whole number of pixels, at least 0", "for example 8")
    return pixels


def parse_grid(text: str | None) -> ScaleGrid | None:
    """The output's scales from "1.5,3,6", if they were given."""
    if text is None:
        return None
    try:
        return ScaleGrid(float(part) for part in text.split(","))
    except ValueError as error:  # of float, or of the grid
        rule = "increasing widths sigma in pixels, above 0, with commas between"
        raise UsageError(complaint("grid", text, rule, "for example 1.5,3,6")) from error
