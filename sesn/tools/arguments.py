"""What a command line names: the images' shape and the factors, and the module to measure on them."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from sesn import Meter
from sesn._checks import complaint, require
from sesn._source import line_of
from sesn.errors import UsageError
from sesn.meter.elements import Element, element_of
from sesn.meter.outputs import SET, OutputOf, Tokens, UndecidedError
from sesn.meter.reading import FEWEST_PIXELS, RejectedError, call, odd_output
from sesn.scales import ScaleGrid
from sesn.tools.images import USUAL_COUNT, image_set, random_images
from sesn.tools.motions import AMOUNTS, asked_action, elements_of
from sesn.tools.sizes import USUAL_SHAPES, Shape, Sizes, fitting_count, fitting_sizes
from sesn.tools.target import Target, load_target

if TYPE_CHECKING:
    from typer import Context

#: An image of more than this would not fit into the memory with what a network makes of it.
MOST_NUMBERS = 1 << 26
#: Nor would more than this in all images together: 2 GB in float64.
MOST_TOGETHER = 1 << 28
#: What is measured at if nothing else is said and the network's stride allows it; a single one is the first.
USUAL_DOWNSCALES = (1.41, 2.0)
ONE_SIZE = "one size of images"
#: What is chosen where it is left open, and what of the network decides it.
CHOSEN = {
    "input_": "{size}",
    "downscale": "{size}",
    "canvas": ONE_SIZE,
    "count": "{cost:.0f} billion operations an image",
    "output": "one output",
}
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
    if not all(math.isfinite(number) and number > 0 and number != 1 for number in found):
        raise UsageError(
            f"`downscale` (={given!r}) must be numbers above 0 and not 1, which changes nothing: 2 halves the image, "
            "0.5 doubles it; for example 1.41,2"
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


def parse_numbers(name: str, text: str | None) -> list[float] | None:
    """Numbers from "0.485,0.456,0.406", if they were given."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        rule = "numbers with commas between"
        raise UsageError(complaint(name, text, rule, "for example 0.485,0.456,0.406")) from error


def parse_tokens(text: str | None) -> Tokens | None:
    """Rows and columns of the grid of tokens from "14x14", or that they lie on none, if it was given."""
    if text is None:
        return None
    if text == SET:
        return SET
    rows, _, columns = text.lower().replace("×", "x").partition("x")
    found = _number(int, rows), _number(int, columns)
    rule = f"ROWSxCOLUMNS, two whole numbers above 0, or {SET} for tokens that lie on no grid"
    require(min(found) > 0, "tokens", text, rule, "for example 14x14")
    return found


class Subject(NamedTuple):
    """What is measured: the target, the images, their name, the factors s, and what was chosen of all this."""

    target: Target
    images: Tensor
    images_name: str
    factors: list[float]
    meter: Meter
    elements: list[Element]  # what is done to the images: the factors, or shifts or rotations
    chosen: str = ""

    @property
    def moves(self) -> str:
        """The same in words."""
        named = [element_of(one).named for one in self.elements]
        return f"{named[0][0]} {', '.join(amount for _, amount in named)}"

    def how(self) -> str:
        """The images, the meter and what was chosen in words."""
        return "; ".join(filter(None, (self.images_name, str(self.meter), self.chosen)))

    def measuring(self) -> AbstractContextManager[None]:
        """What the user's network does wrong meanwhile is a UsageError that says where; a bug of ours passes."""
        return _measuring(self.target, self.images)


@contextmanager
def _measuring(target: Target, images: Tensor) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # it runs the user's code, which may raise anything
        place = line_of(error, target.path)
        if isinstance(error, UsageError | OSError):  # worded already
            words = str(error) if place in str(error) else f"{error}{place}"
            if isinstance(error, RejectedError):
                words += "; give --input of another shape, or wrap it in a module that takes images [b, c, h, w]"
            if words == str(error):
                raise
            raise UsageError(words) from error
        if place:
            raise UsageError(f"{target.words}: {type(error).__name__}: {error}{place}") from error
        if isinstance(error, Exception) and (odd := _oddity(target.build(0), images)):
            raise UsageError(f"{target.words}: {odd}") from error
        raise


def load_subject(context: Context, meter: Meter, at_once: int | None = None, curve: Sequence[float] = ()) -> Subject:
    """What a command's options name, read and checked; sizes that were left open are chosen, and noted among them.

    `at_once` is how many images are rescaled at once, for any number of downscales; by default there is one downscale,
    and all images are rescaled at once. `curve` are other downscales than the usual ones.
    """
    asked, usual = context.params, curve or USUAL_DOWNSCALES[: None if at_once else 1]
    shape = None if asked["input_"] is None else parse_input(asked["input_"])
    action, count = asked_action(asked), asked["count"]
    downscales = None if asked["downscale"] is None else parse_downscales(asked["downscale"])
    if action != "scale":
        elements_of(action, asked, 1, shape)  # what is wrong is told before the network is loaded
        downscales, asked["downscale"] = [1.0], "1"
    amount = asked.get(AMOUNTS[action]) or ""
    several = at_once is not None or "," not in amount
    require(several, AMOUNTS[action], amount, "one number here", "run once for each")
    check_sizes(shape or USUAL_SHAPES[0], downscales or usual, count, at_once or count or USUAL_COUNT)
    given = dict(asked)
    fitted = _fitted(context, shape, downscales, usual, meter)
    target, sizes = fitted.target, fitted.sizes
    _check_fit(context, target, sizes, shape, downscales)
    if "stride" in amount.split(",") and not sizes.known:
        raise UsageError(
            complaint(AMOUNTS[action], amount, "pixels for this network, whose stride cannot be read", "for example 8")
        )
    asked.update(sizes.written)
    images, name, cost = _images(asked, target, sizes)
    changed = [name for name in CHOSEN if asked.get(name) != given.get(name) and not _told(context, name)]
    if chosen := {name: CHOSEN[name] for name in changed}:
        options = " ".join(f"--{name.rstrip('_')} {asked[name]}" for name in chosen)
        stepped = ["the steps of its scales"] if sizes.stepped else []
        size = ONE_SIZE if "canvas" in chosen and sizes.stride == 1 else sizes.named_stride
        reasons = dict.fromkeys(one.format(size=size, cost=cost) for one in [*chosen.values(), *stepped])
        fitted.said.append(f"{options} chosen for the network's {' and '.join(reasons)}")
    factors, said = [1 / one for one in sizes.downscales], "; ".join(fitted.said)
    elements: list[Element] = [*factors]
    if action != "scale":
        elements = elements_of(action, asked, sizes.stride, sizes.shape)
    return Subject(target, images, name, factors, fitted.meter, elements, said)


def _check_fit(
    context: Context, target: Target, sizes: Sizes, shape: Shape | None, downscales: Sequence[float] | None
) -> None:
    """Refuse sizes that were asked for and do not fit, with what the network says of them and a command that does."""
    fits = downscales in (None, sizes.downscales) and shape in (None, sizes.shape)
    if fits and not sizes.fixed:
        return
    said = f": {sizes.refusal}" if sizes.refusal else ""
    if sizes.fixed:
        way_out = command_line(context, {**sizes.written, "canvas": "keep"})
        shown = "x".join(map(str, sizes.shape))
        raise UsageError(
            f"{target.words} takes images of {shown}, but not when they are rescaled{said}; rescale the picture on "
            f"its canvas: run {way_out}"
        )
    asked, way_out = context.params, f"run {command_line(context, sizes.written)}"
    name = "downscale" if shape in (None, sizes.shape) else "input_"
    rule = f"such that the network's {sizes.named_stride} divides the sides before and after rescaling"
    if downscales and max(downscales) > (most := min(sizes.shape[1:]) / FEWEST_PIXELS):
        rule = f"at most {most:g}, so that {FEWEST_PIXELS} pixels are left"
    elif name == "input_" and said:
        rule = f"{rule if sizes.stride > 1 else 'a size that the network takes'}{said}"
    raise UsageError(complaint(name.rstrip("_"), asked[name], rule, way_out))


def _images(asked: dict[str, Any], target: Target, sizes: Sizes) -> tuple[Tensor, str, float]:
    """The images and their name; where their number is left open and the network is costly, also its operations."""
    usual, cost = USUAL_COUNT, 0.0
    if asked["count"] is None:
        usual, cost = fitting_count(target.build(asked["seed"]), sizes.shape)
    how: Any = {name: parse_numbers(name, asked[name]) for name in ("mean", "std")}
    where = asked["count"], asked["seed"], asked["data"]
    images, name = image_set(asked["images"], *sizes.shape, *where, **how, usual=usual)
    if usual < USUAL_COUNT:
        asked["count"] = len(images)
    return images, name, cost


class _Fitted(NamedTuple):
    """A network with sizes that fit it, the meter for it, and what to say of its output."""

    target: Target
    sizes: Sizes
    meter: Meter
    said: list[str]


def _fitted(
    context: Context,
    shape: Shape | None,
    downscales: Sequence[float] | None,
    usual: Sequence[float],
    meter: Meter,
) -> _Fitted:
    """Sizes that fit; what the network leaves no choice in is chosen among the options: its only output, its canvas."""
    asked, target = context.params, _target(context.params)
    module = target.build(asked["seed"])
    with _measuring(target, random_images(0, (1, *(shape or USUAL_SHAPES[0])))):
        try:
            sizes = fitting_sizes(module, shape, downscales, usual, meter)
        except UndecidedError as error:
            if not error.choices:
                raise
            first = {error.argument: error.choices[0]}
            if error.argument == "output" and len(error.choices) == 1:
                asked.update(first)
                return _fitted(context, shape, downscales, usual, meter)
            words = str(error)
            if error.argument == "tokens":
                tried, wanted = first["tokens"], (shape, downscales, usual, meter)
                first = {"tokens": _first_grid(asked["seed"], tried, target, wanted)}
                words = words.replace(tried, first["tokens"])
            raise UsageError(f"{words}: run {command_line(context, first)}") from error
    if sizes.fixed and "canvas" in asked and not _told(context, "canvas"):
        asked["canvas"] = "keep"
        sizes, meter = sizes._replace(fixed=False), replace(meter, canvas="keep")
    if isinstance(module, OutputOf) and module.tokens not in (None, SET):
        _check_tokens(context, module, sizes.shape)
    apart = module.apart if isinstance(module, OutputOf) else 0
    said = [f"without the first {apart} token{'s' if apart > 1 else ''}, which the grid has no place for"]
    return _Fitted(target, sizes, meter, said if apart else [])


def _first_grid(seed: int, grid: str, target: Target, wanted: tuple[Any, ...]) -> str:
    """The grid that tokens lie on at the size that will be chosen, which need not be the one that was tried.

    Tokens that are as many for images of every size lie on none.
    """
    own = target.build(seed)
    module = OutputOf(own, tokens=parse_tokens(grid))
    with suppress(UsageError):  # measuring says what is wrong
        sizes = fitting_sizes(module, *wanted)
        channels, *sides = sizes.shape
        image = random_images(0, (1, channels, *sides))
        small = random_images(0, (1, channels, *(round(side / sizes.downscales[0]) for side in sides)))
        if not sizes.fixed and call(own, image).shape == call(own, small).shape:
            return SET
        grid = "x".join(map(str, call(module, image).shape[-2:]))
    return grid


def _check_tokens(context: Context, module: OutputOf, shape: Shape) -> None:
    """Refuse a grid that the tokens do not lie on for images as they are; for others it keeps its proportions."""
    asked, laid = module.tokens, None
    with suppress(UsageError):  # measuring says what is wrong
        laid = call(module, random_images(0, (1, *shape))).shape[-2:]
    if laid not in (None, asked):
        written, fits, size = ("x".join(map(str, one)) for one in (asked or (), laid, shape))
        rule = f"the grid of the tokens for images of {size}, which is {fits}"
        raise UsageError(complaint("tokens", written, rule, f"run {command_line(context, {'tokens': fits})}"))


def _told(context: Context, option: str) -> bool:
    """Whether an option stands on the command line."""
    return str(context.get_parameter_source(option)).endswith("COMMANDLINE")


def _target(asked: Mapping[str, Any]) -> Target:
    """The network that a command's options name, and what is taken of its output."""
    target, draws = load_target(asked["target"], asked["with_"] or (), asked["weights"]), asked.get("draws", 1)
    require(
        target.drawn or draws == 1, "draws", draws, "1 where the weights are given", "name a function that draws them"
    )
    # The same draw serves every downscale: building may mean reading weights from a file.
    output, tokens, build = asked["output"], parse_tokens(asked["tokens"]), lru_cache(maxsize=1)(target.build)
    if output is None and tokens is None:
        return target._replace(build=build)
    return target._replace(build=lambda seed: OutputOf(build(seed), output=output, tokens=tokens))


def command_line(context: Context, changes: Mapping[str, str]) -> str:
    """The command as it was given, with other values for some of its options."""
    words, given = [], {**context.params, **changes}
    for option in context.command.params:
        key = str(option.name)
        if key in changes or _told(context, key):
            values = given[key] if isinstance(given[key], list) else [given[key]]
            if key in given.get("told", ()):  # one of several networks
                own = [f"{given['place'] + 1}:{changes[key]}"] if key in changes else []
                values = [*given["told"][key], *own]
            flag = [] if option.param_type_name == "argument" else [option.opts[0]]
            words += [word for value in values for word in (flag if value is True else [*flag, str(value)])]
    return shlex.join(["sesn", str(context.info_name), *words])


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
