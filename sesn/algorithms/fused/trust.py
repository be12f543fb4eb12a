"""A check of the kernels on the device at hand before anybody relies on them: compilers and devices differ."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

from sesn._torch import capturing, recording, uncast
from sesn.algorithms.axis import Axis
from sesn.algorithms.dense import compose_kernel, dense_convolution
from sesn.algorithms.fused.available import installed, versions
from sesn.algorithms.fused.convolution import fused_convolution
from sesn.algorithms.fused.geometry import Geometry, make_tables, terms_of
from sesn.basis import SteerableBasis, basis_a
from sesn.errors import UsageError
from sesn.scales import ScaleGrid

#: How far results may lie from those of float64, relative to the largest: with factors of ten bits, and of twenty-four.
ROUGH, CLOSE = 1e-2, 1e-4
#: What is compared, and the scales that the problem's two output scales see.
NAMES = ("the output", "the gradient of the field", "the gradient of the weight", "the gradient of the bias")
WINDOWS = ((0, 2), (1, 2))

#: What was found on each device of this process, by its type and number.
_VERDICTS: dict[tuple[str, int | None], bool] = {}
_LOCK = threading.Lock()


def verdict(device: torch.device) -> bool | None:
    """Whether the kernels are right on this device: checked at the first question, then remembered.

    None if nobody knows and this is no moment to try: while a graph is recorded or captured.
    """
    key = device.type, device.index
    if key in _VERDICTS or recording() or capturing(device):
        return _VERDICTS.get(key)
    with _LOCK:
        if key not in _VERDICTS:
            found = fault(device) if installed() else "Triton is not installed"
            _VERDICTS[key] = found is None
            if found is not None and installed():
                warnings.warn(_report(device, found), RuntimeWarning, stacklevel=2)
    return _VERDICTS[key]


def _report(device: torch.device, found: str) -> str:
    return (
        f"algorithm='fused' failed its self-check on {device}, so the other algorithms are used there: {found}. "
        f"Please report this message as an issue of sesn, with these versions: {versions(device)}"
    )


def fault(device: torch.device) -> str | None:
    """What is wrong with the kernels on this device, or None: values and gradients against float64 on the CPU."""
    try:
        for name, where, difference in differences(device):
            if not difference <= tolerance(device):
                return f"{name} differs by {difference:.2g}, with {where}"
    except Exception as error:  # whatever a compiler or driver raises
        return f"{type(error).__name__}: {error}"
    return None


def differences(device: torch.device) -> Iterator[tuple[str, str, float]]:
    """What is compared, of which problem, and how far it lies from what it should be, relative to the largest."""
    basis = basis_a(ScaleGrid([1.0, 1.6]), 9, 3)
    for stride, circular in ((1, False), (2, True)):
        with torch.inference_mode(False), torch.enable_grad(), uncast(torch.empty(0, device=device)):
            problem = _Problem(basis, stride, circular)
            compared = list(zip(NAMES, problem.fused(device), problem.dense(), strict=True))
        for name, found, expected in compared:
            difference = float((found.cpu().double() - expected).abs().max() / expected.abs().max())
            yield name, f"stride {stride} and circular={circular}", difference


def tolerance(device: torch.device) -> float:
    """How far a result may lie from that of float64, relative to the largest."""
    return ROUGH if device.type == "cuda" and torch.backends.cudnn.allow_tf32 else CLOSE


class _Problem:
    """A small convolution with tiles that are cut, two scales that see each other, and blocks that are not full."""

    def __init__(self, basis: SteerableBasis, stride: int, circular: bool) -> None:
        drawn = torch.Generator("cpu").manual_seed(0)
        shapes = (2, 3, 2, 21, 35), (5, 3, 2, len(basis)), (5,)
        with torch.device("cpu"):
            self.inputs = [torch.randn(shape, generator=drawn, dtype=torch.float64) for shape in shapes]
        self.basis = basis
        self.rows, self.columns = (Axis.of(size, basis.kernel_size, stride, 4, circular) for size in (21, 35))

    def fused(self, device: torch.device) -> list[Tensor]:
        """By the kernels in float32."""
        field, weight, bias = (one.to(device, torch.float32).requires_grad_() for one in self.inputs)
        pairs, scales = self.basis.pairs, range(2)
        assert pairs is not None
        tables = make_tables([self.basis.scale_profiles(k).to(weight) for k in scales], pairs)
        terms = terms_of(WINDOWS, scales, self.basis.boxes)
        geometry = Geometry(self.rows, self.columns, 1, 2, 2, 2, terms)
        return _with_gradients(fused_convolution(field, weight, bias, tables, geometry), [field, weight, bias])

    def dense(self) -> list[Tensor]:
        """By ordinary convolutions in float64."""
        field, weight, bias = (one.clone().requires_grad_() for one in self.inputs)
        maps = []
        for k, (start, stop) in enumerate(WINDOWS):
            seen, lot = (one.flatten(1, 2) for one in (field[:, :, start:stop], weight[:, :, : stop - start]))
            kernel = compose_kernel(lot, self.basis.scale_functions(k))
            maps.append(dense_convolution(seen, kernel, bias, self.rows, self.columns))
        return _with_gradients(torch.stack(maps, dim=2), [field, weight, bias])


def _with_gradients(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    slope = torch.linspace(-1, 1, out.numel(), device="cpu", dtype=torch.float64).reshape(out.shape).to(out)
    return [out.detach(), *torch.autograd.grad(out, inputs, slope)]


def checked_way(way: str, field: Tensor) -> str:
    """The algorithm that was asked for by name, unless it is known to be wrong on the device of this tensor."""
    if way == "fused" and field.is_cuda and installed() and verdict(field.device) is False:
        raise UsageError(
            f"`algorithm` (='fused') must be another one on {field.device}, where it failed its self-check; "
            "use 'separable' or 'auto', and report the warning that was given"
        )
    return way
