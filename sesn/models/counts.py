"""How many parameters a network has, and how many of them its output depends on."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn


class ParameterCount(NamedTuple):
    """All trainable numbers, as the released scripts print them, and those that are used."""

    total: int
    used: int


def unused_parameters(network: nn.Module) -> frozenset[str]:
    """Names of the parameters that a layer declares (in `unused_parameters`) to count and never to use."""
    return frozenset(
        f"{prefix}.{name}" if prefix else name
        for prefix, module in network.named_modules()
        for name in getattr(module, "unused_parameters", ())
    )


def parameter_count(network: nn.Module) -> ParameterCount:
    """Count the trainable numbers of a network."""
    unused = unused_parameters(network)
    sizes = {name: p.numel() for name, p in network.named_parameters() if p.requires_grad}
    total = sum(sizes.values())
    return ParameterCount(total, total - sum(size for name, size in sizes.items() if name in unused))
