"""Packages whose networks can be named in short, as in `timm:resnet18`, with random weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from sesn._source import worded
from sesn.errors import UsageError


class Package(NamedTuple):
    """Where a package has its networks, what they are called, what builds one, and arguments that it is given."""

    pip: str  # the name that pip installs it by
    module: str
    names: Callable[[Any], Iterable[str]]
    factory: Callable[[Any, str], Callable[..., Any]]
    usual: Mapping[str, Any] = {}


def _model(module: Any, name: str) -> Callable[..., Any]:
    """A model of transformers: its class takes a configuration, and that takes the arguments."""
    model = getattr(module, name)

    def build(**given: Any) -> Any:
        return model(model.config_class(**given))

    return build


PACKAGES = {
    "timm": Package(
        "timm", "timm", lambda timm: timm.list_models(), lambda timm, name: partial(timm.create_model, name)
    ),
    "torchvision": Package(
        "torchvision",
        "torchvision.models",
        lambda models: models.list_models(),
        lambda models, name: models.get_model_builder(name),
        {"weights": None, "weights_backbone": None},
    ),
    "transformers": Package(
        "transformers",
        "transformers",
        lambda module: (name for name in dir(module) if "Model" in name or "For" in name),
        _model,
    ),
    "smp": Package(
        "segmentation-models-pytorch",
        "segmentation_models_pytorch",
        lambda smp: (model.__name__ for model in smp.MODEL_ARCHITECTURES_MAPPING.values()),
        getattr,
        {"encoder_weights": None},
    ),
    "monai": Package(
        "monai",
        "monai.networks.nets",
        lambda nets: (name for name, value in vars(nets).items() if isinstance(value, type)),
        getattr,
        {"spatial_dims": 2, "in_channels": 3, "out_channels": 3},
    ),
}


def packaged(key: str, name: str, words: str) -> tuple[Path, Callable[..., Any]]:
    """The file of a package's module, and what builds the network of that name in it; messages begin with `words`."""
    package = PACKAGES[key]
    if find_spec(package.module.partition(".")[0]) is None:
        raise UsageError(f"{words}: {package.pip} is not installed; run python -m pip install {package.pip}")
    with worded(f"{words}: importing {package.module}"):
        module = import_module(package.module)
        known = [*package.names(module)]
    if name.partition(".")[0] not in known:  # timm has the name of the weights after a dot
        lower = {one.lower(): one for one in known}
        near = [f"{key}:{lower[one]}" for one in get_close_matches(name.lower(), lower, n=3, cutoff=0.4)]
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UsageError(f"{words}: {package.pip} has no network of that name{hint}")
    with worded(f"{words}: importing it"):
        factory = package.factory(module, name)
    return _file(module), _with_usual(factory, package.usual)


def _file(module: ModuleType) -> Path:
    return Path(module.__file__ or "")


def _with_usual(factory: Callable[..., Any], usual: Mapping[str, Any]) -> Callable[..., Any]:
    """The factory with those usual arguments that it takes; they can still be given otherwise."""
    taken = inspect.signature(factory).parameters
    return partial(factory, **{key: value for key, value in usual.items() if key in taken})
