"""What a command line names: a module as FILE.py:factory, and the images and factors to measure it on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sesn._checks import require
from sesn._source import line_of, named, neighbours, worded
from sesn.errors import UsageError
from sesn.meter.reading import ON_META, call, odd_output
from sesn.tools.arguments import check_sizes, parse_downscales, parse_input
from sesn.tools.images import USUAL_COUNT, image_set

EXAMPLE = "network.py:build, where build() returns a torch.nn.Module"


class Target(NamedTuple):
    """A module to measure: how messages name it, the file it is from, and how to build it from a seed, in eval mode."""

    words: str
    path: Path
    build: Callable[[int], nn.Module]


def load_target(text: str) -> Target:
    """The module that FILE.py:factory builds; whatever is wrong with the file is a UsageError that names the target."""
    words = f"`{text}`"
    found = named(text, words, "FILE.py:factory", EXAMPLE)
    factory = found.value
    if isinstance(factory, nn.Module) or not callable(factory):
        kind = type(factory).__name__
        raise UsageError(
            f"{words}: `{found.name}` is of type {kind}, not a function; write a function that returns the module"
        )
    return Target(words, found.path, lambda seed: _build(factory, found.path, words, seed))


def _build(factory: Callable[[], Any], path: Path, words: str, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]), neighbours(path), worded(f"{words}: the factory", path):
        torch.manual_seed(seed)
        built = factory()
    if not isinstance(built, nn.Module):
        raise UsageError(f"{words}: the factory returned a {type(built).__name__}; it must return a torch.nn.Module")
    with worded(f"{words}: putting the module into eval mode", path):
        built.eval()
        weights = [*built.parameters(), *built.buffers()]
    if any(weight.is_meta for weight in weights):
        raise UsageError(f"{words}: the module's weights are {ON_META}; build it on the processor or a GPU")
    return built


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


def load_subject(
    target: str,
    input_: str,
    downscale: str,
    images: str,
    count: int | None,
    data: Path | None,
    seed: int,
    at_once: int | None = None,
) -> Subject:
    """What the options name, read and checked.

    `at_once` is how many images are rescaled at once, for any number of downscales; by default there is one downscale,
    and all images are rescaled at once.
    """
    shape, downscales = parse_input(input_), parse_downscales(downscale)
    several = at_once is not None or len(downscales) == 1
    require(several, "downscale", downscale, "one number here", "run once for each")
    check_sizes(shape, downscales, count, at_once or count or USUAL_COUNT)
    loaded = load_target(target)
    pictures, name = image_set(images, *shape, count, seed, data)
    return Subject(loaded, pictures, name, [1 / one for one in downscales])


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
