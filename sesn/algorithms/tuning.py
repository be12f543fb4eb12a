"""Timing the algorithms where they are used, and remembering which was the quickest."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import torch
from torch import Tensor

from sesn import _checks
from sesn._files import may_write
from sesn._torch import capturing, may_keep, watched
from sesn.algorithms.decide import Decision, Job, Ways, candidates_on, decide
from sesn.algorithms.memory import MEMORY, Times, file_refused, named
from sesn.algorithms.policy import hardware
from sesn.algorithms.timing import Step, least_milliseconds
from sesn.errors import UsageError, WrongTypeError

#: What the model expects to take so many times as long as the quickest is not tried.
UNLIKELY = 10
_LOCK = threading.Lock()


class Setting(NamedTuple):
    """Whether layers are timed, and the file that keeps the times."""

    enabled: bool = False
    file: Path | None = None


_SETTING = Setting()


class tuning:
    """Choose algorithms by timing them: the first call of a layer with a new shape tries all that may be quickest.

    It is a setting that holds until the next one, like `torch.backends.cudnn.benchmark`, or for a `with` block. It
    applies to all threads, and to layers with `algorithm="auto"`. What was timed is remembered for the layer's sizes,
    the shape and dtype of the input, and what is computed (the output alone, or gradients as well). It is used from
    then on, also after the block. Nothing is timed while a graph is recorded (torch.compile, torch.export) or captured
    (CUDA graphs): there layers use what is known, so call them once before. All algorithms give the same numbers up to
    rounding. Timing leaves gradients and random numbers alone, and takes about a second for each layer and shape.

    Args:
        enabled: whether to time what is not known yet.
        file: JSON that the times are read from now and written to after each timing, under the name of the device. It
            may be used on other machines, which take from it what was timed on a device of the same name. With
            `enabled=False` it is only read. Where writing fails later, a warning says so and the times stay in memory.

    Raises:
        UsageError: the file is damaged, not one of sesn's, or cannot be written; or it is only to be read and does not
            exist.
        WrongTypeError: `enabled` is not a truth value, or `file` is not a path.

    Example:
        >>> layer = sesn.ScaleLift(1, 4)
        >>> with sesn.tuning():
        ...     field = layer(torch.randn(2, 1, 28, 28))
        >>> layer.plan((2, 1, 28, 28), mode="weights").reason
        'measured'
        >>> sesn.tuning.forget()
    """

    def __init__(self, enabled: bool = True, *, file: str | PathLike[str] | None = None) -> None:
        global _SETTING  # noqa: PLW0603  (it is one for the process)
        _checks.flag("enabled", enabled)
        if file is not None and not isinstance(file, str | PathLike):
            raise WrongTypeError(_checks.complaint("file", file, "a path or None"))
        path = None if file is None else Path(file)
        if path is not None:
            _read(path, missing_ok=enabled)
        self._before = _SETTING
        _SETTING = Setting(enabled, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _SETTING  # noqa: PLW0603
        _SETTING = self._before

    @staticmethod
    def forget() -> None:
        """Forget all times of this process, so that the cost model chooses again. Files stay as they are."""
        MEMORY.current.clear()


def _read(path: Path, *, missing_ok: bool) -> None:
    if path.exists():
        MEMORY.current.read(path)
    elif not missing_ok:
        raise UsageError(_checks.complaint("file", str(path), "a file that exists, to be read", "check the name"))
    elif not may_write(path):
        raise file_refused(path, "cannot be written, because there is no folder for it that may be written to")


def _keep(path: Path) -> None:
    """Write the times to the file; whatever is wrong with it by now, the network that was timed continues."""
    try:
        MEMORY.current.write(path)
    except (OSError, UsageError) as error:
        warnings.warn(f"times are not kept in a file, only in this process: {error}", RuntimeWarning, stacklevel=2)


def may_time(x: Tensor) -> bool:
    """Whether this is the moment to time a layer on this input."""
    if not (_SETTING.enabled and may_keep(x)) or watched() or x.numel() == 0:
        return False
    return x.device.type != "meta" and not capturing(x.device)


def timed(job: Job, step_of: Callable[[Ways], Step]) -> Decision:
    """The quickest algorithms by the clock, `step_of` giving what runs the layer with some; remembered for later."""
    with _LOCK:  # two timings would disturb each other
        known = decide(job)
        if known.reason == "measured":
            return known
        times = _contest(job, known.ways, step_of)
        if times is None:
            warnings.warn("there is not enough memory to time a layer; the model chooses", RuntimeWarning, stacklevel=2)
            return known
        assert job.batch is not None  # nobody times a graph
        MEMORY.current.add(hardware(job.device), job.key, job.batch, times)
        if _SETTING.file is not None:
            _keep(_SETTING.file)
        return Decision(times.ways, "measured", times)


def _contest(job: Job, expected: Ways, step_of: Callable[[Ways], Step]) -> Times | None:
    """Time every algorithm at all scales; then mixtures, for which the model is corrected by these times.

    None where memory is enough for none of them.
    """
    scales, costs = len(job.boxes), job.costs(candidates_on(job.device))
    totals = {way: sum(cost[way] for cost in costs) for way in costs[0]}
    bound = min(UNLIKELY * min(totals.values()), math.inf)
    alike = {(way,) * scales: total for way, total in totals.items() if total <= bound and math.isfinite(total)}
    least = _least(list(alike), step_of, job.device)
    if not least:
        return None
    slowness = {ways[0]: time / alike[ways] for ways, time in least.items()}
    mixed = tuple(min(slowness, key=lambda way, cost=cost: cost[way] * slowness[way]) for cost in costs)  # type: ignore[misc]
    if more := [ways for ways in dict.fromkeys((mixed, expected)) if ways not in least]:
        # The quickest once more, beside its rivals.
        best = min(least, key=lambda ways: least[ways])
        least |= _least([best, *more], step_of, job.device)
    best = min(least, key=lambda ways: least[ways])
    return Times(best, {named(ways): time for ways, time in least.items()})


def _least(contestants: list[Ways], step_of: Callable[[Ways], Step], device: torch.device) -> dict[Ways, float]:
    """The least milliseconds of those that memory is enough for."""
    steps = {ways: step for ways in contestants if _fits(step := step_of(ways))}
    return least_milliseconds(steps, device) if steps else {}


def _fits(step: Step) -> bool:
    """Run a step for the first time; whether there is memory enough."""
    try:
        step()
    except torch.OutOfMemoryError:
        return False
    return True
