"""Functions of torch for maps that a network's own code calls: on fields they take every scale by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sesn.layers.each import each_scale

#: The axes of a field.
FIELD = 5


def axes(args: tuple[Any, ...]) -> int:
    """Of the first argument, if that is a tensor."""
    return args[0].dim() if args and isinstance(args[0], Tensor) else 0


class FunctionsOfMaps(nn.Module):
    """Run a network whose code calls functions of torch for maps, such as `F.max_pool2d`, on fields.

    Args:
        module: the network.
        names: of the functions that take every scale of a field by itself; others are called as they are.
    """

    def __init__(self, module: nn.Module, names: Iterable[str]) -> None:
        super().__init__()
        self.module, self.names = module, frozenset(names)
        self.training = module.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the network."""
        with _EachScale(self.names):
            return self.module(*args, **kwargs)

    def extra_repr(self) -> str:
        """The functions."""
        return ", ".join(f"F.{name}" for name in sorted(self.names))


class _EachScale(TorchFunctionMode):
    def __init__(self, names: frozenset[str]) -> None:
        super().__init__()
        self.names = names

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if axes(args) == FIELD and getattr(func, "__name__", "") in self.names:
            return each_scale(lambda maps: func(maps, *args[1:], **options), args[0])
        return func(*args, **options)
