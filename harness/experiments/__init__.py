"""EXPERIMENTS: what makes up the figures and tables of the paper, one record each; its file holds all there is to know.

`smoke` takes seconds a cell: tests and a first look. `lite` takes hours on two cores. `paper` is as published; where
the paper is silent, as much as its bars suggest. An experiment from outside, FILE.py:NAME, joins the table.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.experiment import CellSettings as CellSettings
from harness.experiment import Context as Context
from harness.experiment import Draft as Draft
from harness.experiment import Experiment as Experiment
from harness.experiment import Request as Request
from harness.experiment import Skip as Skip
from harness.experiments.bases import DELTA_BASIS, MNIST_BASIS
from harness.experiments.delta import DELTA_DEPTH, DELTA_DOWNSCALE, DELTA_INTERSCALE
from harness.experiments.epoch_time import EPOCH_TIME
from harness.experiments.generalisation import SCALE_GENERALISATION
from harness.experiments.gpu import GPU
from harness.experiments.parameters import PARAMETERS
from harness.experiments.projections import DELTA_PROJECTION, MNIST_PROJECTION
from harness.experiments.properties import PROPERTIES
from harness.experiments.rectifiers import DELTA_RECTIFIER
from harness.experiments.training import MNIST_SCALE, STL10, STL10_REDUCED
from harness.records import Cell as Cell
from harness.records import Measurement as Measurement
from harness.records import Planned
from sesn._checks import complaint, looked_up
from sesn._source import named, names_file
from sesn.errors import UsageError, WrongTypeError

EXAMPLE = "mine.py:MINE, where MINE is a harness.experiments.Experiment"
_ROWS = (
    *(PARAMETERS, PROPERTIES, DELTA_DEPTH, DELTA_DOWNSCALE, DELTA_INTERSCALE, DELTA_PROJECTION, DELTA_BASIS),
    DELTA_RECTIFIER,
    *(EPOCH_TIME, MNIST_SCALE, STL10, STL10_REDUCED, MNIST_PROJECTION, MNIST_BASIS, SCALE_GENERALISATION, GPU),
)

#: Every experiment by its key, the quick ones first.
EXPERIMENTS: dict[str, Experiment] = {row.key: row for row in _ROWS}


def experiment(name: str) -> Experiment:
    """The experiment of that key, or of FILE.py:NAME; an unknown key is answered with the keys, and the nearest."""
    if not names_file(name):
        return looked_up("experiment", name, EXPERIMENTS)
    what = f"`experiment` (={name!r})"
    found = named(name, what, "a key or FILE.py:NAME", EXAMPLE)
    if not isinstance(found.value, Experiment):
        kind = type(found.value).__name__
        raise WrongTypeError(f"{what}: `{found.name}` must be a harness.experiments.Experiment, but is of type {kind}")
    row = found.value.from_file(found.home, found.digest)
    if row.key in EXPERIMENTS and EXPERIMENTS[row.key].home != row.home:
        rule = f"a key that no other experiment has; {EXPERIMENTS[row.key].home or 'sesn'} has one of this key"
        raise UsageError(complaint("key", row.key, rule, f"rename the experiment of {row.home}"))
    _check_timing(row)
    EXPERIMENTS[row.key] = row
    return row


def plan(request: Request, experiments: Iterable[str] | None = None) -> list[Planned]:
    """The cells of the named experiments in order, or of all; an experiment that is named twice counts once."""
    chosen = {row.key: row for row in map(experiment, experiments or EXPERIMENTS)}
    return [planned for row in chosen.values() for planned in row.plan(request)]


def _check_timing(row: Experiment) -> None:
    if row.timed_by:
        looked_up("timed_by", row.timed_by, EXPERIMENTS)


for _row in _ROWS:
    _check_timing(_row)
