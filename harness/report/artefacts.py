"""ARTEFACTS: every figure and table of the report, one row each. The page, the README and nox iterate over it.

Each is two pure steps: `frame` makes the numbers from selected rows, `draw` or `table` shows that frame alone. Titles
and captions stand in templates/words.toml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.records import Budget
from harness.report import configurations, delta, errors, goals, kernels, own, table_1, times, training, waterfall
from harness.report.findings import WORDS, Statement
from harness.report.select import Selection
from harness.report.tables import Table
from sesn._lookup import looked_up
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
        draw, table: from the numbers to a figure or a table; neither for a figure that another command draws.
        says: from the numbers to sentences.
        extra: further lines of the caption that depend on the numbers.
        beside: experiments whose rows it shows if they are there.
        budgets: it shows the first of these that has rows; none: the one that fills most of it.
        budget: the smallest that measures it.
        title: its heading.
        caption: what is shown; budget, data and machine are added from the rows.
        command: how to get its rows, if not by `sesn run`.
    """

    id: str
    experiments: tuple[str, ...]
    frame: Callable[[Selections], Any]
    draw: Callable[[Any], Drawing] | None = None
    table: Callable[[Any], Table] | None = None
    says: Callable[[Any], list[Statement]] = _nothing
    extra: Callable[[Any], list[str]] = _nothing
    beside: tuple[str, ...] = ()
    budgets: tuple[Budget, ...] = ()
    budget: Budget = "lite"
    title: str = ""
    caption: str = ""
    command: str = ""

    @property
    def kind(self) -> Literal["figure", "table"]:
        """What it is."""
        return "table" if self.table else "figure"

    @property
    def run(self) -> str:
        """The command that makes its rows, or nothing."""
        return self.run_with({})

    def run_with(self, options: Mapping[str, str]) -> str:
        """The same with the options of each experiment."""
        if self.command:
            return self.command
        together: dict[str, list[str]] = {}
        for key in self.experiments:
            together.setdefault(options.get(key, f"--budget {self.budget}"), []).append(key)
        return " && ".join(f"sesn run {' '.join(keys)} {words}" for words, keys in together.items())


_MNIST_TABLE = Artefact(
    "mnist-scale",
    ("mnist-scale",),
    errors.mnist_frame,
    table=errors.mnist_table,
    says=errors.mnist_says,
    beside=("parameters",),
    budgets=("paper",),
    budget="paper",
)
_STL10_TABLE = Artefact(
    "stl10",
    ("stl10",),
    errors.stl10_frame("stl10"),
    table=errors.stl10_table,
    says=errors.stl10_says,
    beside=("parameters",),
    budget="paper",
)
_REDUCED_TABLE = Artefact(
    "stl10-reduced",
    ("stl10-reduced",),
    errors.stl10_frame("stl10-reduced"),
    table=errors.reduced_table,
    says=errors.reduced_says,
    beside=("stl10",),
)
_CONFIGURATIONS = tuple(
    Artefact(
        f"configuration-{network}",
        ("parameters",),
        configurations.frame(network),
        table=configurations.table,
        says=configurations.says(network),
    )
    for network in ("mnist", "stl10")
)
_TABLE_1 = Artefact(
    "table-1",
    ("properties",),
    table_1.frame,
    table=table_1.table,
    says=table_1.says,
    extra=table_1.caption,
)
_DELTA_TRAINING = Artefact(
    "delta-training",
    ("mnist-scale",),
    training.delta_frame,
    draw=training.draw_delta,
    says=training.says_delta,
    # The longest training that there is, however few methods have it.
    budgets=("paper", "lite", "smoke"),
)
_ROWS = (
    Artefact("figure-1", (), kernels.kernels_frame, draw=kernels.draw_kernels, says=kernels.kernels_says),
    Artefact("basis", (), kernels.basis_frame, draw=kernels.draw_basis, says=kernels.basis_says),
    Artefact(
        "figure-2",
        ("delta-depth", "delta-downscale", "delta-interscale"),
        delta.frame,
        draw=delta.draw,
        says=delta.says,
    ),
    Artefact(
        "wide-windows",
        ("delta-depth", "delta-downscale"),
        goals.frame,
        table=goals.table,
        says=goals.says,
    ),
    _TABLE_1,
    _MNIST_TABLE,
    replace(_MNIST_TABLE, id="mnist-scale-lite", budgets=("lite", "smoke"), budget="lite"),
    _STL10_TABLE,
    _REDUCED_TABLE,
    Artefact("epoch-time", ("epoch-time",), times.frame, table=times.table, says=times.says),
    *_CONFIGURATIONS,
    Artefact("causes", ("causes",), waterfall.causes_frame, says=waterfall.causes_says),
    Artefact(
        "delta-accuracy",
        ("mnist-scale",),
        training.accuracy_frame,
        draw=training.draw_accuracy,
        says=training.says_accuracy,
    ),
    _DELTA_TRAINING,
    replace(
        _DELTA_TRAINING,
        id="learning-curves",
        frame=training.curves_frame,
        draw=training.draw_curves,
        says=training.says_curves,
    ),
    Artefact(
        "differences",
        (),
        configurations.differences_frame,
        table=configurations.differences_table,
        says=configurations.differences_says,
        beside=("differences",),
    ),
    Artefact(own.KEY, (own.KEY,), own.frame, table=own.table),
)

#: Every artefact by its id, in the order of the page.
ARTEFACTS: dict[str, Artefact] = {row.id: replace(row, **WORDS["artefacts"][row.id]) for row in _ROWS}


def artefact(key: str) -> Artefact:
    """The artefact of that id; an unknown id is answered with the ids, and the nearest of them."""
    return looked_up("only", key, ARTEFACTS)
