"""The weights of an ordinary convolution in a steerable basis: least squares at one scale."""

from __future__ import annotations

import math
from typing import Any, Generic, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesn import _checks
from sesn.basis import SteerableBasis, basis_a
from sesn.errors import UsageError, WrongTypeError
from sesn.scales import ScaleGrid

#: From this relative residual on, a kernel that was fitted is no longer the kernel that was given.
LARGE_RESIDUAL = 0.05
#: Times the root of a kernel's side, the sigma at which the functions of `complete_basis` are most nearly orthogonal,
#: for sides from 3 to 13; there the equivariance error of fitted kernels is lowest as well.
SUITED_SIGMA = 0.4

Layer = TypeVar("Layer", bound=nn.Module)


class Fitted(NamedTuple, Generic[Layer]):
    """A steerable layer that took the weights of an ordinary convolution, and how much of them it could not take.

    Attributes:
        layer: the layer.
        residual: the norm of what the basis does not span over the norm of the kernels; 0 is an exact fit.

    Example:
        >>> basis = sesn.complete_basis(sesn.ScaleGrid([1.0, 1.41, 2.0]), 3)
        >>> layer, residual = sesn.ScaleLift.from_conv2d(nn.Conv2d(3, 8, 3), basis)
        >>> residual < 1e-6
        True
    """

    layer: Layer
    residual: float


def complete_basis(grid: ScaleGrid, kernel_size: int, *, reference: int = 0) -> SteerableBasis:
    """Make a basis that spans every kernel of one side at one scale of the grid.

    It is of type A, with as many functions as the kernel has pixels, on a box of its side at that scale, and on
    boxes in proportion at the others. Of the grid only the ratios count: the sigmas are those that suit the side. With
    wider ones the functions are hard to tell apart on the box, with narrower ones they vanish at its ends, and either
    way the kernels of the other scales are not those of this one enlarged.

    Args:
        grid: the scales, relative to each other.
        kernel_size: the odd side of the kernels.
        reference: the index of the scale at which they are spanned; 0 is the smallest.

    Returns:
        The basis.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> sesn.complete_basis(sesn.ScaleGrid([1.0, 1.41, 2.0]), 3)
        basis_a(9 functions, sigmas [0.6928, 0.9769, 1.3856], boxes [3, 5, 7])
    """
    if not isinstance(grid, ScaleGrid):
        raise WrongTypeError(_checks.complaint("grid", grid, "a ScaleGrid", "for example ScaleGrid([1.0, 1.41, 2.0])"))
    side = _checks.odd("kernel_size", kernel_size)
    unit = grid.sigmas[scale_index(reference, grid)]
    suited = ScaleGrid(SUITED_SIGMA * math.sqrt(side) * sigma / unit for sigma in grid)
    # The rule of the paper for boxes, from the kernel's side up; a hair more, for ratios that are roots.
    largest = math.floor(side * grid.largest / unit + 1e-6)
    return basis_a(suited, 2 * (largest // 2) + 1, side)


def scale_index(reference: Any, grid: ScaleGrid) -> int:
    """The index of a scale of the grid, or the complaint that it has none such."""
    index = _checks.whole("reference", reference, 0)
    _checks.require(index < len(grid), "reference", reference, f"less than the number of scales ({len(grid)})")
    return index


def refusal(conv: nn.Conv2d) -> str | None:
    """Why no steerable convolution computes what this one does; None if one can."""
    height, width = conv.kernel_size
    rules: tuple[tuple[bool, str, object, str], ...] = (
        (type(conv).forward is nn.Conv2d.forward, "forward", type(conv).__name__, "that of nn.Conv2d"),
        (conv.groups == 1, "groups", conv.groups, "1"),
        (height == width and height % 2 == 1, "kernel_size", conv.kernel_size, "square and odd"),
        (len(set(conv.stride)) == 1, "stride", conv.stride, "the same along rows and columns"),
        (len(set(conv.dilation)) == 1, "dilation", conv.dilation, "the same along rows and columns"),
        (
            isinstance(conv.padding, str) or len(set(conv.padding)) == 1,
            "padding",
            conv.padding,
            "the same along rows and columns",
        ),
        (
            radius(conv) > 0 or conv.padding in ("same", "valid", (0, 0)),
            "padding",
            conv.padding,
            "0 for a kernel of one pixel",
        ),
        (conv.padding_mode in ("zeros", "circular"), "padding_mode", conv.padding_mode, "'zeros' or 'circular'"),
    )
    return next((_checks.complaint(name, value, rule) for good, name, value, rule in rules if not good), None)


def known_conv(conv: Any) -> nn.Conv2d:
    """Return the convolution, or say why no steerable one computes the same."""
    if not isinstance(conv, nn.Conv2d):
        raise WrongTypeError(_checks.complaint("conv", conv, "an nn.Conv2d", "layers of other kinds have no kernels"))
    if (reason := refusal(conv)) is not None:
        raise UsageError(f"`conv` (={conv!r}) cannot be converted: its {reason}; replace it by hand")
    return conv


def radius(conv: nn.Conv2d) -> int:
    """Pixels that the kernel sees to each side."""
    return conv.dilation[0] * (conv.kernel_size[0] - 1) // 2


def padding_in(conv: nn.Conv2d, basis: SteerableBasis) -> int:
    """Pixels of padding with which a layer of this basis has its outputs where the convolution has them."""
    own = {"same": radius(conv), "valid": 0}[conv.padding] if isinstance(conv.padding, str) else int(conv.padding[0])
    padding = basis.kernel_size // 2 - radius(conv) + own
    least = basis.kernel_size - 2 * padding
    _checks.require(padding >= 0, "basis.kernel_size", basis.kernel_size, f"at least {least}", "use a wider window")
    return padding


def fitted_weights(conv: nn.Conv2d, basis: SteerableBasis, reference: int) -> tuple[Tensor, float]:
    """The weights [o, i, n] whose kernels at the reference scale are nearest to the convolution's, and the residual.

    The functions and the kernels are both laid into the larger of their boxes. In float64, as the basis is.
    """
    functions = basis.scale_functions(scale_index(reference, basis.grid))
    kernels = _dilated(conv.weight.detach().to(functions), conv.dilation[0])
    side = max(functions.shape[-1], kernels.shape[-1])
    columns, wanted = (_framed(each, side).flatten(-2) for each in (functions, kernels.flatten(0, 1)))
    # Functions of the same norm: how large each is has to do with the smallest scale, not with this one.
    norms = columns.norm(dim=1).clamp_min(torch.finfo(columns.dtype).tiny)
    matrix = (columns / norms[:, None]).t()
    found = torch.linalg.lstsq(matrix, wanted.t(), driver="gelsd").solution
    total = float(wanted.norm())
    residual = float((matrix @ found - wanted.t()).norm()) / total if total > 0 else 0.0
    return (found.t() / norms).unflatten(0, kernels.shape[:2]), residual


def _framed(planes: Tensor, side: int) -> Tensor:
    margin = (side - planes.shape[-1]) // 2
    return F.pad(planes, (margin,) * 4)


def _dilated(kernels: Tensor, dilation: int) -> Tensor:
    """[o, i, k, k] with zeros between the taps."""
    side = dilation * (kernels.shape[-1] - 1) + 1
    spread = kernels.new_zeros(*kernels.shape[:2], side, side)
    spread[..., ::dilation, ::dilation] = kernels
    return spread


def large(residual: float) -> bool:
    """Whether a residual is worth a warning."""
    return not math.isfinite(residual) or residual > LARGE_RESIDUAL
