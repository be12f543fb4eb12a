"""What torch is doing around a call: recording a graph, transforming a function, casting by itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

T = TypeVar("T")


def recording() -> bool:
    """True where tensors may have no values of their own, so that nothing may be cached or looked up.

    That is inside torch.compile, torch.export, torch.jit.trace, torch.func, FakeTensorMode and forward-mode
    differentiation, where they have tangents beside their values.
    """
    if torch.compiler.is_compiling():  # first: the compiler cannot follow the other questions
        return True
    transforming = torch._C._functorch.peek_interpreter_stack() is not None
    pretending = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    return transforming or pretending or torch._C._is_tracing() or forward_ad._current_level >= 0


def casting(tensor: Tensor) -> bool:
    """True where autocast decides the dtype of operations on this tensor's device."""
    kind = tensor.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def uncast(tensor: Tensor) -> AbstractContextManager[Any]:
    """Where autocast leaves operations on this tensor's device alone."""
    kind = tensor.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def backward_uncast(backward: Callable[[Any, Tensor], T]) -> Callable[[Any, Tensor], T]:
    """A gradient in the precision of what was computed, also where `backward` is called under autocast."""

    @wraps(backward)
    def run(ctx: Any, grad: Tensor) -> T:
        with uncast(grad):
            return backward(ctx, grad)

    return run
