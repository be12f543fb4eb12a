"""ARTEFACTS: every figure and table of the report, one row each. The page, the README and nox iterate over it.

Each is two pure steps: `frame` makes the numbers from selected rows, `draw` or `table` shows that frame alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.records import Budget
from harness.report import delta, errors, goals, kernels, marks, times, training, waterfall
from harness.report.findings import Finding
from harness.report.select import Selection
from harness.report.tables import Table
from sesn._lookup import looked_up
from sesn.tools.drawing import Drawing

Selections = Mapping[str, Selection]
#: The report's other ways to come by rows than `sesn run`.
BUDGET_COMMAND = (
    "sesn budget docs/examples/network.py:published --input 3x96x96 --downscale 1.41 "
    "--picture reports/budget/published.png --json reports/budget/published.json"
)
IN_OUT = "in, out: within or outside the combined 95 % interval of paper and here."


def _nothing(_frame: Any) -> list[Any]:
    return []


@dataclass(frozen=True)
class Artefact:
    """One figure or table.

    Attributes:
        id: the name of its files, and its anchor on the page.
        title: its heading.
        caption: what is shown; budget, data and machine are added from the rows.
        experiments: what must have been run; none for what is drawn from the library itself.
        frame: from selections to the numbers.
        draw, table: from the numbers to a figure or a table; neither for a figure that another command draws.
        says: from the numbers to sentences.
        extra: further lines of the caption that depend on the numbers.
        command: how to get its rows, if not by `sesn run`.
        beside: experiments whose rows it shows if they are there.
        budgets: it shows the first of these that has rows; none: the one that fills most of it.
        budget: the smallest that measures it.
    """

    id: str
    title: str
    caption: str
    experiments: tuple[str, ...]
    frame: Callable[[Selections], Any]
    draw: Callable[[Any], Drawing] | None = None
    table: Callable[[Any], Table] | None = None
    says: Callable[[Any], list[Finding]] = _nothing
    extra: Callable[[Any], list[str]] = _nothing
    command: str = ""
    beside: tuple[str, ...] = ()
    budgets: tuple[Budget, ...] = ()
    budget: Budget = "lite"

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

    def regenerate(self, options: Mapping[str, str]) -> str:
        """The commands that make it anew from the same rows as before."""
        return " && ".join(filter(None, (self.run_with(options), f"sesn report --only {self.id}")))


_FIGURE_1 = (
    "Left: one kernel κ at four scales is a combination of basis functions Ψ with the same weights w at every scale. "
    "Middle, right: the kernels that one 2-D convolution takes for an image of 3 channels (T → H) and for a field of 3 "
    "channels and 4 scales (H → H); grey: no kernel, since without interscale interaction scales stay apart. The "
    "values are those of the layers' own tensors; each row is scaled to full colour."
)
_BASIS = (
    "The steerable functions over scales: above as in the published STL-10 networks, cut off at 1.1 to 1.7 σ; below on "
    "wide windows of 4.5 σ (the middle 3 σ of the largest is shown). Each row is scaled to full colour."
)
_FIGURE_2 = (
    "Equivariance error Δ against the number of layers, the downscale factor (one layer, 13 scales) and the interscale "
    "extent (one layer); 8 channels, on 384 pixels 2. Lines and bands: median and its 95 % interval; points and bars: "
    "mean ± standard deviation, as in the paper. Dotted grey: the probe's own floor. Valid scales are those that lost "
    "nothing past the ends of the scale axis."
)
_GOALS = (
    "Goals for Δ with windows of 4.5 σ, six functions and the smallest σ 2.0, and what was measured with the border "
    "counted. Networks have 5 scales unless another number is given. Up to a factor: the largest mean of all factors. "
    "The folder budget has the Δ of one layer of 5 scales at 3.97×, where one scale has a partner, split into causes."
)
_MNIST = (
    "Test error on MNIST-scale in %, mean ± standard deviation over realisations; + is with scaling augmentation. "
    f"Bold: the lowest of a column. {IN_OUT} Fewer than three realisations are not judged."
)
_SHORTENED = "Trained for fewer epochs than the paper's 60, in the same proportions. "
_STL10 = (
    f"Test error on STL-10 in %. Bold: the lowest of a column. {IN_OUT} Paper and here have one run each, so the "
    "interval holds only what the choice of test images explains."
)
_REDUCED = (
    "Test error in % on STL-10 of a thinner and shallower network than the paper's, trained for fewer epochs, one run "
    "each: absolute errors cannot be compared, and differences to the plain network (WRN) only show a trend."
)
_TIMES = (
    "Time of an epoch of MNIST-scale (10,000 images), extrapolated from the median training step without reading data; "
    "ratios to the CNN are medians over steps taken in turn, which a slow moment of the machine changes less than the "
    "seconds beside them; multiply-adds are of one image's forward pass. in, out: whether the interval of the ratio "
    "here meets that of the published ratio, which has the width of its rounding."
)
_CONFIGURATION = (
    "Channels, scales and parameters. in, out: whether the count rounds to the printed number. Used: without "
    "parameters that never reach the output."
)
_WATERFALL = (
    "Δ of two layers with the published STL-10 kernels, split by switching causes off one after the other; the steps "
    "lead from the observed Δ to the remainder."
)
_ACCURACY = (
    "Δ of the trained networks at downscale 2 (of the last map, and of the scores, which should not change) against "
    "the test error, by method and setting. Bars: 95 % interval of the median; standard deviation over realisations."
)
_DELTA_TRAINING = "Δ at downscale 2 along training: median over images and realisations, and its 95 % interval."
_CURVES = "Validation error and training loss by epoch: mean ± standard deviation over realisations."
_DIFFERENCES = "Where the paper's text and the released code differ, or one is silent, and what is done here."

_MNIST_TABLE = Artefact(
    "mnist-scale",
    "MNIST-scale, as published",
    _MNIST,
    ("mnist-scale",),
    errors.mnist_frame,
    table=errors.mnist_table,
    says=errors.mnist_says,
    beside=("parameters",),
    budgets=("paper",),
    budget="paper",
)
#: The longest training that there is, however few methods have it.
_LONGEST: tuple[Budget, ...] = ("paper", "lite", "smoke")
_DELTAS = ("delta-depth", "delta-downscale", "delta-interscale")
_ROWS = (
    Artefact(
        "figure-1",
        "Figure 1: how kernels are built and reshaped",
        _FIGURE_1,
        (),
        kernels.kernels_frame,
        draw=kernels.draw_kernels,
        says=kernels.kernels_says,
    ),
    Artefact(
        "basis",
        "The filter basis over scales",
        _BASIS,
        (),
        kernels.basis_frame,
        draw=kernels.draw_basis,
        says=kernels.basis_says,
    ),
    Artefact(
        "figure-2",
        "Figure 2: the equivariance error",
        _FIGURE_2,
        _DELTAS,
        delta.figure_frame,
        draw=delta.draw,
        says=delta.says,
    ),
    Artefact(
        "wide-windows",
        "How near to exact wide windows come",
        _GOALS,
        ("delta-depth", "delta-downscale"),
        goals.goals_frame,
        table=goals.goals_table,
        says=goals.goals_says,
    ),
    Artefact(
        "table-1",
        "Table 1, measured",
        "Properties of the methods: the paper's marks beside measured ones.",
        ("properties",),
        marks.properties_frame,
        table=marks.properties_table,
        says=marks.properties_says,
        extra=marks.properties_caption,
    ),
    _MNIST_TABLE,
    replace(
        _MNIST_TABLE,
        id="mnist-scale-lite",
        title="MNIST-scale, shortened training",
        caption=_SHORTENED + _MNIST,
        budgets=("lite", "smoke"),
        budget="lite",
    ),
    Artefact(
        "stl10",
        "STL-10",
        _STL10,
        ("stl10",),
        errors.stl10_frame("stl10"),
        table=errors.stl10_table,
        says=errors.stl10_says,
        beside=("parameters",),
        budget="paper",
    ),
    Artefact(
        "stl10-reduced",
        "STL-10, reduced network",
        _REDUCED,
        ("stl10-reduced",),
        errors.stl10_frame("stl10-reduced"),
        table=errors.reduced_table,
        says=errors.reduced_says,
        beside=("stl10",),
    ),
    Artefact(
        "epoch-time", "Time of an epoch", _TIMES, ("epoch-time",), times.frame, table=times.table, says=times.says
    ),
    Artefact(
        "configuration-mnist",
        "Configurations on MNIST-scale",
        _CONFIGURATION,
        ("parameters",),
        marks.configuration_frame("mnist"),
        table=marks.configuration_table,
        says=marks.configuration_says("mnist"),
    ),
    Artefact(
        "configuration-stl10",
        "Configurations on STL-10",
        _CONFIGURATION + " Channels are given before the widening by 8.",
        ("parameters",),
        marks.configuration_frame("stl10"),
        table=marks.configuration_table,
        says=marks.configuration_says("stl10"),
    ),
    Artefact(
        "error-budget",
        "What an observed Δ is made of",
        _WATERFALL,
        ("error-budget",),
        waterfall.budget_frame,
        says=waterfall.budget_says,
        command=BUDGET_COMMAND,
    ),
    Artefact(
        "delta-accuracy",
        "Δ against accuracy",
        _ACCURACY,
        ("mnist-scale",),
        training.accuracy_frame,
        draw=training.draw_accuracy,
        says=training.says_accuracy,
    ),
    Artefact(
        "delta-training",
        "Δ along training",
        _DELTA_TRAINING,
        ("mnist-scale",),
        training.delta_frame,
        draw=training.draw_delta,
        says=training.says_delta,
        budgets=_LONGEST,
    ),
    Artefact(
        "learning-curves",
        "Learning curves",
        _CURVES,
        ("mnist-scale",),
        training.curves_frame,
        draw=training.draw_curves,
        says=training.says_curves,
        budgets=_LONGEST,
    ),
    Artefact(
        "differences",
        "Paper and released code",
        _DIFFERENCES,
        (),
        marks.differences_frame,
        table=marks.differences_table,
        says=marks.differences_says,
        beside=("differences",),
    ),
)

#: Every artefact by its id, in the order of the page.
ARTEFACTS: dict[str, Artefact] = {row.id: row for row in _ROWS}


def artefact(key: str) -> Artefact:
    """The artefact of that id; an unknown id is answered with the ids, and the nearest of them."""
    return looked_up("only", key, ARTEFACTS)
