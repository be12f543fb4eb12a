"""Why a module is not scale-equivariant, in words: what its layers and the measured numbers point to.

Each suspect looks at one cause and returns a finding with its evidence and remedy, or nothing. They are listed with the
likeliest first: a cause that the numbers show comes before one that only the structure suggests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from sesn.action import rescale
from sesn.basis import SMALLEST_RESOLVED_SIGMA, SteerableBasis
from sesn.conv import ScaleConv, ScaleLift
from sesn.equivariance import EquivarianceError, compare, middle, resampler_ends
from sesn.pool import ScaleProjection
from sesn.probe import SPATIAL, call, output_grid, seen_by
from sesn.receptive import Receptive
from sesn.resample import Ends, Resampler
from sesn.scales import ScaleGrid

#: A half-window below this many sigmas cuts off more than rounding for every order in use.
ENOUGH_SIGMAS = 4.0
#: How many times larger (or smaller) a number has to be before it counts as evidence.
CLEAR = 5.0
#: Images on which other readings of the output are tried.
FEW = 4
POINTWISE = (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.ELU, nn.SiLU, nn.Sigmoid, nn.Tanh)


@dataclass(frozen=True)
class Finding:
    """One likely cause: what it is, what was seen, and what to do."""

    cause: str
    evidence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.cause}: {self.evidence}. {self.remedy}."


@dataclass(frozen=True)
class Case:
    """What the suspects look at: the module, its error, and both outputs of a field on a few images."""

    module: nn.Module
    image_side: int
    seen: Receptive
    error: EquivarianceError
    grid: ScaleGrid | None
    moved: Tensor | None
    direct: Tensor | None

    @property
    def layers(self) -> list[ScaleLift | ScaleConv]:
        """The steerable layers."""
        return [m for m in self.module.modules() if isinstance(m, ScaleLift | ScaleConv)]

    @property
    def bases(self) -> list[SteerableBasis]:
        """The distinct bases."""
        return list(dict.fromkeys(layer.basis for layer in self.layers))


def diagnose(
    module: nn.Module,
    images: Tensor,
    error: EquivarianceError,
    *,
    grid: ScaleGrid | None = None,
    resampler: Resampler = "lanczos3",
    ends: Ends | Literal["auto"] = "auto",
) -> list[Finding]:
    """The likeliest causes of an error that `equivariance_error` measured, the strongest evidence first.

    Empty when Delta is at the probe's floor. `grid`, `resampler` and `ends` as they were given to `equivariance_error`.
    """
    if error.at_floor and not (error.kind in SPATIAL and bool(error.centred.isnan().all())):
        return []
    case = Case(module, min(images.shape[-2:]), seen_by(module, images), error, None, None, None)
    if error.kind == "field":
        few = images[:FEW].to(torch.float64)
        past = resampler_ends(resampler, ends)
        with torch.no_grad():
            original = call(module, few)
            moved = rescale(original, error.factor, resampler, past)
            direct = call(module, rescale(few, error.factor, resampler, past))
        scales = output_grid(module, grid, original, error.kind)
        case = replace(case, grid=scales, moved=moved, direct=direct)
    return [finding for suspect in SUSPECTS for finding in suspect(case)]


def _no_signal(case: Case) -> Iterator[Finding]:
    flat = case.error.kind in SPATIAL and bool(case.error.centred.isnan().all())
    if case.error.pairs and (flat or bool((case.error.energy == 0).all())):
        yield Finding(
            "no signal",
            "the output is zero, or constant over space, for every image",
            "Check the weights, the images and dead nonlinearities before asking about equivariance",
        )


def _too_few_scales(case: Case) -> Iterator[Finding]:
    if bool(case.error.valid.isnan().all()) and bool(case.error.energy.isnan().all()):
        yield Finding(
            "too few scales",
            f"at factor {case.error.factor:.3g} no scale channel has an unspoilt partner ({case.error.lost} lost)",
            "Use a longer grid, a smaller change of scale or a smaller interscale extent",
        )
    elif _median(case.error.all) > CLEAR * _median(case.error.valid):
        yield Finding(
            "truncation of the scale axis",
            f"Delta is {_median(case.error.all):.2g} over all {len(case.error.pairs)} partnered channels but "
            f"{_median(case.error.valid):.2g} over those that interscale layers left whole",
            "Use more scales than the layers mix, or read the valid channels only",
        )


def _projection(case: Case) -> Iterator[Finding]:
    """A maximum over scale sees the scales of the grid only: what it would need from beyond is missing."""
    projected = any(isinstance(module, ScaleProjection) for module in case.module.modules())
    if projected and case.error.factor != 1 and case.error.kind not in ("field", "scale"):
        scales = max((len(basis.grid) for basis in case.bases), default=0)
        yield Finding(
            "truncation of the scale axis",
            f"the maximum over {scales} scales lacks those that rescaling brings in from beyond the grid",
            "Use more scales than objects change by, or measure before the projection",
        )


def _off_grid(case: Case) -> Iterator[Finding]:
    if case.error.residual > 0 and not case.error.on_grid:
        yield Finding(
            "factor between two scales",
            f"factor {case.error.factor:.4g} is {case.error.residual:.2g} (in log) away from the nearest step",
            "Measure at a step of the grid, or use a finer grid",
        )


def _representation(case: Case) -> Iterator[Finding]:
    """Would another order of the scale channels fit far better? Then the axis is not what the grid says."""
    if case.moved is None or case.direct is None or case.grid is None or not case.error.pairs:
        return
    scales = range(len(case.grid))
    orders = {"reversed": [*reversed(scales)]}
    orders |= {f"rolled by {m}": [(k + m) % len(scales) for k in scales] for m in scales[1:]}
    found = {name: _reordered(case, order) for name, order in orders.items()}
    as_given = _reordered(case, [*scales])
    best = min(found, key=lambda name: found[name], default="")
    if best and found[best] * CLEAR < as_given:
        yield Finding(
            "wrong output representation",
            f"with the scale axis {best}, Delta falls from {as_given:.2g} to {found[best]:.2g}",
            "Return the scale channels from small to large, or give the `grid=` that they have",
        )


def _reordered(case: Case, order: list[int]) -> float:
    """Delta with the scale axis of both outputs put in another order."""
    error, outputs = case.error, [output for output in (case.moved, case.direct) if output is not None]
    moved, direct = (output[:, :, order] for output in outputs)
    return _median(compare(moved, direct, error.factor, error.kind, case.grid, 0, error.crop, error.floor).all)


def _ordinary_convolution(case: Case) -> Iterator[Finding]:
    found = [m for m in case.module.modules() if isinstance(m, nn.Conv2d | nn.Conv3d) and m.kernel_size[-1] > 1]
    if found:
        side = found[0].kernel_size[-1]
        yield Finding(
            "ordinary convolution",
            f"{len(found)} layer(s) with fixed kernels, the first {side} x {side}: they see one scale only",
            "Replace them by ScaleLift and ScaleConv",
        )


def _truncated_windows(case: Case) -> Iterator[Finding]:
    for basis in case.bases:
        widths = [box // 2 / sigma for box, sigma in zip(basis.boxes, basis.grid, strict=True)]
        if min(widths) < ENOUGH_SIGMAS - 1e-9:
            yield Finding(
                "truncated windows",
                f"half-windows of {min(widths):.2g} to {max(widths):.2g} sigma cut the functions off unevenly",
                "Use window='wide' (4.5 sigma); with algorithm='auto' it costs little more",
            )


def _undersampled(case: Case) -> Iterator[Finding]:
    for basis in case.bases:
        if basis.pairs is None:
            continue
        narrowest = basis.grid.smallest / max(profile.divisor for profile in basis.pairs.profiles)
        if narrowest < SMALLEST_RESOLVED_SIGMA:
            yield Finding(
                "undersampled functions",
                f"the narrowest function has sigma {narrowest:.2g} pixels, too narrow for the pixel grid",
                f"Use a smallest (sub-)sigma of at least {SMALLEST_RESOLVED_SIGMA} pixels",
            )


def _padding(case: Case) -> Iterator[Finding]:
    """The frame that the crop left out, against the inside."""
    if case.error.kind not in SPATIAL:
        return
    if _median(case.error.border) > CLEAR * _median(case.error.valid):
        yield Finding(
            "padding",
            f"Delta is {_median(case.error.border):.2g} in the frame of {case.error.crop} pixels at the border and "
            f"{_median(case.error.valid):.2g} inside",
            "The frame is left out of Delta; where the border matters, use larger images, or circular padding and the "
            "Fourier resampler",
        )


def _stride_phase(case: Case) -> Iterator[Finding]:
    stride = round(case.seen.coarsest)
    if stride > 1 and (case.image_side - 1) % stride:
        yield Finding(
            "stride phase and even sizes",
            f"a total stride of {stride} on a side of {case.image_side} keeps pixels 0, {stride}, ...: their "
            "centre is not the image's, so rescaling moves them",
            f"Use sides N with N - 1 a multiple of {stride} before and after rescaling, or low-pass before striding",
        )


def _batch_statistics(case: Case) -> Iterator[Finding]:
    for module in case.module.modules():
        loose = isinstance(module, nn.modules.batchnorm._BatchNorm) and not module.track_running_stats
        if loose or isinstance(module, nn.modules.instancenorm._InstanceNorm | nn.GroupNorm | nn.LayerNorm):
            yield Finding(
                "statistics of the input",
                f"{type(module).__name__} normalises each branch by its own statistics",
                "Use running statistics in eval mode (ScaleBatchNorm), or fold the normalisation into the weights",
            )
            return


def _aliasing(case: Case) -> Iterator[Finding]:
    if any(isinstance(module, POINTWISE) for module in case.module.modules()):
        yield Finding(
            "aliasing by the nonlinearity",
            "a pointwise nonlinearity makes frequencies beyond what the pixel grid can hold",
            "Use BandlimitedReLU, larger sigmas or a finer grid",
        )


#: In the order in which their findings are listed.
SUSPECTS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    _no_signal,
    _too_few_scales,
    _representation,
    _off_grid,
    _projection,
    _ordinary_convolution,
    _batch_statistics,
    _truncated_windows,
    _undersampled,
    _padding,
    _stride_phase,
    _aliasing,
)


def _median(values: Tensor) -> float:
    known = values[~torch.isnan(values)]
    return middle(known)
