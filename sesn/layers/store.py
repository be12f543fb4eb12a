"""What a layer keeps of its basis: constants in its own dtype and device, and the composed kernels of eval mode."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from sesn._memo import Memo
from sesn._torch import recording
from sesn.algorithms.axis import Axis
from sesn.algorithms.dense import plane_taps
from sesn.algorithms.separable import Passes, make_passes
from sesn.basis import SteerableBasis

T = TypeVar("T")
#: Map sizes times scales whose matrices are kept.
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
        self._kept = Memo(KEPT)

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
        return self._kept.get((key, samples.device, samples.dtype), make)


class _Composed(NamedTuple):
    """The kernels made so far from one state of a weight, by what they are for."""

    owner: weakref.ref[Tensor]
    stamp: Hashable
    values: Tensor | None
    kernels: dict[Hashable, Tensor]

    @classmethod
    def of(cls, weight: Tensor) -> _Composed:
        """Nothing yet, for the weight as it is now."""
        values = weight.detach().clone() if weight.device.type == "cpu" else None
        return cls(weakref.ref(weight), _stamp(weight), values, {})

    def hold_for(self, weight: Tensor) -> bool:
        """Writes through `weight.data` do not show in the version counter, so on the CPU the values are compared too.

        On an accelerator comparing would wait for the device; there the counter decides.
        """
        if self.owner() is not weight or self.stamp != _stamp(weight):
            return False
        return self.values is None or torch.equal(self.values, weight.detach())


class KernelCache:
    """Composed kernels of eval mode, valid while the weights they were made from are unchanged.

    Replicas of a layer in other threads share it; each call reads and fills the kernels of its own weight only.
    """

    def __init__(self) -> None:
        self._composed: _Composed | None = None

    def clear(self) -> None:
        """Forget everything."""
        self._composed = None

    def get(self, key: Hashable, weight: Tensor, compose: Callable[[], Tensor]) -> Tensor:
        """The kernel under `key`, composed anew if the weight has changed since."""
        composed = self._composed
        if composed is None or not composed.hold_for(weight):
            composed = self._composed = _Composed.of(weight)
        kernel = composed.kernels.get(key)
        if kernel is None:
            kernel = composed.kernels[key] = compose()
        return kernel

    def __reduce__(self) -> tuple[Any, ...]:
        return KernelCache, ()


def _stamp(weight: Tensor) -> Hashable:
    return weight.data_ptr(), weight._version, weight.device, weight.dtype


def _buffer(scale: int) -> str:
    return f"_samples_{scale}"


def _crop(profiles: Tensor, radius: int) -> Tensor:
    centre = profiles.shape[-1] // 2
    return profiles[:, centre - radius : centre + radius + 1]
