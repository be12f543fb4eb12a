"""convert: an ordinary network as a scale-equivariant one that follows it at one scale."""

from __future__ import annotations

import copy
import math
import warnings
from collections import OrderedDict
from dataclasses import replace
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from sesn import _checks
from sesn._source import worded
from sesn._torch import with_replaced
from sesn.basis import SteerableBasis
from sesn.conversion.functions import FIELD, FunctionsOfMaps
from sesn.conversion.inputs import Inputs
from sesn.conversion.outputs import ProjectedOutputs, tensors
from sesn.conversion.report import ConversionReport, Step
from sesn.conversion.trial import EXACT, BasisOf, Trial, leaves, rounding
from sesn.errors import UsageError, WrongTypeError
from sesn.layers.fit import complete_basis, large, scale_index
from sesn.layers.project import ScaleProjection
from sesn.layers.steerable import SteerableConv, known_basis
from sesn.scales import ScaleGrid

Project = Literal["max", "mean", "soft", "reference"]
PROJECTIONS: tuple[Project, ...] = ("max", "mean", "soft", "reference")
#: What begins a head, if it runs after the last convolution.
HEADS = (nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.Flatten, nn.Linear)
CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)
#: The side of the image on which a network is tried if none is given.
SIDE = 64


class Conversion(NamedTuple):
    """A converted network and what became of its layers.

    Attributes:
        network: the network; if the report lists something that cannot be converted, it does not run until that is
            replaced.
        report: what was replaced, what was kept and what cannot be converted.

    Example:
        >>> sesn.convert(nn.Conv2d(3, 8, 3)).network(torch.randn(1, 3, 16, 16)).shape
        torch.Size([1, 8, 14, 14])
    """

    network: nn.Module
    report: ConversionReport


def convert(
    model: nn.Module,
    example: Tensor | None = None,
    *,
    grid: ScaleGrid | None = None,
    basis: SteerableBasis | None = None,
    reference: int = 0,
    project: Project | nn.Module | None = "max",
    head: str | None = None,
) -> Conversion:
    """Make an ordinary network scale-equivariant: the same layers on fields, its kernels in a steerable basis.

    The network's own code is kept, and its layers are replaced in a copy, each by what its input turns out to need
    when the copy is run on the example. Convolutions become ScaleLift, ScaleConv and ScaleConv1x1, and batch norms
    become ScaleBatchNorm. Layers that do the wrong thing on five axes, such as pools, are put into an EachScale, and
    functions that the network's code calls on maps, such as `F.interpolate`, are applied to every scale separately. At
    the reference scale the field is what the original network computes. This is exact if the bases are complete, as
    those made from `grid` are. Fine-tune the network before you use it, because its output after a maximum over scales
    is not that of the original.

    Args:
        model: the network, from images to scores or maps. It is left as it is.
        example: an image [b, c, h, w] that it takes; by default random, with sides of 64.
        grid: the scales relative to the reference, which stands for the size of objects in the original's training; by
            default 1, the root of 2, and 2. Every kernel gets its `complete_basis`.
        basis: one basis for all kernels instead, which leaves a residual where it does not span them.
        reference: the index of the scale at which the network follows the original; 0 is the smallest.
        project: how the field becomes a map, before the head or at the end: "max", "mean", "soft", "reference" (the
            field at the reference scale, whose scores are those of the original), a module, or None for no projection.
        head: the name of the module before which the field is projected; by default the first adaptive pool, Flatten or
            Linear that runs after the last convolution, if there is one.

    Returns:
        The network, in the mode of the original, and the report. A large residual and anything that cannot be converted
        is warned about.

    Raises:
        UsageError: an argument breaks its rule, or the model does not run on the example.

    Example:
        >>> features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        >>> classifier = nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)).eval()
        >>> image = torch.randn(2, 3, 32, 32)
        >>> same, report = sesn.convert(classifier, image, project="reference")
        >>> torch.allclose(same(image), classifier(image), atol=1e-5)
        True
        >>> sesn.convert(classifier, image, project="max").network(image).shape
        torch.Size([2, 10])
    """
    if not isinstance(model, nn.Module):
        raise WrongTypeError(_checks.complaint("model", model, "a torch module"))
    grid, basis_of = _bases(grid, basis, reference)
    with worded("copying `model`, which converting it needs,"):
        copied = copy.deepcopy(model)
    modes = [module.training for module in copied.modules()]
    example = _example(copied) if example is None else example
    _checks.real_tensor("example", example, "b c h w")
    original, inputs = _run(copied.eval(), example)
    head = _head(copied, inputs.layers) if head is None else _named(copied, head)
    projection = _projection(project, head, reference, len(grid))
    if projection is not None and head is None and not isinstance(original, Tensor):
        projection = ProjectedOutputs(projection)
    trial = Trial(copied, inputs, basis_of, reference, head)
    report = _tried(trial, example, original)
    if not report.runs:
        early = Trial(copied, inputs, basis_of, reference, head, early=True)
        again = _tried(early, example, original)
        trial, report = (early, again) if again.runs else (trial, report)
    for module, mode in zip(copied.modules(), modes, strict=True):
        module.training = mode
    _warn(report)
    return Conversion(_assembled(trial, head, projection), report)


def _bases(grid: Any, basis: Any, reference: int) -> tuple[ScaleGrid, BasisOf]:
    if basis is not None:
        if grid is not None:
            raise UsageError(f"give one of `grid` (={grid!r}) and `basis` (={basis!r}); a basis has its own grid")
        grid = known_basis(basis).grid
        scale_index(reference, grid)
        return grid, lambda side: basis
    grid = ScaleGrid.geometric(1.0, 2**0.5, 3) if grid is None else grid
    complete_basis(grid, 3, reference=reference)  # says what is wrong with them before anything is run
    return grid, cache(lambda side: complete_basis(grid, side, reference=reference))


def _example(model: nn.Module) -> Tensor:
    """An image has fewer channels than anything that is made of it."""
    convs = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    if not convs:
        raise UsageError(f"`model` (={type(model).__name__}) must have an nn.Conv2d; there is nothing to convert")
    generator = torch.Generator().manual_seed(0)
    channels = min(conv.in_channels for conv in convs)
    return torch.randn(2, channels, SIDE, SIDE, generator=generator).to(convs[0].weight)


def _run(model: nn.Module, example: Tensor) -> tuple[Any, Inputs]:
    """The output, and what the layers got."""
    inputs = Inputs()
    handles = [leaf.register_forward_pre_hook(inputs.add) for leaf in leaves(model)]
    shape = list(example.shape)
    try:
        with torch.no_grad(), worded(f"running `model` on `example` {shape}, an image that it must take,"):
            return model(example.clone()), inputs
    finally:
        for handle in handles:
            handle.remove()


def _head(model: nn.Module, calls: list[nn.Module]) -> str | None:
    """Where the head begins, by the order of the calls."""
    after = max((place for place, layer in enumerate(calls) if isinstance(layer, CONVOLUTIONS)), default=-1) + 1
    found = next((layer for layer in calls[after:] if isinstance(layer, HEADS)), None)
    return next((name for name, layer in model.named_modules() if layer is found), None)


def _named(model: nn.Module, head: str) -> str:
    names = [name for name, _ in model.named_modules() if name]
    _checks.require(head in names, "head", head, "the name of a module in the model", f"such as {names[-1:]}")
    return head


def _projection(project: Any, head: str | None, reference: int, scales: int) -> nn.Module | None:
    if project is None and head is not None:
        rule = f"one of {', '.join(map(repr, PROJECTIONS))} or a module for a network with a head ({head})"
        raise UsageError(_checks.complaint("project", project, rule, "'reference' shows the original's scores"))
    if project is None:
        return None
    if isinstance(project, nn.Module):
        return project
    if _checks.one_of("project", project, PROJECTIONS) == "reference":
        return ScaleProjection(leave_out=(reference, scales - 1 - reference))
    return ScaleProjection(reduce=project)


def _assembled(trial: Trial, head: str | None, projection: nn.Module | None) -> nn.Module:
    """The copy with every layer in its new place, and the projection."""
    modules = {id(module): module for module in trial.network.modules()}
    new = {key: layer.train(modules[key].training) for key, layer in trial.new.items()}
    if head is not None and projection is not None:
        module = trial.network.get_submodule(head)
        new[id(module)] = nn.Sequential(OrderedDict(projection=projection, head=new.get(id(module), module)))
    network = with_replaced(trial.network, new)
    if trial.functions:
        network = FunctionsOfMaps(network, trial.functions)
    if head is not None or projection is None:
        return network
    return nn.Sequential(OrderedDict(network=network, projection=projection))


def _tried(trial: Trial, example: Tensor, original: Any) -> ConversionReport:
    output = trial.run(example.clone())
    report = ConversionReport(tuple(trial.steps), trial.reference, None)
    if not report.runs:
        return report
    if not any(isinstance(layer, SteerableConv) for layer in trial.new.values()):
        reason = "none of its convolutions can be a ScaleLift or a ScaleConv, so nothing would be scale-equivariant"
        return _refused(report, trial, reason)
    error, allowed = _error(output, original, trial.reference)
    if error <= allowed or report.residual > EXACT:
        return replace(report, error=error)
    told = f"an error of {error:.2g}" if math.isfinite(error) else "another shape"
    reason = f"computes something else on fields, with {told}, such as a mean or a view over fixed axes"
    return _refused(report, trial, reason)


def _refused(report: ConversionReport, trial: Trial, reason: str) -> ConversionReport:
    """The report with an obstacle that lies in the network as a whole."""
    return replace(report, steps=(*report.steps, Step("", "cannot be", type(trial.network).__name__, reason)))


def _error(output: Any, original: Any, reference: int) -> tuple[float, float]:
    """The largest difference at the reference scale over the largest number, and what rounding explains of it."""
    error = allowed = 0.0
    for found, wanted in zip(tensors(output), tensors(original), strict=True):
        at_scale = found.select(2, reference) if found.dim() == FIELD else found
        allowed = max(allowed, rounding(wanted.dtype))
        if at_scale.shape != wanted.shape:
            return math.inf, allowed
        largest = wanted.abs().max().clamp_min(torch.finfo(wanted.dtype).tiny)
        error = max(error, float((at_scale - wanted).abs().max() / largest))
    return error, allowed


def _warn(report: ConversionReport) -> None:
    if not report.runs:
        warnings.warn(f"not all of the network can be converted: {report.obstacles()}", stacklevel=3)
    if large(report.residual):
        remedy = "give `grid` instead of `basis`, or a basis with more functions"
        warnings.warn(f"the basis leaves a relative residual of {report.residual:.2g}; {remedy}", stacklevel=3)
