"""Dropout on fields [b, c, s, h, w]."""

from __future__ import annotations

from torch import Tensor, nn

from sesn import _checks
from sesn.layers.typed import TensorModule


class ScaleDropout(TensorModule, nn.Dropout3d):
    """Dropout of whole channels: at all scales and positions, or not at all.

    What is dropped does not depend on the place or the size of an object, so every draw commutes with rescaling.
    Dropping single numbers (`nn.Dropout`) commutes only on average, and in eval mode.

    Args:
        p: the probability that a channel is dropped, from 0 to 1. The others are multiplied by 1 / (1 - p).

    Raises:
        UsageError: `p` is not a number from 0 to 1.

    Example:
        >>> field = sesn.ScaleDropout(0.5)(torch.ones(1, 8, 3, 4, 4))
        >>> field.amax(dim=(2, 3, 4)).equal(field.amin(dim=(2, 3, 4)))
        True
    """

    def __init__(self, p: float = 0.5) -> None:
        _checks.require(p == 0 or (_checks.positive(p) and p <= 1), "p", p, "a number from 0 to 1")
        super().__init__(p)

    def forward(self, input: Tensor) -> Tensor:
        """Drop channels in train mode.

        Args:
            input: [b, c, s, h, w].

        Returns:
            The field, of the same shape.

        Raises:
            UsageError: the field has another shape.
        """
        _checks.real_tensor("field", input, "b c s h w")
        return super().forward(input)
