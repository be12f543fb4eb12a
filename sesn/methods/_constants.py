"""Constants that a baseline derives from its settings and the map's size: made once per device and dtype, not saved."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import Tensor, nn

from sesn._memo import Memo
from sesn._torch import recording

#: Entries kept per layer: scales times map sizes.
KEPT = 128


class Constants:
    """Tensors by key, device and dtype. They are made in float64 on the CPU; copies and pickles start empty."""

    def __init__(self) -> None:
        self._kept = Memo(KEPT)

    def get(self, key: Hashable, like: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """What `make` returns, in the dtype and on the device of `like`."""
        if recording() or type(like) not in (Tensor, nn.Parameter):
            return make().to(device=like.device, dtype=like.dtype)

        def made() -> Tensor:
            with torch.device("cpu"):
                return make().to(device=like.device, dtype=like.dtype)

        return self._kept.get((key, like.device, like.dtype), made)
