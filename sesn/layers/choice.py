"""How a steerable layer comes to its algorithms: from its own argument, from timings, or from the cost model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from sesn import _checks
from sesn._torch import constant, recording
from sesn.algorithms import Axis
from sesn.algorithms.choose import MODES, Mode
from sesn.algorithms.decide import Decision, Job, Ways, arithmetic, decide
from sesn.algorithms.fused import checked_way
from sesn.algorithms.plan import ConvolutionPlan, make_plan
from sesn.algorithms.separable import column_runs
from sesn.algorithms.timing import Step
from sesn.algorithms.tuning import may_time, timed
from sesn.basis import ProfilePairs, SteerableBasis
from sesn.errors import WrongTypeError


class ChoosesAlgorithms:
    """The part of a steerable layer that says which algorithm convolves each output scale."""

    algorithm: str
    in_channels: int
    out_channels: int
    groups: int
    basis: SteerableBasis
    weight: nn.Parameter
    bias: nn.Parameter | None
    _windows: Callable[[], list[tuple[int, int]]]
    _check_input: Callable[[Tensor, Tensor], None]
    #: The axes of the convolution of maps with these sides.
    _placed: Callable[[Sequence[int]], tuple[Axis, Axis]]
    #: The convolution by given algorithms.
    _by: Callable[..., Tensor]

    def plan(self, shape: Sequence[int], *, mode: Mode | None = None) -> ConvolutionPlan:
        """Tell which algorithms run for an input, why, and what every candidate costs.

        Args:
            shape: of the input.
            mode: what is computed: "forward" (the output alone), "weights" (also their gradient, as in a network's
                first layer) or "gradients" (also that of the input). If it is left out, it is "gradients" where torch
                records gradients and the weights need them, and else "forward".

        Returns:
            The plan, which prints as a table.

        Raises:
            UsageError: the layer does not take inputs of this shape, or there is no such mode.
            WrongTypeError: `shape` is not a list of whole numbers.
        """
        sizes = _sizes(shape)
        weight = self.weight
        if mode is None:
            mode = "gradients" if torch.is_grad_enabled() and weight.requires_grad else "forward"
        _checks.one_of("mode", mode, MODES)
        self._check_input(torch.empty(sizes, dtype=weight.dtype, device="meta"), weight)
        job = self._job(weight.device, arithmetic(weight), mode, sizes[0], *self._placed(sizes[-2:]))
        if self.algorithm == "auto":
            return make_plan(job, decide(job), sizes)
        way: Any = checked_way(self.algorithm, weight)
        ways: Ways = (way,) * len(job.boxes)
        return make_plan(job, Decision(ways, "forced"), sizes)

    def _ways(self, field: Tensor, weight: Tensor, rows: Axis, columns: Axis) -> Ways:
        """The algorithm of each output scale for this input."""
        if self.algorithm != "auto":
            ways: Ways = (checked_way(self.algorithm, field),) * len(self._windows())  # type: ignore[assignment]
            return ways
        device, dtype, mode = field.device, arithmetic(field), mode_of(field, weight)
        if recording():
            return self._recorded_ways(device.type, device.index, dtype, mode, *rows.numbers, *columns.numbers)
        job = self._job(device, dtype, mode, field.shape[0], rows, columns)
        found = decide(job)
        if found.reason != "measured" and may_time(field):
            found = timed(job, lambda ways: self._step(ways, mode, field, weight, rows, columns))
        return found.ways

    @constant
    def _recorded_ways(self, kind: str, index: int | None, dtype: str, mode: Mode, *numbers: int) -> Ways:
        """Those of a graph that serves any batch, which a compiler takes for constants."""
        device = torch.device(kind) if index is None else torch.device(kind, index)
        return decide(self._job(device, dtype, mode, None, Axis(*numbers[:5]), Axis(*numbers[5:]))).ways  # type: ignore[arg-type]

    def _job(self, device: torch.device, dtype: str, mode: Mode, batch: int | None, rows: Axis, columns: Axis) -> Job:
        windows, basis = self._windows(), self.basis
        return Job(
            in_channels=self.in_channels // self.groups,
            out_channels=self.out_channels // self.groups,
            groups=self.groups,
            functions=len(basis),
            runs=None if basis.pairs is None else _run_count(basis.pairs),
            boxes=tuple(basis.boxes[: len(windows)]),
            seen=tuple([stop - start for start, stop in windows]),
            rows=rows,
            columns=columns,
            batch=batch,
            dtype=dtype,
            mode=mode,
            device=device,
        )

    def _step(self, ways: Ways, mode: Mode, field: Tensor, weight: Tensor, rows: Axis, columns: Axis) -> Step:
        """The convolution as it is to be timed: with gradients, it is that of tensors which nobody else has."""
        if mode == "forward":
            return lambda: self._by(ways, field, weight, self.bias, rows, columns)
        inputs = [tensor if tensor is None else tensor.detach() for tensor in (field, weight, self.bias)]
        wanted = [field.requires_grad, weight.requires_grad, self.bias is not None and self.bias.requires_grad]
        leaves = [
            tensor.requires_grad_() for tensor, want in zip(inputs, wanted, strict=True) if want and tensor is not None
        ]

        def step() -> None:
            # What is saved is nothing to those who watch this, such as checkpoints.
            with torch.autograd.graph.saved_tensors_hooks(_same, _same):
                out = self._by(ways, *inputs, rows, columns)
            torch.autograd.grad(out, leaves, out.detach())

        return step


def _sizes(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, Tensor) or not isinstance(shape, Iterable):
        rule = "the sides of an input, such as (4, 3, 64, 64) or x.shape"
        raise WrongTypeError(_checks.complaint("shape", type(shape).__name__, rule))
    return tuple(_checks.whole(f"shape[{axis}]", size, 1) for axis, size in enumerate(shape))


def mode_of(field: Tensor, weight: Tensor) -> Mode:
    """What a convolution of these tensors computes."""
    if not torch.is_grad_enabled() or not (field.requires_grad or weight.requires_grad):
        return "forward"
    return "gradients" if field.requires_grad else "weights"


@lru_cache(maxsize=256)
def _run_count(pairs: ProfilePairs) -> int:
    return len(column_runs(pairs))


def _same(tensor: Tensor) -> Tensor:
    return tensor
