"""Separable, basis first: convolve with the one-dimensional profiles along columns, then rows, then mix with w.

A product of profiles costs two one-dimensional passes, after which the mixing is one matrix product whose cost does
not depend on the window's width, so wide windows are almost free.

The N_b response maps per input channel are large; they are made for a few images at a time and made again in the
backward pass, so that they stay in the cache and never add up in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sesn._torch import backward_uncast, casting, needs_replay, picked, recording, replayed_gradients
from sesn.algorithms.axis import Axis
from sesn.algorithms.banded import (
    Block,
    along_columns,
    along_columns_adjoint,
    along_rows,
    along_rows_adjoint,
    banded_matrix,
    blocks,
    left,
)
from sesn.algorithms.policy import policy_of
from sesn.basis import ProfilePairs

#: Bytes of response maps held at once on a CPU: a few times the second-level cache, well inside the third.
CHUNK_BYTES = 8 << 20
#: Maps of at most this many pixels use one matrix for both passes.
PLANE_PIXELS = 64
#: Responses at most this many times the output are kept for the backward pass rather than made again.
KEEP = 2


def column_runs(pairs: ProfilePairs) -> list[tuple[int, list[int]]]:
    """Runs of consecutive functions that share a column profile: that profile, and the functions' row profiles."""
    runs: list[tuple[int, list[int]]] = []
    for row, column in zip(pairs.rows, pairs.columns, strict=True):
        if not runs or runs[-1][0] != column:
            runs.append((column, []))
        runs[-1][1].append(row)
    return runs


@dataclass(frozen=True)
class LinePasses:
    """From a channel's pixels to its N_b response maps: along columns, then along rows.

    `across` is for each run's column profile, `down` for each run's row profiles.
    """

    across: tuple[Block, ...]
    down: tuple[tuple[Block, ...], ...]
    functions: int
    height: int
    width: int

    def responses(self, x: Tensor) -> Tensor:
        """x [b, c, h, w] to [b, c, n, h', w']; the second pass multiplies from the left: the maps come out whole."""
        b, c, h, w = x.shape
        lines = along_rows(self.across, x.reshape(b * c * h, w))
        lines = lines.reshape(b * c, h, *lines.shape[1:]).permute(2, 0, 1, 3).contiguous()
        maps = [along_columns(run, line) for run, line in zip(self.down, lines, strict=True)]
        found = torch.cat(maps, dim=1)
        return found.reshape(b, c, *found.shape[1:])

    def adjoint(self, g: Tensor) -> Tensor:
        """Gradients of the responses [b, c, n, h', w'] back to [b, c, h, w]."""
        b, c = g.shape[:2]
        maps = torch.split(g.flatten(0, 1), [run[0].matrix.shape[0] for run in self.down], dim=1)
        lines = [along_columns_adjoint(run, part, self.height) for run, part in zip(self.down, maps, strict=True)]
        stacked = torch.stack(lines, dim=2).flatten(0, 1)  # [b c h, f, w']
        return along_rows_adjoint(self.across, stacked, self.width).reshape(b, c, self.height, self.width)


@dataclass(frozen=True)
class PlanePass:
    """Both passes multiplied out, [n h' w', h w]: on the smallest maps one large product beats many small ones."""

    matrix: Tensor
    sides: tuple[int, int, int, int]
    functions: int

    def responses(self, x: Tensor) -> Tensor:
        """One product."""
        out_h, out_w, h, w = self.sides
        b, c, _, _ = x.shape
        return (x.reshape(b * c, h * w) @ self.matrix.t()).reshape(b, c, self.functions, out_h, out_w)

    def adjoint(self, g: Tensor) -> Tensor:
        """The product with the transposed matrix."""
        _, _, h, w = self.sides
        b, c, n, out_h, out_w = g.shape
        return (g.reshape(b * c, n * out_h * out_w) @ self.matrix).reshape(b, c, h, w)


Passes = LinePasses | PlanePass


def make_passes(profiles: Tensor, pairs: ProfilePairs, rows: Axis, columns: Axis) -> Passes:
    """The passes of one scale, whose profiles are [F, box], for one map size."""
    if rows.size * columns.size <= PLANE_PIXELS:
        vertical, horizontal = banded_matrix(profiles, rows), banded_matrix(profiles, columns)
        product = torch.einsum("nyh,nxw->nyxhw", picked(vertical, pairs.rows), picked(horizontal, pairs.columns))
        sides = rows.outputs, columns.outputs, rows.size, columns.size
        return PlanePass(product.reshape(-1, rows.size * columns.size), sides, len(pairs.rows))
    runs = column_runs(pairs)
    across = blocks(picked(profiles, [column for column, _ in runs]), columns)
    down = tuple(blocks(picked(profiles, found), rows) for _, found in runs)
    return LinePasses(across, down, len(pairs.rows), rows.size, columns.size)


@dataclass(frozen=True)
class ScaleTask:
    """One output scale: the input scales start..stop that it sees (one each for the first weights), and its passes."""

    start: int
    stop: int
    passes: Passes

    def read(self, field: Tensor) -> Tensor:
        """The input scales seen, as channels: [b, c, s, h, w] -> [b, c seen, h, w]."""
        return field[:, :, self.start : self.stop].flatten(1, 2)

    def matrices(self, weight: Tensor, field: Tensor) -> Tensor:
        """The weights used, [g o, c, k, n] -> [g, o, c seen n] for g groups of channels of the field."""
        groups = field.shape[1] // weight.shape[1]
        return weight[:, :, : self.stop - self.start].reshape(groups, weight.shape[0] // groups, -1)


def left_in_groups(matrices: Tensor, batch: Tensor) -> Tensor:
    """matrices [g, m, k] times each of a batch [b, g k, n], group by group: [b, g m, n]."""
    g, m, k = matrices.shape
    if g == 1:
        return left(matrices[0], batch)
    b, n = batch.shape[0], batch.shape[2]
    return torch.bmm(matrices.expand(b, g, m, k).flatten(0, 1), batch.reshape(b * g, k, n)).reshape(b, g * m, n)


def mix(matrices: Tensor, bias: Tensor | None, responses: Tensor) -> Tensor:
    """matrices [g, o, i n] times responses [b, g i, n, h, w], plus bias [g o]: [b, g o, h, w]."""
    b, _, _, h, w = responses.shape
    mixed = left_in_groups(matrices, responses.flatten(3).flatten(1, 2))
    if bias is not None:
        mixed = mixed + bias.to(mixed.dtype)[:, None]  # autocast: the bias must not promote the map
    return mixed.reshape(b, mixed.shape[1], h, w)


def separable_plain(field: Tensor, weight: Tensor, bias: Tensor | None, tasks: Sequence[ScaleTask]) -> Tensor:
    """The whole algorithm in ordinary operations: for compiling, exporting, autocast and differentiating twice."""
    maps = [mix(task.matrices(weight, field), bias, task.passes.responses(task.read(field))) for task in tasks]
    return torch.stack(maps, dim=2)


def separable_convolution(field: Tensor, weight: Tensor, bias: Tensor | None, tasks: Sequence[ScaleTask]) -> Tensor:
    """Correlate field [b, g i, s, h, w] with w x Psi, weight [o, i, k, n], plus the bias: one output scale per task."""
    if recording() or casting(field):
        return separable_plain(field, weight, bias, tasks)
    result: Tensor = _ChunkedPasses.apply(  # type: ignore[no-untyped-call]
        field, weight, bias, tuple(tasks), torch.is_grad_enabled()
    )
    return result


class _ChunkedPasses(torch.autograd.Function):
    """`separable_plain` a few images at a time; the responses are made again in the backward pass.

    Where they are no larger than twice the output (the lift of a grey image, say) they are kept instead.
    """

    @staticmethod
    def forward(
        ctx: Any, field: Tensor, weight: Tensor, bias: Tensor | None, tasks: tuple[ScaleTask, ...], training: bool
    ) -> Tensor:
        ctx.save_for_backward(field, weight)
        ctx.tasks = tasks
        ctx.kept = {}
        responses_per_map = field.shape[1] * _seen(tasks) * tasks[0].passes.functions / weight.shape[0]
        keep = training and ctx.needs_input_grad[1] and responses_per_map <= KEEP  # what is needed ignores no_grad
        out: Tensor | None = None
        for part in _chunks(field, tasks):
            images = field[part]
            for k, task in enumerate(tasks):
                responses = task.passes.responses(task.read(images))
                mixed = mix(task.matrices(weight, field), bias, responses)
                if out is None:
                    b, o, h, w = field.shape[0], *mixed.shape[1:]
                    out = mixed.new_empty(b, o, len(tasks), h, w)
                out[part, :, k] = mixed
                if keep:
                    ctx.kept[part.start, k] = responses
        assert out is not None
        return out

    @staticmethod
    @backward_uncast
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        field, weight = ctx.saved_tensors
        want_field, want_weight, want_bias = ctx.needs_input_grad[:3]
        if needs_replay(grad):
            found = replayed_gradients(
                lambda field, weight: separable_plain(field, weight, None, ctx.tasks),
                (field, weight),
                (want_field, want_weight),
                grad,
            )
            return found[0], found[1], grad.sum((0, 2, 3, 4)) if want_bias else None, None, None
        grad_field = torch.zeros_like(field, memory_format=torch.contiguous_format) if want_field else None
        grad_weight = torch.zeros_like(weight, memory_format=torch.contiguous_format) if want_weight else None
        for part in _chunks(field, ctx.tasks):
            images = field[part]
            for k, task in enumerate(ctx.tasks):
                g, matrices = grad[part, :, k].flatten(2), task.matrices(weight, field)
                if grad_weight is not None:
                    responses = ctx.kept.get((part.start, k))
                    if responses is None:
                        responses = task.passes.responses(task.read(images))
                    used = grad_weight[:, :, : task.stop - task.start]
                    used += _by_weights(g, responses.flatten(3).flatten(1, 2), matrices).reshape(used.shape)
                if grad_field is not None:
                    seen = grad_field[part, :, task.start : task.stop]
                    back = left_in_groups(matrices.transpose(1, 2), g)
                    n = task.passes.functions
                    back = back.reshape(g.shape[0], back.shape[1] // n, n, *grad.shape[3:])
                    seen += task.passes.adjoint(back).reshape(seen.shape)
        return grad_field, grad_weight, grad.sum((0, 2, 3, 4)) if want_bias else None, None, None


def _by_weights(g: Tensor, responses: Tensor, matrices: Tensor) -> Tensor:
    """The gradient of matrices [g, o, k] from those of the outputs [b, g o, p] and the responses [b, g k, p]."""
    groups, o, k = matrices.shape
    b, _, p = g.shape
    outputs, inputs = g.reshape(b * groups, o, p), responses.reshape(b * groups, k, p)
    return torch.bmm(outputs, inputs.transpose(1, 2)).reshape(b, groups, o, k).sum(0)


def _chunks(field: Tensor, tasks: Sequence[ScaleTask]) -> Iterator[slice]:
    """Slices of the batch for which one scale's responses fill about a piece of the device's memory."""
    pixels = field.shape[3] * field.shape[4]
    per_image = max(1, field.shape[1] * _seen(tasks) * tasks[0].passes.functions * pixels * field.element_size())
    step = max(1, policy_of(field.device).piece(CHUNK_BYTES) // per_image)
    return (slice(start, min(start + step, field.shape[0])) for start in range(0, max(field.shape[0], 1), step))


def _seen(tasks: Sequence[ScaleTask]) -> int:
    """The most input scales that an output scale sees."""
    return max(task.stop - task.start for task in tasks)
