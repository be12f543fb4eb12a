"""The weights of an ordinary convolution in a steerable basis: least squares at one scale."""

from __future__ import annotations

import math
import warnings
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from sesn import _checks
from sesn.basis import ProfilePairs, SteerableBasis, orthogonal_profiles, window_boxes
from sesn.errors import UsageError, WrongTypeError
from sesn.layers.steerable import SteerableConv, known_basis, per_scale
from sesn.scales import ScaleGrid

#: From this relative residual on, a kernel that was fitted is no longer the kernel that was given.
LARGE_RESIDUAL = 0.05
#: Times the root of a kernel's side, the sigma at which the functions of `complete_basis` are most nearly orthogonal,
#: for sides from 3 to 13; there the equivariance error of fitted kernels is lowest as well.
SUITED_SIGMA = 0.4

Layer = TypeVar("Layer", bound=nn.Module)
Conv = TypeVar("Conv", nn.Conv2d, nn.ConvTranspose2d)


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


class FittedConv(SteerableConv):
    """A steerable convolution that can take the kernels of an ordinary one."""

    @classmethod
    def from_conv2d(cls, conv: nn.Conv2d, basis: SteerableBasis, *, reference: int = 0, **options: Any) -> Fitted[Self]:
        """Make a layer whose kernels at one scale are those of an ordinary convolution, as far as the basis spans them.

        The fit is by least squares. Stride, padding, groups, bias, device and dtype are taken over, so that at the
        reference scale the outputs are the convolution's, within the residual. A `complete_basis` leaves none.

        Args:
            conv: the convolution; its kernel is odd along rows and columns.
            basis: the steerable functions and their scales.
            reference: the index of the scale at which the kernels are fitted; 0 is the smallest.
            options: other arguments of the layer, such as `algorithm`, or `interscale` of a ScaleConv, whose further
                scales start with weights of zero.

        Returns:
            The layer and the relative residual, as a `Fitted`. A residual above 0.05 is warned about.

        Raises:
            UsageError: an argument breaks its rule.
        """
        conv, basis = known_conv(conv, nn.Conv2d), known_basis(basis)
        weight, residual = fitted_weights(conv, basis, reference)
        like: dict[str, Any] = {"device": conv.weight.device, "dtype": conv.weight.dtype}
        place: dict[str, Any] = {"stride": conv.stride, "padding": padding_in(conv, basis), "groups": conv.groups}
        place["padding_mode"], place["bias"] = conv.padding_mode, conv.bias is not None
        layer = cls(conv.in_channels, conv.out_channels, basis, **place, **like, **options)
        with torch.no_grad():
            per_scale(layer.weight.zero_())[:, :, 0].copy_(weight)
            if layer.bias is not None and conv.bias is not None:
                layer.bias.copy_(conv.bias)
        return fitted(layer, conv, residual, reference)


def complete_basis(grid: ScaleGrid, kernel_size: int, *, reference: int = 0) -> SteerableBasis:
    """Make a basis that spans every kernel of one side at one scale of the grid.

    It has as many functions as the kernel has pixels, on a box of its side at that scale, and on boxes in proportion at
    the others. They span what those of `basis_a` span, and are orthogonal at that scale, so that single precision holds
    the weights of a large kernel. Only the ratios of the grid count, and the sigmas are those that suit the side. With
    wider ones the functions are hard to tell apart on the box, and with narrower ones they vanish at its ends. Either
    way the kernels at the other scales would not be enlarged copies of those at this one.

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
        complete_basis(9 functions, sigmas [0.6928, 0.9769, 1.3856], boxes [3, 5, 7])
    """
    if not isinstance(grid, ScaleGrid):
        raise WrongTypeError(_checks.complaint("grid", grid, "a ScaleGrid", "for example ScaleGrid([1.0, 1.41, 2.0])"))
    side = _checks.odd("kernel_size", kernel_size)
    unit = grid.sigmas[scale_index(reference, grid)]
    suited = ScaleGrid(SUITED_SIGMA * math.sqrt(side) * sigma / unit for sigma in grid)
    # The rule of the paper for boxes, from the kernel's side up; a hair more, for ratios that are roots.
    largest = math.floor(side * grid.largest / unit + 1e-6)
    window = 2 * (largest // 2) + 1
    rule = f"a scale at which kernels of side {side} are more than one pixel at the smallest scale"
    boxes = window_boxes(suited, window)
    wide = side == 1 or min(boxes) > 1
    _checks.require(wide, "reference", reference, rule, "use a lower `reference` or a grid of closer scales")
    profiles = orthogonal_profiles(side, suited.sigmas[reference], boxes[reference] // 2)
    functions = [(row, column) for column in profiles for row in profiles]
    return SteerableBasis(suited, boxes, pairs=ProfilePairs.of(functions), name="complete_basis")


def fitted(layer: Layer, conv: nn.Conv2d | nn.ConvTranspose2d, residual: float, reference: int) -> Fitted[Layer]:
    """A layer with the kernels of a convolution, in its mode, trained where that is; a large residual is warned about.

    To be called by the function that the user calls, to whose caller the warning points.
    """
    if large(residual):
        side = 2 * max(radii(conv)) + 1
        warnings.warn(
            f"the basis leaves a relative residual of {residual:.2g} of the kernels of {conv!r} at its scale "
            f"{reference}; use complete_basis with kernel_size={side} and reference={reference}, or more functions",
            stacklevel=3,
        )
    cast(Tensor, layer.weight).requires_grad_(conv.weight.requires_grad)
    return Fitted(layer.train(conv.training), residual)


def scale_index(reference: Any, grid: ScaleGrid) -> int:
    """The index of a scale of the grid, or the complaint that it has none such."""
    index = _checks.whole("reference", reference, 0)
    _checks.require(index < len(grid), "reference", reference, f"less than the number of scales ({len(grid)})")
    return index


def refusal(conv: nn.Conv2d | nn.ConvTranspose2d) -> str | None:
    """Why no steerable convolution computes what this one does; None if one can."""
    kind = nn.Conv2d if isinstance(conv, nn.Conv2d) else nn.ConvTranspose2d
    odd = all(side % 2 == 1 for side in conv.kernel_size)
    rules: tuple[tuple[bool, str, object, str], ...] = (
        (type(conv).forward is kind.forward, "forward", type(conv).__name__, f"that of nn.{kind.__name__}"),
        (odd, "kernel_size", conv.kernel_size, "odd along rows and columns"),
    )
    if isinstance(conv, nn.ConvTranspose2d):
        finest = tuple(step - 1 for step in conv.stride)
        rules += (
            (conv.groups == 1, "groups", conv.groups, "1"),
            (conv.padding == radii(conv), "padding", conv.padding, f"{radii(conv)}, half the kernel's side"),
            (conv.output_padding == finest, "output_padding", conv.output_padding, f"{finest}, the stride less one"),
        )
    return next((_checks.complaint(name, value, rule) for good, name, value, rule in rules if not good), None)


def known_conv(conv: Any, kind: type[Conv]) -> Conv:
    """Return the convolution of that kind, or say why no steerable one computes the same."""
    if not isinstance(conv, kind):
        raise WrongTypeError(
            _checks.complaint("conv", conv, f"an nn.{kind.__name__}", "sesn.convert takes whole networks")
        )
    if is_lazy(conv.weight):
        raise UsageError(_checks.complaint("conv", conv, "initialised", "run it once on an image first"))
    if (reason := refusal(conv)) is not None:
        raise UsageError(f"`conv` (={conv!r}) cannot be converted: its {reason}; replace it by hand")
    return conv


def radii(conv: nn.Conv2d | nn.ConvTranspose2d) -> tuple[int, int]:
    """Pixels that the kernel sees to each side, along rows and columns."""
    down, across = (step * (side // 2) for step, side in zip(conv.dilation, conv.kernel_size, strict=True))
    return down, across


def tiles(conv: nn.Conv2d | nn.ConvTranspose2d) -> bool:
    """Whether the kernel meets or makes squares of pixels side by side, which neither overlap nor leave gaps."""
    plain = set(conv.dilation) == {1} and conv.padding in ("valid", (0, 0)) and not any(conv.output_padding)
    return plain and conv.kernel_size == conv.stride


def padding_in(conv: nn.Conv2d, basis: SteerableBasis) -> tuple[int, int]:
    """Pixels of padding with which a layer of this basis has its outputs where the convolution has them."""
    named = {"same": radii(conv), "valid": (0, 0)}
    own = named[conv.padding] if isinstance(conv.padding, str) else conv.padding
    extra = [basis.kernel_size // 2 - radius + pixels for radius, pixels in zip(radii(conv), own, strict=True)]
    least = basis.kernel_size - 2 * min(extra)
    _checks.require(min(extra) >= 0, "basis.kernel_size", basis.kernel_size, f"at least {least}", "use a wider window")
    return extra[0], extra[1]


def fitted_weights(conv: nn.Conv2d | nn.ConvTranspose2d, basis: SteerableBasis, reference: int) -> tuple[Tensor, float]:
    """The weights whose kernels at the reference scale are nearest to the convolution's, and the residual.

    They are [o, i, n], and [i, o, n] of a transposed convolution, whose kernels torch keeps in this order.
    The functions and the kernels are both laid into the larger of their boxes. In float64, as the basis is.
    """
    functions = basis.scale_functions(scale_index(reference, basis.grid))
    kernels = _dilated(conv.weight.detach().to(functions), conv)
    side = max(functions.shape[-1], *kernels.shape[-2:])
    columns, wanted = (_framed(each, side).flatten(-2) for each in (functions, kernels.flatten(0, 1)))
    # Functions of the same norm: how large each is has to do with the smallest scale, not with this one.
    norms = columns.norm(dim=1).clamp_min(torch.finfo(columns.dtype).tiny)
    matrix = (columns / norms[:, None]).t()
    found = torch.linalg.lstsq(matrix, wanted.t(), driver="gelsd").solution
    total = float(wanted.norm())
    residual = float((matrix @ found - wanted.t()).norm()) / total if total > 0 else 0.0
    return (found.t() / norms).unflatten(0, kernels.shape[:2]), residual


def _framed(planes: Tensor, side: int) -> Tensor:
    down, across = ((side - extent) // 2 for extent in planes.shape[-2:])
    return F.pad(planes, (across, across, down, down))


def _dilated(kernels: Tensor, conv: nn.Conv2d | nn.ConvTranspose2d) -> Tensor:
    """[o, i, y, x] with zeros between the taps."""
    down, across = conv.dilation
    sides = (2 * radius + 1 for radius in radii(conv))
    spread = kernels.new_zeros(*kernels.shape[:2], *sides)
    spread[..., ::down, ::across] = kernels
    return spread


def large(residual: float) -> bool:
    """Whether a residual is worth a warning."""
    return not math.isfinite(residual) or residual > LARGE_RESIDUAL
