"""Whether the kernels can run here."""

from __future__ import annotations

import importlib
import importlib.util
from importlib import metadata
from types import ModuleType

import torch
from torch import Tensor

from sesn.errors import UsageError


def kernels() -> ModuleType:
    """The module of the kernels; Triton is imported with the first call."""
    return importlib.import_module("sesn.algorithms.fused.kernels")


def installed() -> bool:
    """Whether Triton is."""
    return importlib.util.find_spec("triton") is not None


def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on tensors of any device."""
    return type(kernels().mix).__name__ == "InterpretedFunction"


def require_usable(field: Tensor) -> None:
    """Say what is missing to run the kernels on this tensor."""
    if not installed():
        raise UsageError(
            "`algorithm` (='fused') needs Triton (extra `gpu`), which is not installed; "
            "run python -m pip install triton, or use 'separable' or 'auto'"
        )
    if not field.is_cuda and not interpreted():
        raise UsageError(
            f"`algorithm` (='fused') needs a tensor on a CUDA device, got one on {field.device.type!r}; "
            "use 'separable' or 'auto' there, or set TRITON_INTERPRET=1 before Triton is first used, "
            "which runs the kernels slowly on any device"
        )
    if field.dtype == torch.bfloat16 and interpreted():
        raise UsageError(
            "`algorithm` (='fused') runs in Triton's interpreter here, and the interpreter computes bfloat16 wrong; "
            "use float32 or float16, or another algorithm"
        )


def versions(device: torch.device) -> str:
    """The device and the versions that a report of a fault needs."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    packages = [f"{package} {metadata.version(package)}" for package in ("sesn", "torch", "triton")]
    return ", ".join([name, *packages])
