"""Inside a module: what every submodule returned in the two branches, compared like an output of the module.

Hooks on every submodule keep each output with the path that led to it, and each input that functions between them have
made. What a submodule went through that does not say how far it looks counts as looking at one pixel here.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from sesn._torch import version
from sesn.errors import UsageError
from sesn.meter.compare import EquivarianceError
from sesn.meter.outputs import SET, OutputOf, laid_out
from sesn.meter.reading import Reading, call, odd_output, precise
from sesn.meter.trail import Path, Trail
from sesn.scales import ScaleGrid

#: The name of a submodule, which call of it, and the place of what it was given, or 0 for what it returned.
Key = tuple[str, int, int]


@dataclass(frozen=True)
class Stage:
    """One call of one submodule, or what functions have made that such a call was given."""

    name: str  # where the submodule stands in the module; empty for the module itself
    call: int  # 0 for its first call, 1 for its second, and so on
    module: nn.Module
    given: bool = False  # whether this is what the submodule was given: no submodule has made it
    shape: tuple[int, ...] = ()  # of its output in the original branch; empty if that cannot be read
    tokens: bool = False  # whether these were tokens, which are read as a map
    error: EquivarianceError | None = None  # Delta after it, without a floor; None if it cannot be compared
    note: str = ""  # why not
    #: Relative Delta, NaN if it cannot be told: what it adds to exact inputs, a container without what it holds;
    own: float = math.nan
    whole: float = math.nan  # a container with what it holds;
    lasting: float = math.nan  # and what the output has of its own error


@dataclass(frozen=True)
class Recorded:
    """What a hook saw: a stage to be, with a copy of the output and how it came about."""

    stage: Stage
    output: Tensor | None
    side: int
    path: Path
    grid: ScaleGrid | None
    apart: Tensor | None = None  # of tokens, those that have no place in the image

    @property
    def reading(self) -> Reading | None:
        """The output in float64; None if it cannot be read."""
        return None if self.output is None else Reading(precise(self.output), self.side, self.path.as_known())


class _Made(NamedTuple):
    """What was returned, kept alive since its id would be used again, in the version that it had."""

    output: Any
    version: int | None
    copy: Tensor | None = None
    apart: Tensor | None = None


class _Recorder:
    """Hooks that keep every call of a submodule, by its name, its number and the place of what it was given, or 0."""

    def __init__(self, module: nn.Module, images: Tensor, grid: ScaleGrid | None) -> None:
        self.calls: dict[Key, Recorded] = {}
        self.trail = Trail(Path(grids=() if grid is None else (grid,)))
        self._path, self._side = self.trail.start, min(images.shape[-2:])
        # Tokens lie on a grid of the image's proportions, unless another is known.
        told = module.tokens if isinstance(module, OutputOf) and module.tokens != SET else None
        self._tokens = told or (images.shape[-2], images.shape[-1])
        self._token_count = 0
        self._counts: Counter[str] = Counter()
        self._made: dict[int, _Made] = {}  # by identity

    def enter(self, name: str, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        """A submodule is called. What it is given is looked at before the call, which may change it in place."""
        for place, tensor in enumerate((x for x in inputs if isinstance(x, Tensor)), start=1):
            if not name:
                self._made[id(tensor)] = _Made(tensor, version(tensor))
            unknown = self._known(tensor) is None and self.trail.path_to(tensor) is not None
            if unknown and not _unreadable(tensor):
                self._keep(Stage(name, self._counts[name], layer, given=True), tensor, place)

    def leave(self, name: str, layer: nn.Module, _: tuple[Any, ...], output: Any) -> None:
        """A submodule has returned."""
        self._keep(Stage(name, self._counts[name], layer), only_tensor(output))
        self._counts[name] += 1

    def _known(self, output: Any) -> _Made | None:
        made = self._made.get(id(output))
        return made if made is not None and made.version == version(made.output) else None

    def _keep(self, stage: Stage, output: Any, place: int = 0) -> None:
        """Record a stage with a copy of its output, or with the one that there is of the very same tensor."""
        problem = _unreadable(output)
        if isinstance(output, Tensor):
            # Within a layer that speaks for itself the path so far counts.
            self._path = self.trail.path_to(output) or self._path
        own = None if stage.given else getattr(stage.module, "grid", None)
        grid = own if isinstance(own, ScaleGrid) else next(reversed(self._path.grids), None)
        made = self._known(output)
        if made is None or made.copy is None:
            copy, apart = (None, None) if problem else self._copied(output, grid)
            made = _Made(output, version(output) if isinstance(output, Tensor) else None, copy, apart)
        self._made[id(output)] = made
        shape = () if made.copy is None else tuple(made.copy.shape)
        stage = replace(stage, shape=shape, tokens=made.apart is not None, note=problem)
        kept = Recorded(stage, made.copy, self._side, self._path, grid, made.apart)
        self.calls[stage.name, stage.call, place] = kept

    def _copied(self, output: Tensor, grid: ScaleGrid | None) -> tuple[Tensor, Tensor | None]:
        """A copy, since the next layer may work in place; of tokens a map, and those without a place on it."""
        copy = output.detach().clone()
        if grid is not None:
            return copy, None
        if output.dim() == 4 and output.shape[2] == self._token_count:  # of several heads, [b, heads, n, c]
            output = output.transpose(1, 2).flatten(2)
        laid = laid_out(output.detach(), self._tokens)
        if laid is None:
            return copy, None
        self._token_count = output.shape[1]
        apart = output.shape[1] - laid.shape[-2] * laid.shape[-1]
        return laid.clone(), output[:, :apart].detach().clone()


def recorded(module: nn.Module, images: Tensor, grid: ScaleGrid | None) -> dict[Key, Recorded]:
    """Every call of a submodule, in call order: a container comes after what it holds, inputs before who takes them."""
    recorder = _Recorder(module, images, grid)
    hooks: list[RemovableHandle] = []
    for name, layer in module.named_modules():
        hooks.append(layer.register_forward_pre_hook(partial(recorder.enter, name)))
        hooks.append(layer.register_forward_hook(partial(recorder.leave, name)))
    try:
        call(module, images, recorder.trail)
    except UsageError:
        # One that finished but returned a tuple or NaN has a stage that says so; one that failed has none.
        if ("", 0, 0) not in recorder.calls:
            raise
    finally:
        for hook in hooks:
            hook.remove()
    return recorder.calls


def only_tensor(output: Any) -> Any:
    """The tensor of a tuple or list in which it is the only one, as attention returns it without its weights."""
    found = [one for one in output if isinstance(one, Tensor)] if isinstance(output, tuple | list) else []
    return found[0] if len(found) == 1 else output


def with_only_tensor(output: Any, tensor: Tensor) -> Any:
    """An output with another tensor in place of its only one."""
    if isinstance(output, Tensor):
        return tensor
    parts = [tensor if isinstance(one, Tensor) else one for one in output]
    return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)


def _unreadable(output: Any) -> str:
    """Why an output cannot be compared; an empty text if it can."""
    if not isinstance(output, Tensor):
        return f"returns {type(output).__name__}, not one tensor"
    if odd := odd_output(output):
        return odd.removeprefix("it ")
    if not output.is_floating_point():
        return f"returns {output.dtype}, no floating-point numbers"
    return "" if bool(torch.isfinite(output).all()) else "returns NaN or infinity"
