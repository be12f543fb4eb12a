"""Why a module is not scale-equivariant, in words: what its layers and the measured numbers point to.

Each suspect looks at one cause and returns a finding with its evidence and remedy, or nothing. They are listed with the
likeliest first: a cause that the numbers show comes before one that only the structure suggests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sesn._torch import BATCH_NORM, INSTANCE_NORM
from sesn.basis import SMALLEST_RESOLVED_SIGMA, SteerableBasis
from sesn.layers.conv import ScaleConv, ScaleLift
from sesn.layers.pool import ScaleProjection
from sesn.meter.compare import EquivarianceError, compare, middle
from sesn.meter.meter import Meter
from sesn.meter.reading import SPATIAL, Reading, RejectedError, call, output_grid, read
from sesn.meter.resample import Ends, Resampler
from sesn.scales import ScaleGrid

#: A half-window below this many sigmas cuts off more than rounding for every order in use.
ENOUGH_SIGMAS = 4.0
#: How many times larger (or smaller) a number has to be before it counts as evidence.
CLEAR = 5.0
#: Pixels by which rescaling has to move what a stride keeps, and the change on repetition, before they count.
PHASE = 0.02
REPEATED = 1e-2
#: Images on which other readings of the output are tried.
FEW = 4
POINTWISE = (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.ELU, nn.SiLU, nn.Sigmoid, nn.Tanh)


@dataclass(frozen=True)
class Finding:
    """One likely cause of an error.

    Attributes:
        cause: what it is.
        evidence: what was seen.
        remedy: what to do.

    Example:
        >>> print(sesn.Finding("padding", "Delta is 0.1 at the border", "Use larger images"))
        padding: Delta is 0.1 at the border. Use larger images.
    """

    cause: str
    evidence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.cause}: {self.evidence}. {self.remedy}."


@dataclass(frozen=True)
class Evidence:
    """What the suspects look at.

    Attributes:
        module: under test.
        readings: of both branches, on a few images.
        error: what was measured.
        repeated: how far an image's output alone lies from that among others, relative to its size.
        grid, moved, direct: the scales and both outputs of a field on those images.
    """

    module: nn.Module
    readings: tuple[Reading, Reading]
    error: EquivarianceError
    repeated: float
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
    resampler: Resampler | None = None,
    ends: Ends | Literal["auto"] | None = None,
) -> list[Finding]:
    """Tell the likeliest causes of an error that `equivariance_error` measured.

    Args:
        module: what was measured.
        images: those that it was measured on.
        error: what was measured.
        grid, resampler, ends: by default those of the measurement.

    Returns:
        The causes with the strongest evidence first; none when Delta is at the meter's floor.

    Raises:
        UsageError: the module cannot be run on the images.

    Example:
        >>> images = torch.randn(2, 1, 48, 48)
        >>> network = nn.Conv2d(1, 1, 5, padding=2)
        >>> error = sesn.equivariance_error(network, images, 0.5)
        >>> [finding.cause for finding in sesn.diagnose(network, images, error)]
        ['ordinary convolution']
    """
    if error.at_floor and not error.empty():
        return []
    given: dict[str, Any] = {"grid": grid, "resampler": resampler, "ends": ends}
    meter = replace(error.meter or Meter(), **{name: value for name, value in given.items() if value is not None})
    with torch.no_grad():
        try:
            case = _case(module, images[:FEW], error, meter)
        except RejectedError:  # it may take so many images only
            case = _case(module, images, error, meter)
    return [finding for suspect in SUSPECTS for finding in suspect(case)]


def _case(module: nn.Module, images: Tensor, error: EquivarianceError, meter: Meter) -> Evidence:
    exact = images.to(torch.float64)
    before, after = read(module, exact), read(module, meter.move(exact, error.factor))
    try:
        repeated = _distance(call(module, exact[:1]), before.output[:1])
    except RejectedError:
        repeated = 0.0
    case = Evidence(module, (before, after), error, repeated, None, None, None)
    if error.kind != "field":
        return case
    scales = output_grid(module, meter.grid, before.output, error.kind, before.path)
    return replace(case, grid=scales, moved=meter.move(before.output, error.factor), direct=after.output)


def _no_signal(case: Evidence) -> Iterator[Finding]:
    if case.error.pairs and (case.error.empty() or bool((case.error.energy == 0).all())):
        yield Finding(
            "no signal",
            "the output is zero, or constant over space, or (nearly) the same for every image",
            "Check the weights, the images and dead nonlinearities before asking about equivariance",
        )


def _too_few_scales(case: Evidence) -> Iterator[Finding]:
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


def _projection(case: Evidence) -> Iterator[Finding]:
    """A maximum over scale sees the scales of the grid only: what it would need from beyond is missing."""
    projected = any(isinstance(module, ScaleProjection) for module in case.module.modules())
    if projected and case.error.factor != 1 and case.error.kind not in ("field", "scale"):
        scales = max((len(basis.grid) for basis in case.bases), default=0)
        yield Finding(
            "truncation of the scale axis",
            f"the maximum over {scales} scales lacks those that rescaling brings in from beyond the grid",
            "Use more scales than objects change by, or measure before the projection",
        )


def _off_grid(case: Evidence) -> Iterator[Finding]:
    if case.error.residual > 0 and not case.error.on_grid:
        yield Finding(
            "factor between two scales",
            f"factor {case.error.factor:.4g} is {case.error.residual:.2g} (in log) away from the nearest step",
            "Measure at a step of the grid, or use a finer grid",
        )


def _representation(case: Evidence) -> Iterator[Finding]:
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


def _reordered(case: Evidence, order: list[int]) -> float:
    """Delta with the scale axis of both outputs put in another order."""
    error, outputs = case.error, [output for output in (case.moved, case.direct) if output is not None]
    moved, direct = (output[:, :, order] for output in outputs)
    return _median(compare(moved, direct, error.factor, error.kind, case.grid, 0, error.crop, error.floor).all)


def ordinary_convolutions(module: nn.Module) -> list[nn.Conv2d | nn.Conv3d]:
    """The layers with kernels of more than a pixel that know nothing of scales."""
    return [m for m in module.modules() if isinstance(m, nn.Conv2d | nn.Conv3d) and m.kernel_size[-1] > 1]


def _ordinary_convolution(case: Evidence) -> Iterator[Finding]:
    found = ordinary_convolutions(case.module)
    if found:
        side = found[0].kernel_size[-1]
        yield Finding(
            "ordinary convolution",
            f"{len(found)} layer(s) with fixed kernels, the first {side} x {side}: they see one scale only",
            "Replace them by ScaleLift and ScaleConv",
        )


def _truncated_windows(case: Evidence) -> Iterator[Finding]:
    for basis in case.bases:
        widths = [box // 2 / sigma for box, sigma in zip(basis.boxes, basis.grid, strict=True)]
        if min(widths) < ENOUGH_SIGMAS - 1e-9:
            yield Finding(
                "truncated windows",
                f"half-windows of {min(widths):.2g} to {max(widths):.2g} sigma cut the functions off unevenly",
                "Use window='wide' (4.5 sigma); with algorithm='auto' it costs little more",
            )


def _undersampled(case: Evidence) -> Iterator[Finding]:
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


def _padding(case: Evidence) -> Iterator[Finding]:
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


def _stride_phase(case: Evidence) -> Iterator[Finding]:
    """Pixels that are kept off the image's centre: rescaling the image moves them, unless by as much."""
    (stride, before), (_, after) = (reading.sampling for reading in case.readings)
    side, small = (reading.side for reading in case.readings)
    if stride > 1 and abs(before * case.error.factor - after) > PHASE:
        yield Finding(
            "stride phase and even sizes",
            f"the pixels that a total stride of {stride:g} keeps lie {before:+.2g} pixels off the centre on a side of "
            f"{side}, and {after:+.2g} on one of {small}: rescaling moves them",
            f"Use sides, before and after rescaling, whose windows are centred: N - 1 a multiple of {stride:g} for odd "
            f"windows, N a multiple of {stride:g} for pools as wide as their stride; or low-pass before striding",
        )


def _randomness(case: Evidence) -> Iterator[Finding]:
    if case.repeated > REPEATED:
        yield Finding(
            "chance or the other images",
            f"the output for one image changes by {case.repeated:.2g} of its size when it is computed again by itself",
            "Remove noise and dropout from the forward pass, and use running statistics in batch norm",
        )


def _distance(one: Tensor, other: Tensor) -> float:
    size = float(other.norm())
    return float((one - other).norm()) / size if size else 0.0


def _batch_statistics(case: Evidence) -> Iterator[Finding]:
    for module in case.module.modules():
        if normalises_input(module):
            yield Finding(
                "statistics of the input",
                f"{type(module).__name__} normalises each branch by its own statistics",
                "Use running statistics in eval mode (ScaleBatchNorm), or fold the normalisation into the weights",
            )
            return


def normalises_input(layer: nn.Module) -> bool:
    """Whether a layer divides by statistics over space of what it is given: those of the two branches differ."""
    loose = isinstance(layer, BATCH_NORM) and not layer.track_running_stats
    # Of one axis: that of the channels, at every place by itself.
    spread = isinstance(layer, nn.LayerNorm) and len(layer.normalized_shape) > 1
    return loose or spread or isinstance(layer, INSTANCE_NORM | nn.GroupNorm)


def _aliasing(case: Evidence) -> Iterator[Finding]:
    if any(isinstance(module, POINTWISE) for module in case.module.modules()):
        yield Finding(
            "aliasing by the nonlinearity",
            "a pointwise nonlinearity makes frequencies beyond what the pixel grid can hold",
            "Use BandlimitedReLU, larger sigmas or a finer grid",
        )


#: In the order in which their findings are listed.
SUSPECTS: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    _no_signal,
    _randomness,
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
