"""What a layer keeps of its basis: constants in its own dtype and device, and the composed kernels of eval mode."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import TypeVar

import torch
from torch import Tensor, nn

from sesn._recording import recording
from sesn.algorithms.axis import Axis
from sesn.algorithms.dense import plane_taps
from sesn.algorithms.separable import Passes, make_passes
from sesn.basis import SteerableBasis

T = TypeVar("T")
#: Map sizes times scales whose matrices are kept: a network sees a handful of sizes, a user of many sizes pays again.
KEPT = 64


def can_cache(tensor: Tensor) -> bool:
    """Whether values made now may be kept: not while a graph is recorded, nor those of fake or inference tensors."""
    return not recording() and type(tensor) in (Tensor, nn.Parameter) and not tensor.is_inference()


class ConstantTable:
    """Basis constants for the map sizes seen so far.

    The layer holds the samples themselves as buffers that are not saved: one-dimensional profiles where the basis has
    them, the two-dimensional functions otherwise. What is derived from them for a map size is kept here.
    """

    def __init__(self, basis: SteerableBasis) -> None:
        self._basis = basis
        self._kept: dict[Hashable, Tensor | Passes] = {}

    def register(self, layer: nn.Module, like: Tensor) -> None:
        """Put the samples on the layer as buffers, in the dtype and on the device of `like`."""
        self._kept.clear()
        for scale in range(len(self._basis.grid)):
            samples = self._basis.scale_profiles if self._basis.separable else self._basis.scale_functions
            values = samples(scale).to(device=like.device, dtype=like.dtype)
            layer.register_buffer(_buffer(scale), values, persistent=False)

    def follow(self, layer: nn.Module, weight: Tensor) -> None:
        """Make the samples anew if the weight has come to another device or dtype without the layer being told."""
        samples = layer.get_buffer(_buffer(0))
        if not recording() and (samples.device != weight.device or samples.dtype != weight.dtype):
            self.register(layer, weight)

    def taps(self, layer: nn.Module, scale: int, rows: Axis, columns: Axis) -> Tensor:
        """The functions of one scale [n, y, x], cropped to the taps that can see data."""
        samples = layer.get_buffer(_buffer(scale))
        return self._keep(("taps", scale, rows, columns), samples, lambda: self._plane(samples, rows, columns))

    def passes(self, layer: nn.Module, scale: int, rows: Axis, columns: Axis) -> Passes:
        """The two one-dimensional passes of one scale, as matrices."""
        samples = layer.get_buffer(_buffer(scale))
        pairs = self._basis.pairs
        assert pairs is not None  # the constructor refuses the separable algorithm for other bases
        return self._keep(("passes", scale, rows, columns), samples, lambda: make_passes(samples, pairs, rows, columns))

    def _plane(self, samples: Tensor, rows: Axis, columns: Axis) -> Tensor:
        pairs = self._basis.pairs
        if pairs is None:
            return plane_taps(samples, rows, columns)
        down, across = (_crop(samples, axis.useful_radius(samples.shape[-1] // 2)) for axis in (rows, columns))
        return down[list(pairs.rows), :, None] * across[list(pairs.columns), None, :]

    def _keep(self, key: Hashable, samples: Tensor, make: Callable[[], T]) -> T:
        if not can_cache(samples):
            return make()
        key = (key, samples.device, samples.dtype)
        if key not in self._kept:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            with torch.inference_mode(False), torch.no_grad():  # else what inference makes could not be trained with
                self._kept[key] = make()  # type: ignore[assignment]
        return self._kept[key]  # type: ignore[return-value]


class KernelCache:
    """Composed kernels of eval mode, valid while the weights they were made from are unchanged."""

    def __init__(self) -> None:
        self._kernels: dict[Hashable, Tensor] = {}
        self._owner: weakref.ref[Tensor] | None = None
        self._weight: Tensor | None = None
        self._stamp: Hashable = None

    def clear(self) -> None:
        """Forget everything."""
        self._kernels.clear()
        self._owner = None
        self._weight = None
        self._stamp = None

    def get(self, key: Hashable, weight: Tensor, compose: Callable[[], Tensor]) -> Tensor:
        """The kernel under `key`, composed anew if the weight has changed since."""
        if not self._current(weight):
            self._kernels.clear()
            self._owner = weakref.ref(weight)
            self._stamp = _stamp(weight)
            self._weight = weight.detach().clone() if weight.device.type == "cpu" else None
        if key not in self._kernels:
            self._kernels[key] = compose()
        return self._kernels[key]

    def _current(self, weight: Tensor) -> bool:
        """Writes through `weight.data` do not show in the version counter, so on the CPU the values are compared too.

        On an accelerator comparing would wait for the device; there the counter decides.
        """
        if self._owner is None or self._owner() is not weight or self._stamp != _stamp(weight):
            return False
        return self._weight is None or torch.equal(self._weight, weight.detach())


def _stamp(weight: Tensor) -> Hashable:
    return weight.data_ptr(), weight._version, weight.device, weight.dtype


def _buffer(scale: int) -> str:
    return f"_samples_{scale}"


def _crop(profiles: Tensor, radius: int) -> Tensor:
    centre = profiles.shape[-1] // 2
    return profiles[:, centre - radius : centre + radius + 1]
