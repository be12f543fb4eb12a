"""The module that the user wants checked, named on the command line as FILE.py:factory."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

EXAMPLE = "network.py:build, where build() returns a torch.nn.Module"


def load_factory(target: str) -> Callable[[int], nn.Module]:
    """A function from a seed to the module that FILE.py:factory builds, in eval mode.

    The file runs as a module of its own, with its folder on the path, so that it may import its neighbours. Whatever
    goes wrong is a ValueError that names the target.
    """
    path, name = _parts(target)
    factory = getattr(_run(path, target), name, None)
    if factory is None:
        raise ValueError(
            f"`{target}`: {path} has no name `{name}`; after the colon stands a function of the file, as in {EXAMPLE}"
        )
    if isinstance(factory, nn.Module) or not callable(factory):
        kind = type(factory).__name__
        raise ValueError(
            f"`{target}`: `{name}` is of type {kind}, not a function; write a function that returns the module"
        )
    return lambda seed: _build(factory, path, target, seed)


def _parts(target: str) -> tuple[Path, str]:
    file, colon, name = target.rpartition(":")
    if not (colon and file and name.isidentifier()):
        raise ValueError(f"`{target}` must be FILE.py:factory; for example {EXAMPLE}")
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"`{target}`: there is no file {path}; give the path from {Path.cwd()}")
    if path.suffix != ".py":
        raise ValueError(f"`{target}`: {path} must be a Python file, its name ending in .py")
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
        raise ValueError(f"`{target}`: the factory returned a {type(built).__name__}; it must return a torch.nn.Module")
    return built.eval()


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
    except (Exception, SystemExit) as error:
        raise ValueError(f"{what}: {type(error).__name__}: {error}{_line(error, path)}") from error


def _line(error: BaseException, path: Path) -> str:
    """The last line of the user's file on the way to the error; a syntax error says its own."""
    lines = [number for frame, number in traceback.walk_tb(error.__traceback__) if _is(frame.f_code.co_filename, path)]
    return f" ({path.name}, line {lines[-1]})" if lines else ""


def _is(filename: str, path: Path) -> bool:
    return Path(filename).resolve() == path.resolve()
