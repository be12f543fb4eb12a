"""What the error means for a task: do predictions stay the same, and how much of the loss is due to asymmetry?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sesn._checks import complaint, require
from sesn.errors import UsageError, WrongTypeError
from sesn.meter.action import GroupElement, ScaleTranslation
from sesn.meter.branches import Branches
from sesn.meter.elements import Element, Rotation
from sesn.meter.extent import background, output_crop
from sesn.meter.meter import Meter
from sesn.meter.reading import Reading, check_asked

DEFAULT = Meter()


@dataclass(frozen=True)
class Consistency:
    """How often a classifier or segmenter predicts the same for an image and for the same image moved.

    Attributes:
        by_factor: [factors, images]: 1 or 0 for a classifier, and for a segmenter the part of the pixels, inside the
            crop, whose prediction is the same.
        chance: the same for unrelated images; a network that always gives the same answer has 1 here, too.
        kind: "invariant" for a classifier, "map" for a segmenter.

    Example:
        >>> images = torch.rand(4, 1, 32, 32)
        >>> found = sesn.consistency(nn.Conv2d(1, 3, 1), images, [0.5, 0.75])
        >>> found.by_factor.shape, found.kind
        (torch.Size([2, 4]), 'map')
    """

    by_factor: Tensor
    chance: Tensor
    kind: str

    @property
    def mean(self) -> float:
        """Over factors and images."""
        return float(self.by_factor.mean())

    @property
    def every(self) -> float:
        """The part of the images that a classifier predicts alike at all factors; of pixels, at the worst factor."""
        return float(self.by_factor.amin(0).mean())

    @property
    def relative(self) -> float:
        """Changed predictions over those of unrelated images: 0 is consistent, 1 no better than chance.

        NaN if unrelated images are all predicted alike: then consistency shows nothing.
        """
        return (1 - self.mean) / different if (different := 1 - float(self.chance.mean())) > 0 else float("nan")


def consistency(
    module: nn.Module, images: Tensor, factors: Sequence[Element], *, meter: Meter = DEFAULT
) -> Consistency:
    """Measure how often predictions stay the same over factors.

    The prediction is the class of the largest score or, of a single score, whether it is positive.

    Args:
        module: in eval mode; a classifier [b, classes] or a segmenter [b, classes, h, w].
        images: f [b, c, h, w].
        factors: factors, or what else is done to the images.
        meter: how to move images and maps of scores.

    Returns:
        Which predictions stay the same, and what chance gives.

    Raises:
        UsageError: the module is neither, or there are no factors.

    Example:
        >>> network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 3))
        >>> 0 <= sesn.consistency(network, torch.rand(4, 1, 32, 32), [0.5]).mean <= 1
        True
    """
    rows: list[Tensor] = []
    chances: list[Tensor] = []
    kind = ""
    for found in _branches(module, images, factors, meter):
        crop, kind = _crop(found, meter), found.kind
        expected = _predicted(_cropped(found.moved, crop))
        for kept, output in ((rows, found.direct), (chances, found.unrelated())):
            same = _predicted(_cropped(output, crop)) == expected
            kept.append(same.double().reshape(len(images), -1).mean(1).cpu())
    return Consistency(torch.stack(rows), torch.stack(chances), kind)


@dataclass(frozen=True)
class AsymmetryLoss:
    """How much of a loss is due to imperfect symmetry.

    Attributes:
        loss: the mean cross-entropy over the elements of the group, the original images among them.
        averaged: the cross-entropy of the mean of the scores over the same elements; never more than `loss`, since
            cross-entropy is convex.

    Example:
        >>> sesn.AsymmetryLoss(loss=2.0, averaged=1.5).percent
        25.0
    """

    loss: float
    averaged: float

    @property
    def percent(self) -> float:
        """The part of the loss that averaging over the group takes away, in per cent."""
        return 100 * (self.loss - self.averaged) / self.loss if self.loss > 0 else 0.0


def asymmetry_loss(
    module: nn.Module,
    images: Tensor,
    labels: Tensor | None,
    factors: Sequence[Element],
    *,
    meter: Meter = DEFAULT,
) -> AsymmetryLoss:
    """Measure the part of a cross-entropy that is due to imperfect symmetry.

    Averaging the scores over a group makes them symmetric, and a convex loss of the average is at most the average of
    the losses. The difference is what asymmetry costs. Maps of scores are moved back before they are averaged.

    Args:
        module: in eval mode; a classifier [b, classes] or a segmenter [b, classes, h, w].
        images: f [b, c, h, w].
        labels: the classes, [b] or of the size of the map, [b, h, w]; None for those that the average predicts.
        factors: the elements of the group other than the original: factors, shifts or rotations.
        meter: how to move images and maps of scores.

    Returns:
        The two losses.

    Raises:
        UsageError: the module is neither, there are no factors, or a map does not come back to its size.

    Example:
        >>> network = nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(1, 3))
        >>> labels = torch.tensor([0, 1, 2, 0])
        >>> 0 <= sesn.asymmetry_loss(network, torch.rand(4, 1, 32, 32), labels, [0.5]).percent <= 100
        True
    """
    scores: list[Tensor] = []
    crop = 0
    for found in _branches(module, images, factors, meter):
        require(found.direct.shape[1] > 1, "module", "one score", "a classifier or segmenter of two or more classes")
        scores = scores or [found.original.output]
        scores.append(_moved_back(found, meter))
        crop = max(crop, round(_crop(found, meter) / min(1.0, found.factor)))
    scores = [_cropped(one, crop) for one in scores]
    mean = torch.stack(scores).mean(0)
    truth = mean.argmax(1) if labels is None else _labels(labels, mean, crop)
    return AsymmetryLoss(
        sum(float(F.cross_entropy(one, truth)) for one in scores) / len(scores), float(F.cross_entropy(mean, truth))
    )


def _labels(labels: Tensor, scores: Tensor, crop: int) -> Tensor:
    if not isinstance(labels, Tensor):
        raise WrongTypeError(complaint("labels", labels, "a tensor of classes", "for example torch.tensor([0, 1])"))
    kept = _cropped(labels, crop) if labels.dim() == 3 else labels
    shape = (scores.shape[0], *scores.shape[2:])
    rule = f"one class for each score, {tuple(side + 2 * crop if i else side for i, side in enumerate(shape))}"
    require(tuple(kept.shape) == shape, "labels.shape", tuple(labels.shape), rule)
    whole = kept.dtype != torch.bool and not kept.is_floating_point() and not kept.is_complex()
    inside = whole and int(kept.min()) >= 0 and int(kept.max()) < scores.shape[1]
    require(
        inside, "labels", sorted({*labels.flatten().tolist()})[:5], f"whole numbers from 0 to {scores.shape[1] - 1}"
    )
    return kept.to(scores.device, torch.int64)


def _branches(module: nn.Module, images: Tensor, factors: Sequence[Element], meter: Meter) -> list[Branches]:
    if not isinstance(factors, Sequence):
        raise WrongTypeError(complaint("factors", factors, "a list of factors", "for example [0.5, 0.71]"))
    if not isinstance(meter, Meter):
        raise WrongTypeError(complaint("meter", meter, "a sesn.Meter", "for example sesn.Meter(resampler='fourier')"))
    rule = "at least one factor other than 1, at which every network answers alike"
    require(any(one != 1 for one in factors), "factors", factors, rule, "for example [0.5, 0.71]")
    check_asked(module, images, *factors)
    original: Reading | None = None
    found: list[Branches] = []
    for factor in factors:
        found.append(meter.branches(module, images, factor, original))
        original = found[-1].original
        if found[-1].kind not in ("map", "invariant"):
            raise UsageError(
                f"the output {tuple(found[-1].direct.shape)} is read as {found[-1].kind!r}: predictions are those of "
                "a classifier [b, classes] or a segmenter [b, classes, h, w]; project the scales first"
            )
    return found


def _crop(found: Branches, meter: Meter) -> int:
    edge = background(found.kind, found.direct, found.element, meter.canvas)
    return output_crop(found, meter.crop, acted=meter.action is not None, edge=edge)[0]


def _moved_back(found: Branches, meter: Meter) -> Tensor:
    """The scores of a moved image where those of the original are."""
    if found.kind == "invariant":
        return found.direct
    back = meter.move(found.direct, _inverse(found.element), found.original.seen.stride)
    if back.shape != found.original.output.shape:
        side, small = found.images.shape[-1], found.small.shape[-1]
        raise UsageError(
            f"maps of {tuple(found.direct.shape)} come back as {tuple(back.shape)} and not as "
            f"{tuple(found.original.output.shape)}; use a factor that makes whole pixels, for example {small} / {side}"
        )
    return back


def _inverse(element: GroupElement) -> Element:
    if isinstance(element, Rotation):
        return Rotation(-element.degrees)
    if isinstance(element, ScaleTranslation):
        return element.inverse()
    raise UsageError(f"nobody knows how maps are moved back after the {element}; use factors, shifts or rotations")


def _cropped(output: Tensor, crop: int) -> Tensor:
    return output[..., crop:-crop, crop:-crop] if crop else output


def _predicted(scores: Tensor) -> Tensor:
    return scores.argmax(1) if scores.shape[1] > 1 else scores[:, 0] > 0
