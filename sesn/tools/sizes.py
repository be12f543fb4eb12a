"""Sizes that a network can be measured at: its total stride should divide the sides before and after rescaling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from sesn import Meter
from sesn.errors import UsageError
from sesn.meter.branches import Branches
from sesn.meter.reading import FEWEST_PIXELS, Reading, RejectedError, call
from sesn.scales import ScaleGrid
from sesn.tools.images import USUAL_COUNT, random_images

Shape = tuple[int, int, int]
#: Images of these shapes are tried in turn, where none is asked for.
USUAL_SHAPES: tuple[Shape, ...] = tuple(
    (c, side, side) for side in (96, 224, 28, 32, 64, 128, 256, 384) for c in (3, 1)
)
#: Fewer images are taken where one pass over all of them would have more operations than this, but at least so many.
MOST_OPERATIONS = 1.3e11
FEWEST = 4
#: The stride of a network whose layers do not show it, as those of TorchScript: those of most networks divide it.
UNREAD_STRIDE = 32
#: So many sizes of a rescaled image are tried, the nearest to the one wanted first.
MOST_TRIED = 4


class Sizes(NamedTuple):
    """The shape of the images and the downscales to measure at, with the stride that they were chosen for."""

    shape: Shape
    downscales: list[float]
    stride: int = 1
    fixed: bool = False  # the network takes images of this shape and not when they are rescaled
    stepped: bool = False  # the downscales were moved to steps of the output's grid
    known: bool = True  # the stride was read off the layers; else it is one that those of most networks divide
    refusal: str = ""  # what the network says of images of the shape, or rescaled images, that it was asked to take

    @property
    def written(self) -> dict[str, str]:
        """As options of the command line; 1, which changes nothing, stands for what is no scaling."""
        shape, downscales = "x".join(map(str, self.shape)), ",".join(f"{one:.6g}" for one in self.downscales)
        return {"input_": shape} if self.downscales == [1] else {"input_": shape, "downscale": downscales}

    @property
    def named_stride(self) -> str:
        """The stride in words."""
        return f"stride of {self.stride}" if self.known else f"stride (taken to be {self.stride}, as it cannot be read)"


def fitting_sizes(
    module: nn.Module, shape: Shape | None, asked: Sequence[float] | None, usual: Sequence[float], meter: Meter
) -> Sizes:
    """Sizes at which the two branches can be compared: those asked for, as far as they fit, or else others near them.

    Where there are none, what was asked for comes back: measuring it says what is wrong. A network that takes some
    images, and returns for them what cannot be measured, is refused.
    """
    downscales, trials = usual if asked is None else asked, _Trials(module, meter)
    shapes = USUAL_SHAPES if shape is None else [shape, *(one for one in USUAL_SHAPES if one[0] == shape[0])]
    taken, stride = next(((one, found) for one in shapes if (found := trials.stride(one))), (shapes[0], 0))
    if not stride:
        return Sizes(shapes[0], [*downscales])
    if asked is None:
        downscales = _on_grid(usual, trials.grids[taken])
    known, refusal = trials.known(taken), "" if taken == shapes[0] else str(trials.tried(shapes[0], 1.0))
    told = Sizes(taken, [*downscales], stride, False, [*downscales] != [*usual] and asked is None, known, refusal)
    if meter.canvas == "keep":
        return told
    side = 2 * stride * math.ceil(max(min((shape or taken)[1:]) / (2 * stride), 2))
    square = taken[0], side, side
    # Images of another size are a choice where none was asked for, and a way out where that does not fit.
    for one in dict.fromkeys((square, taken) if shape is None else (taken, square)):
        if kept := trials.kept(one, downscales, stride, asked is not None):
            fits = told._replace(shape=one, downscales=kept)
            if shape is not None or len(kept) == len(downscales):
                return fits
            # So small that the same one is nearest to several.
            larger = taken[0], 2 * max(one[1:]), 2 * max(one[1:])
            more = trials.kept(larger, downscales, stride, asked is not None)
            return told._replace(shape=larger, downscales=more) if len(more) > len(kept) else fits
    # The module itself raises an error on a rescaled image; the meter may refuse for other reasons.
    rescaled = trials.tried(taken, 1 / downscales[0])
    if isinstance(rescaled, RejectedError):
        return told._replace(fixed=True, refusal=refusal or str(rescaled))
    return told._replace(shape=shape or taken)


def fitting_count(module: nn.Module, shape: Shape) -> tuple[int, float]:
    """How many images of a shape to take, fewer for a network of many operations; and how many it has, in billions.

    Operations are counted and not timed, so that the number is the same on every machine.
    """
    counter = FlopCounterMode(display=False)
    with suppress(Exception), torch.no_grad(), counter:  # what cannot be counted is taken for cheap
        call(module, random_images(0, (1, *shape)))
    operations = counter.get_total_flops()
    count = USUAL_COUNT
    while count > FEWEST and count * operations > MOST_OPERATIONS:
        count //= 2
    return count, operations / 1e9


def _on_grid(downscales: Sequence[float], grid: ScaleGrid | None) -> list[float]:
    """Each downscale, or the step of a field's grid nearest to it where it lies between two: there no scale matches."""
    if grid is None or len(grid) < 2:
        return [*downscales]
    steps = [sigma / grid.smallest for sigma in grid][1:]
    near = [
        one if grid.match(1 / one).on_grid else min(steps, key=lambda step: abs(math.log(step / one)))
        for one in downscales
    ]
    return list(dict.fromkeys(near))


@dataclass(frozen=True)
class _Trials:
    """A module tried on one image of several shapes, each of which it sees once as it is."""

    module: nn.Module
    meter: Meter
    originals: dict[Shape, Reading] = field(default_factory=dict)
    grids: dict[Shape, ScaleGrid | None] = field(default_factory=dict)

    def stride(self, shape: Shape) -> int:
        """The stride of the coarsest map on the way to the output; 0 if the module does not take such images."""
        found = self.tried(shape, 1.0)
        if isinstance(found, UsageError):
            if isinstance(found, RejectedError):
                return 0
            raise found
        read = max(1, math.ceil(found.original.sampling[0]))
        return read if self.known(shape) else math.lcm(UNREAD_STRIDE, max(read, math.ceil(found.original.seen.stride)))

    def known(self, shape: Shape) -> bool:
        """Whether the layers show the stride: TorchScript and exported graphs hide theirs."""
        path = self.originals[shape].path
        return path is not None and not path.hidden

    def kept(self, shape: Shape, downscales: Sequence[float], stride: int, asked: bool) -> list[float]:
        """The nearest to each downscale, without repeats; none if one of them has no near one that fits."""
        near = [self.nearest(shape, each, stride, asked) for each in downscales]
        return [] if None in near else list(dict.fromkeys(each for each in near if each is not None))

    def nearest(self, shape: Shape, downscale: float, stride: int, asked: bool) -> float | None:
        """The nearest downscale that fits and leaves multiples of the stride; the one asked for need only fit."""
        _, height, width = shape
        least = math.ceil(FEWEST_PIXELS * max(1, height / width))
        lefts = [left for left in range(stride, 4 * height, stride) if left * width % (height * stride) == 0]
        other = [left for left in lefts if left != height and left >= least]
        whole = [height / left for left in other if (left < height) == (downscale > 1)]
        near = sorted(whole, key=lambda one: abs(math.log(one / downscale)))[:MOST_TRIED]
        for one in (downscale, *near) if asked or stride == 1 else near:
            found = self.tried(shape, 1 / one)
            if isinstance(found, Branches) and found.moved.shape == found.direct.shape:
                return one
        return None

    def tried(self, shape: Shape, factor: float) -> Branches | UsageError:
        """Both branches on one image, or why there are none."""
        try:
            found = self.meter.branches(self.module, random_images(0, (1, *shape)), factor, self.originals.get(shape))
        except UsageError as refusal:
            return refusal
        self.originals[shape], self.grids[shape] = found.original, found.grid
        return found
