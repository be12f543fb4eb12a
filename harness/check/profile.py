"""The layer profile: Delta after every submodule of a network, so that one sees which layer breaks it.

Both branches, Phi(f) and Phi(L_s f), run with hooks on every submodule; what a submodule returned in the one is
compared with what it returned in the other, read by its rank. Submodules that are never called have no row; an output
that cannot be compared has a row that says why.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from rich.table import Table
from torch import Tensor, nn

from harness.check.target import odd_output
from sesn import ScaleGrid, rescale
from sesn.meter.compare import compare, middle
from sesn.meter.floor import reference_error
from sesn.meter.reading import SPATIAL, call, check_eval, check_images, output_crop, output_kind, quarter_side
from sesn.meter.receptive import Receptive, receptive_field, spoilt_by
from sesn.meter.resample import Ends, Resampler, resampler_ends

#: The row of the whole module.
WHOLE = "(output)"


@dataclass(frozen=True)
class LayerRow:
    """One call of one submodule.

    Attributes:
        name: where the submodule stands in the network; "(output)" for the network itself.
        call: 0 for its first call, 1 for its second, ...
        layer: its class.
        leaf: whether it has no submodules of its own.
        kind: how its output was read: field, map, scale, invariant; empty if it was not.
        shape: the shape of its output in the original branch.
        delta: the median of Delta over the images, NaN if it could not be taken.
        jump: delta over that of the submodule's input (at least the probe's floor): how much it grew here.
        energy: the mean square of its output, a median over the images.
        crop: pixels left out at each border.
        values: Delta of every image.
        note: why there is no Delta, or what to know about it.
    """

    name: str
    call: int
    layer: str
    leaf: bool
    kind: str = ""
    shape: tuple[int, ...] = ()
    delta: float = math.nan
    jump: float = math.nan
    energy: float = math.nan
    crop: int = 0
    values: tuple[float, ...] = ()
    note: str = ""


@dataclass
class _Call:
    """What a hook saw: the output (kept, in float64) and what had happened upstream."""

    name: str
    number: int
    module: nn.Module
    output: Tensor | None
    grid: ScaleGrid | None
    spoiled: int
    seen: Receptive
    source: int | None
    problem: str = ""


class _Recorder:
    """Hooks on every submodule that keep each output in call order (a container comes after what it holds)."""

    def __init__(self, module: nn.Module, grid: ScaleGrid | None, side: int) -> None:
        self.calls: list[_Call] = []
        self._grid, self._side = grid, side
        self._spoiled, self._radius = 0, 0.0
        self._counts: Counter[str] = Counter()
        # Outputs by identity: the call that made a submodule's input. Kept alive, or an id would be used again.
        self._made: dict[int, tuple[Tensor, int]] = {}
        self._handles = [sub.register_forward_hook(self._hook(name or WHOLE)) for name, sub in module.named_modules()]

    @property
    def finished(self) -> bool:
        """Whether the network itself has returned."""
        return bool(self.calls) and self.calls[-1].name == WHOLE

    def remove(self) -> None:
        """Take the hooks off again."""
        for handle in self._handles:
            handle.remove()

    def _hook(self, name: str) -> Any:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            self._follow(module, inputs)
            self._keep(name, module, inputs, output)

        return hook

    def _follow(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        own = getattr(module, "grid", None)
        if isinstance(own, ScaleGrid):
            self._grid = own
        self._spoiled += spoilt_by(module)
        if not any(module.children()):
            self._radius += receptive_field(module).radius * self._spacing(inputs[0] if inputs else None)

    def _spacing(self, tensor: Any) -> int:
        """Input pixels between neighbouring pixels here, from the sizes: parallel strides must not multiply."""
        spatial = isinstance(tensor, Tensor) and tensor.dim() >= 4 and min(tensor.shape[-2:]) > 0
        return max(1, round(self._side / min(tensor.shape[-2:]))) if spatial else 1

    def _keep(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        source = next((self._made[id(x)][1] for x in inputs if id(x) in self._made), None)
        kept, problem = _readable(output)
        seen = Receptive(self._radius, self._spacing(output))
        number = self._counts[name]
        self._counts[name] += 1
        if isinstance(output, Tensor):
            self._made[id(output)] = output, len(self.calls)
        self.calls.append(_Call(name, number, module, kept, self._grid, self._spoiled, seen, source, problem))


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


def layer_profile(
    module: nn.Module,
    images: Tensor,
    factor: float,
    *,
    grid: ScaleGrid | None = None,
    resampler: Resampler = "lanczos3",
    crop: int | Literal["auto"] = "auto",
    ends: Ends | Literal["auto"] = "auto",
) -> list[LayerRow]:
    """Delta after every submodule of a network in eval mode, in call order; arguments as in `equivariance_error`.

    `grid` is for fields made before any submodule with a `.grid` is called; afterwards the last one called counts.
    """
    check_images(images, factor)
    check_eval(module)
    past = resampler_ends(resampler, ends)
    with torch.no_grad():
        exact = images.to(torch.float64)
        small = rescale(exact, factor, resampler, past)
        floor = reference_error(exact, factor, resampler, past, quarter_side(small))
        original, direct = (_calls(module, x, grid) for x in (exact, small))
        probe = _Probe(factor, resampler, past, crop, floor)
        rows = [probe.row(one, other) for one, other in _matched(original, direct)]
    return _with_jumps(rows, original, middle(floor))


def _calls(module: nn.Module, images: Tensor, grid: ScaleGrid | None) -> list[_Call]:
    recorder = _Recorder(module, grid, min(images.shape[-2:]))
    try:
        call(module, images)
    except (TypeError, ValueError):
        # A network that finished but returned a tuple or NaN has a row that says so; one that failed has no profile.
        if not recorder.finished:
            raise
    finally:
        recorder.remove()
    return recorder.calls


def _matched(original: list[_Call], direct: list[_Call]) -> list[tuple[_Call, _Call | None]]:
    """Each call of the original branch with the same call in the other; a network may branch on its input."""
    others = {(each.name, each.number): each for each in direct}
    return [(each, others.get((each.name, each.number))) for each in original]


@dataclass(frozen=True)
class _Probe:
    factor: float
    resampler: Resampler
    ends: Ends
    crop: int | Literal["auto"]
    floor: Tensor

    def row(self, one: _Call, other: _Call | None) -> LayerRow:
        """Compare one call in the two branches, or say why it cannot be done."""
        empty = LayerRow(one.name, one.number, type(one.module).__name__, not any(one.module.children()))
        if other is None:
            return replace(empty, note="not called for the rescaled images")
        if one.output is None or other.output is None:
            return replace(empty, note=one.problem or other.problem)
        try:
            return self._compared(empty, one, one.output, other.output)
        except ValueError as error:
            return replace(empty, shape=tuple(one.output.shape), note=str(error))

    def _compared(self, row: LayerRow, one: _Call, original: Tensor, direct: Tensor) -> LayerRow:
        kind = output_kind("auto", original)
        spatial = kind in SPATIAL
        grid = _grid_of(one, original) if kind in ("field", "scale") else None
        cut = output_crop(self.crop, one.seen, self.factor, direct) if spatial else 0
        moved = rescale(original, self.factor, self.resampler, self.ends) if spatial else original
        if moved.shape != direct.shape:
            raise ValueError(f"its size does not follow the image's: {_size(direct)}, {_size(moved)} expected")
        error = compare(moved, direct, self.factor, kind, grid, one.spoiled if grid else 0, cut, self.floor)
        delta, note = error.valid, ""
        if not error.pairs:
            note = f"factor {self.factor:.3g} reaches beyond the grid: no scale channel has a partner"
        elif bool(delta.isnan().all()):
            delta, note = error.all, "no scale channel is left whole: Delta over the spoilt ones"
        return replace(
            row,
            kind=kind,
            shape=tuple(original.shape),
            delta=middle(delta),
            energy=middle(error.energy),
            crop=cut,
            values=tuple(delta.tolist()),
            note=note,
        )


def _size(output: Tensor) -> str:
    return "x".join(str(side) for side in output.shape[1:])


def _grid_of(one: _Call, output: Tensor) -> ScaleGrid:
    if one.grid is None:
        raise ValueError(f"{tuple(output.shape)} is no map, and no layer before it says what scales it may have")
    if len(one.grid) != output.shape[2]:
        raise ValueError(f"axis 2 of {tuple(output.shape)} is not the scale axis of {one.grid!r}")
    return one.grid


def _with_jumps(rows: list[LayerRow], calls: list[_Call], floor: float) -> list[LayerRow]:
    """Delta against that of the input: of the call that made it, else of the last one before with a Delta.

    The input of the network is an image, whose Delta is nothing but the probe's floor.
    """
    least = max(floor, torch.finfo(torch.float64).eps ** 2)
    done: list[LayerRow] = []
    before = 0.0
    for row, each in zip(rows, calls, strict=True):
        made = done[each.source].delta if each.source is not None else math.nan
        upstream = 0.0 if row.name == WHOLE else before if math.isnan(made) else made
        done.append(replace(row, jump=row.delta / max(upstream, least)))
        before = before if math.isnan(row.delta) else row.delta
    return done


def worst(rows: Sequence[LayerRow]) -> LayerRow | None:
    """The leaf at which Delta grew most; None if no leaf could be compared."""
    known = [row for row in rows if row.leaf and not math.isnan(row.jump)]
    return max(known, key=lambda row: row.jump, default=None)


def profile_table(rows: Sequence[LayerRow], title: str = "layer profile") -> Table:
    """The rows for a terminal; the largest jump stands out."""
    table = Table("submodule", "layer", "read as", "Δ", "jump", "energy", "note", title=title)
    largest = worst(rows)
    for row in rows:
        name = row.name if row.call == 0 else f"{row.name} (call {row.call + 1})"
        numbers = [_number(row.delta, ".1e"), _times(row.jump), _number(row.energy, ".1e")]
        style = "bold" if row is largest else None if row.leaf else "dim"
        table.add_row(name, row.layer, row.kind or "-", *numbers, row.note, style=style)
    if largest is not None:
        table.caption = (
            f"Δ grows most at {largest.name} ({largest.layer}): {_times(largest.jump)}; jumps are against the input "
            f"of a submodule, that of {WHOLE} against the image"
        )
    return table


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else f"{value:{form}}"


def _times(value: float) -> str:
    """Two digits, without powers of ten where a reader can do without them."""
    form = ".1e" if value >= 1e5 else ",.0f" if value >= 10 else ".2g"
    return _number(value, form) + ("" if math.isnan(value) else "×")
