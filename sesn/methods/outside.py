"""Methods from outside the package: named as FILE.py:NAME, or registered by an installed package."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import torch
from torch import Tensor, nn

from sesn._source import digest, named, worded
from sesn.errors import Inadmissible, UsageError
from sesn.methods.method import CHANNELS, COLOURS, OWN_STEPS, TRIED_SIDE, Method
from sesn.networks import NETWORKS

#: Installed packages register methods under this group of entry points.
GROUP = "sesn.methods"
EXAMPLE = "mine.py:MINE, where MINE is a sesn.Method"


def from_file(text: str) -> tuple[str, Method]:
    """Where FILE.py:NAME is, whatever the current directory, and the method, with a digest of the file."""
    what = f"`method` (={text!r})"
    found = named(text, what, "a key or FILE.py:NAME", EXAMPLE)
    return found.home, _digested(found.value, found.digest, f"{what}: `{found.name}`")


def installed(join: Callable[[str, Method], object]) -> None:
    """Have the methods of installed packages join; one that cannot be loaded, or cannot join, is left out."""
    for entry in entry_points(group=GROUP):
        try:
            join(f"{entry.value} of the entry points {GROUP}", _load(entry))
        except Exception as error:  # whatever another package does must not stop this one
            warn_of(entry.name, entry.value, error)


def warn_of(name: str, home: str, error: Exception) -> None:
    """Say that a method of an installed package is left out, and why."""
    warnings.warn(f"the method {name!r} ({home}) is left out: {error}", stacklevel=3)


@cache
def check(row: Method) -> None:
    """Try a method's networks and layer on two images: what is wrong with them is said before anything is run."""
    for network, make in row.networks.items():
        task = NETWORKS[network]
        for tried in task.tried:
            words = ", ".join(f"{name}={value}" for name, value in tried.items())
            what = f"`method` (={row.key!r}): its network for {network} ({words})"
            with worded(what):
                module = make(recipe="paper", **{**task.options, **tried})
                shape = _shape(what, module, task.image)
            if shape != (2, task.classes):
                raise UsageError(f"{what} must map {[2, *task.image]} to {[2, task.classes]}; it returned {[*shape]}")
            if not any(parameter.requires_grad for parameter in module.parameters()):
                raise UsageError(f"{what} must have parameters that can be trained, but has none")
    if row.layer is not None:
        _check_layer(row)


def _check_layer(row: Method) -> None:
    """Try the layer at the first step that it can have."""
    for step in OWN_STEPS:
        what = f"`method` (={row.key!r}): its layer for the step {step:.4g}"
        with worded(what):
            try:
                module = row.at_step(step)
            except Inadmissible:
                continue
            shape = _shape(what, module, (COLOURS, TRIED_SIDE, TRIED_SIDE))
        if len(shape) < 4:
            raise UsageError(f"{what} must return maps [b, c, h, w] or fields [b, c, s, h, w]; it returned {[*shape]}")
        return
    row.first_layer(COLOURS, CHANNELS)  # a skeleton's may stand for it, as that of a plain network does


def _shape(what: str, module: object, image: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what a module makes of two images."""
    if not isinstance(module, nn.Module):
        raise UsageError(f"{what} must be a torch.nn.Module, but is of type {type(module).__name__}")
    with torch.no_grad():
        output = module.eval()(torch.zeros(2, *image))
    if not isinstance(output, Tensor):
        raise UsageError(f"{what} must return a tensor, but returned {type(output).__name__}")
    return tuple(output.shape)


def _digested(found: object, digest: str, what: str) -> Method:
    if not isinstance(found, Method):
        raise UsageError(f"{what} must be a sesn.Method, but is of type {type(found).__name__}")
    return replace(found, digest=digest)


def _load(entry: EntryPoint) -> Method:
    found = entry.load()
    module = sys.modules[entry.module]
    source = Path(module.__file__).read_bytes() if module.__file__ else b""
    version = entry.dist.version if entry.dist else ""
    return _digested(found, digest(source + version.encode()), entry.value)
