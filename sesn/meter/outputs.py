"""What a network returns beside one tensor: which of several tensors to measure, and how tokens lie in the image."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from torch import Tensor, nn

from sesn._checks import complaint
from sesn.errors import WrongTypeError

#: So many tensors of an output are listed in a message.
MOST_LISTED = 12
#: At most so many tokens that have no place in the image come before those of the grid: class tokens, registers.
MOST_APART = 8
#: Where tokens lie on no grid, as those that stand for detected objects.
SET: Literal["set"] = "set"
Tokens = tuple[int, int] | Literal["set"]


class OutputError(WrongTypeError):
    """What a network returned does not hold what was asked for."""


class UndecidedError(WrongTypeError):
    """What a network returned can be measured in several ways: names of its tensors, or the grid of its tokens."""

    def __init__(self, message: str, **choices: list[str]) -> None:
        super().__init__(message)
        [(self.argument, self.choices)] = choices.items()


class OutputOf(nn.Module):
    """One tensor of what a network returns, so that it can be measured: an entry, or tokens as a map.

    Args:
        module: a network that returns a tuple, a list, a dict, a dataclass, or tokens [b, n, c].
        output: the key, index or attribute of the tensor, such as "logits"; with dots between those of nested ones.
        tokens: rows and columns of the grid that the tokens lie on. A few tokens more come first and are left out:
            class tokens and registers. For images of another size the grid keeps its proportions. "set" if they lie on
            no grid, as those that stand for detected objects: then their numbers should not change.

    Raises:
        WrongTypeError: when called, if the network returned nothing of the kind; the message lists what it returned.

    Example:
        >>> class Network(nn.Module):
        ...     def forward(self, images):
        ...         return {"maps": [images], "scores": images.mean((2, 3))}
        >>> sesn.OutputOf(Network(), output="maps.0")(torch.zeros(2, 3, 8, 8)).shape
        torch.Size([2, 3, 8, 8])
    """

    def __init__(self, module: nn.Module, *, output: str | None = None, tokens: Tokens | None = None) -> None:
        super().__init__()
        self.module, self.output, self.tokens = module, output, tokens
        self.apart = 0  # so many tokens were left out of the last output
        self.train(module.training)

    @property
    def grid(self) -> Any:
        """The network's own scales, if it has some."""
        return getattr(self.module, "grid", None)

    def forward(self, images: Tensor) -> Any:
        """Run the network and take the tensor.

        Args:
            images: [b, c, h, w].

        Returns:
            The tensor that was asked for.

        Raises:
            WrongTypeError: there is none.
        """
        found = self.module(images)
        if self.output is not None:
            found = _taken(found, self.output)
        if self.tokens is None or not isinstance(found, Tensor):
            return found
        if self.tokens == SET:
            rule = f"left out for an output {_shape(found)}, which is no set [b, n, c] of tokens"
            if found.dim() != 3:
                raise OutputError(complaint("tokens", SET, rule))
            return found.flatten(1)
        laid = laid_out(found, self.tokens)
        if laid is None:
            rule = f"rows and columns of the tokens [b, n, c] that are returned, not of {_shape(found)}"
            raise OutputError(complaint("tokens", "x".join(map(str, self.tokens)), rule))
        self.apart = found.shape[1] - math.prod(laid.shape[-2:])
        return laid


def own_name(module: nn.Module, name: str) -> str:
    """What the user's network calls a part, without the wrapper that takes one of its outputs."""
    return name.removeprefix("module.") if isinstance(module, OutputOf) else name


def laid_out(output: Tensor, tokens: tuple[int, int]) -> Tensor | None:
    """Tokens [b, n, c], with or without others before them, as a map [b, c, h, w]; None if they do not fit."""
    if output.dim() != 3:
        return None
    count = output.shape[1]
    for apart in range(min(MOST_APART + 1, count)):
        finer = math.sqrt((count - apart) / math.prod(tokens))
        rows, columns = (round(side * finer) for side in tokens)
        if rows * columns == count - apart:
            return output[:, apart:].transpose(1, 2).reshape(len(output), -1, rows, columns)
    return None


def square_grid(count: int) -> str:
    """The square grid that so many tokens may lie on, with or without others before; an empty text if there is none."""
    side = math.isqrt(count)
    return f"{side}x{side}" if side and count - side * side <= MOST_APART else ""


def listed(output: Any) -> str:
    """The tensors in an output by name and shape; an empty text if there are none."""
    found = [f"{name} {_shape(tensor)}" for name, tensor in _tensors(output)]
    return ", ".join(found[:MOST_LISTED]) + (f" and {len(found) - MOST_LISTED} more" if found[MOST_LISTED:] else "")


def names(output: Any) -> list[str]:
    """The names of the tensors in an output."""
    return [name for name, _ in _tensors(output)]


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _tensors(output: Any, before: str = "", depth: int = 4) -> Iterator[tuple[str, Tensor]]:
    for name, part in _parts(output).items() if depth else ():
        if isinstance(part, Tensor):
            yield before + name, part
        else:
            yield from _tensors(part, f"{before}{name}.", depth - 1)


def _parts(output: Any) -> dict[str, Any]:
    """The entries of what is no tensor, by name."""
    if isinstance(output, Mapping):
        return {str(key): value for key, value in output.items()}
    if isinstance(output, tuple | list):
        names = getattr(output, "_fields", range(len(output)))  # of a named tuple
        return {str(name): value for name, value in zip(names, output, strict=True)}
    return {} if isinstance(output, Tensor | nn.Module | type) else dict(getattr(output, "__dict__", {}))


def _taken(output: Any, name: str) -> Any:
    """The entry of that name; one whose own name has dots in it is found as well."""
    parts = _parts(output)
    if name in parts:
        return parts[name]
    first, dot, rest = name.partition(".")
    if isinstance(output, tuple | list) and first.lstrip("-").isdigit() and -len(output) <= int(first) < len(output):
        found = output[int(first)]
    elif first in parts:
        found = parts[first]
    else:
        there = listed(output) or f"a {type(output).__name__} without tensors by name"
        if isinstance(output, Tensor):
            there = f"one tensor {_shape(output)}, so leave it out"
        raise OutputError(complaint("output", name, f"one of what the module returns, which is {there}"))
    return _taken(found, rest) if dot else found
