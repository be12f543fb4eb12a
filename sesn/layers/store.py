"""What a layer keeps between calls: constants for the map sizes seen so far, and the composed kernels of eval mode."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from sesn._torch import capturing, held_for_graphs, may_keep, refuse_capture, version

T = TypeVar("T")
#: How many constants are kept: a network sees a handful of map sizes, a user of many pays again.
KEPT = 64


class Store:
    """The one store of a layer; all constants are forgotten when there are too many. Copies and pickles start empty.

    Layers that run in several threads, or are replicated for several devices, share it: what is returned is what was
    found or made in this call, whatever others do to the store meanwhile. What a captured CUDA graph was given stays
    where it is, even if it is forgotten here.
    """

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._kept: dict[Hashable, Any] = {}
        self._composed: _Composed | None = None

    def clear(self) -> None:
        """Forget everything."""
        self._kept, self._composed = {}, None

    def get(self, key: Hashable, like: Tensor, make: Callable[[], T]) -> T:
        """What `make` returns for this key and the device and dtype of `like`, made once where it may be kept."""
        if not may_keep(like):
            return make()
        kept = self._kept
        if (found := kept.get((key, like.device, like.dtype))) is not None:
            return held_for_graphs(found, like.device)  # type: ignore[no-any-return]
        refuse_capture(like.device)
        with torch.inference_mode(False), torch.no_grad(), torch.device("cpu"):  # to be trained with later
            made = make()
        if len(kept) >= self._most:
            kept = self._kept = {}
        kept[key, like.device, like.dtype] = made
        return made

    def constant(self, key: Hashable, like: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """The tensor that `make` returns in float64, in the dtype and on the device of `like`."""
        return self.get(key, like, lambda: make().to(device=like.device, dtype=like.dtype))

    def kernel(self, key: Hashable, weight: Tensor, compose: Callable[[], Tensor]) -> Tensor:
        """A kernel composed from a weight, composed anew if the weight has changed since or nobody could tell.

        A captured CUDA graph composes it at each replay, so that it follows the weight.
        """
        if not may_keep(weight) or version(weight) is None or capturing(weight.device):
            return compose()
        composed = self._composed
        if composed is None or not composed.hold_for(weight):
            values = weight.detach().clone() if weight.device.type == "cpu" else None
            composed = self._composed = _Composed(weakref.ref(weight), _stamp(weight), values, {})
        kernel = composed.kernels.get(key)
        if kernel is None:
            kernel = composed.kernels[key] = compose()
        return kernel

    def __len__(self) -> int:
        return len(self._kept)

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self._most,)


class _Composed(NamedTuple):
    """The kernels made so far from one state of a weight, by what they are for."""

    owner: weakref.ref[Tensor]
    stamp: Hashable
    values: Tensor | None
    kernels: dict[Hashable, Tensor]

    def hold_for(self, weight: Tensor) -> bool:
        """Writes through `weight.data` do not show in the version counter, so on the CPU the values are compared too.

        On an accelerator comparing would wait for the device; there the counter decides.
        """
        if self.owner() is not weight or self.stamp != _stamp(weight):
            return False
        return self.values is None or torch.equal(self.values, weight.detach())


def _stamp(weight: Tensor) -> Hashable:
    return weight.data_ptr(), version(weight), weight.device, weight.dtype
