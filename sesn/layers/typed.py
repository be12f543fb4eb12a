"""What type checkers are told about a call of a layer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class TensorModule(nn.Module):
    """A module whose output is one tensor. Of other modules torch tells type checkers nothing."""

    __call__: Callable[..., Tensor]
