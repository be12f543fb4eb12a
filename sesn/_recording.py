"""Whether torch is recording a graph (compiling, exporting, tracing): nothing may be cached or looked up then."""

from __future__ import annotations

import torch


def recording() -> bool:
    """True inside torch.compile, torch.export and torch.jit.trace."""
    return torch.compiler.is_compiling() or torch._C._is_tracing()
