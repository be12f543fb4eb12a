"""ARTEFACTS: every figure and table of the report, one row each. The page, the README and nox iterate over it.

Each is two pure steps: `frame` makes the numbers from selected rows, `draw` or `table` shows that frame alone. Titles
and captions stand in templates/words.toml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.records import Budget
from harness.report import (
    bases,
    causes,
    claims,
    configurations,
    delta,
    dots,
    errors,
    generalisation,
    generalisation_goal,
    goals,
    gpu,
    kernels,
    own,
    pictures,
    projections,
    rectifiers,
    table_1,
    times,
    training,
)
from harness.report.findings import WORDS
from harness.report.select import Selection
from harness.report.tables import Table
from sesn._checks import looked_up
from sesn.tools.drawing import Drawing

Selections = Mapping[str, Selection]


def _nothing(_frame: Any) -> list[Any]:
    return []


@dataclass(frozen=True)
class Artefact:
    """One figure or table.

    Attributes:
        id: the name of its files, and its anchor on the page.
        experiments: what must have been run; none for what is drawn from the library itself.
        frame: from selections to the numbers.
        says: from the numbers to sentences, two or three at most.
        draw, table: from the numbers to a figure or a table; neither for a figure that another command draws.
        extra: further lines of the caption that depend on the numbers.
        beside: experiments whose rows it shows if they are there.
        budgets: it shows the first of these that has rows; none: the one that fills most of it.
        budget: the smallest that measures it.
        title: its heading.
        caption: what is shown, in one sentence; budget, data and machine are added from the rows.
        notes: what else a reader may need.
        command: how to get its rows, if not by `sesn run`.
    """

    id: str
    experiments: tuple[str, ...]
    frame: Callable[[Selections], Any]
    says: Callable[[Any], list[str]] = _nothing
    draw: Callable[[Any], Drawing] | None = None
    table: Callable[[Any], Table] | None = None
    extra: Callable[[Any], list[str]] = _nothing
    beside: tuple[str, ...] = ()
    budgets: tuple[Budget, ...] = ()
    budget: Budget = "lite"
    title: str = ""
    caption: str = ""
    notes: tuple[str, ...] = ()
    command: str = ""

    @property
    def kind(self) -> Literal["figure", "table"]:
        """Whether it is a figure or a table."""
        return "table" if self.table else "figure"

    @property
    def run(self) -> str:
        """The command that makes its rows; empty if it needs none."""
        return self.run_with({})

    def run_with(self, options: Mapping[str, str]) -> str:
        """The command that makes its rows, with the options of each experiment."""
        if self.command:
            return self.command
        together: dict[str, list[str]] = {}
        for key in self.experiments:
            together.setdefault(options.get(key, f"--budget {self.budget}"), []).append(key)
        return " && ".join(f"sesn run {' '.join(keys)} {words}" for words, keys in together.items())


_MNIST, _SIZES, _SCALES = ("mnist-scale",), ("parameters",), (generalisation.EXPERIMENT,)
_DELTAS = ("delta-depth", "delta-downscale", "delta-interscale")
#: The longest training that there is, however few methods have it.
_LONGEST: tuple[Budget, ...] = ("paper", "lite", "smoke")
_ROWS = (
    Artefact(claims.KEY, (), _nothing, table=claims.table),
    Artefact("figure-1", (), kernels.kernels_frame, draw=kernels.draw_kernels),
    Artefact("basis", (), kernels.basis_frame, kernels.basis_says, kernels.draw_basis),
    Artefact("mnist-scale-samples", (), pictures.samples_frame, draw=pictures.draw_samples),
    Artefact("feature-maps", (), pictures.maps_frame, draw=pictures.draw_maps),
    Artefact("delta-depth", _DELTAS[:1], delta.frame, draw=delta.draw_depth),
    Artefact("figure-2", _DELTAS[1:], delta.frame, draw=delta.draw),
    Artefact("wide-windows", _DELTAS[:2], goals.frame, table=goals.table),
    Artefact("projections", ("delta-projection", "mnist-projection"), projections.frame, table=projections.table),
    Artefact("rectifiers", ("delta-rectifier",), rectifiers.frame, table=rectifiers.table),
    Artefact("bases", ("delta-basis", "mnist-basis"), bases.frame, table=bases.table),
    Artefact("table-1", ("properties",), table_1.frame, table=table_1.table, extra=table_1.remarks),
    Artefact("table-1-details", ("properties",), table_1.frame, table=table_1.details_table, extra=table_1.left_out),
    Artefact("error-by-size", _MNIST, training.sizes_frame, draw=training.draw_sizes, budgets=_LONGEST),
    Artefact("mnist-scale-dots", _MNIST, dots.errors_frame, draw=dots.draw_errors, budgets=_LONGEST, budget="paper"),
    Artefact("mnist-scale", _MNIST, errors.mnist_frame, table=errors.mnist_table, budgets=_LONGEST, budget="paper"),
    Artefact("mnist-scale-lite", _MNIST, errors.mnist_frame, table=errors.mnist_table, budgets=("lite",)),
    Artefact("stl10", ("stl10", "stl10-reduced"), errors.stl10_frame, table=errors.stl10_table, budget="paper"),
    Artefact("scale-generalisation", _SCALES, generalisation.curves_frame, draw=generalisation.draw_curves),
    Artefact("scale-generalisation-delta", _SCALES, generalisation.summary_frame, draw=generalisation.draw_delta),
    Artefact(
        "scale-generalisation-table",
        _SCALES,
        generalisation.summary_frame,
        generalisation_goal.says,
        table=generalisation.table,
        extra=generalisation.by_scale,
    ),
    Artefact("epoch-time-dots", ("epoch-time",), dots.times_frame, draw=dots.draw_times),
    Artefact("epoch-time", ("epoch-time",), times.frame, table=times.table),
    *(
        Artefact(
            f"configuration-{name}",
            _SIZES,
            configurations.frame(name),
            configurations.says(name),
            table=configurations.table,
        )
        for name in ("mnist", "stl10")
    ),
    Artefact("causes", ("causes",), causes.causes_frame, causes.causes_says),
    Artefact("delta-accuracy", _MNIST, training.accuracy_frame, draw=training.draw_accuracy),
    Artefact(
        "delta-training", _MNIST, training.delta_frame, training.says_delta, training.draw_delta, budgets=_LONGEST
    ),
    Artefact("learning-curves", _MNIST, training.curves_frame, draw=training.draw_curves, budgets=_LONGEST),
    Artefact(
        "differences",
        (),
        configurations.differences_frame,
        table=configurations.differences_table,
        beside=("differences",),
    ),
    Artefact("gpu", (gpu.KEY,), gpu.checks_frame, table=gpu.checks_table),
    Artefact("gpu-numerics", (gpu.KEY,), gpu.numerics_frame, table=gpu.numerics_table),
    Artefact("gpu-layers", (gpu.KEY,), gpu.layers_frame, table=gpu.layers_table),
    Artefact("gpu-methods", (gpu.KEY,), gpu.methods_frame, table=gpu.methods_table),
    Artefact(own.KEY, (own.KEY,), own.frame, table=own.table),
)

#: Every artefact by its id, in the order of the page.
ARTEFACTS: dict[str, Artefact] = {row.id: replace(row, **WORDS["artefacts"][row.id]) for row in _ROWS}


def artefact(key: str) -> Artefact:
    """The artefact of that id; an unknown id is answered with the ids, and the nearest of them."""
    return looked_up("only", key, ARTEFACTS)
