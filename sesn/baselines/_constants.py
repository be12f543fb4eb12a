"""Constants that a baseline derives from its settings and the map's size: made once per device and dtype, not saved."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

from sesn._recording import recording

#: Entries kept per layer: scales times map sizes. A network sees a handful of sizes, a user of many sizes pays again.
KEPT = 128


class Constants:
    """Tensors by key, device and dtype. They are made in float64 on the CPU; copies and pickles start empty."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Tensor] = {}

    def get(self, key: Hashable, like: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """What `make` returns, in the dtype and on the device of `like`."""
        if recording() or type(like) not in (Tensor, nn.Parameter):
            return make().to(device=like.device, dtype=like.dtype)
        key = (key, like.device, like.dtype)
        if key not in self._kept:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            with torch.inference_mode(False), torch.no_grad(), torch.device("cpu"):
                self._kept[key] = make().to(device=like.device, dtype=like.dtype)
        return self._kept[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return Constants, ()
