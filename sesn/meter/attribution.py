"""What each stage of a module adds to Delta by itself, and how much of that is found in the output.

A stage is given inputs that are exact, which are those of the original branch, moved. What it returns for them is
compared with its output of the original branch, moved: the difference is its own error. One pass over the moved images
does this for all stages, since each output is put right before anybody else is given it. What is left of an error at
the output is the difference between two passes: in the one all stages before are put right, in the other this one too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sesn._torch import version
from sesn.errors import UsageError
from sesn.meter import reading
from sesn.meter.branches import Branches
from sesn.meter.compare import middle
from sesn.meter.stages import Key, Stage, only_tensor, with_only_tensor

if TYPE_CHECKING:
    from sesn.meter.meter import Meter

#: An own error below this part of the largest is not followed to the output, nor are more than so many.
FOLLOWED = 0.01
MOST_FOLLOWED = 40


@dataclass(frozen=True)
class Exact:
    """What a stage should return for the moved images."""

    meter: Meter
    found: Branches  # both branches after it, read as the stage is
    unrelated: Tensor | None  # for unrelated images
    apart: Tensor | None  # tokens of the original branch that have no place in the image; None of what is no tokens

    @property
    def output(self) -> Tensor:
        """The output of the original branch, moved; scale channels without a partner are those of the moved images."""
        moved, direct, grid = self.found.moved, self.found.direct, self.found.grid
        if grid is None:
            return moved
        exact = direct.clone()
        for k, j in grid.match(self.found.factor).pairs:
            exact[:, :, k] = moved[:, :, j]
        return exact

    def like(self, made: Tensor) -> Tensor:
        """The same as the stage returns it: tokens in their order, those without a place first."""
        exact = self.output
        if self.apart is not None:
            tokens = exact.flatten(2).transpose(1, 2)
            exact = torch.cat([self.apart.to(tokens), tokens], 1)
            if made.dim() == 4:  # of several heads
                exact = exact.reshape(*exact.shape[:2], made.shape[1], -1).transpose(1, 2)
        return exact.reshape(made.shape).to(made, copy=True)

    def relative(self, made: Tensor) -> float:
        """The relative Delta of what was returned in its place."""
        if self.apart is not None:
            tokens = made.transpose(1, 2).flatten(2) if made.dim() == 4 else made
            made = tokens[:, self.apart.shape[1] :].transpose(1, 2)
        direct = made.to(self.found.direct).reshape(self.found.direct.shape)
        error = self.meter.error(replace(self.found, direct=direct), context=False, unrelated=self.unrelated)
        return middle(error.relative)


@dataclass(frozen=True)
class Shares:
    """The relative Delta that stages add, by what they are called; what could not be told is missing."""

    own: dict[Key, float] = field(default_factory=dict)  # by themselves: a container's without what it holds
    whole: dict[Key, float] = field(default_factory=dict)  # containers' with all that they hold
    lasting: dict[Key, float] = field(default_factory=dict)  # what is left of their own at the output

    def given_to(self, key: Key, stage: Stage) -> Stage:
        """A stage with its shares; what holds nothing adds as much with it as without."""
        own, lasting = self.own.get(key, math.nan), self.lasting.get(key, math.nan)
        return replace(stage, own=own, whole=self.whole.get(key, own), lasting=lasting)


class _Pass:
    """Hooks that put right what stages are given and return, as far as they are called no later than the last."""

    def __init__(self, exact: Mapping[Key, Exact], last: float = math.inf, containers: Collection[str] = ()) -> None:
        self.exact, self.last, self.containers = exact, last, containers
        self.order = {key: place for place, key in enumerate(exact)}
        self.shares = Shares()
        self._counts: Counter[str] = Counter()
        self._put: dict[int, tuple[Tensor, int | None]] = {}  # by identity, and kept alive for it
        self._paused = False

    def run(self, module: nn.Module, images: Tensor) -> Tensor:
        """The output of the module."""
        hooks = []
        for name, layer in module.named_modules():
            hooks.append(layer.register_forward_pre_hook(partial(self._enter, name), with_kwargs=True))
            hooks.append(layer.register_forward_hook(partial(self._leave, name)))
        try:
            return reading.call(module, images)
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, name: str, layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self._paused:
            return None
        given, place = list[Any](), 0
        for one in inputs:
            place += isinstance(one, Tensor)
            given.append(self._right((name, self._counts[name], place), one) if isinstance(one, Tensor) else one)
        if name in self.containers:
            self._alone((name, self._counts[name], 0), layer, given, named)
        return tuple(given), named

    def _alone(self, key: Key, layer: nn.Module, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        """What a container adds with all that it holds: nothing in it is put right."""
        if key not in self.exact:
            return
        self._paused = True
        copied = [one.clone() if isinstance(one, Tensor) else one for one in given]
        made = only_tensor(layer(*copied, **named))
        self._paused = False
        if isinstance(made, Tensor):
            self.shares.whole[key] = self.exact[key].relative(made)

    def _leave(self, name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        if self._paused:
            return None
        key, made = (name, self._counts[name], 0), only_tensor(output)
        self._counts[name] += 1
        if not isinstance(made, Tensor):
            return None
        right = self._right(key, made)
        if right is not made and any(made is one for one in inputs):  # changed in place, and others may use it
            right = made.copy_(right)
            self._put[id(right)] = right, version(right)
        return with_only_tensor(output, right)

    def _right(self, key: Key, made: Tensor) -> Tensor:
        """What should be in the place of a tensor; before the last stage that is put right."""
        if key not in self.exact:
            return made
        known, counted = self._put.get(id(made), (None, None))
        whole = known is made and counted == version(made)
        if self.last == math.inf:
            self.shares.own[key] = 0.0 if whole else self.exact[key].relative(made)
        if whole or self.order[key] > self.last:
            return made
        right = self.exact[key].like(made)
        self._put[id(right)] = right, version(right)
        return right


def shares(
    module: nn.Module,
    small: Tensor,
    exact: Mapping[Key, Exact],
    containers: Collection[str],
    on_step: Callable[[float], None] = lambda part: None,
) -> Shares:
    """What each stage adds by itself, and what is left of it at the output.

    Args:
        module: in eval mode.
        small: the moved images.
        exact: what each stage should return, in call order; those that are missing are not put right.
        containers: names of the submodules that call others; the module itself is empty.
        on_step: told which part of the work was done now.
    """
    first = _Pass(exact, containers=containers)
    try:
        first.run(module, small)
    except UsageError:  # it minds being given other tensors, or returns what cannot be read
        if ("", 0, 0) not in first.shares.own:
            return Shares()
    on_step(0.5)
    return replace(first.shares, lasting=_lasting(module, small, exact, first.shares.own, on_step))


def _lasting(
    module: nn.Module,
    small: Tensor,
    exact: Mapping[Key, Exact],
    own: Mapping[Key, float],
    on_step: Callable[[float], None],
) -> dict[Key, float]:
    """How far the output changes once each stage is put right, where those before it are: these changes sum up to all.

    Of the stages with the largest own errors.
    """
    end, keys = exact.get(("", 0, 0)), [*exact]
    least = FOLLOWED * max((one for one in own.values() if not math.isnan(one)), default=0.0)
    counted = [place for place, key in enumerate(keys) if own.get(key, 0.0) > least]
    if end is None or not counted:
        on_step(0.5)
        return {}
    largest = sorted(counted, key=lambda place: -own[keys[place]])[:MOST_FOLLOWED]
    before = {place: max((one for one in counted if one < place), default=-1) for place in largest}
    needed = sorted({*before.values(), *before})
    outputs = {}
    for last in needed:
        outputs[last] = _Pass(exact, last).run(module, small)
        on_step(0.5 / len(needed))
    right = end.like(outputs[needed[0]])
    return {keys[place]: end.relative(right + (outputs[before[place]] - outputs[place])) for place in largest}
