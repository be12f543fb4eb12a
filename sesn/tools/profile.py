"""`profile`: Delta after every submodule of a network, so that one sees which layer breaks it.

Both branches, Phi(f) and Phi(L_s f), run with hooks on every submodule; what a submodule returned in the one is
compared with what it returned in the other, read by its rank. Submodules that are never called have no row; an output
that cannot be compared has a row that says why. What functions make between two submodules, such as the sum of a
residual branch and its input, has a row as well. What each adds by itself, `sesn.meter.attribution` finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from sesn import Meter
from sesn.meter.compare import middle
from sesn.meter.elements import Element
from sesn.meter.outputs import own_name
from sesn.meter.reading import like_module
from sesn.meter.stages import Stage

DEFAULT = Meter()
#: The row of the whole module.
WHOLE = "(output)"
#: In place of a layer, for what functions have made of the outputs before.
FUNCTIONS = "functions"
#: What adds no more than this part of the relative Delta after it adds nothing.
KEEPS = 0.05
#: One within this many times the probe's floor may be zero.
AT_FLOOR = 3


@dataclass(frozen=True)
class LayerRow:
    """One call of one submodule; its numbers are medians over the images."""

    name: str  # where the submodule stands in the network; "(output)" for the network itself
    call: int  # 0 for its first call, 1 for its second, ...
    layer: str  # its class; "functions" for what the submodule was given, if no other submodule has made it
    leaf: bool  # whether no other submodule was called in it
    kind: str = ""  # how its output was read: field, map, tokens, scale, invariant; empty if it was not
    shape: tuple[int, ...] = ()  # of its output in the original branch
    relative: float = math.nan  # Delta over what unrelated images give; NaN if it could not be taken
    delta: float = math.nan  # Delta itself
    #: The relative Delta of its output when its inputs are exact: what it adds, with all that it holds;
    added: float = math.nan
    own: float = math.nan  # by itself: of a container, what it does with the outputs of what it holds;
    lasting: float = math.nan  # and the relative Delta that this leaves in the output; NaN if it was not followed
    energy: float = math.nan  # the mean square of its output
    crop: int = 0  # pixels left out at each border
    values: tuple[float, ...] = ()  # Delta of every image
    note: str = ""  # why there is no Delta, or what to know about it

    @property
    def title(self) -> str:
        """Its name, and which call if it was called before."""
        again = f" (call {self.call + 1})" if self.call else ""
        return f"{'before ' if self.layer == FUNCTIONS else ''}{self.name}{again}"

    @property
    def depth(self) -> int:
        """How deep it is nested; 0 for the whole network."""
        return 0 if self.name == WHOLE else 1 + self.name.count(".")

    def change(self, *, opened: bool = True) -> float:
        """What it adds: by itself, or with all that it holds if that is not shown."""
        return self.own if opened else self.added

    def keeps(self, *, opened: bool = True) -> bool:
        """Whether it adds next to nothing."""
        return self.change(opened=opened) <= KEEPS * self.relative

    @property
    def weight(self) -> tuple[float, float]:
        """By which rows are sorted: what is left of what it adds, and that itself."""
        return (0.0 if math.isnan(self.lasting) else self.lasting), (0.0 if math.isnan(self.own) else self.own)


def profile(
    module: nn.Module,
    images: Tensor,
    factor: Element,
    meter: Meter = DEFAULT,
    on_step: Callable[[float], None] = lambda part: None,
) -> list[LayerRow]:
    """Measure Delta after every submodule, in call order.

    Args:
        module: in eval mode.
        images: zero-mean images [n, c, h, w].
        factor: s; below 1 shrinks. Or an element of the group: `ScaleTranslation(1.0, (4, 4))` shifts by four pixels.
        meter: how to measure. Its `grid` is for fields made before any submodule with a `.grid` is called; afterwards
            the last one called counts.
        on_step: told which part of the work was done now; the parts sum to 1.

    Example:
        >>> from sesn.tools.images import random_images
        >>> network = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.ReLU()).eval()
        >>> [row.name for row in profile(network, random_images(0, (2, 1, 48, 48)), 1 / 2)]
        ['0', '1', '(output)']
    """
    stages = meter.inside(module, images, factor, on_step)
    called = {stage.name.rpartition(".")[0] for stage in stages if stage.name}
    return [_row(stage, own_name(module, stage.name), leaf=stage.given or stage.name not in called) for stage in stages]


def floor_of(module: nn.Module, images: Tensor, factor: Element, meter: Meter = DEFAULT) -> float:
    """What the meter itself contributes, at the largest crop, and the rounding of the module's dtype."""
    probe = middle(meter.floor(images, factor, max(images.shape[-2:])))
    return max(probe, torch.finfo(like_module(module, images).dtype).eps ** 2)


def _row(stage: Stage, own: str, *, leaf: bool) -> LayerRow:
    name, layer = own or WHOLE, FUNCTIONS if stage.given else type(stage.module).__name__
    shares: Any = {"own": stage.own, "added": stage.whole, "lasting": stage.lasting}
    row, error = LayerRow(name, stage.call, layer, leaf, shape=stage.shape, **shares), stage.error
    if error is None:
        return replace(row, note=stage.note)
    delta, note = error.valid, error.empty()
    if not error.pairs:
        note = f"factor {error.factor:.3g} reaches beyond the grid: no scale channel has a partner"
    elif bool((error.energy == 0).all()):
        note = "the output is zero: there is nothing to compare"
    elif bool(delta.isnan().all()):
        delta, note = error.all, "no scale channel is left whole: Delta over the spoilt ones"
    return replace(
        row,
        kind="tokens" if stage.tokens else error.kind,
        relative=middle(error.relative),
        delta=middle(delta),
        added=stage.whole if own else middle(error.relative),
        energy=middle(error.energy),
        crop=error.crop,
        values=tuple(delta.tolist()),
        note=note,
    )


def adds_most(rows: Sequence[LayerRow], floor: float = 0.0) -> LayerRow | None:
    """What adds most to the output; None if nothing adds more than the probe's floor."""
    known = [row for row in rows if row.own > AT_FLOOR * floor]
    return max(known, key=lambda row: row.weight, default=None)
