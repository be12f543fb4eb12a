"""Every public name says what it takes, returns and raises, and its example is true."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import nn

import sesn
from sesn.layers.typed import TensorModule

#: What examples may use without importing it.
GLOBALS = {"sesn": sesn, "torch": torch, "nn": nn}
#: Arguments that need no words.
UNSAID = {"self", "cls"}


def public() -> dict[str, Any]:
    return {name: getattr(sesn, name) for name in sesn.__all__}


def methods_of(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods that a class or its bases in `sesn` define; properties have no arguments to speak of."""
    for base in reversed(kind.__mro__):  # a subclass after its bases, whose methods it replaces
        for name, value in vars(base).items():
            function = getattr(value, "__func__", value)
            if base.__module__.startswith("sesn.") and isinstance(function, FunctionType) and not name.startswith("_"):
                yield name, function


def callables() -> dict[str, Any]:
    """Every public function and class, and the public methods of the classes."""
    found = public()
    for owner, kind in public().items():
        if inspect.isclass(kind):
            found |= {f"{owner}.{name}": method for name, method in methods_of(kind)}
    return found


def arguments(function: Any) -> list[str]:
    """The names that a call takes; none of an exception, which takes its message."""
    if inspect.isclass(function) and issubclass(function, Exception):
        return []
    return [name for name in inspect.signature(function).parameters if name not in UNSAID]


def returns(function: Any) -> bool:
    return not inspect.isclass(function) and inspect.signature(function).return_annotation not in (None, "None")


def missing(name: str, function: Any) -> list[str]:
    """What a docstring does not say."""
    text = inspect.getdoc(function) or ""
    lines = text.split("\n")
    said = re.search(r"^(Args|Attributes):\n(.*?)(?=^\S|\Z)", text, re.M | re.S)
    words = set(re.findall(r"\w+", said[2])) if said else set()
    lacking = [] if lines[0].rstrip().endswith((".", ":")) else ["a sentence"]
    lacking += [f"the argument {each}" for each in arguments(function) if each not in words]
    if returns(function) and "Returns:" not in text and "Yields:" not in text:
        lacking.append("Returns")
    if re.search(r"^\s+raise |_checks\.\w+\(|\brequire\(|\bwhole\(", inspect.getsource(function), re.M):
        lacking += [] if "Raises:" in text or inspect.isclass(function) else ["Raises"]
    if "." not in name and ">>>" not in text:
        lacking.append("an example")
    return lacking


@pytest.mark.parametrize("name", callables())
def test_a_public_name_says_what_it_takes_and_gives(name: str) -> None:
    function = callables()[name]
    if name.endswith("extra_repr"):  # torch's own hook, which torch documents
        return
    assert not missing(name, function)


@pytest.mark.parametrize("name", public())
def test_the_example_is_true(name: str) -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    torch.manual_seed(0)
    for test in finder.find(public()[name], name, globs=dict(GLOBALS)):
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_what_a_docstring_lacks_is_noticed() -> None:
    def silent(image: Any) -> Any:
        """Do something"""
        raise ValueError(image)

    assert missing("silent", silent) == ["a sentence", "the argument image", "Returns", "Raises", "an example"]


LAYERS = [
    value for value in public().values() if inspect.isclass(value) and issubclass(value, nn.Module) and arguments(value)
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
def test_a_layer_takes_its_options_by_name(layer: type[nn.Module]) -> None:
    """Only what defines a layer stands by position; windows of pooling are given as torch's are."""
    parameters = inspect.signature(layer).parameters.values()
    by_place = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    channels = {"in_channels", "out_channels", "num_channels", "num_features", "num_groups"}
    defining = channels | {"module", "basis", "grid", "kernel_size", "output_size", "mode", "padding_mode"}
    defining |= {"sizes", "oversample", "factor", "p", "reduce"}
    assert set(by_place) <= defining | ({"stride", "padding"} if "Spatial" in layer.__name__ else set())


def test_type_checkers_know_that_a_layer_gives_a_tensor() -> None:
    """OutputOf may wrap a module with any output."""
    layers = {name for name, kind in public().items() if inspect.isclass(kind) and issubclass(kind, nn.Module)}
    assert {name for name in layers if not issubclass(getattr(sesn, name), TensorModule)} == {"OutputOf"}
    assert TensorModule.__annotations__ == {"__call__": "Callable[..., Tensor]"}
