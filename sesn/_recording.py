"""What torch is doing around a call: recording a graph, transforming a function, casting by itself."""

from __future__ import annotations

import torch
from torch import Tensor


def recording() -> bool:
    """True where tensors may have no values of their own, so that nothing may be cached or looked up.

    That is inside torch.compile, torch.export, torch.jit.trace, torch.func and FakeTensorMode.
    """
    if torch.compiler.is_compiling():  # first: the compiler cannot follow the other questions
        return True
    transforming = torch._C._functorch.peek_interpreter_stack() is not None
    pretending = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    return transforming or pretending or torch._C._is_tracing()


def casting(tensor: Tensor) -> bool:
    """True where autocast decides the dtype of operations on this tensor's device."""
    kind = tensor.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
