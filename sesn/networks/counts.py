"""How many parameters a network has, how many of them its output depends on, and its nominal multiply-adds."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class Counted(Protocol):
    """A layer that knows its nominal multiply-adds."""

    def multiply_adds(self, shape: Sequence[int]) -> int:
        """For an input of this shape, the batch included."""


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


def multiply_adds(network: nn.Module, image_shape: Sequence[int]) -> int:
    """Nominal multiply-adds of a network's forward pass on one image [c, h, w]: the definition's, not those executed.

    Every kernel is counted whole, on its own scale's support, at every output position, however the layer goes about
    it. A layer reports its own with a method `multiply_adds(shape)`; nn.Conv2d and nn.Linear are known. Biases, norms,
    nonlinearities, pooling and the upsampling of the input are left out. Nothing is computed: the network is run on the
    meta device.
    """
    twin = copy.deepcopy(network).to("meta").eval()
    found: list[int] = []
    for layer in _counted(twin):
        layer.register_forward_pre_hook(lambda layer, inputs: found.append(_layer_multiply_adds(layer, inputs[0])))
    dtype = next((p.dtype for p in twin.parameters()), torch.get_default_dtype())
    with torch.no_grad():
        twin(torch.empty(1, *image_shape, device="meta", dtype=dtype))
    return sum(found)


def _counted(module: nn.Module) -> list[nn.Module]:
    """The layers with a count, outermost first: what is inside one of them is its own affair."""
    if isinstance(module, Counted | nn.Conv2d | nn.Linear):
        return [module]
    return [layer for child in module.children() for layer in _counted(child)]


def _layer_multiply_adds(layer: Any, x: Tensor) -> int:
    if isinstance(layer, nn.Linear):
        return x.numel() * layer.out_features
    if isinstance(layer, nn.Conv2d):
        # Pixels to each window, and those added along each axis, both ends together.
        windows = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
        words: dict[Any, list[int]] = {"same": windows, "valid": [0, 0]}
        pads = words[layer.padding] if isinstance(layer.padding, str) else [2 * int(pad) for pad in layer.padding]
        sides = zip(x.shape[-2:], windows, pads, layer.stride, strict=True)
        positions = math.prod((size + pad - window - 1) // stride + 1 for size, window, pad, stride in sides)
        return x.shape[0] * layer.weight.numel() * positions
    return int(layer.multiply_adds(x.shape))
