"""Copies of a network with one cause of error taken out: wider windows, a finer grid, no stride, no nonlinearity.

Every operation works on a deep copy and leaves the rest of the network as it is. A steerable layer keeps the functions
it has: when its window or its grid of pixels changes, the weights are scaled so that only that changes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sesn import (
    BandlimitedReLU,
    NestedReLU,
    PartneredProjection,
    ScaleConv,
    ScaleConv1x1,
    ScaleGrid,
    ScaleLift,
    ScaleProjection,
    SteerableBasis,
)
from sesn._source import worded
from sesn._torch import with_replaced
from sesn.algorithms.axis import PaddingMode
from sesn.layers.pool import SpatialAvgPool, SpatialMaxPool
from sesn.layers.steerable import Sides, pair_of
from sesn.meter.diagnosis import POINTWISE
from sesn.meter.reading import like_module

FUNCTIONAL = frozenset({"relu", "leaky_relu", "prelu", "gelu", "elu", "silu", "sigmoid", "tanh"})
POOLS = (SpatialMaxPool, SpatialAvgPool, nn.MaxPool2d, nn.AvgPool2d, nn.MaxPool3d, nn.AvgPool3d)
STRIDED = (ScaleLift, ScaleConv, ScaleConv1x1, nn.Conv2d)

Steerable = ScaleLift | ScaleConv
#: The new module, or None to leave the old one.
Change = Callable[[nn.Module], nn.Module | None]


def changed(module: nn.Module, change: Change) -> nn.Module | None:
    """A deep copy with every submodule that `change` answers to replaced; None if it answers to none."""
    with worded("copying the module, which switching off a cause needs,"):
        clone = copy.deepcopy(module)
    new = {id(old): fresh for old in clone.modules() if (fresh := change(old)) is not None}
    if not new:
        return None
    return with_replaced(clone, new)


def is_circular(module: nn.Module) -> bool:
    """Whether the network is periodic: it has layers that pad, and all of them wrap around."""
    plain = {m.padding_mode for m in module.modules() if isinstance(m, nn.Conv2d) and max(m.kernel_size) > 1}
    return plain | {layer.padding_mode for layer in steerable(module)} == {"circular"}


def steerable(module: nn.Module) -> list[Steerable]:
    """The steerable layers."""
    return [layer for layer in module.modules() if isinstance(layer, Steerable)]


def widened(module: nn.Module) -> nn.Module | None:
    """Every steerable layer on boxes as far as its functions reach: the same functions, cut off nowhere."""

    def change(layer: nn.Module) -> nn.Module | None:
        if not isinstance(layer, Steerable) or not (reach := layer.basis.reach):
            return None
        scales = [(box // 2, sigma) for box, sigma in zip(layer.basis.boxes, layer.basis.grid, strict=True)]
        # Within half a sigma, or a pixel, nothing is cut off that the wider box would bring back.
        if all(radius >= min((reach - 0.5) * sigma, math.ceil(reach * sigma) - 1) for radius, sigma in scales):
            return None
        return _rebuilt(layer, 1, [max(r, math.ceil(reach * s)) for r, s in scales], layer.stride)

    return changed(module, change)


def refined(module: nn.Module, step: int = 2) -> nn.Module | None:
    """The same network for images on a grid `step` times as fine: sigmas and windows grow by `step`."""
    return changed(module, lambda layer: _dilated(layer, step, getattr(layer, "stride", 1)))


def unstrided(module: nn.Module, images: Tensor) -> nn.Module | None:
    """Every stride 1 and no spatial pooling; what comes after a stride is enlarged, so that it sees what it saw."""
    spacing = _spacings(module, images)
    if not any(isinstance(m, POOLS) or _stride(m) > 1 for m in module.modules()):
        return None
    # Layers are told by their place in the order of `modules()`, which a copy keeps.
    order = iter([spacing.get(id(layer), 1) for layer in module.modules()])

    def change(layer: nn.Module) -> nn.Module | None:
        step = next(order)
        if isinstance(layer, POOLS):
            return nn.Identity()
        return _dilated(layer, step, 1) if step > 1 or _stride(layer) > 1 else None

    return changed(module, change)


def bandlimited(module: nn.Module, padding_mode: PaddingMode) -> nn.Module | None:
    """Every nn.ReLU at twice the resolution."""
    return changed(module, lambda layer: BandlimitedReLU(padding_mode) if isinstance(layer, nn.ReLU) else None)


def linearised(module: nn.Module) -> nn.Module | None:
    """Every pointwise nonlinearity the identity."""
    kinds = (*POINTWISE, nn.PReLU, BandlimitedReLU, NestedReLU)
    return changed(module, lambda layer: nn.Identity() if isinstance(layer, kinds) else None)


class _Nonlinearities(TorchFunctionMode):
    """Notices whether a pointwise nonlinearity is called."""

    seen: bool = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.seen = self.seen or getattr(func, "__name__", "").rstrip("_") in FUNCTIONAL
        return func(*args, **(kwargs or {}))


def calls_nonlinearity(module: nn.Module, images: Tensor) -> bool:
    """Whether a forward pass calls a pointwise nonlinearity, as a module or as a function."""
    mode = _Nonlinearities()
    with mode:
        _run(module, images)
    return mode.seen


def _run(module: nn.Module, images: Tensor) -> None:
    with torch.no_grad():
        module(images[:1].to(like_module(module, images)))


def _stride(layer: nn.Module) -> int:
    stride: Any = getattr(layer, "stride", 1) if isinstance(layer, STRIDED) else 1
    return max(stride) if isinstance(stride, tuple) else int(stride)


def _spacings(module: nn.Module, images: Tensor) -> dict[int, int]:
    """Image pixels between neighbouring pixels of every layer's input, from the sizes that one image takes."""
    found: dict[int, int] = {}

    def hook(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor) and inputs[0].dim() >= 4:
            found.setdefault(id(layer), max(1, round(images.shape[-1] / inputs[0].shape[-1])))

    handles = [layer.register_forward_pre_hook(hook) for layer in module.modules()]
    try:
        _run(module, images)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _dilated(layer: nn.Module, step: int, stride: Any) -> nn.Module | None:
    """The layer on a grid `step` times as fine, keeping one of `stride` outputs there."""
    if isinstance(layer, Steerable) and layer.basis.reach is not None:
        return _rebuilt(layer, step, [step * (box // 2) for box in layer.basis.boxes], stride)
    if isinstance(layer, ScaleConv1x1):
        fresh: Any = copy.copy(layer)
        fresh.stride = stride
        return fresh if layer.stride != stride else None
    if not isinstance(layer, nn.Conv2d) or (step == 1 and _stride(layer) == 1):
        return None
    names = ("in_channels", "out_channels", "kernel_size", "groups", "padding_mode")
    options: Any = {name: getattr(layer, name) for name in names}
    options["padding"] = layer.padding if isinstance(layer.padding, str) else tuple(step * p for p in layer.padding)
    options["dilation"] = tuple(step * d for d in layer.dilation)
    plain = nn.Conv2d(**options, stride=stride)
    plain.weight, plain.bias = layer.weight, layer.bias
    return plain.eval()


def _rebuilt(layer: Steerable, step: int, radii: list[int], stride: Sides) -> nn.Module:
    """The same functions with sigmas `step` times as large, on boxes of these radii."""
    old = layer.basis
    basis = old.resampled(ScaleGrid(step * sigma for sigma in old.grid), [2 * r + 1 for r in radii])
    # Where the output starts and ends stays, in units of the old pixels.
    outside = [old.kernel_size // 2 - pixels for pixels in pair_of(layer.padding)]
    down, across = (basis.kernel_size // 2 - step * pixels for pixels in outside)
    own = ("interscale", "scale_padding") if isinstance(layer, ScaleConv) else ()
    kept = ("padding_mode", "groups", "algorithm", *own)
    options: Any = {name: getattr(layer, name) for name in kept}
    options |= {"bias": layer.bias is not None, "device": layer.weight.device, "dtype": layer.weight.dtype}
    kind = ScaleConv if isinstance(layer, ScaleConv) else ScaleLift
    fresh = kind(layer.in_channels, layer.out_channels, basis, stride=stride, padding=(down, across), **options).eval()
    with torch.no_grad():
        fresh.weight.copy_(layer.weight * _norm_ratio(old, basis, step).to(layer.weight))
        if fresh.bias is not None and layer.bias is not None:
            fresh.bias.copy_(layer.bias)
    return fresh


def _norm_ratio(old: SteerableBasis, new: SteerableBasis, step: int) -> Tensor:
    """What undoes the new normalisation: the old samples of each function over the new ones at the same places.

    On a finer grid a sum has step^2 times as many terms; psi_sigma carries sigma^-2, which makes up for it.
    """
    before, after = old.scale_functions(0), new.scale_functions(0)
    centre, radius = after.shape[-1] // 2, step * (before.shape[-1] // 2)
    places = slice(centre - radius, centre + radius + 1, step)
    same = after[:, places, places]
    return (before * same).sum((1, 2)) / same.square().sum((1, 2)) / step**2


# --- projections over the scales that have a partner
#
# A maximum over scale sees all channels, also those whose partner lies beyond the grid: the largest in Phi(f), the
# smallest in Phi(L_s f). Delta of the projection is then mostly theirs. Restricted to the partnered channels, which
# differ between the two branches, the projection commutes with the action.


class BranchProjection(nn.Module):
    """A projection over the channels j in the original branch, over their partners k in the rescaled one."""

    def __init__(self, projection: ScaleProjection, pairs: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        self.projection, self.pairs, self.rescaled = projection, pairs, False

    def forward(self, field: Tensor) -> Tensor:
        """Project a field [b, c, s, ...]."""
        projected: Tensor = self.projection(field[:, :, [k if self.rescaled else j for k, j in self.pairs]])
        return projected


class TwoBranches(nn.Module):
    """A network whose partnered projections know which branch they are in: these images are the original's."""

    def __init__(self, network: nn.Module, images: Tensor) -> None:
        super().__init__()
        self.network, self.images = network, images

    def forward(self, images: Tensor) -> Any:
        """Tell the projections, then run the network."""
        alike = images.shape[1:] == self.images.shape[1:]  # on a canvas that is kept, the rescaled ones are, too
        original = alike and bool((self.images.to(images) == images[:1]).flatten(1).all(1).any())
        for module in self.network.modules():
            if isinstance(module, BranchProjection):
                module.rescaled = not original
        return self.network(images)


def partnered(module: nn.Module, factor: float, spoiled: int) -> nn.Module | None:
    """Every ScaleProjection over the partnered and unspoilt scales only; None if there is none, or none are left."""
    layers = steerable(module)
    if not layers:
        return None
    grid = layers[-1].grid
    pairs = tuple(pair for pair in grid.match(factor).pairs if max(pair) < len(grid) - spoiled)
    if not pairs or len(pairs) == len(grid):
        return None

    def change(layer: nn.Module) -> nn.Module | None:
        if not isinstance(layer, ScaleProjection) or isinstance(layer, PartneredProjection):
            return None
        enough = len(pairs) >= sum(layer.leave_out) + max(1, 2 * layer.taper)
        return BranchProjection(layer, pairs) if enough else None

    return changed(module, change)


def aware(module: nn.Module, images: Tensor) -> nn.Module:
    """The module, wrapped if it has partnered projections."""
    needed = any(isinstance(m, BranchProjection) for m in module.modules())
    return TwoBranches(module, images).eval() if needed else module
