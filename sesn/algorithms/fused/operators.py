"""The fused convolution as operators of torch, with gradients of any order.

With x the field, w the weight and y a gradient of the output, all three operators are derivatives of one number
T(x, w, y) = <convolution of x with w, y>, which is linear in each: by y it is the convolution, by x the gradient of the
field, by w the gradient of the weight. So their gradients are made of the same three operators. Nothing is kept for the
backward pass but the inputs: responses are made again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sesn.algorithms.fused import launch
from sesn.algorithms.fused.available import require_usable
from sesn.algorithms.fused.geometry import Geometry

Three = tuple[Tensor | None, ...]
_TABLES = "Tensor down, Tensor across, int[] geometry"


@torch.library.custom_op(
    "sesn::fused",
    mutates_args=(),
    schema=f"(Tensor field, Tensor weight, Tensor? bias, {_TABLES}, bool relu, bool project) -> (Tensor, Tensor)",
)
def fused(
    field: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    down: Tensor,
    across: Tensor,
    geometry: list[int],
    relu: bool,
    project: bool,
) -> tuple[Tensor, Tensor]:
    """The convolution of a field [b, g i, s, h, w] by weights [g o, i, k, slots]; see `fused_convolution`."""
    require_usable(field)
    known = Geometry.decoded(geometry)
    return launch.mix(field, weight, bias, down, across, known, relu=relu, project=project)


@torch.library.custom_op(
    "sesn::fused_field_gradient", mutates_args=(), schema=f"(Tensor grad, Tensor weight, {_TABLES}) -> Tensor"
)
def field_gradient(grad: Tensor, weight: Tensor, down: Tensor, across: Tensor, geometry: list[int]) -> Tensor:
    """The gradient of the field from that of the output: the adjoint of the convolution."""
    require_usable(grad)
    return launch.mix(grad, weight, None, down, across, Geometry.decoded(geometry), adjoint=True)[0]


@torch.library.custom_op(
    "sesn::fused_weight_gradient", mutates_args=(), schema=f"(Tensor field, Tensor grad, {_TABLES}) -> Tensor"
)
def weight_gradient(field: Tensor, grad: Tensor, down: Tensor, across: Tensor, geometry: list[int]) -> Tensor:
    """The gradient of the weights from a field and the gradient of the output."""
    require_usable(field)
    return launch.weigh(field, grad, down, across, Geometry.decoded(geometry))


# Shapes alone, for torch.compile, torch.export and the meta device


@fused.register_fake
def _(
    field: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    down: Tensor,
    across: Tensor,
    geometry: list[int],
    relu: bool,
    project: bool,
) -> tuple[Tensor, Tensor]:
    known = Geometry.decoded(geometry)
    sides = known.rows.outputs, known.columns.outputs
    out = field.new_empty(field.shape[0], weight.shape[0], 1 if project else known.targets, *sides)
    return out, out.new_empty(out.shape if project else (0,), dtype=torch.int32)


@field_gradient.register_fake
def _(grad: Tensor, weight: Tensor, down: Tensor, across: Tensor, geometry: list[int]) -> Tensor:
    known = Geometry.decoded(geometry)
    channels = known.groups * weight.shape[1]
    return grad.new_empty(grad.shape[0], channels, known.sources, known.rows.size, known.columns.size)


@weight_gradient.register_fake
def _(field: Tensor, grad: Tensor, down: Tensor, across: Tensor, geometry: list[int]) -> Tensor:
    known = Geometry.decoded(geometry)
    slots = down.shape[1] * down.shape[2] * across.shape[2]
    return field.new_empty(grad.shape[1], field.shape[1] // known.groups, known.neighbours, slots)


# Gradients


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    first, second, ctx.down, ctx.across, ctx.geometry = inputs
    ctx.save_for_backward(first, second)


def _keep_fused(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    field, weight, _, ctx.down, ctx.across, ctx.geometry, ctx.relu, ctx.project = inputs
    ctx.save_for_backward(field, weight, output[0] if ctx.relu else None, output[1] if ctx.project else None)


def _fused_backward(ctx: Any, grad: Tensor, _: Any) -> Three:
    field, weight, out, largest = ctx.saved_tensors
    rest, wanted = (ctx.down, ctx.across, ctx.geometry), ctx.needs_input_grad
    if out is not None:
        grad = grad * (out > 0)
    if largest is not None:
        scales = Geometry.decoded(ctx.geometry).targets
        grad = grad * (largest == torch.arange(scales, device=grad.device)[:, None, None])
    by_field = field_gradient(grad, weight, *rest) if wanted[0] else None
    by_weight = weight_gradient(field, grad, *rest) if wanted[1] else None
    by_bias = grad.sum((0, 2, 3, 4)) if wanted[2] else None
    return by_field, by_weight, by_bias, None, None, None, None, None


def _field_gradient_backward(ctx: Any, tangent: Tensor) -> Three:
    grad, weight = ctx.saved_tensors
    rest, wanted = (ctx.down, ctx.across, ctx.geometry), ctx.needs_input_grad
    by_grad = fused(tangent, weight, None, *rest, False, False)[0] if wanted[0] else None
    return by_grad, weight_gradient(tangent, grad, *rest) if wanted[1] else None, None, None, None


def _weight_gradient_backward(ctx: Any, tangent: Tensor) -> Three:
    field, grad = ctx.saved_tensors
    rest, wanted = (ctx.down, ctx.across, ctx.geometry), ctx.needs_input_grad
    by_field = field_gradient(grad, tangent, *rest) if wanted[0] else None
    return by_field, fused(field, tangent, None, *rest, False, False)[0] if wanted[1] else None, None, None, None


fused.register_autograd(_fused_backward, setup_context=_keep_fused)
field_gradient.register_autograd(_field_gradient_backward, setup_context=_keep)
weight_gradient.register_autograd(_weight_gradient_backward, setup_context=_keep)
