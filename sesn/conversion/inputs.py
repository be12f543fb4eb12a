"""What the layers of a network get in one run, so that a run on fields can be compared with it layer by layer."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

#: How many numbers of an input are kept; code that takes the wrong axes spoils more than one in so many.
KEPT = 4096
#: Numbers smaller than the largest of the network by this factor may be rounding, as after a norm of zeros.
SMALL = 1e-3


class _Input(NamedTuple):
    """The shape of an input, numbers of it, evenly spaced, and the largest number that any layer has met until then."""

    shape: torch.Size
    numbers: Tensor
    largest: float


class Inputs:
    """What every layer got, call by call."""

    def __init__(self) -> None:
        #: The layers in the order of their calls.
        self.layers: list[nn.Module] = []
        self._got: dict[int, list[_Input | None]] = {}
        self._largest = 0.0

    def add(self, layer: nn.Module, args: tuple[Any, ...]) -> None:
        """Remember one call."""
        self.layers.append(layer)
        self._got.setdefault(id(layer), []).append(self._kept(args))

    def _kept(self, args: tuple[Any, ...]) -> _Input | None:
        x = args[0] if args else None
        if not (isinstance(x, Tensor) and x.is_floating_point() and x.numel() and x.isfinite().all()):
            return None
        self._largest = max(self._largest, float(x.abs().max()))
        return _Input(x.shape, _numbers(x), self._largest)

    def error(self, layer: nn.Module, call: int, x: Tensor, reference: int) -> float:
        """How far an input at the reference scale is from that of the same call here, relative to the largest number.

        Args:
            layer: the layer.
            call: which of its calls.
            x: the input, a field or a map.
            reference: the index of the scale of a field that is compared.

        Returns:
            The error: infinity if the shapes differ, and 0 where there is nothing to compare.
        """
        got = self._got.get(id(layer), [])
        wanted = got[call] if call < len(got) else None
        if wanted is None:
            return 0.0
        at_scale = x.select(2, reference) if x.dim() == len(wanted.shape) + 1 and x.dim() > 2 else x
        if at_scale.shape != wanted.shape:
            return math.inf
        largest = max(float(wanted.numbers.abs().max()), SMALL * wanted.largest)
        return float((_numbers(at_scale) - wanted.numbers).abs().max()) / largest if largest > 0 else 0.0


def _numbers(x: Tensor) -> Tensor:
    """Some of the numbers, as a copy, which the layer cannot change."""
    return x.detach().flatten()[:: max(1, x.numel() // KEPT)].clone()
