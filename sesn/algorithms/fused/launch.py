"""Launching the kernels: the sizes of tiles, the grids of programs, and the numbers that kernels are told."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sesn._checks import require
from sesn._torch import refuse_capture
from sesn.algorithms.axis import Axis
from sesn.algorithms.fused.available import kernels
from sesn.algorithms.fused.geometry import Geometry, Term

#: A tile has so many rows and columns of responses, positions times profiles: when mixing, and when weighing.
MIX_TILE, WEIGH_TILE = (64, 64), (32, 64)
#: Windows are added up from so many rows and columns at a time.
PIECE = 16
#: The most output channels of a program; of one that keeps maxima; of one in float64.
OUTPUTS, PROJECTED_OUTPUTS, DOUBLE_OUTPUTS = 64, 32, 16
#: The gradient of the weights is shared among about so many programs: a few for each of a large GPU's processors.
PROGRAMS = 512
#: Places within an image are counted in 32 bits.
MOST_NUMBERS = 1 << 31
#: A program is 256 threads of at most 255 registers. Without the limit the compiler settles for 128, and spills.
WARPS, REGISTERS = 8, 255


class Tile(NamedTuple):
    """What is fixed when a kernel is compiled: a program's positions and output channels, and the pieces of windows."""

    HEIGHT: int
    WIDTH: int
    PIECE: int
    OUTPUTS: int


class Line(NamedTuple):
    """One axis as a kernel is told: see `_sources` and `_band` there."""

    targets: int
    sources: int
    first: int
    stride: int
    size: int
    wrap: int
    wraps: int


def mix_tile(p: int, q: int, channels: int, dtype: torch.dtype, project: bool = False) -> Tile:
    """The tile of `mix` for blocks of p x q functions and so many output channels."""
    most = DOUBLE_OUTPUTS if dtype == torch.float64 else PROJECTED_OUTPUTS if project else OUTPUTS
    return Tile(MIX_TILE[0] // p, MIX_TILE[1] // q, PIECE, min(most, max(16, 1 << (channels - 1).bit_length())))


def weigh_tile(p: int, q: int, channels: int, dtype: torch.dtype) -> Tile:
    """The tile of `weigh`."""
    return mix_tile(p, q, channels, dtype)._replace(HEIGHT=WEIGH_TILE[0] // p, WIDTH=WEIGH_TILE[1] // q)


def line_of(axis: Axis, radius: int, adjoint: bool) -> Line:
    """An axis whose widest window has this radius, from pixels to positions or back."""
    wraps = (axis.first - radius) // axis.size, (axis.last + radius) // axis.size + 1
    ends = (axis.size, axis.outputs) if adjoint else (axis.outputs, axis.size)
    return Line(*ends, axis.first, axis.stride, axis.size, *(wraps if axis.circular else (0, 1)))


def mix(
    field: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    down: Tensor,
    across: Tensor,
    geometry: Geometry,
    *,
    adjoint: bool = False,
    relu: bool = False,
    project: bool = False,
) -> tuple[Tensor, Tensor]:
    """The convolution, or its adjoint, and the epilogue; with `project` the scales of the maxima, too."""
    lines, (height, width) = _lines(geometry, down, adjoint)
    scales = geometry.sources if adjoint else geometry.targets
    outputs, inputs = weight.shape[0] // geometry.groups, weight.shape[1]
    weight = weight.contiguous()
    o, i, k, _ = weight.stride()
    steps = (outputs * o, i, o, k) if adjoint else (outputs * o, o, i, k)
    if adjoint:
        outputs, inputs = inputs, outputs
    out = field.new_empty(field.shape[0], geometry.groups * outputs, 1 if project else scales, height, width)
    largest = torch.empty(out.shape if project else (0,), dtype=torch.int32, device=field.device)
    if not out.numel():
        return out, largest
    for name, tensor in (("field", field), ("output", out)):
        numbers = tensor[0].numel()
        require(numbers < MOST_NUMBERS, f"{name}[0].numel()", numbers, f"below {MOST_NUMBERS}", "use 'separable'")
    p, q = down.shape[2], across.shape[2]
    tile = mix_tile(p, q, outputs, field.dtype, project)
    tiles = -(-height // tile.HEIGHT), -(-width // tile.WIDTH)
    grid = field.shape[0] * tiles[0] * tiles[1], geometry.groups * -(-outputs // tile.OUTPUTS), out.shape[2]
    terms = geometry.terms
    if adjoint:
        terms = tuple(term._replace(target=term.source, source=term.target) for term in terms)
    with _on(field):
        kernels().mix[grid](
            field, weight, weight if bias is None else bias, down, across, *_table(terms, 0, scales, field.device),
            out, largest, field.stride(), steps, out.stride(), *lines,
            inputs, outputs, scales, down.shape[1], down.shape[3], *tiles,
            BIAS=bias is not None, RELU=relu, PROJECT=project, ADJOINT=adjoint, P=p, Q=q, **tile._asdict(),
            **_options(field),
        )  # fmt: skip
    return out, largest


def weigh(field: Tensor, grad: Tensor, down: Tensor, across: Tensor, geometry: Geometry) -> Tensor:
    """The gradient of the weights by slot: every program adds up a share, and the shares are added up in one order."""
    lines, _ = _lines(geometry, down, False)
    inputs, outputs = field.shape[1] // geometry.groups, grad.shape[1] // geometry.groups
    blocks, p, q = down.shape[1], down.shape[2], across.shape[2]
    tile = weigh_tile(p, q, outputs, field.dtype)
    shape = grad.shape[1], inputs, geometry.neighbours, blocks * p * q
    down_tiles, across_tiles = -(-grad.shape[3] // tile.HEIGHT), -(-grad.shape[4] // tile.WIDTH)
    tiles = field.shape[0] * down_tiles * across_tiles
    if not tiles:
        return field.new_zeros(shape)
    grid = inputs * geometry.neighbours * blocks, geometry.groups * -(-outputs // tile.OUTPUTS)
    shares = min(tiles, max(1, PROGRAMS // (grid[0] * grid[1])))
    found = field.new_empty((shares, *shape), dtype=_sum_type(field))
    with _on(field):
        kernels().weigh[*grid, shares](
            field, grad, down, across, *_table(geometry.terms, 2, geometry.neighbours, field.device),
            found, field.stride(), grad.stride(), found.stride()[:4], *lines,
            inputs, outputs, geometry.neighbours, blocks, down.shape[3], tiles, down_tiles, across_tiles,
            P=p, Q=q, **tile._asdict(), **_options(field),
        )  # fmt: skip
    return found.sum(0).to(field.dtype)


def _lines(geometry: Geometry, down: Tensor, adjoint: bool) -> tuple[tuple[Line, Line], tuple[int, int]]:
    """Both axes as kernels are told, and their targets."""
    rows, columns = (line_of(axis, down.shape[3] // 2, adjoint) for axis in (geometry.rows, geometry.columns))
    return (rows, columns), (rows.targets, columns.targets)


@cache
def _table(terms: tuple[Term, ...], key: int, keys: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The terms by one of their numbers, and where those of each begin: made once, for a copy would wait for a GPU."""
    refuse_capture(device)
    ordered = sorted(terms, key=lambda term: term[key])
    begins = [sum(term[key] < each for term in terms) for each in range(keys + 1)]
    return _numbers(ordered, device), _numbers(begins, device)


def _numbers(values: Iterable[Any], device: torch.device) -> Tensor:
    return torch.tensor(list(values), dtype=torch.int32, device=device)


def _sum_type(field: Tensor) -> torch.dtype:
    return torch.float64 if field.dtype == torch.float64 else torch.float32


def numerics(dtype: torch.dtype) -> dict[str, Any]:
    """How products are computed: as torch's convolutions may be, by ten bits of the factors; else by three such."""
    language = kernels().tl
    if dtype == torch.float64:
        return {"SUM": language.float64, "PRECISION": "ieee"}
    return {"SUM": language.float32, "PRECISION": "tf32" if torch.backends.cudnn.allow_tf32 else "tf32x3"}


def _options(field: Tensor) -> dict[str, Any]:
    """How a kernel is compiled for this tensor; the limit of registers is known to NVIDIA's compiler alone."""
    limit = {"maxnreg": REGISTERS} if torch.version.cuda is not None else {}
    return {**numerics(field.dtype), "num_warps": WARPS, "num_stages": 1, **limit}


def _on(field: Tensor) -> AbstractContextManager[Any]:
    """Where kernels are launched on the device of this tensor."""
    return torch.cuda.device(field.device) if field.is_cuda else nullcontext()
