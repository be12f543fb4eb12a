"""`sesn profile`, `sesn budget` and `sesn tune`, behind their options: measure, say what was found, write it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from torch import Tensor, nn

from sesn import Meter
from sesn._checks import require
from sesn.errors import UsageError
from sesn.tools.arguments import check_sizes, parse_downscales, parse_input
from sesn.tools.causes import CAUSES, Budget, budget_table, error_budget
from sesn.tools.images import USUAL_COUNT, image_set
from sesn.tools.machine import machine_line
from sesn.tools.output import Output
from sesn.tools.profile import LayerRow, layer_profile, profile_table
from sesn.tools.progress import progress_bar
from sesn.tools.target import load_factory, measuring
from sesn.tools.tune import Tuning, tune

#: The shape of the JSON; a change of its keys raises it.
FORMAT = 1
#: The tuner measures on grey images of this side, whatever the side that the cost is for.
TUNING_SIDE = 96


@dataclass(frozen=True)
class Subject:
    """The module and the images that the command line names."""

    target: str
    input: str = "3x96x96"
    downscale: str = "1.41"
    images: str = "embedded"
    count: int | None = None
    data: Path | None = None
    resampler: str = "lanczos3"
    seed: int = 0
    ends: str = "auto"

    @property
    def meter(self) -> Meter:
        """How to measure; a bad value is refused."""
        words: Any = {"resampler": self.resampler, "ends": self.ends}
        return Meter(**words)

    def load(self) -> tuple[nn.Module, Tensor, str, float]:
        """The module in eval mode, the images, their name and the factor s."""
        _ = self.meter
        shape, downscales = parse_input(self.input), parse_downscales(self.downscale)
        require(len(downscales) == 1, "downscale", self.downscale, "one number here", "run once for each")
        check_sizes(shape, downscales, self.count, at_once=self.count or USUAL_COUNT)
        module = load_factory(self.target)(self.seed)
        images, name = image_set(self.images, *shape, self.count, self.seed, self.data)
        return module, images, name, 1 / downscales[0]


class _Clock:
    def __init__(self) -> None:
        self._started, self._clock = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()

    def read(self) -> dict[str, Any]:
        """When it started and how long it took."""
        return {"started": self._started, "seconds": time.perf_counter() - self._clock}


def profile(subject: Subject, output: Output, console: Console) -> list[LayerRow]:
    """Delta after every submodule, as a table and JSON."""
    clock = _Clock()
    module, images, name, factor = subject.load()
    meter = subject.meter
    with measuring(subject.target, images, lambda _: module):
        rows = layer_profile(module, images, factor, resampler=meter.resampler, ends=meter.ends)
    console.print(profile_table(rows, f"layer profile of {subject.target}, downscale {1 / factor:.4g}"))
    console.print(Text(f"{name}; {meter}; {machine_line()}"))
    document = {"settings": asdict(subject), "images": name, "rows": [asdict(row) for row in rows]}
    _write(output, {**document, **clock.read()}, console)
    if all(math.isnan(row.delta) for row in rows):
        raise UsageError(f"Δ of no submodule of {subject.target} could be taken: the notes say why")
    return rows


def budget(subject: Subject, output: Output, console: Console, progress: Console | None = None) -> Budget:
    """An observed Delta split into its causes, as a table, a waterfall and JSON."""
    clock = _Clock()
    module, images, name, factor = subject.load()
    meter = subject.meter
    how: Any = {"resampler": meter.resampler, "ends": meter.ends}
    with (
        progress_bar(progress, len(CAUSES)) as on_step,
        measuring(subject.target, images, lambda _: module),
    ):
        found = error_budget(module, images, factor, **how, on_step=lambda: on_step(1))
    console.print(budget_table(found))
    console.print(Text(f"{name}; observed with {meter}, without crop; {machine_line()}"))

    def draw() -> Any:
        from sesn.tools.waterfall import draw_budget

        return draw_budget(found, Path(subject.target).name)

    document = {"settings": asdict(subject), "images": name, "budget": asdict(found), "shares": found.shares}
    _write(output, {**document, "largest": found.largest, **clock.read()}, console, draw)
    return found


@dataclass(frozen=True)
class Request:
    """What the tuner is asked for."""

    scales: int = 3
    range: float = 2.0
    budget_macs: float | None = None
    side: int = 48
    channels: int = 128
    images: str = "embedded"
    count: int = 8
    data: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.budget_macs is not None:
            require(math.isfinite(self.budget_macs), "budget_macs", self.budget_macs, "a finite number")


def tuned(request: Request, output: Output, console: Console, progress: Console | None = None) -> Tuning:
    """Kernels for a budget, as a table, a trade-off curve and JSON."""
    from sesn.tools.tradeoff import draw_tuning, tuning_table

    clock = _Clock()
    check_sizes((1, TUNING_SIDE, TUNING_SIDE), (), request.count, request.count)
    images, name = image_set(request.images, 1, TUNING_SIDE, TUNING_SIDE, request.count, request.seed, request.data)
    with progress_bar(progress, 100) as advance:
        shown = 0

        def on_step(done: int, total: int) -> None:
            nonlocal shown
            advance(100 * done // total - shown)
            shown = 100 * done // total

        found = tune(
            images,
            request.scales,
            request.range,
            budget_macs=None if request.budget_macs is None else round(request.budget_macs),
            side=request.side,
            channels=request.channels,
            on_step=on_step,
        )
    console.print(tuning_table(found, name))
    console.print(Text(f"{found.gain:,.0f} times below the published STL-10 kernels: {found.proposal.code}"))
    document = {
        "settings": asdict(request),
        "images": name,
        "budget_macs": found.budget_macs,
        "gain": found.gain,
        "proposal": {**found.proposal.row(), "code": found.proposal.code},
        "published": found.published.row(),
        "candidates": [each.row() for each in found.candidates],
    }
    _write(output, {**document, **clock.read()}, console, lambda: draw_tuning(found))
    return found


def _write(output: Output, document: dict[str, Any], console: Console, draw: Callable[[], Any] | None = None) -> None:
    for path in output.write({"format": FORMAT, **document}, draw):
        console.print(Text(f"wrote {path}"))
