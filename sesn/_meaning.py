"""Weights mean something only together with the constants that they multiply: a saved state remembers those."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from sesn._torch import metadata, recording

#: Constants by name: numbers, or a word.
Constants = Mapping[str, Sequence[float] | str]
#: Under this name they stand in the metadata that torch keeps beside a state's tensors.
KEY = "sesn_constants"
#: Constants that differ by less are the same ones, computed on another machine.
TOLERANCE = 1e-6


class WithMeaning(nn.Module):
    """A layer whose saved state names the constants that its weights were trained with, and which loads no others.

    They travel in the state's metadata, beside the version that torch keeps there, so that its tensors are the
    parameters and nothing else. A state without metadata (an old one, a plain dict, safetensors) is loaded unchecked.
    """

    def meaning(self) -> Constants:
        """The constants that decide what the weights mean; none where their shape says it all."""
        return {}

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        beside = metadata(destination)
        if beside is not None and not recording():  # there a constant may have no value
            beside[prefix[:-1]][KEY] = dict(self.meaning())

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Mapping[str, Any], strict: bool, *lists: list[str]
    ) -> None:
        missing_keys, unexpected_keys, error_msgs = lists
        if differences := differing(local_metadata.get(KEY, {}), self.meaning()):
            error_msgs.append(
                f"the weights of {prefix[:-1] or 'the layer'} ({type(self).__name__}) belong to other constants than "
                f"this layer's: {'; '.join(differences)}; make the layer with the constants that the weights were "
                "trained with, or, to load them all the same, pass dict(state_dict)"
            )
            return
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


def differing(saved: Constants, own: Constants) -> list[str]:
    """Every constant of both that differs, with both values: what only one of them names is not compared."""
    return [
        f"`{name}` is {_shown(saved[name], own[name])} there and {_shown(own[name], saved[name])} here"
        for name in own
        if name in saved and not _same(saved[name], own[name])
    ]


def _same(one: Sequence[float] | str, other: Sequence[float] | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    close = (math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE) for a, b in zip(one, other, strict=False))
    return len(one) == len(other) and all(close)


def _shown(value: Sequence[float] | str, beside: Sequence[float] | str) -> str:
    """The whole of a short list; of a long one, where it first differs."""
    if isinstance(value, str) or len(value) <= 6:
        return repr(value) if isinstance(value, str) else f"({', '.join(f'{number:.6g}' for number in value)})"
    place = next((k for k in range(min(len(value), len(beside))) if not _same(value[k : k + 1], beside[k : k + 1])), 0)
    return f"{value[place]:.6g} at index {place} of {len(value)}"


def meanings(network: nn.Module) -> dict[str, dict[str, Any]]:
    """The constants of every layer that has some, by the layer's name, as plain JSON."""
    layers = ((name, layer.meaning()) for name, layer in network.named_modules() if isinstance(layer, WithMeaning))
    return {
        name: {key: value if isinstance(value, str) else list(value) for key, value in found.items()}
        for name, found in layers
        if found
    }
