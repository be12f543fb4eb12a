"""Inside a module: what every submodule returned in the two branches, compared like an output of the module.

Hooks on every submodule keep each output with the path that led to it. What a submodule went through that does not say
how far it looks counts as looking at one pixel here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sesn.errors import UsageError
from sesn.meter.compare import EquivarianceError
from sesn.meter.reading import Reading, call, odd_output
from sesn.meter.trail import Path, Trail
from sesn.scales import ScaleGrid


@dataclass(frozen=True)
class Stage:
    """One call of one submodule.

    Attributes:
        name: where the submodule stands in the module; empty for the module itself.
        call: 0 for its first call, 1 for its second, and so on.
        module: the submodule.
        shape: of its output in the original branch; empty if that cannot be read.
        source: the index of the stage that made its input; None if no submodule did.
        error: Delta after it, without a floor; None if its outputs cannot be compared.
        note: why not.
    """

    name: str
    call: int
    module: nn.Module
    shape: tuple[int, ...] = ()
    source: int | None = None
    error: EquivarianceError | None = None
    note: str = ""


@dataclass(frozen=True)
class Recorded:
    """What a hook saw: a stage to be, with the output (a copy, in float64) and how it came about."""

    stage: Stage
    reading: Reading | None
    grid: ScaleGrid | None


class Recorder:
    """Hooks on every submodule that keep each output in call order: a container comes after what it holds."""

    def __init__(self, module: nn.Module, side: int, grid: ScaleGrid | None) -> None:
        self.calls: list[Recorded] = []
        self._path, self._side = Path(grids=() if grid is None else (grid,)), side
        self._trail = Trail(self._path)
        self._counts: Counter[str] = Counter()
        # Outputs by identity: the call that made a submodule's input. Kept alive, or an id would be used again.
        self._made: dict[int, tuple[Tensor, int]] = {}
        self._module = module

    @classmethod
    def of(cls, module: nn.Module, images: Tensor, grid: ScaleGrid | None) -> list[Recorded]:
        """The calls of a module on images."""
        recorder = cls(module, min(images.shape[-2:]), grid)
        hooks = [sub.register_forward_hook(recorder._hook(name)) for name, sub in module.named_modules()]
        try:
            call(module, images, recorder._trail)
        except UsageError:
            # One that finished but returned a tuple or NaN has a stage that says so; one that failed has none.
            if not recorder.calls or recorder.calls[-1].stage.module is not module:
                raise
        finally:
            for hook in hooks:
                hook.remove()
        return recorder.calls

    def _hook(self, name: str) -> Any:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            source = next((self._made[id(x)][1] for x in inputs if id(x) in self._made), None)
            kept, problem = _readable(output)
            shape = () if kept is None else tuple(kept.shape)
            stage = Stage(name, self._counts[name], module, shape, source, note=problem)
            self._counts[name] += 1
            if isinstance(output, Tensor):
                self._made[id(output)] = output, len(self.calls)
                # Within a layer that speaks for itself the path so far counts.
                self._path = self._trail.path_to(output) or self._path
            own = getattr(module, "grid", None)
            grid = own if isinstance(own, ScaleGrid) else next(reversed(self._path.grids), None)
            reading = None if kept is None else Reading(kept, self._side, self._path.as_known())
            self.calls.append(Recorded(stage, reading, grid))

        return hook


def matched(original: list[Recorded], direct: list[Recorded]) -> list[tuple[Recorded, Recorded | None]]:
    """Each call of the original branch with the same call in the other; a network may branch on its input."""
    others = {(each.stage.name, each.stage.call): each for each in direct}
    return [(each, others.get((each.stage.name, each.stage.call))) for each in original]


def _readable(output: Any) -> tuple[Tensor | None, str]:
    if not isinstance(output, Tensor):
        return None, f"returns {type(output).__name__}, not one tensor"
    if odd := odd_output(output):
        return None, odd.removeprefix("it ")
    if not output.is_floating_point():
        return None, f"returns {output.dtype}, no floating-point numbers"
    if not bool(torch.isfinite(output).all()):
        return None, "returns NaN or infinity"
    return output.detach().to(torch.float64, copy=True), ""  # a copy: the next layer may work in place
