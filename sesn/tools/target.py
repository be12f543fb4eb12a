"""The module that a command line names, with the arguments and the weights that were given for it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import warnings
import zipfile
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sesn._source import named, names_in, neighbours, worded
from sesn.errors import UsageError
from sesn.meter.reading import ON_META
from sesn.tools.packages import PACKAGES, packaged

FORM = "FILE.py:NAME, package.module:NAME or timm:NAME and the like"
EXAMPLE = "network.py:build, where build() returns a torch.nn.Module"
#: Where a checkpoint of a training keeps the weights, among other things.
STATES = ("state_dict", "model_state_dict", "model")
#: How files are called that hold weights, or a network of TorchScript.
WEIGHTS = (".pt", ".pth", ".ts", ".ckpt", ".bin", ".safetensors")
#: By these arguments the factories of several packages are told to leave the weights random.
UNTRAINED = {"pretrained": False, "weights_backbone": None, "encoder_weights": None}
#: So many names of weights are listed in a message.
MOST_NAMES = 3


class Target(NamedTuple):
    """A module to measure: how messages name it, the file it is from, and how to build it from a seed, in eval mode.

    A seed makes no difference to what is not `drawn`: a module that was built already, or whose weights were given.
    """

    words: str
    path: Path
    build: Callable[[int], nn.Module]
    drawn: bool = True


def load_target(text: str, arguments: Sequence[str] = (), weights: Path | None = None) -> Target:
    """The module that a text names; whatever is wrong with it is a UsageError that names the target.

    Args:
        text: FILE.py:NAME or package.module:NAME, of a module or of a function that returns one; or the name of a
            network in a package, as in timm:resnet18.
        arguments: of that function, such as "width=16".
        weights: a file of safetensors, or one that torch.save wrote.
    """
    words, (origin, _, name) = f"`{text}`", text.rpartition(":")
    _check_no_weights(text, words)
    if origin in PACKAGES:
        path, found, home = *packaged(origin, name, words), Path.cwd() / name
    elif all(part.isidentifier() for part in (*origin.split("."), name)) and not origin.endswith(".py"):
        path, found, home = *_imported(origin, name, words), Path.cwd() / name
    else:
        there = named(text, words, FORM, EXAMPLE)
        path, found, home = there.path, there.value, there.path
    given = _keywords(arguments)
    if isinstance(found, nn.Module):
        if given:
            raise UsageError(f"{words} is a module already: leave out `with`, which is for a function that builds one")
    elif not callable(found):
        kind = type(found).__name__
        raise UsageError(f"{words}: `{name}` is of type {kind}; name a torch.nn.Module or a function that returns one")
    else:
        _check_keywords(found, given, words)

    def build(seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]), neighbours(home), _quiet(found), worded(f"{words}: the factory", path):
            torch.manual_seed(seed)
            built = found if isinstance(found, nn.Module) else found(**given)
        return _ready(built, path, words, weights)

    return Target(words, path, build, not isinstance(found, nn.Module) and weights is None)


def _check_no_weights(text: str, words: str) -> None:
    """Refuse a file of weights or of TorchScript, with what to write in its place."""
    path = Path(text.rpartition(":")[0] or text)
    if path.suffix not in WEIGHTS or (":" in text and not path.is_file()):
        return
    scripted = False
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            scripted = any("/code/" in name for name in archive.namelist())
    if scripted:
        raise UsageError(
            f"{words} is a TorchScript file: write network = torch.jit.load({str(path)!r}) into a Python file, and "
            "name network.py:network"
        )
    raise UsageError(
        f"{words} is named like a file of weights: name the network that they are for, and give them by `weights`, for "
        f"example network.py:build --weights {path}"
    )


@contextmanager
def _quiet(factory: Callable[..., Any]) -> Iterator[None]:
    """Keep back what a factory writes and warns of until it succeeds: where it fails, its error alone is the answer."""
    try:
        with redirect_stderr(StringIO()) as told, warnings.catch_warnings(record=True) as warned:
            yield
    except UsageError as error:
        takes = {} if isinstance(factory, nn.Module) else inspect.signature(factory).parameters
        if given := " and ".join(
            f"`with` {key}={value}"
            for key, value in UNTRAINED.items()
            if key in takes and takes[key].default is not value
        ):
            raise UsageError(f"{error}; for random weights give {given}") from error
        raise
    sys.stderr.write(told.getvalue())
    for one in warned:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def _imported(origin: str, name: str, words: str) -> tuple[Path, Any]:
    """The file of a module that can be imported, also from the working directory, and what a name in it stands for."""
    with neighbours(Path.cwd() / name):
        top = origin.partition(".")[0]
        if importlib.util.find_spec(top) is None:
            raise UsageError(f"{words}: there is no package {top} here; install it, or name a file as in {EXAMPLE}")
        with worded(f"{words}: importing {origin}"):
            module = importlib.import_module(origin)
    if not hasattr(module, name):
        has = names_in(module, name) or f"for example {EXAMPLE}"
        raise UsageError(f"{words}: {origin} has no name `{name}`; {has}")
    return Path(getattr(module, "__file__", None) or ""), getattr(module, name)


def _keywords(arguments: Iterable[str]) -> dict[str, Any]:
    """Arguments from "width=16": what is written as a Python literal is one, and the rest is text."""
    found: dict[str, Any] = {}
    for written in arguments:
        key, equals, value = written.partition("=")
        if not (equals and key.isidentifier()) or key in found:
            raise UsageError(f"`with` (={written!r}) must be NAME=VALUE, each name once; for example width=16")
        try:
            found[key] = literal_eval(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # all that it says of other text
            found[key] = value
    return found


def _check_keywords(factory: Callable[..., Any], given: Mapping[str, Any], words: str) -> None:
    """Refuse arguments that the function does not take, or lacks, before anything is built."""
    try:
        signature = inspect.signature(factory)
    except (ValueError, TypeError):  # some functions do not tell
        return
    try:
        signature.bind(**given)
    except TypeError as error:
        takes = ", ".join(str(one.replace(annotation=one.empty)) for one in signature.parameters.values()) or "none"
        open_ = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        named = [name for name, one in signature.parameters.items() if one.kind not in open_]
        example = next((name for name in named if name not in given), "width") + "=16"
        raise UsageError(f"{words}: {error}; it takes {takes}, and `with` gives one as in {example}") from error


def _ready(built: Any, path: Path, words: str, weights: Path | None) -> nn.Module:
    if not isinstance(built, nn.Module):
        raise UsageError(
            f"{words}: the factory returned an object of type {type(built).__name__}; it must return a torch.nn.Module"
        )
    if weights is not None:
        load_weights(built, weights, words)
    with worded(f"{words}: putting the module into eval mode", path):
        built.eval()
        numbers = [*built.parameters(), *built.buffers()]
    if any(each.is_meta for each in numbers):
        raise UsageError(f"{words}: the module's weights are {ON_META}; build it on the processor or a GPU")
    return built


def load_weights(module: nn.Module, weights: Path, words: str) -> None:
    """Give a module the weights in a file, every one of them and no other."""
    said = f"`weights` (={str(weights)!r})"
    state, own = _read_state(weights, said), module.state_dict()
    shapes = {key: (tuple(state[key].shape), tuple(own[key].shape)) for key in own if key in state}
    others = [
        f"{key} is {there} there and {here} in the module" for key, (there, here) in shapes.items() if there != here
    ]
    problems = {
        "the file lacks": [key for key in own if key not in state],
        "the module has no": [key for key in state if key not in own],
        "of another shape:": others,
    }
    told = [f"{what} {_few(keys)}" for what, keys in problems.items() if keys]
    if told:
        raise UsageError(f"{said} must hold the weights of {words}: {'; '.join(told)}")
    with worded(f"{said}: loading them into {words}"):
        module.load_state_dict(state)


def _few(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _read_state(weights: Path, said: str) -> dict[str, Tensor]:
    """The tensors in a file by name; nothing in it is run."""
    if not weights.is_file():
        raise UsageError(f"{said}: there is no such file; give the path from {Path.cwd()}")
    if weights.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(weights)
        except SafetensorError as error:
            raise UsageError(f"{said} is not a safetensors file: {error}") from error
    try:
        found = torch.load(weights, map_location="cpu", weights_only=True)
    except Exception as error:  # bytes that are no pickle may make the unpickler raise anything
        # The rest of what torch says is how to run the file, which must not be done.
        reason = str(error).partition(". ")[0].partition("\n")[0] or type(error).__name__
        raise UsageError(
            f"{said} cannot be read as weights alone ({reason}); write them with "
            "torch.save(module.state_dict(), FILE) or as safetensors"
        ) from error
    if isinstance(found, dict):
        found = next((found[key] for key in STATES if isinstance(found.get(key), dict)), found)
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        held = f"a dict of {_few([*map(str, found)])}" if isinstance(found, dict) else f"a {type(found).__name__}"
        raise UsageError(
            f"{said} holds {held}, not weights by name; write them with torch.save(module.state_dict(), FILE)"
        )
    return found
