"""Outputs of networks that are no single tensor: dictionaries, lists and tuples of tensors, and of one another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from sesn.conversion.functions import FIELD


def tensors(output: Any) -> Iterator[Tensor]:
    """Every tensor in an output; whole numbers and truth values as floating-point ones."""
    if isinstance(output, Tensor) and output.numel():
        yield output if output.is_floating_point() or output.is_complex() else output.double()
    elif isinstance(output, dict | list | tuple):
        for value in output.values() if isinstance(output, dict) else output:
            yield from tensors(value)


class ProjectedOutputs(nn.Module):
    """Project every field in an output, and leave the rest as it is.

    Args:
        projection: a module from fields to maps.
    """

    def __init__(self, projection: nn.Module) -> None:
        super().__init__()
        self.projection = projection

    def forward(self, output: Any) -> Any:
        """Give the output with maps in the place of fields."""
        if isinstance(output, Tensor):
            return self.projection(output) if output.dim() == FIELD else output
        if isinstance(output, dict):
            return type(output)((name, self(value)) for name, value in output.items())
        if isinstance(output, list | tuple):
            parts = [self(value) for value in output]
            return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)
        return output
