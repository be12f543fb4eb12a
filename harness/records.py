"""Cell (one thing to do), Planned (on its way to be done), Measurement (what it saw) and Result (what became of it).

A loaded frame is tidy, one number a row. Its columns are CORE, and one column for each setting of a cell and for each
coordinate of a measurement (`at`), named like them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from sesn.errors import UsageError, WrongTypeError

Scalar = str | int | float | bool
Budget = Literal["smoke", "lite", "paper"]
BUDGETS: tuple[Budget, ...] = get_args(Budget)
Status = Literal["ok", "failed", "skipped"]
STATUSES: tuple[Status, ...] = get_args(Status)
SOURCES = ("measured", "paper")
#: The settings that hold the digest of the file of a method or an experiment from outside.
SOURCE, EXPERIMENT_SOURCE = DIGESTS = ("method_source", "experiment_source")

#: The columns of every frame of rows, in order.
CORE = (
    *("experiment", "method", "seed", "budget", "version"),
    *("metric", "value", "unit", "repeat"),
    *("source", "status", "reason"),
    *("cell", "code", "machine", "torch", "device", "threads", "started", "seconds"),
)

#: Every metric and its unit. Percentages are of images; a ratio and Delta have no unit.
METRICS: dict[str, str] = {
    # equivariance: one value per image
    "delta": "",
    "delta_all": "",
    "delta_uncropped": "",
    "delta_cropped": "",
    "delta_centred": "",
    "delta_cnn": "",
    "delta_relative": "",
    "floor": "",
    "ceiling": "",
    "energy": "",
    "channels_lost": "scales",
    # the properties of Table 1
    "translation_error": "",
    "interscale_reach": "scales",
    # sizes
    "parameters": "",
    "parameters_used": "",
    # speed: one value per timed step or epoch
    "step_time": "ms",
    "time_ratio": "",
    "epoch_time": "s",
    "multiply_adds": "",
    "peak_memory": "MB",
    "images_per_second": "1/s",
    # a GPU: how far results lie from what they should be, relative to the largest; tests; what the device has
    "relative_error": "",
    "tests_passed": "",
    "device_memory": "MB",
    # training: one value per epoch, or one at the end
    "train_loss": "",
    "learning_rate": "",
    "validation_error": "%",
    "test_error": "%",
    "test_error_by_size": "%",
    # scale generalisation: of the images at one test scale, and of the pictures at all of them
    "accuracy": "%",
    "consistency": "%",
    "best_epoch": "",
}


@dataclass(frozen=True)
class Cell:
    """One thing to do. Everything that decides its result is in here, and its id is a hash of all of it.

    Attributes:
        experiment: its key in harness.experiments.
        version: the experiment's; a higher one retires old rows.
        budget: smoke, lite or paper.
        method: a key of METHODS, or "" where the experiment is about no method or about many at once.
        settings: names and plain values.
        seed: of all random numbers; the realisation, where data sets are random.
    """

    experiment: str
    version: int
    budget: Budget
    method: str
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in self.settings.items():
            check_name("settings", name)
            if not isinstance(value, Scalar) or (isinstance(value, float) and not math.isfinite(value)):
                raise UsageError(f"`settings[{name!r}]` (={value!r}) must be text, a finite number or a truth value")

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits, the same for equal cells on every machine."""
        text = json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """The cell as plain JSON."""
        return {**vars(self), "settings": dict(sorted(self.settings.items()))}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Cell:
        """The cell that `as_dict` wrote; other entries are ignored."""
        return cls(**{name: fields[name] for name in cls.__dataclass_fields__})

    @property
    def title(self) -> str:
        """A line for people: what distinguishes it within its experiment."""
        shown = [self.method] if self.method else []
        shown += [f"{name}={value}" for name, value in self.settings.items()]
        return f"{self.experiment}: {', '.join([*shown, f'seed={self.seed}'])}"


State = Literal["remaining", "skipped", "failed", "done"]


class Planned(NamedTuple):
    """A cell on its way from the plan to a worker.

    Attributes:
        cell: what is to be done.
        work: compares cells of one experiment: seconds are estimated from finished cells in proportion to it.
        runner: "module:function" that carries it out, or FILE.py:NAME of an experiment from outside.
        alone: whether nothing may run beside it.
        state: how it stands; a failed cell is run again.
        reason: why it is left out, or why it failed.
    """

    cell: Cell
    work: float = 1.0
    runner: str = ""
    alone: bool = False
    state: State = "remaining"
    reason: str = ""

    @property
    def to_do(self) -> bool:
        """Whether a run would carry it out."""
        return self.state in ("failed", "remaining")


@dataclass(frozen=True)
class Measurement:
    """Raw values of one metric.

    Attributes:
        metric: a name of METRICS, which gives the unit.
        values: one number per image, step or epoch (the frame's `repeat` counts them); NaN and infinity may occur.
        at: where inside the cell they were seen, such as {"depth": 3}; {"method": key} overrides the cell's method.
    """

    metric: str
    values: tuple[float, ...]
    at: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise UsageError(f"`metric` (={self.metric!r}) must be one of {', '.join(METRICS)}")
        if not isinstance(self.values, Iterable) or isinstance(self.values, str):
            rule = "a tuple of numbers, such as (0.5,)"
            raise WrongTypeError(f"`values` of {self.metric} (={self.values!r}) must be {rule}")
        if not isinstance(self.at, Mapping):
            rule = "names and values, such as {'depth': 3}"
            raise WrongTypeError(f"`at` of {self.metric} (={self.at!r}) must be {rule}")
        if not self.values:
            raise UsageError(f"`values` of {self.metric} must not be empty; leave the measurement out instead")
        for name in self.at:
            if name != "method":
                check_name("at", name)

    @property
    def unit(self) -> str:
        """The metric's unit."""
        return METRICS[self.metric]


@dataclass(frozen=True)
class Result:
    """What became of a cell: its measurements, or the reason why there are none."""

    cell: Cell
    status: Status
    measurements: tuple[Measurement, ...] = ()
    reason: str = ""
    #: machine, torch, device, threads, code: sesn.tools.machine.provenance_with_code
    provenance: Mapping[str, str | int] = field(default_factory=dict)
    started: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise UsageError(f"`status` (={self.status!r}) must be one of {', '.join(STATUSES)}")
        if self.status != "ok" and not self.reason:
            raise UsageError(f"`reason` must say why the status is {self.status!r}")


def check_name(what: str, name: str) -> None:
    """Settings and coordinates become columns: their names must be plain, and not those of CORE."""
    if not (isinstance(name, str) and name.isidentifier()) or name in CORE:
        raise UsageError(f"`{what}` has {name!r}; its names must be identifiers other than {', '.join(CORE)}")
