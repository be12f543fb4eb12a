"""Inside a module: what every submodule returned in the two branches, compared like an output of the module.

Hooks on every submodule keep each output with the path that led to it. What a submodule went through that does not say
how far it looks counts as looking at one pixel here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sesn.errors import UsageError
from sesn.meter.compare import EquivarianceError
from sesn.meter.outputs import OutputOf, laid_out
from sesn.meter.reading import Reading, call, odd_output
from sesn.meter.trail import Path, Trail
from sesn.scales import ScaleGrid


@dataclass(frozen=True)
class Stage:
    """One call of one submodule."""

    name: str  # where the submodule stands in the module; empty for the module itself
    call: int  # 0 for its first call, 1 for its second, and so on
    module: nn.Module
    shape: tuple[int, ...] = ()  # of its output in the original branch; empty if that cannot be read
    source: int | None = None  # the index of the stage that made its input; None if no submodule did
    error: EquivarianceError | None = None  # Delta after it, without a floor; None if it cannot be compared
    note: str = ""  # why not


@dataclass(frozen=True)
class Recorded:
    """What a hook saw: a stage to be, with the output (a copy, in float64) and how it came about."""

    stage: Stage
    reading: Reading | None
    grid: ScaleGrid | None


def recorded(module: nn.Module, images: Tensor, grid: ScaleGrid | None) -> dict[tuple[str, int], Recorded]:
    """Every call of a submodule, by its name and number, in call order: a container comes after what it holds."""
    calls: dict[tuple[str, int], Recorded] = {}
    path, side = Path(grids=() if grid is None else (grid,)), min(images.shape[-2:])
    trail = Trail(path)
    counts: Counter[str] = Counter()
    tokens = module.tokens if isinstance(module, OutputOf) else None
    # Outputs by identity: the call that made a submodule's input. Kept alive, or an id would be used again.
    made: dict[int, tuple[Tensor, int]] = {}

    def keep(name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        nonlocal path
        source = next((made[id(x)][1] for x in inputs if id(x) in made), None)
        kept, problem = _readable(output)
        if kept is not None and tokens is not None:
            laid = laid_out(kept, tokens)
            kept = kept if laid is None else laid
        shape = () if kept is None else tuple(kept.shape)
        if isinstance(output, Tensor):
            made[id(output)] = output, len(calls)
            path = trail.path_to(output) or path  # within a layer that speaks for itself the path so far counts
        own = getattr(layer, "grid", None)
        scales = own if isinstance(own, ScaleGrid) else next(reversed(path.grids), None)
        stage = Stage(name, counts[name], layer, shape, source, note=problem)
        reading = None if kept is None else Reading(kept, side, path.as_known())
        calls[name, counts[name]] = Recorded(stage, reading, scales)
        counts[name] += 1

    hooks = [sub.register_forward_hook(partial(keep, name)) for name, sub in module.named_modules()]
    try:
        call(module, images, trail)
    except UsageError:
        # One that finished but returned a tuple or NaN has a stage that says so; one that failed has none.
        if ("", 0) not in calls:
            raise
    finally:
        for hook in hooks:
            hook.remove()
    return calls


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
