"""`metrics`: one network under every definition of an equivariance error that is in use.

Papers and tools quote different numbers for the same question. Each is taken here from the same outputs on the same
images, with a sentence on what it sees and one on what fools it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.console import Console
from rich.padding import Padding
from rich.text import Text
from torch import Tensor, nn

from sesn import (
    EquivarianceError,
    Meter,
    Rotation,
    ScaleTranslation,
    asymmetry_loss,
    consistency,
    lie_error,
)
from sesn.errors import UsageError
from sesn.meter.compare import middle
from sesn.meter.elements import Element
from sesn.tools.verdict import decibels, number

DEFAULT = Meter()


@dataclass(frozen=True)
class Definition:
    """One way to measure: what it is called and who quotes it, its unit, what it sees and what fools it."""

    name: str
    unit: str
    better: str  # "less" or "more"
    quoted: str
    sees: str
    fooled: str


@dataclass(frozen=True)
class Metric:
    """A definition and its value; NaN with the reason if there is none."""

    definition: Definition
    value: float
    reason: str = ""


@dataclass(frozen=True)
class Case:
    """A network and the images that it is measured on; what several definitions need is measured once."""

    module: nn.Module
    images: Tensor
    factor: float
    meter: Meter

    @cached_property
    def error(self) -> EquivarianceError:
        """Delta under the scaling."""
        return self.meter.measure(self.module, self.images, self.factor)

    def under(self, element: Element) -> float:
        """The relative Delta under another action."""
        return middle(self.meter.measure(self.module, self.images, element, repeat=False).relative)

    def by_channel(self) -> float:
        """The mean over channels of the ratio of each."""
        error = self.meter.measure(self.module, self.images, self.factor, context=False, repeat=False, apart=True)
        return float(error.valid.mean())

    def lie(self) -> float:
        """The local error."""
        return middle(lie_error(self.module, self.images).value)

    def constant(self) -> float:
        """How many predictions stay, in per cent."""
        return 100 * consistency(self.module, self.images, [self.factor], meter=self.meter).mean

    def loss(self) -> float:
        """How much of the loss is due to asymmetry, in per cent."""
        return asymmetry_loss(self.module, self.images, None, [self.factor], meter=self.meter).percent


#: Every definition, and how its value is taken.
DEFINITIONS: tuple[tuple[Definition, Callable[[Case], float]], ...] = (
    (
        Definition(
            "relative Δ",
            "",
            "less",
            "sesn",
            "The difference of the two branches over that of unrelated images: 0 is equivariant, 1 is chance.",
            "Smooth images make it smaller, since rescaling changes little in them.",
        ),
        lambda case: middle(case.error.relative),
    ),
    (
        Definition(
            "Δ",
            "",
            "less",
            "SESN, DISCO, physics",
            "The squared difference of the two branches over the squared output.",
            "A bias or a mean enlarges the output and not the difference, so it looks small.",
        ),
        lambda case: middle(case.error.valid),
    ),
    (
        Definition(
            "Δ without means",
            "",
            "less",
            "sesn",
            "The same without the mean of every channel over space, which a bias changes.",
            "Scores have no space, so they have none; a nearly constant channel makes it a ratio of small numbers.",
        ),
        lambda case: _with_space(case, middle(case.error.centred)),
    ),
    (
        Definition(
            "signal to error",
            "dB",
            "more",
            "signal processing",
            "Δ on a logarithmic scale, -10 log10 Δ.",
            "What fools Δ: a bias adds decibels.",
        ),
        lambda case: middle(case.error.decibels),
    ),
    (
        Definition(
            "PSNR",
            "dB",
            "more",
            "StyleGAN3",
            "The mean squared difference against the range of the output's values.",
            "A few extreme values widen the range, and then every other difference looks small.",
        ),
        lambda case: middle(case.error.psnr()),
    ),
    (
        Definition(
            "largest difference",
            "",
            "less",
            "e3nn",
            "The largest error of a single number of the output.",
            "It has the unit of the output: smaller weights make it smaller, and one odd pixel makes it large.",
        ),
        lambda case: middle(case.error.largest),
    ),
    (
        Definition(
            "mean of channel ratios",
            "",
            "less",
            "Fourier layers",
            "Δ of every channel by itself, averaged.",
            "A channel that is nearly dead counts as much as all others, and can have any ratio.",
        ),
        lambda case: case.by_channel(),
    ),
    (
        Definition(
            "Lie error",
            "per (ln s)²",
            "less",
            "lie-deriv",
            "How fast the difference grows as the scale moves away from 1.",
            "It knows nothing of larger changes of scale, and a bias makes it small as it does Δ.",
        ),
        lambda case: case.lie(),
    ),
    (
        Definition(
            "relative Δ, shift by 1 pixel",
            "",
            "less",
            "StyleGAN3 (EQ-T)",
            "What depends on the place: strides, borders, position embeddings.",
            "It says nothing of scale: an ordinary convolution has none of it.",
        ),
        lambda case: case.under(ScaleTranslation(1.0, (1.0, 1.0))),
    ),
    (
        Definition(
            "relative Δ, rotation by 90 degrees",
            "",
            "less",
            "StyleGAN3 (EQ-R), escnn",
            "Kernels that prefer a direction.",
            "It says nothing of scale: a scale-equivariant network may have as much of it as any other.",
        ),
        lambda case: case.under(Rotation(90.0)),
    ),
    (
        Definition(
            "consistency",
            "%",
            "more",
            "segmentation papers",
            "How many predictions, of images or of pixels, stay the same.",
            "A network that always gives the same answer reaches 100 %; changes that keep the class are not seen.",
        ),
        lambda case: case.constant(),
    ),
    (
        Definition(
            "loss due to asymmetry",
            "%",
            "less",
            "Shen et al. 2025",
            "How much of the cross-entropy disappears when the scores are averaged over the sizes.",
            "Scores near zero have a loss that hardly depends on them; here the labels are the network's own answers.",
        ),
        lambda case: case.loss(),
    ),
)


def metrics(module: nn.Module, images: Tensor, factor: float, meter: Meter = DEFAULT) -> list[Metric]:
    """Measure a module under every definition.

    Args:
        module: in eval mode.
        images: zero-mean images [n, c, h, w], at least two.
        factor: s; below 1 shrinks.
        meter: how to measure.

    Example:
        >>> from sesn.tools.images import random_images
        >>> found = metrics(nn.Conv2d(1, 3, 3, padding=1), random_images(0, (2, 1, 48, 48)), 1 / 2)
        >>> [one.definition.name for one in found][:3]
        ['relative Δ', 'Δ', 'Δ without means']
    """
    case = Case(module, images, factor, meter)
    _ = case.error  # what cannot be measured at all is refused here
    return [_measured(case, definition, take) for definition, take in DEFINITIONS]


def _measured(case: Case, definition: Definition, take: Callable[[Case], float]) -> Metric:
    try:
        value = take(case)
    except UsageError as refusal:
        return Metric(definition, math.nan, str(refusal))
    return Metric(definition, value, _silence(case.error) if math.isnan(value) else "")


def _silence(error: EquivarianceError) -> str:
    """Why a ratio of an error has no value."""
    if (error.energy == 0).any():
        return "the output is zero, and there is nothing to divide by"
    if error.valid.isnan().any():
        return f"no scale channel is left to compare ({error.lost} lost)"
    return error.empty() or "what it divides by is zero"


def _with_space(case: Case, value: float) -> float:
    if math.isnan(value) and case.error.kind == "invariant":
        raise UsageError("scores have no spatial mean to remove")
    return value


def written(metric: Metric) -> str:
    """The value with its unit; a dash if there is none."""
    value, unit = metric.value, metric.definition.unit
    if unit == "%" and not math.isnan(value):
        return f"{value:.3g} %"
    return decibels(value) if unit == "dB" else number(value)


def say(console: Console, found: Sequence[Metric], title: str) -> None:
    """The values for a terminal, each with its two sentences."""
    console.print(Text(f"{title}\n", style="bold"))
    for one in found:
        told = one.definition
        console.print(Text(f"{told.name:<36}{written(one):>10}   {told.better} is better"))
        why = [f"None here: {one.reason}."] if one.reason else []
        words = " ".join([*why, told.sees, told.fooled, f"Quoted by {told.quoted}."])
        console.print(Padding(Text(words), (0, 0, 0, 4)))


def rows(found: Sequence[Metric]) -> Iterator[dict[str, object]]:
    """Everything as plain data."""
    for one in found:
        yield {**vars(one.definition), "value": one.value, "reason": one.reason}
