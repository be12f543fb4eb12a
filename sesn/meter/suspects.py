"""Layers that break scale equivariance, and those that are often blamed and do not.

Each suspect is named, with why it breaks equivariance and a line of code that helps. Where the layers alone do not
tell, numbers are asked: by how much rescaling changes what a norm divides by, and what Delta is without positions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from sesn._torch import BATCH_NORM, INSTANCE_NORM
from sesn.basis import SMALLEST_RESOLVED_SIGMA, Profile, SteerableBasis
from sesn.errors import UsageError
from sesn.meter.compare import middle
from sesn.meter.elements import Rotation, Transform
from sesn.meter.extent import background
from sesn.meter.finding import Case, Finding
from sesn.meter.outputs import own_name
from sesn.meter.reading import SPATIAL
from sesn.scales import ScaleGrid

#: A half-window below this many sigmas cuts off more than rounding for every order in use.
ENOUGH_SIGMAS = 4.0
#: A change of the spread that a norm divides by, and a part of Delta, that are worth a word.
SPREAD = 0.05
POSITIONS = 0.2
#: A convolution with a stride of so many pixels cuts patches, however wide its kernel is.
PATCH = 4
#: How many names are listed.
MOST_NAMES = 3
#: Parameters and buffers that hold a number for every place are called so by those who write networks.
_POSITION = re.compile(r"(^|[._])(rel_?)?(relative_)?pos(ition|_|$|e)")
#: How functions that make a vector of a map are called, and the layer that does.
_FLATTENS = ("Flatten", "flatten in", "reshape in", "view in")


Convolution = nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d | nn.ConvTranspose3d
TRANSPOSED = (nn.ConvTranspose2d, nn.ConvTranspose3d)


def ordinary_convolutions(module: nn.Module) -> list[Convolution]:
    """The layers with kernels of more than a pixel that know nothing of scales, transposed ones among them."""
    return [m for m in module.modules() if isinstance(m, Convolution) and m.kernel_size[-1] > 1]


def normalises_input(layer: nn.Module) -> bool:
    """Whether a layer divides by statistics over space of what it is given: those of the two branches may differ."""
    loose = isinstance(layer, BATCH_NORM) and not layer.track_running_stats
    # Of one axis: that of the channels, at every place by itself.
    spread = isinstance(layer, nn.LayerNorm) and len(layer.normalized_shape) > 1
    return loose or spread or isinstance(layer, INSTANCE_NORM | nn.GroupNorm)


@contextmanager
def watching_spreads(module: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Keep the spread over space, by image and channel, of what each norm is given."""
    found: dict[str, Tensor] = {}

    def keep(name: str, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor) and inputs[0].dim() > 2:
            found[name] = inputs[0].detach().flatten(2).double().std(-1)

    norms = [(name, layer) for name, layer in module.named_modules() if normalises_input(layer)]
    hooks = [layer.register_forward_pre_hook(partial(keep, name)) for name, layer in norms]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def in_the_layers(case: Case) -> Iterator[Finding]:
    """What the layers point to, the gravest first."""
    if case.error.rescaled:
        yield from _convolutions(case)
    elif isinstance(case.error.element, Rotation):
        yield from _directions(case)
    if not isinstance(case.error.element, Transform):
        yield from _places(case)
        yield from _norms(case)
    if case.error.rescaled:
        yield from _steerable(case)


def _directions(case: Case) -> Iterator[Finding]:
    wide = [name for name, m in case.module.named_modules() if m in ordinary_convolutions(case.module)]
    if wide:
        yield Finding(
            "kernels with a direction",
            f"{_layers(wide)} with kernels of more than a pixel ({_listed(case, wide)}): rotated pictures meet "
            "kernels that are not rotated",
            "Use kernels without a direction, or a network that is made for rotations; a quarter turn shows what is "
            "left without interpolation",
            "sesn.equivariance_error(module, images, sesn.Rotation(90))",
            "--rotate 90",
        )


def _steerable_layer(layer: Convolution, smallest: float, stride: int = 1) -> str:
    """A steerable layer in place of an ordinary one."""
    kind = "ScaleConvTranspose" if isinstance(layer, TRANSPOSED) else "ScaleLift"
    basis = f"sesn.basis_a(sesn.ScaleGrid.geometric({smallest:g}, 2**0.5, 4), 'wide', 3)"
    strided = f", stride={stride}" if stride > 1 else ""
    return f"sesn.{kind}({layer.in_channels}, {layer.out_channels}, {basis}{strided})"


def _convolutions(case: Case) -> Iterator[Finding]:
    found, names = ordinary_convolutions(case.module), {id(m): name for name, m in case.module.named_modules()}

    def named(layers: Sequence[nn.Module]) -> str:
        return _listed(case, [names[id(layer)] for layer in layers])

    transposed = [one for one in found if isinstance(one, TRANSPOSED)]
    forward = [one for one in found if one not in transposed]
    patches = [one for one in forward if one.stride[-1] >= min(PATCH, one.kernel_size[-1]) > 1]
    if kernels := [one for one in forward if one not in patches]:
        yield Finding(
            "ordinary convolution",
            f"{_layers(kernels)} with fixed kernels ({named(kernels)}){_first_size(kernels)}: they see one scale only",
            "Replace them by ScaleLift and ScaleConv",
            _steerable_layer(kernels[0], 1.5),
        )
    if transposed:
        stride = transposed[0].stride[-1]
        yield Finding(
            "transposed convolution",
            f"{_layers(transposed)} with fixed kernels ({named(transposed)}){_first_size(transposed)}: each pixel "
            "becomes a pattern of one size, however large what it shows is",
            "Replace them by ScaleConvTranspose",
            _steerable_layer(transposed[0], max(1.5, stride), stride),
        )
    if patches:
        first = patches[0]
        yield Finding(
            "patches",
            f"patches are cut every {first.stride[-1]} pixels ({named(patches)}), without a low-pass filter and with "
            "kernels of one scale: rescaling changes what is in each",
            "Cut with steerable functions whose sigma is at least the stride, on sides N with N - 1 a multiple of it",
            _steerable_layer(first, first.stride[-1], first.stride[-1]),
        )


def _layers(found: Sequence[Any]) -> str:
    return f"{len(found)} layer{'s' if len(found) > 1 else ''}"


def _first_size(found: Sequence[Convolution]) -> str:
    side = found[0].kernel_size[-1]
    return f", {'the first ' if len(found) > 1 else ''}{side} x {side}"


def _places(case: Case) -> Iterator[Finding]:
    unread = case.before.path.unread if case.before.path is not None else frozenset[str]()
    if flat := sorted(one for one in unread if one.startswith(_FLATTENS)):
        yield Finding(
            "a head over space",
            f"{', '.join(flat)} makes a vector of a map, so the layer after it has different weights for every place",
            "Take the mean over space before it",
            "nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())",
        )
    norms = [(name, m) for name, m in case.module.named_modules() if isinstance(m, nn.LayerNorm)]
    if wide := [(name, m) for name, m in norms if len(m.normalized_shape) > 1 and m.elementwise_affine]:
        yield Finding(
            "norm with weights for every place",
            f"LayerNorm of {'x'.join(map(str, wide[0][1].normalized_shape))} "
            f"({_listed(case, [name for name, _ in wide])}) multiplies every place by a weight of its own",
            "Normalise with weights by channel",
            f"nn.GroupNorm(1, {wide[0][1].normalized_shape[0]})",
        )
    held = {**dict(case.module.named_parameters()), **dict(case.module.named_buffers())}
    positions = {name: one for name, one in held.items() if _POSITION.search(name) and one.is_floating_point()}
    without = _without(case, positions)
    delta = middle(case.error.valid[: len(case.images)])
    if without < (1 - POSITIONS) * delta:
        first = next(iter(positions))
        yield Finding(
            "position embedding",
            f"with the same number at every place in {_listed(case, [*positions])}, Delta falls from {delta:.2g} to "
            f"{without:.2g}: places do not move with the picture",
            "Train without it, or let images change their size and resize the embedding with them",
            f"module.state_dict()[{own_name(case.module, first)!r}].zero_()",
        )


class _Replaced(nn.Module):
    """A module with other tensors in place of some of its parameters and buffers."""

    def __init__(self, module: nn.Module, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.module, self.tensors = module, tensors

    def forward(self, images: Tensor) -> Any:
        return functional_call(self.module, self.tensors, (images,))


def _without(case: Case, positions: dict[str, Tensor]) -> float:
    """Delta with the mean in place of every number of these tensors; infinite if it cannot be told."""
    means = {name: one.mean().expand_as(one).contiguous() for name, one in positions.items()}
    if not means:
        return float("inf")
    found, meter = case.error, case.meter
    if found.kind in SPATIAL:  # what counted then counts now
        edge = background(found.kind, case.after.output, found.element, meter.canvas)
        meter = replace(meter, crop=found.crop - (edge or 0))
    try:
        same = _Replaced(case.module, means).eval()
        error = meter.measure(same, case.images, found.element, context=False, repeat=False)
    except (UsageError, RuntimeError):  # torch's own: a script cannot be called with other tensors
        return float("inf")
    return middle(error.valid)


def _norms(case: Case) -> Iterator[Finding]:
    changed = {name: change for name, change in case.spreads.items() if change > SPREAD}
    if changed:
        worst = max(changed, key=lambda name: changed[name])
        layer = case.module.get_submodule(worst)
        of_field = isinstance(layer, nn.InstanceNorm3d) or bool(case.bases)
        channels = next((getattr(layer, name) for name in ("num_features", "num_channels") if hasattr(layer, name)), 1)
        yield Finding(
            "statistics of the input",
            f"{type(layer).__name__} ({own_name(case.module, worst)}) divides by the spread of its input, which "
            f"{_what_is_done(case)} changes by {changed[worst]:.0%}: so a change at the border or in an earlier layer "
            "reaches every place",
            "Use running statistics in eval mode, or fold the normalisation into the weights",
            f"sesn.ScaleBatchNorm({channels})" if of_field else f"nn.BatchNorm2d({channels})",
        )


def _steerable(case: Case) -> Iterator[Finding]:
    for basis in case.bases:
        widths = [box // 2 / sigma for box, sigma in zip(basis.boxes, basis.grid, strict=True)]
        if min(widths) < _enough(basis) - 1e-9:
            fades = basis.separable or basis.reach is None
            yield Finding(
                "truncated windows",
                f"half-windows of {min(widths):.2g} to {max(widths):.2g} sigma cut the functions off unevenly",
                "Use window='wide' (4.5 sigma); with algorithm='auto' it costs little more"
                if fades
                else f"Use window='wide' with radius={basis.reach:g}, which holds all of the functions",
                f"sesn.basis_a(sesn.ScaleGrid({[round(sigma, 4) for sigma in basis.grid]}), 'wide', 3)"
                if fades
                else "",
            )
    products = [(basis.grid, basis.pairs) for basis in case.bases if basis.pairs is not None]
    for grid, pairs in products:
        gaussians = [profile for profile in pairs.profiles if isinstance(profile, Profile)]
        narrowest = min((grid.smallest / profile.divisor for profile in gaussians), default=math.inf)
        if narrowest < SMALLEST_RESOLVED_SIGMA:
            yield Finding(
                "undersampled functions",
                f"the narrowest function has sigma {narrowest:.2g} pixels, too narrow for the pixel grid",
                f"Use a smallest (sub-)sigma of at least {SMALLEST_RESOLVED_SIGMA} pixels",
                geometric(grid, smallest=grid.smallest * SMALLEST_RESOLVED_SIGMA / narrowest),
            )


def _enough(basis: SteerableBasis) -> float:
    """The sigmas that a half-window must have: for Gaussians and what is not known those of ENOUGH_SIGMAS."""
    if basis.reach is None:
        return ENOUGH_SIGMAS
    if basis.separable:
        return min(ENOUGH_SIGMAS, basis.reach)
    return basis.reach - 1 / basis.grid.smallest  # within the last pixel they have vanished


def geometric(grid: ScaleGrid, *, smallest: float | None = None, more: int = 0) -> str:
    """A grid like this one, in Python."""
    ratio = grid.ratio if len(grid) > 1 else 2.0
    return f"sesn.ScaleGrid.geometric({smallest or grid.smallest:.4g}, {ratio:.4g}, {len(grid) + more})"


#: What is innocent where images change their size with the picture, in words, by what tells it.
_INNOCENT: dict[str, Callable[[nn.Module], bool]] = {
    "attention over all places": lambda m: isinstance(m, nn.MultiheadAttention),
    "norms over channels": lambda m: isinstance(m, nn.LayerNorm) and len(m.normalized_shape) == 1,
    "means over space": lambda m: isinstance(m, nn.AdaptiveAvgPool2d) and m.output_size in (1, (1, 1)),
}


def _what_is_done(case: Case) -> str:
    return "rescaling" if case.error.rescaled else f"the {case.error.element}"


def innocent(case: Case) -> Iterator[Finding]:
    """What is often blamed, and commutes with rescaling: sums over space do, and what is done at every place."""
    found = {
        words: [name for name, layer in case.module.named_modules() if test(layer)] for words, test in _INNOCENT.items()
    }
    found["norms over space"] = [name for name, change in case.spreads.items() if change <= SPREAD]
    known = case.meter.canvas == "follow" and not isinstance(case.error.element, Transform)
    if known and any(found.values()):
        listed = [f"{words} ({_listed(case, names)})" for words, names in found.items() if names]
        yield Finding(
            "not to blame",
            f"{', '.join(listed)} commute with {_what_is_done(case)}, up to the border and the sampling",
            "Leave them as they are",
        )


def _listed(case: Case, names: Sequence[str]) -> str:
    shown = ", ".join(own_name(case.module, name) or "the module" for name in names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} more"
