"""Why a module is not scale-equivariant, in words: what its layers and the measured numbers point to.

Each cause is looked for by itself, with its evidence and remedy. They are listed with the likeliest first: a cause that
the numbers show comes before one that only the structure suggests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sesn.algorithms.resample import Ends, Resampler
from sesn.layers.project import PartneredProjection, ScaleProjection
from sesn.meter.action import GroupElement, ScaleTranslation
from sesn.meter.branches import Branches
from sesn.meter.compare import EquivarianceError, compare, middle
from sesn.meter.elements import Rotation, Transform
from sesn.meter.finding import Case, Finding
from sesn.meter.meter import Meter
from sesn.meter.reading import SPATIAL, RejectedError, call, like_module, output_grid, read
from sesn.meter.suspects import geometric, in_the_layers, innocent, watching_spreads
from sesn.scales import ScaleGrid

#: How many times larger (or smaller) a number has to be before it counts as evidence.
CLEAR = 5.0
#: Pixels by which rescaling has to move what a stride keeps, and the change on repetition, before they count.
PHASE = 0.02
REPEATED = 1e-2
#: Relative errors of so many roundings of the module's dtype, which a chain of layers may add up to, have no cause.
ROUNDINGS = 30
#: Images on which other readings of the output are tried.
FEW = 4
POINTWISE = (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.ELU, nn.SiLU, nn.Sigmoid, nn.Tanh)


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
        The causes with the strongest evidence first; none when Delta is at the meter's floor, or no more than the
        module's dtype rounds.

    Raises:
        UsageError: the module cannot be run on the images.

    Example:
        >>> images = torch.randn(2, 1, 48, 48)
        >>> network = nn.Conv2d(1, 1, 5, padding=2)
        >>> error = sesn.equivariance_error(network, images, 0.5)
        >>> [finding.cause for finding in sesn.diagnose(network, images, error)]
        ['ordinary convolution']
    """
    rounded = middle(error.valid) <= (ROUNDINGS * torch.finfo(like_module(module, images).dtype).eps) ** 2
    if (error.at_floor or rounded) and not error.empty():
        return []
    given: dict[str, Any] = {"grid": grid, "resampler": resampler, "ends": ends}
    meter = replace(error.meter or Meter(), **{name: value for name, value in given.items() if value is not None})
    with torch.no_grad():
        try:
            case = _case(module, images[:FEW], error, meter)
        except RejectedError:  # it may take so many images only
            case = _case(module, images, error, meter)
        layers = [*in_the_layers(case)]
    causes = [*_in_the_numbers(case), *_in_the_scales(case), *layers, *_in_space(case)]
    return [*causes, *innocent(case)] if causes else []


def _case(module: nn.Module, images: Tensor, error: EquivarianceError, meter: Meter) -> Case:
    exact = images.to(torch.float64)
    small = meter.move(exact, error.element)
    with watching_spreads(module) as spreads:
        before, original = read(module, exact), dict(spreads)
        after = read(module, small)
    changes = {
        name: float((spreads[name] - one).norm() / (one.norm() or math.inf))
        for name, one in original.items()
        if spreads[name].shape == one.shape
    }
    try:
        alone, among = call(module, exact[:1]), before.output[:1]
        repeated = float((alone - among).norm()) / (float(among.norm()) or math.inf)
    except RejectedError:
        repeated = 0.0
    field = None
    if error.kind == "field" and not isinstance(error.element, Transform):  # which knows of images and outputs alone
        scales = output_grid(module, meter.grid, before.output, error.kind, before.path)
        moved = meter.move(before.output, error.element)
        field = Branches(module, exact, small, before, after.output, moved, error.kind, scales, error.element)
    return Case(module, exact, meter, before, after, error, repeated, field, changes)


def _in_the_numbers(case: Case) -> Iterator[Finding]:
    error, every, valid = case.error, _median(case.error.all), _median(case.error.valid)
    if error.pairs and (error.empty() or bool((error.energy == 0).all())):
        yield Finding(
            "no signal",
            "the output is zero, or constant over space, or (nearly) the same for every image",
            "Check the weights, the images and dead nonlinearities before asking about equivariance",
            "module(images).flatten(1).std(1)",
        )
    if case.repeated > REPEATED:
        yield Finding(
            "chance or the other images",
            f"the output for one image changes by {case.repeated:.2g} of its size when it is computed again by itself",
            "Remove noise and dropout from the forward pass, and use running statistics in batch norm",
            "module.eval()",
            option="",
        )
    if bool(error.valid.isnan().all()) and bool(error.energy.isnan().all()):
        yield Finding(
            "too few scales",
            f"at factor {error.factor:.3g} no scale channel has an unspoilt partner ({error.lost} lost)",
            "Use a longer grid, a smaller change of scale or a smaller interscale extent",
            _longer(case),
        )
    elif every > CLEAR * valid:
        yield Finding(
            "truncation of the scale axis",
            f"Delta is {every:.2g} over all {len(error.pairs)} partnered channels but {valid:.2g} over those that "
            "interscale layers left whole",
            "Use more scales than the layers mix, or read the valid channels only",
            _longer(case),
        )


def _in_the_scales(case: Case) -> Iterator[Finding]:
    error = case.error
    as_given, best, name = _best_order(case)
    if best * CLEAR < as_given:
        yield Finding(
            "wrong output representation",
            f"with the scale axis {name}, Delta falls from {as_given:.2g} to {best:.2g}",
            "Return the scale channels in order of their size, or give the `grid=` that they have",
            "output.flip(2)" if name == "reversed" else f"output.roll(-{name.split()[-1]}, 2)",
        )
    if error.residual > 0 and not error.on_grid:
        yield Finding(
            "factor between two scales",
            f"factor {error.factor:.4g} is {error.residual:.2g} (in log) away from the nearest step",
            "Measure at a step of the grid, or use a finer grid",
            *_at_step(case),
        )
    projections = [module for module in case.module.modules() if isinstance(module, ScaleProjection)]
    if projections and error.factor != 1 and error.kind not in ("field", "scale"):
        yield from _in_the_projection(case, projections)


def _in_the_projection(case: Case, projections: list[ScaleProjection]) -> Iterator[Finding]:
    """Unless every projection is over the scales that have a partner."""
    plain = next((one for one in projections if not isinstance(one, PartneredProjection)), None)
    if plain is None:
        return
    longer = "a grid of more octaves lowers Delta of maps; tapering its ends or leaving them out does not"
    remedy = longer[0].upper() + longer[1:]
    grid = next((basis.grid for basis in reversed(case.bases)), None)
    steps = round(abs(math.log(case.error.factor)) / math.log(grid.ratio)) if grid and len(grid) > 1 else 0
    if grid and 0 < steps < len(grid):
        side = round(max(case.before.side, case.after.side) / case.before.seen.stride)
        line = f"PartneredProjection(layer.grid, side={side}, steps={steps})"
        remedy = f"If images come in several sizes, project with {line}, where `layer` is the one that made the field "
        remedy += f"of that side; if objects change their size within the image, {longer}"
    yield Finding(
        "truncation of the scale axis",
        f"a field is exact where its scales have a partner, but a map or score that is projected ({plain.reduce}) over "
        "all scales is not: rescaling brings in scales from beyond the grid at one end and takes as many away at the "
        "other",
        remedy,
    )


def _best_order(case: Case) -> tuple[float, float, str]:
    """Delta with the scale channels as they are, the smallest in another order, and that order.

    If another order fits far better, the scale axis is not what the grid says.
    """
    field, error = case.branches, case.error
    if field is None or field.grid is None or not error.pairs:
        return math.nan, math.nan, ""

    def delta(order: list[int]) -> float:
        turned = replace(field, moved=field.moved[:, :, order], direct=field.direct[:, :, order])
        return _median(compare(turned, 0, error.crop, error.floor).all)

    scales = [*range(len(field.grid))]
    orders = {f"rolled by {m}": scales[m:] + scales[:m] for m in scales[1:]}
    found = {name: delta(order) for name, order in {"reversed": scales[::-1], **orders}.items()}
    best = min(found, key=lambda name: found[name])
    return delta(scales), found[best], best


def _in_space(case: Case) -> Iterator[Finding]:
    error, border, inside = case.error, _median(case.error.border), _median(case.error.valid)
    if error.kind in SPATIAL and border > CLEAR * inside:
        yield Finding(
            "padding",
            f"Delta is {border:.2g} in the frame of {error.crop} pixels at the border and {inside:.2g} inside",
            "The frame is left out of Delta; where the border matters, use larger images, or circular padding and the "
            "Fourier resampler",
            "sesn.Meter(resampler='fourier')",
            "--resampler fourier",
        )
    (stride, before), (_, after) = case.before.sampling, case.after.sampling
    # Pixels that are kept off the image's centre: rescaling the image moves them, unless by as much.
    if stride > 1 and abs(before * error.factor - after) > PHASE:
        yield Finding(
            "stride phase and even sizes",
            f"the pixels that a total stride of {stride:g} keeps lie {before:+.3g} pixels off the centre on a side of "
            f"{case.before.side}, and {after:+.3g} on one of {case.after.side}: rescaling moves them",
            f"Use sides, before and after rescaling, whose windows are centred: N - 1 a multiple of {stride:g} for odd "
            f"windows, N a multiple of {stride:g} for pools as wide as their stride; or low-pass before striding",
            *_centred(case),
        )
    if not error.rescaled:
        yield from _in_the_stride(case, stride, before)
        yield from _at_the_border(case)
    between = not (isinstance(error.element, Transform) or _rearranges(error.element, stride))
    if between and any(isinstance(module, POINTWISE) for module in case.module.modules()):
        yield Finding(
            "aliasing by the nonlinearity",
            "a pointwise nonlinearity makes frequencies beyond what the pixel grid can hold",
            "Use larger sigmas or a finer grid; where images have a few known sizes, NestedReLU, which is exact "
            "between them on periodic maps; elsewhere BandlimitedReLU",
            "sesn.BandlimitedReLU()",
        )


def _rearranges(element: GroupElement, stride: float, off_centre: float = 0) -> bool:
    """Whether pixels of a map with that stride move to other pixels, and not between them."""
    if isinstance(element, Rotation):
        return element.degrees % 90 == 0 and off_centre == 0
    pixels = element.translation if isinstance(element, ScaleTranslation) else ()
    return element.scale == 1 and element.shift > 0 and all(float(one / stride).is_integer() for one in pixels)


def _in_the_stride(case: Case, stride: float, off_centre: float) -> Iterator[Finding]:
    element = case.error.element
    if stride > 1 and not isinstance(element, Transform) and not _rearranges(element, stride, off_centre):
        yield Finding(
            "stride phase",
            f"a total stride of {stride:g} keeps one pixel in {stride:g}, and the {element} moves the "
            "picture between those that are kept: detail that is finer than they are changes",
            "Low-pass before striding; a shift by the stride shows what is left without this",
            f"sesn.equivariance_error(module, images, sesn.ScaleTranslation(1.0, ({stride:g}.0, {stride:g}.0)))",
            f"--translate {stride:g}",
        )


def _at_the_border(case: Case) -> Iterator[Finding]:
    """Of scores, from which no border can be left out: what they are where the picture comes in again."""
    error, meter = case.error, case.meter
    if error.kind in SPATIAL or not error.element.shift or meter.ends not in ("auto", "zeros", "mean"):
        return
    again = replace(meter, ends="circular").measure(case.module, case.images, error.element, repeat=False)
    before, after = (middle(one.relative[: len(case.images)]) for one in (error, again))
    if after < before:
        yield Finding(
            "the border of a shifted picture",
            f"a part of the picture leaves at one side, and the scores are over all of it: with that part coming in "
            f"again at the other side, the relative Delta falls from {before:.2g} to {after:.2g}",
            "Measure the maps before the mean over space, from which the border is left out, or let pictures come in "
            "again",
            "sesn.Meter(ends='circular')",
            "--ends circular",
        )


def _longer(case: Case) -> str:
    """A grid of more scales than the last layer's."""
    return geometric(case.bases[-1].grid, more=case.error.lost + 1) if case.bases else ""


def _at_step(case: Case) -> tuple[str, str | None]:
    """The nearest factor that is a step of the grid, in Python and as options."""
    grid = case.branches.grid if case.branches is not None else None
    if grid is None or len(grid) < 2:
        return "", None
    factor = grid.ratio ** (round(math.log(case.error.factor) / math.log(grid.ratio)) or -1)
    return f"sesn.equivariance_error(module, images, {factor:.6g})", f"--downscale {1 / factor:.6g}"


def _centred(case: Case) -> tuple[str, str | None]:
    """Sides, before and after rescaling, at which the windows are centred: less or more by twice what they are off."""
    sides = [2 * one.sampling[1] + one.side for one in (case.before, case.after)]
    if case.meter.canvas == "keep" or any(side != int(side) or side > case.before.side for side in sides):
        return "", None
    side, small = map(int, sides)
    shape = f"{case.images.shape[1]}x{side}x{side}"
    code = f"sesn.equivariance_error(module, images[..., :{side}, :{side}], {small} / {side})"
    return code, f"--input {shape} --downscale {side / small:.6g}"


def _median(values: Tensor) -> float:
    return middle(values[~torch.isnan(values)])
