"""`profile`: Delta after every submodule of a network, so that one sees which layer breaks it.

Both branches, Phi(f) and Phi(L_s f), run with hooks on every submodule; what a submodule returned in the one is
compared with what it returned in the other, read by its rank. Submodules that are never called have no row; an output
that cannot be compared has a row that says why. What functions make between two submodules, such as the sum of a
residual branch and its input, has a row as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from sesn import Meter
from sesn.meter.compare import EquivarianceError, middle
from sesn.meter.elements import Element
from sesn.meter.outputs import own_name
from sesn.meter.reading import SPATIAL, like_module
from sesn.meter.stages import Stage

DEFAULT = Meter()
#: The row of the whole module.
WHOLE = "(output)"
#: In place of a layer, for what functions have made of the outputs before.
FUNCTIONS = "functions"
#: A relative Delta within this part of the one before has not changed.
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
    #: By how much the relative Delta is above that of its input, both between the floor and 1, which is chance.
    added: float = math.nan
    #: The same above what its output was made of: for a container, the submodules called last in it.
    own: float = math.nan
    #: What is left of `own`: no more than each container around it adds, or than is found on the way to the output.
    lasting: float = math.nan
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
        """Whether it changes next to nothing."""
        change = self.change(opened=opened)
        # A sum lies between its terms as a rule: what counts of functions is that they add.
        return (change if self.layer == FUNCTIONS else abs(change)) <= KEEPS * max(
            self.relative, self.relative - change
        )


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
    least = floor_of(module, images, factor, meter)
    called = {stage.name.rpartition(".")[0] for stage in stages if stage.name}
    rows: list[LayerRow] = []
    before: list[float] = []  # the relative Delta of what each was made of
    # The relative Delta of each with space and without, or what it was before where there is none.
    levels: dict[bool, list[float]] = {True: [], False: []}

    def level(sources: Sequence[int] | None, spatial: bool) -> float:
        """The relative Delta of what something was made of, read like it; that of an image is the floor."""
        several = range(len(rows))[-1:] if sources is None else sources
        return max((levels[spatial][source] for source in several), default=least)

    def bounded(error: EquivarianceError | None) -> float:
        """The relative Delta between the floor and chance, beyond which nothing is lost or won; NaN if unknown."""
        relative = math.nan if error is None else middle(error.relative)
        return relative if math.isnan(relative) else min(max(relative, least), 1.0)

    for stage in stages:
        row = _row(stage, own_name(module, stage.name), leaf=stage.given or stage.name not in called)
        spatial = stage.error is None or stage.error.kind in SPATIAL
        here, made_of = bounded(stage.error), level(stage.sources, spatial)
        given = made_of if stage.given else level(stage.inputs, spatial)
        rows.append(replace(row, added=here - given, own=here - made_of))
        before.append(made_of)
        for read, found in (True, stage.error), (False, stage.pooled):
            after = bounded(found)
            levels[read].append(level(stage.sources, read) if math.isnan(after) else after)
    kept = _kept(stages, levels)
    left = [max(0.0, after - made_of) for after, made_of in zip(kept, before, strict=True)]
    return _lasting([replace(row, lasting=min(row.own, most)) for row, most in zip(rows, left, strict=True)])


def _kept(stages: Sequence[Stage], levels: Mapping[bool, Sequence[float]]) -> list[float]:
    """How much of the relative Delta after each stage is found all the way to the output, on the way that keeps most.

    Read with space or without, like the stage; where a mean over space follows, the two cannot be compared.
    """
    spatial = [stage.error is None or stage.error.kind in SPATIAL for stage in stages]
    kept = [levels[read][place] for place, read in enumerate(spatial)]
    after: list[list[float]] = [[] for _ in stages]
    for place in reversed(range(len(stages))):
        kept[place] = min(kept[place], max(after[place], default=math.inf))
        sources = stages[place].sources
        for source in range(place)[-1:] if sources is None else sources:
            after[source].append(kept[place] if spatial[source] == spatial[place] else math.inf)
    return kept


def _lasting(rows: Sequence[LayerRow]) -> list[LayerRow]:
    """With what is left of each addition: a residual block takes most of its branch's error away again."""
    found: list[LayerRow] = []
    around: dict[str, float] = {}  # by the container's name; it comes after what it holds, so the last row is first
    for row in reversed(rows):
        parts = [] if row.name == WHOLE else row.name.split(".")
        limits = [around.get(".".join(parts[:deep]), math.inf) for deep in range(1, len(parts))]
        found.append(replace(row, lasting=min([row.lasting, *(limit for limit in limits if not math.isnan(limit))])))
        if row.layer != FUNCTIONS:
            around[row.name] = row.added
    return found[::-1]


def floor_of(module: nn.Module, images: Tensor, factor: Element, meter: Meter = DEFAULT) -> float:
    """What the meter itself contributes, at the largest crop, and the rounding of the module's dtype."""
    probe = middle(meter.floor(images, factor, max(images.shape[-2:])))
    return max(probe, torch.finfo(like_module(module, images).dtype).eps ** 2)


def _row(stage: Stage, own: str, *, leaf: bool) -> LayerRow:
    name, layer = own or WHOLE, FUNCTIONS if stage.given else type(stage.module).__name__
    row, error = LayerRow(name, stage.call, layer, leaf, shape=stage.shape), stage.error
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
        energy=middle(error.energy),
        crop=error.crop,
        values=tuple(delta.tolist()),
        note=note,
    )


def adds_most(rows: Sequence[LayerRow], floor: float = 0.0) -> LayerRow | None:
    """Where most is added that lasts; None if the relative Delta is nowhere above the probe's floor."""
    known = [row for row in rows if row.own > 0 and row.relative > AT_FLOOR * floor]
    return max(known, key=lambda row: (row.lasting, row.own), default=None)
