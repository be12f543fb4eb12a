"""Argument checks. Every message names the argument, gives its value, says the rule and the remedy."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeVar

import torch
from torch import Tensor

from sesn._torch import casting
from sesn.errors import UsageError, WrongTypeError

Entry = TypeVar("Entry")
#: What helps against a tensor of the wrong rank, by the rank that it should have.
_REMEDIES = {
    5: "lift an image [b, c, h, w] with ScaleLift first",
    4: "add a batch axis with unsqueeze(0), or project a field [b, c, s, h, w] with ScaleProjection first",
}


def complaint(name: str, value: object, rule: str, remedy: str = "") -> str:
    """Word an error: "`kernel_size` (=4) must be odd; use 3 or 5"."""
    return f"`{name}` (={value!r}) must be {rule}" + (f"; {remedy}" if remedy else "")


def require(condition: bool, name: str, value: object, rule: str, remedy: str = "") -> None:
    """Raise a ValueError worded by `complaint` unless the condition holds."""
    if not condition:
        raise UsageError(complaint(name, value, rule, remedy))


def whole(name: str, value: Any, least: float, remedy: str = "") -> int:
    """Return `value` as an int, or say that it must be a whole number >= least."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:  # of tensors and arrays, too, which have the method whatever they hold
        number = None
    if number is None:
        raise WrongTypeError(complaint(name, value, "a whole number", remedy))
    require(number >= least, name, value, f"at least {least}", remedy)
    return number


def pair(name: str, value: Any, least: int, remedy: str = "") -> tuple[int, int]:
    """Return one whole number for rows and columns alike, or one for each, as two ints >= least."""
    if not isinstance(value, tuple | list):
        return (whole(name, value, least, remedy),) * 2
    require(len(value) == 2, name, value, "one whole number, or two for rows and columns", remedy)
    rows, columns = (whole(f"{name}[{axis}]", each, least, remedy) for axis, each in enumerate(value))
    return rows, columns


def flag(name: str, value: Any) -> bool:
    """Return `value` if it is True or False: any text, "no" among them, would count as True."""
    if not isinstance(value, bool):
        raise WrongTypeError(complaint(name, value, "True or False"))
    return value


def positive(value: Any) -> bool:
    """Whether a value is a positive, finite real number."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value) and float(value) > 0


def numbers(name: str, values: Any, remedy: str = "") -> tuple[float, ...]:
    """The values as floats, or the complaint that they are no sequence of numbers."""
    several = isinstance(values, Iterable) and not isinstance(values, str) and getattr(values, "ndim", 1) > 0
    found = tuple(values) if several else ()
    if not several or not all(hasattr(value, "__float__") for value in found):
        raise WrongTypeError(complaint(name, values, "a sequence of numbers", remedy))
    return tuple(float(value) for value in found)


def odd(name: str, value: Any) -> int:
    """Return `value` as an odd int >= 1: only odd windows have a centre pixel."""
    number = whole(name, value, 1)
    require(number % 2 == 1, name, value, "odd", f"use {number - 1} or {number + 1}")
    return number


def one_of(name: str, value: Any, options: Sequence[str]) -> str:
    """Return `value` if it is one of the options."""
    require(value in options, name, value, "one of " + ", ".join(map(repr, options)))
    return str(value)


def looked_up(what: str, key: str, table: Mapping[str, Entry]) -> Entry:
    """The entry of that key, given as the argument `what`; an unknown key is answered with the keys and the nearest."""
    if not isinstance(key, str):
        raise WrongTypeError(f"`{what}` (={key!r}) must be text, one of {', '.join(table)}")
    if key in table:
        return table[key]
    nearest = difflib.get_close_matches(key.lower().replace("_", "-").replace(" ", "-"), table, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise UsageError(f"`{what}` (={key!r}) must be one of {', '.join(table)}{hint}")


def real_tensor(name: str, value: Any, axes: str) -> None:
    """Reject what is no floating-point tensor of rank len(axes.split())."""
    letters = axes.split()
    shape = f"[{', '.join(letters)}]"
    if not isinstance(value, Tensor):
        raise WrongTypeError(f"`{name}` must be a torch tensor {shape}, got {type(value).__name__}")
    rule = f"{len(letters)}-dimensional, {shape}"
    remedy = _REMEDIES.get(len(letters), "check which layer made it")
    require(value.dim() == len(letters), f"{name}.shape", tuple(value.shape), rule, remedy)
    floating(name, value)


def floating(name: str, value: Any) -> None:
    """Reject integer and boolean tensors, and what is no tensor."""
    if not isinstance(value, Tensor):
        raise WrongTypeError(f"`{name}` must be a torch tensor, got {type(value).__name__}")
    if not value.is_floating_point():
        remedy = f"call {name}.to(torch.float32) first"
        raise WrongTypeError(complaint(f"{name}.dtype", value.dtype, "a floating-point type", remedy))


def float_dtype(dtype: Any) -> None:
    """Reject a dtype that weights cannot have."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise WrongTypeError(complaint("dtype", dtype, "a floating-point type", "for example torch.float32"))


def extent(name: str, value: Tensor, axis: int, expected: int, meaning: str, remedy: str) -> None:
    """Reject a tensor whose axis does not have the expected length."""
    if value.shape[axis] != expected:
        hint = f"{remedy}; got {name}.shape = {tuple(value.shape)}"
        rule = f"{expected}, the {meaning}"
        raise UsageError(complaint(f"{name}.shape[{axis}]", value.shape[axis], rule, hint))


def with_channels(name: str, value: Any, axes: str, count: int, argument: str) -> None:
    """Reject what is no floating-point tensor with these axes and as many channels as a layer's argument says."""
    real_tensor(name, value, axes)
    extent(name, value, 1, count, f"layer's {argument}", "give that many channels")


def same_dtype(name: str, value: Tensor, weight: Tensor) -> None:
    """Reject an input whose dtype differs from the weight's, unless autocast will settle it."""
    if value.dtype != weight.dtype and not casting(value):
        remedy = f"call {name}.to({weight.dtype}) or layer.to({value.dtype})"
        raise WrongTypeError(complaint(f"{name}.dtype", value.dtype, f"{weight.dtype}, the layer's dtype", remedy))
