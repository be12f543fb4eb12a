"""Things that are costly to make and asked for again and again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class Memo:
    """What was made for each key; all is forgotten when there are too many. Copies and pickles start empty.

    Layers that run in several threads, or are replicated for several devices, share it: what is returned is what was
    found or made in this call, whatever others do to the store meanwhile.

    Args:
        most: how many to keep: a network sees a handful of map sizes, a user of many pays again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Hashable, Any] = {}

    def clear(self) -> None:
        """Forget everything."""
        self._kept = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is kept under `key`, made now if there is nothing: outside inference mode, to be trained with later."""
        kept = self._kept
        if (found := kept.get(key)) is not None:
            return found  # type: ignore[no-any-return]
        with torch.inference_mode(False), torch.no_grad():
            made = make()
        if len(kept) >= self._most:
            kept = self._kept = {}
        kept[key] = made
        return made

    def __len__(self) -> int:
        return len(self._kept)

    def __reduce__(self) -> tuple[Any, ...]:
        return Memo, (self._most,)
