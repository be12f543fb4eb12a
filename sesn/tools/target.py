"""The module that the user wants checked, named on the command line as FILE.py:factory."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

import sesn
from sesn.errors import UsageError
from sesn.meter.reading import ON_META, call, odd_output

#: Where code lies that is not the user's: this project, and the standard library.
_OURS = (*sesn.__path__, sysconfig.get_path("stdlib"))
EXAMPLE = "network.py:build, where build() returns a torch.nn.Module"


def load_factory(target: str) -> Callable[[int], nn.Module]:
    """A function from a seed to the module that FILE.py:factory builds, in eval mode.

    The file runs as a module of its own, with its folder on the path, so that it may import its neighbours. Whatever
    goes wrong is a ValueError that names the target.
    """
    path, name = _parts(target)
    factory = getattr(_run(path, target), name, None)
    if factory is None:
        raise UsageError(
            f"`{target}`: {path} has no name `{name}`; after the colon stands a function of the file, as in {EXAMPLE}"
        )
    if isinstance(factory, nn.Module) or not callable(factory):
        kind = type(factory).__name__
        raise UsageError(
            f"`{target}`: `{name}` is of type {kind}, not a function; write a function that returns the module"
        )
    return lambda seed: _build(factory, path, target, seed)


def _parts(target: str) -> tuple[Path, str]:
    file, colon, name = target.rpartition(":")
    if not (colon and file and name.isidentifier()):
        raise UsageError(f"`{target}` must be FILE.py:factory; for example {EXAMPLE}")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"`{target}`: there is no file {path}; give the path from {Path.cwd()}")
    if path.suffix != ".py":
        raise UsageError(f"`{target}`: {path} must be a Python file, its name ending in .py")
    return path, name


def _run(path: Path, target: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_sesn_check_{path.stem}", path)
    assert spec is not None  # a .py file always has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs: dataclasses and pickling look their module up.
    sys.modules[spec.name] = module
    with _neighbours(path), _worded(f"`{target}`: running {path} failed", path):
        spec.loader.exec_module(module)
    return module


def _build(factory: Callable[[], Any], path: Path, target: str, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]), _neighbours(path), _worded(f"`{target}`: the factory failed", path):
        torch.manual_seed(seed)
        built = factory()
    if not isinstance(built, nn.Module):
        raise UsageError(f"`{target}`: the factory returned a {type(built).__name__}; it must return a torch.nn.Module")
    with _worded(f"`{target}`: the module could not be put into eval mode", path):
        built.eval()
        weights = [*built.parameters(), *built.buffers()]
    if any(weight.is_meta for weight in weights):
        raise UsageError(f"`{target}`: the module's weights are {ON_META}; build it on the processor or a GPU")
    return built


@contextmanager
def measuring(target: str, images: Tensor, build: Callable[[int], nn.Module]) -> Iterator[None]:
    """What the user's network does wrong while it is measured is a ValueError that says where; a bug of ours passes."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        place = _line(error, _parts(target)[0])
        if isinstance(error, ValueError | TypeError | OSError):  # worded already
            if not place or place in str(error):
                raise
            raise UsageError(f"{error}{place}") from error
        if place:
            raise UsageError(f"`{target}`: {type(error).__name__}: {error}{place}") from error
        if isinstance(error, Exception) and (odd := _oddity(build(0), images)):
            raise UsageError(f"`{target}`: {odd}") from error
        raise


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


@contextmanager
def _neighbours(path: Path) -> Iterator[None]:
    """The file's folder first on the path, as when Python runs it."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


@contextmanager
def _worded(what: str, path: Path) -> Iterator[None]:
    """The user's code may raise anything; say where it came from. The cause stays attached."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(f"{what}: {type(error).__name__}: {error}{_line(error, path)}") from error


def _line(error: BaseException | None, path: Path) -> str:
    """The last line of the user's own code on the way to the error or to its cause; a syntax error says its own."""
    last = ""
    while error is not None:
        for frame, number in traceback.walk_tb(error.__traceback__):
            if _is_users(frame.f_code.co_filename, path):
                last = f" ({Path(frame.f_code.co_filename).name}, line {number})"
        error = error.__cause__
    return last


def _is_users(filename: str, path: Path) -> bool:
    """Whether a line of code is in the user's file, or in another that is neither ours nor an installed package's."""
    file = Path(filename).resolve()
    if file == path.resolve():
        return True
    installed = {"site-packages", "dist-packages"} & set(file.parts)
    return file.is_file() and not installed and not any(file.is_relative_to(folder) for folder in _OURS)
