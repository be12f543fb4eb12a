"""The kernels, in Triton: the only module that imports it.

Both compute the same operand tile and never write it to memory. A tile holds the responses of one input channel to a
block of p x q functions, products of p row profiles and q column profiles, at height x width positions:

    lines = X C       the pixels [rows, columns] that the windows reach, times all column profiles [columns, q width]
    maps  = R lines   all row profiles [p height, rows] times the lines, [p height, q width] seen as [p q, height width]

where R and C are banded matrices whose entries are looked up in the tables of profiles. Wide windows are added up from
pieces of a fixed size, so that what a program holds does not depend on the window. `mix` multiplies weights by maps,
`weigh` multiplies gradients by maps. A periodic axis is seen several times, once for each of its wraps.

The adjoint of a convolution is the same kernel with the roles of pixels and positions exchanged: where a position of
the output sees the pixels within the radius of its centre, a pixel sees the centres within the radius of itself.

Tuples stand for what belongs together: `rows` and `columns` are the numbers of a `Line` of `launch.py`, and `steps` are
the strides of a tensor.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _sources(start, stop, wrap, line, radius, ADJOINT: tl.constexpr):
    """From where to where the sources lie that targets start..stop see in one wrap of the axis."""
    _, count, first, stride, size, _, _ = line
    if ADJOINT:
        low = start + wrap * size - radius - first
        high = stop - 1 + wrap * size + radius - first
        begin = (tl.maximum(low, 0) + stride - 1) // stride
        end = tl.maximum(high + stride, 0) // stride
    else:
        begin = first + stride * start - radius - wrap * size
        end = first + stride * (stop - 1) + radius - wrap * size + 1
    return tl.maximum(begin, 0), tl.minimum(end, count)


@triton.jit
def _band(table, taps, profile, target, source, wrap, line, ADJOINT: tl.constexpr):
    """Entries of a banded matrix: for profile, target and source, which broadcast, the tap that joins the two."""
    _, _, first, stride, size, _, _ = line
    if ADJOINT:
        tap = target + wrap * size - first - stride * source + taps // 2
    else:
        tap = source + wrap * size - first - stride * target + taps // 2
    return tl.load(table + (profile * taps + tap), mask=(tap >= 0) & (tap < taps), other=0.0)


@triton.jit
def _responses(
    field, step_y, step_x, down, across, taps, y, x, radius, rows, columns,
    ADJOINT: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    PIECE: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The maps [p q, height width] of one channel, whose first pixel is at `field`, in the tile at y, x."""
    j = tl.arange(0, P * HEIGHT)
    k = tl.arange(0, Q * WIDTH)
    kind = field.dtype.element_ty
    maps = tl.full([P * HEIGHT, Q * WIDTH], 0, SUM)
    last_y = tl.minimum(y + HEIGHT, rows[0])
    last_x = tl.minimum(x + WIDTH, columns[0])
    for v in range(rows[5], rows[6]):
        top, bottom = _sources(y, last_y, v, rows, radius, ADJOINT)
        for row in range(top, bottom, PIECE):
            ys = row + tl.arange(0, PIECE)
            lines = tl.full([PIECE, Q * WIDTH], 0, SUM)
            for u in range(columns[5], columns[6]):
                left, right = _sources(x, last_x, u, columns, radius, ADJOINT)
                for column in range(left, right, PIECE):
                    xs = column + tl.arange(0, PIECE)
                    inside = (ys < bottom)[:, None] & (xs < right)[None, :]
                    pixels = tl.load(field + (ys[:, None] * step_y + xs[None, :] * step_x), mask=inside, other=0.0)
                    band = _band(
                        across, taps, (k // WIDTH)[None, :], (x + k % WIDTH)[None, :], xs[:, None], u, columns, ADJOINT
                    )
                    lines = tl.dot(pixels, band.to(kind), lines, input_precision=PRECISION, out_dtype=SUM)
            band = _band(down, taps, (j // HEIGHT)[:, None], (y + j % HEIGHT)[:, None], ys[None, :], v, rows, ADJOINT)
            maps = tl.dot(band.to(kind), lines.to(kind), maps, input_precision=PRECISION, out_dtype=SUM)
    apart = tl.permute(tl.reshape(maps, [P, HEIGHT, Q, WIDTH]), (0, 2, 1, 3))
    return tl.reshape(apart, [P * Q, HEIGHT * WIDTH]).to(kind)


@triton.jit
def _positions(y, x, rows, columns, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """The rows and columns of the positions of a tile [height width], and which of them exist."""
    pixel = tl.arange(0, HEIGHT * WIDTH)
    ys = y + pixel // WIDTH
    xs = x + pixel % WIDTH
    return ys, xs, (ys < rows[0]) & (xs < columns[0])


@triton.jit
def _mixed(
    field, weight, down, across, terms, begins, scale, channels, known, y, x,
    field_steps, weight_steps, rows, columns, inputs, blocks, taps,
    ADJOINT: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    PIECE: tl.constexpr, OUTPUTS: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The sums [outputs, height width] of one scale over source scales, input channels and blocks of functions."""
    _, field_c, field_s, field_y, field_x = field_steps
    _, weight_o, weight_i, weight_k = weight_steps
    mixed = tl.full([OUTPUTS, HEIGHT * WIDTH], 0, SUM)
    for term in range(tl.load(begins + scale), tl.load(begins + scale + 1)):
        source = tl.load(terms + 5 * term + 1)
        neighbour = tl.load(terms + 5 * term + 2)
        profiles = tl.load(terms + 5 * term + 3) * blocks
        radius = tl.load(terms + 5 * term + 4)
        for channel in range(inputs):
            for block in range(blocks):
                maps = _responses(
                    field + (channel * field_c + source * field_s), field_y, field_x,
                    down + (profiles + block) * P * taps, across + (profiles + block) * Q * taps, taps,
                    y, x, radius, rows, columns,
                    ADJOINT, P, Q, HEIGHT, WIDTH, PIECE, SUM, PRECISION,
                )  # fmt: skip
                entry = channels[:, None] * weight_o + (block * P * Q + tl.arange(0, P * Q))[None, :]
                lot = weight + (channel * weight_i + neighbour * weight_k)
                weights = tl.load(lot + entry, mask=known[:, None], other=0.0)
                mixed = tl.dot(weights, maps, mixed, input_precision=PRECISION, out_dtype=SUM)
    return mixed


@triton.jit
def mix(
    field, weight, bias, down, across, terms, begins, out, largest,
    field_steps, weight_steps, out_steps, rows, columns, inputs, outputs, scales, blocks, taps, tiles_y, tiles_x,
    BIAS: tl.constexpr, RELU: tl.constexpr, PROJECT: tl.constexpr,
    ADJOINT: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    PIECE: tl.constexpr, OUTPUTS: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The convolution or its adjoint, then the epilogue: bias, ReLU, and the maximum over the scales.

    A program makes a tile of a block of output channels: at one scale, or, if PROJECT, at all scales, of which it keeps
    the largest values and where they were.
    """
    tile = tl.program_id(0)
    image = (tile // (tiles_y * tiles_x)).to(tl.int64)
    y = tile // tiles_x % tiles_y * HEIGHT
    x = tile % tiles_x * WIDTH
    parts = (outputs + OUTPUTS - 1) // OUTPUTS
    group = tl.program_id(1) // parts
    channels = tl.program_id(1) % parts * OUTPUTS + tl.arange(0, OUTPUTS)
    known = channels < outputs
    start = 0 if PROJECT else tl.program_id(2)
    stop = scales if PROJECT else start + 1
    best = tl.full([OUTPUTS, HEIGHT * WIDTH], float("-inf"), SUM)
    where = tl.full([OUTPUTS, HEIGHT * WIDTH], 0, tl.int32)
    for scale in range(start, stop):
        mixed = _mixed(
            field + image * field_steps[0] + group * inputs * field_steps[1], weight + group * weight_steps[0],
            down, across, terms, begins, scale, channels, known, y, x,
            field_steps, weight_steps, rows, columns, inputs, blocks, taps,
            ADJOINT, P, Q, HEIGHT, WIDTH, PIECE, OUTPUTS, SUM, PRECISION,
        )  # fmt: skip
        if BIAS:
            mixed += tl.load(bias + group * outputs + channels, mask=known, other=0.0)[:, None]
        if RELU:
            mixed = tl.maximum(mixed, 0.0)
        if PROJECT:
            where = tl.where(mixed > best, scale, where)
            best = tl.maximum(mixed, best)
        else:
            best = mixed
    ys, xs, exists = _positions(y, x, rows, columns, HEIGHT, WIDTH)
    base = image * out_steps[0] + group * outputs * out_steps[1] + start * out_steps[2]
    place = channels[:, None] * out_steps[1] + (ys * out_steps[3] + xs * out_steps[4])[None, :]
    inside = known[:, None] & exists[None, :]
    tl.store(out + base + place, best, mask=inside)
    if PROJECT:
        tl.store(largest + base + place, where, mask=inside)


@triton.jit
def weigh(
    field, grad, down, across, terms, begins, found,
    field_steps, grad_steps, found_steps, rows, columns, inputs, outputs, extent, blocks, taps, tiles, tiles_y, tiles_x,
    P: tl.constexpr, Q: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    PIECE: tl.constexpr, OUTPUTS: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add up gradients times responses over images and positions: each program along axis 2 takes its share of them."""
    field_b, field_c, field_s, field_y, field_x = field_steps
    grad_b, grad_c, grad_s, grad_y, grad_x = grad_steps
    found_share, found_o, found_i, found_k = found_steps
    block = tl.program_id(0) % blocks
    neighbour = tl.program_id(0) // blocks % extent
    channel = tl.program_id(0) // (blocks * extent)
    parts = (outputs + OUTPUTS - 1) // OUTPUTS
    group = tl.program_id(1) // parts
    channels = tl.program_id(1) % parts * OUTPUTS + tl.arange(0, OUTPUTS)
    known = channels < outputs
    plane = field + (group * inputs + channel) * field_c
    weights = tl.full([OUTPUTS, P * Q], 0, SUM)
    for term in range(tl.load(begins + neighbour), tl.load(begins + neighbour + 1)):
        target = tl.load(terms + 5 * term)
        source = tl.load(terms + 5 * term + 1)
        profiles = tl.load(terms + 5 * term + 3) * blocks
        radius = tl.load(terms + 5 * term + 4)
        for tile in range(tl.program_id(2), tiles, tl.num_programs(2)):
            image = (tile // (tiles_y * tiles_x)).to(tl.int64)
            y = tile // tiles_x % tiles_y * HEIGHT
            x = tile % tiles_x * WIDTH
            maps = _responses(
                plane + image * field_b + source * field_s, field_y, field_x,
                down + (profiles + block) * P * taps, across + (profiles + block) * Q * taps, taps,
                y, x, radius, rows, columns,
                False, P, Q, HEIGHT, WIDTH, PIECE, SUM, PRECISION,
            )  # fmt: skip
            ys, xs, inside = _positions(y, x, rows, columns, HEIGHT, WIDTH)
            base = grad + image * grad_b + group * outputs * grad_c + target * grad_s
            place = channels[:, None] * grad_c + (ys * grad_y + xs * grad_x)[None, :]
            slopes = tl.load(base + place, mask=known[:, None] & inside[None, :], other=0.0)
            weights = tl.dot(slopes, tl.trans(maps), weights, input_precision=PRECISION, out_dtype=SUM)
    entry = (group * outputs + channels)[:, None] * found_o + channel * found_i + neighbour * found_k
    entry += (block * P * Q + tl.arange(0, P * Q))[None, :]
    tl.store(found + tl.program_id(2).to(tl.int64) * found_share + entry, weights, mask=known[:, None])
