"""What a command line says is done to the images: they are rescaled, shifted or rotated, and by how much."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sesn._checks import require
from sesn.errors import UsageError
from sesn.meter.action import ScaleTranslation
from sesn.meter.elements import Element, Rotation

#: The option that says by how much, for each action; the first one is done unless something else is said.
AMOUNTS = {"scale": "downscale", "translate": "translate", "rotate": "rotate"}
#: Images are shifted by at most one part of so many.
PART = 4
#: By how much where it is not said, of the actions that are no scaling: without interpolation, and with it.
USUAL = {"translate": "1,0.5", "rotate": "90,30"}


def asked_action(asked: Mapping[str, Any]) -> str:
    """Which of the actions is asked for, by its name or by an amount; two at once are refused."""
    named, told = asked.get("motion"), [one for one in AMOUNTS if asked.get(AMOUNTS[one]) is not None]
    if named is not None and named not in AMOUNTS:
        raise UsageError(f"--action (={named!r}) must be one of {', '.join(AMOUNTS)}")
    for one in told[::-1]:
        other = next((f"`{AMOUNTS[each]}`" for each in told if each != one), "")
        other = f"--action {named}" if named not in (None, one) else other
        rule, option = f"left out with {other}", AMOUNTS[one]
        require(not other, option, asked[option], rule, "images are rescaled, shifted or rotated, one at a time")
    return named or next(iter(told), "scale")


def elements_of(action: str, asked: Mapping[str, Any], stride: int, shape: tuple[int, ...] | None) -> list[Element]:
    """Shifts down and right, or rotations, as the options say. The shape of the images may not be known yet."""
    text, written = asked.get(AMOUNTS[action]) or USUAL[action], "x".join(map(str, shape or ()))
    if action == "rotate":
        square = shape is None or shape[-2] == shape[-1]
        require(square, "input", written, "square to be rotated", "for example 3x96x96")
        return [Rotation(angle) for angle in parse_angles(text)]
    rule = f"at least {PART} pixels a side, since shifts are at most a quarter of it"
    require(shape is None or min(shape[1:]) >= PART, "input", written, rule, "for example 3x96x96")
    side = None if shape is None else min(shape[1:])
    return [ScaleTranslation(1.0, (pixels, pixels)) for pixels in parse_shifts(text, stride, side)]


def parse_shifts(text: str, stride: int, side: int | None) -> list[float]:
    """Pixels to move images by from "1,-0.5" or "stride", at most a quarter of their side, where that is known."""
    found = [float(stride) if part == "stride" else _number(part) for part in text.split(",")]
    rule, most = "stride or numbers of pixels other than 0", math.inf
    if side is not None:
        most = side // PART
        rule += f", at most {most} to either side, a quarter of the image's side"
    good = all(pixels and math.isfinite(pixels) and abs(pixels) <= most for pixels in found)
    require(good, "translate", text, rule, "for example 1,0.5")
    return list(dict.fromkeys(found))


def parse_angles(text: str) -> list[float]:
    """Degrees from "90,30"."""
    found = [_number(part) for part in text.split(",")]
    rule = "angles in degrees, no multiples of 360, with commas between"
    require(all(math.isfinite(one) and one % 360 for one in found), "rotate", text, rule, "for example 90,30")
    return list(dict.fromkeys(found))


def _number(text: str) -> float:
    """The number that a text says; NaN, which nobody may ask for, if it says none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
