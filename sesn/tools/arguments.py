"""What a command line names: the images' shape and the factors, and the module to measure on them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from sesn._checks import complaint, require
from sesn._source import line_of
from sesn.errors import UsageError
from sesn.meter.outputs import OutputOf
from sesn.meter.reading import call, odd_output
from sesn.scales import ScaleGrid
from sesn.tools.images import USUAL_COUNT, image_set
from sesn.tools.target import Target, load_target

#: An image of more than this would not fit into the memory with what a network makes of it.
MOST_NUMBERS = 1 << 26
#: Nor would more than this in all images together: 2 GB in float64.
MOST_TOGETHER = 1 << 28
FULL = "more would not fit into the memory with what a network makes of it"
_SHAPE = re.compile(r"(\d+)\s*[x×,]\s*(\d+)\s*[x×,]\s*(\d+)", re.IGNORECASE)
Number = TypeVar("Number", int, float)


def parse_input(text: Any) -> tuple[int, int, int]:
    """Channels, height and width from "3x96x96", or from a tuple of the three."""
    written = "x".join(str(part) for part in text) if isinstance(text, tuple | list) else str(text)
    match = _SHAPE.fullmatch(written.strip())
    numbers = [int(group) for group in match.groups()] if match else [0, 0, 0]
    if min(numbers) < 1:
        raise UsageError(
            f"`input` (={text!r}) must be CHANNELSxHEIGHTxWIDTH, three whole numbers above 0; for example 3x96x96"
        )
    require(math.prod(numbers) <= MOST_NUMBERS, "input", text, f"at most {MOST_NUMBERS:,} numbers an image", FULL)
    return numbers[0], numbers[1], numbers[2]


def check_sizes(shape: tuple[int, int, int], downscales: Iterable[float], count: int | None, at_once: int) -> None:
    """Refuse images that would fill the memory, as they are or rescaled (so many at once), before any is made."""
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
    found = list(dict.fromkeys(_number(float, str(part)) for part in several))
    if not found:
        raise UsageError(f"`downscale` (={given!r}) must name at least one downscale; for example 1.41,2")
    if not all(math.isfinite(number) and number > 0 for number in found):
        raise UsageError(
            f"`downscale` (={given!r}) must be numbers above 0: 2 halves the image, 0.5 doubles it; for example 1.41,2"
        )
    return found


def _number(kind: type[Number], text: str) -> Number:
    """The number that a text says; -1, which is none that anybody may ask for, if it says none."""
    try:
        return kind(text)
    except ValueError:
        return kind(-1)


def parse_crop(text: str) -> int | Literal["auto"]:
    """Pixels to leave out at each border from "8", or "auto"."""
    if text == "auto":
        return "auto"
    pixels = _number(int, text)
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


def parse_tokens(text: str | None) -> tuple[int, int] | None:
    """Rows and columns of the grid of tokens from "14x14", if they were given."""
    if text is None:
        return None
    rows, _, columns = text.lower().replace("×", "x").partition("x")
    found = _number(int, rows), _number(int, columns)
    require(min(found) > 0, "tokens", text, "ROWSxCOLUMNS, two whole numbers above 0", "for example 14x14")
    return found


class Subject(NamedTuple):
    """What is measured: the target, the images, their name, and the factors s."""

    target: Target
    images: Tensor
    images_name: str
    factors: list[float]

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """What the user's network does wrong meanwhile is a UsageError that says where; a bug of ours passes."""
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # it runs the user's code, which may raise anything
            place = line_of(error, self.target.path)
            if isinstance(error, UsageError | OSError):  # worded already
                if not place or place in str(error):
                    raise
                raise UsageError(f"{error}{place}") from error
            if place:
                raise UsageError(f"{self.target.words}: {type(error).__name__}: {error}{place}") from error
            if isinstance(error, Exception) and (odd := _oddity(self.target.build(0), self.images)):
                raise UsageError(f"{self.target.words}: {odd}") from error
            raise


def load_subject(asked: Mapping[str, Any], at_once: int | None = None) -> Subject:
    """What a command's options name, read and checked.

    `at_once` is how many images are rescaled at once, for any number of downscales; by default there is one downscale,
    and all images are rescaled at once.
    """
    shape, downscales, count = parse_input(asked["input_"]), parse_downscales(asked["downscale"]), asked["count"]
    several = at_once is not None or len(downscales) == 1
    require(several, "downscale", asked["downscale"], "one number here", "run once for each")
    check_sizes(shape, downscales, count, at_once or count or USUAL_COUNT)
    target, draws = load_target(asked["target"], asked["with_"] or (), asked["weights"]), asked.get("draws", 1)
    require(
        target.drawn or draws == 1, "draws", draws, "1 where the weights are given", "name a function that draws them"
    )
    if asked["output"] is not None or asked["tokens"] is not None:
        output, tokens, build = asked["output"], parse_tokens(asked["tokens"]), target.build
        target = target._replace(build=lambda seed: OutputOf(build(seed), output=output, tokens=tokens))
    images, name = image_set(asked["images"], *shape, count, asked["seed"], asked["data"])
    return Subject(target, images, name, [1 / one for one in downscales])


def _oddity(module: nn.Module, images: Tensor) -> str:
    """What is odd about a module that torch refused to do something with; an empty text if nothing is."""
    if any(isinstance(layer, torch.jit.ScriptModule) for layer in module.modules()):
        return "its layers cannot be watched, since it holds TorchScript; give the module that the script was made of"
    made: list[Any] = []
    hook = module.register_forward_hook(lambda _, __, output: made.append(output))
    with suppress(Exception), torch.no_grad():  # only what it returns is of interest here
        call(module, images[:1])
    hook.remove()
    return next((odd for output in made if (odd := odd_output(output))), "")
