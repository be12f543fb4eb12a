"""Gradients of an algorithm from its plain form, where its own backward pass does not serve."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def replayed_gradients(
    plain: Callable[..., Tensor], inputs: Sequence[Tensor], wanted: Sequence[bool], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """Run `plain` on the inputs with a graph and differentiate that; None for the inputs that are not wanted."""
    again = torch.is_grad_enabled()
    chosen = [tensor for tensor, want in zip(inputs, wanted, strict=True) if want]
    with torch.enable_grad():
        out = plain(*inputs)
        found = iter(torch.autograd.grad(out, chosen, grad, create_graph=again) if chosen else ())
    return tuple(next(found) if want else None for want in wanted)
