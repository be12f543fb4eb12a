"""A check that every tensor of a computation lies on one device, used on layers and on whole networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class OneDevice(TorchDispatchMode):
    """Rejects an operation that reads or makes a tensor anywhere but on one device.

    The meta device alone does not: convolutions and matrix products accept a stray CPU tensor beside a meta one.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
        strays = [tuple(t.shape) for t in tensors if t.device.type != self.device.type]
        assert not strays, f"{func} on {self.device} met tensors of shape {strays} elsewhere"
        self.operations += 1
        return result


def train_and_evaluate(layer: nn.Module, shape: tuple[int, ...], home: torch.device) -> OneDevice:
    """Forward and backward, twice (what was kept counts too), then in eval mode without gradient."""
    with OneDevice(home) as mode:
        for _ in range(2):
            x = torch.ones(shape, device=home, requires_grad=True)
            layer.train()(x).square().sum().backward()
        assert x.grad is not None
        with torch.no_grad():
            layer.eval()(x)
            layer(x)
    return mode
