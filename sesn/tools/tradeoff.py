"""The tuner's result: a table of the best choices, and Delta against multiply-adds with what no other choice beats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from sesn.tools.drawing import STYLE
from sesn.tools.tune import Candidate, Tuning

#: Okabe and Ito's palette; each kind has its own marker as well.
COLOURS = {"wide": "#0072B2", "paper": "#56B4E9", "published STL-10 kernels": "#D55E00", "proposal": "#009E73"}
PANELS: dict[str, Callable[[Candidate], int]] = {
    "separable": lambda c: c.separable_macs,
    "dense": lambda c: c.dense_macs,
}


def tuning_table(tuning: Tuning, images: str, lines: int = 10) -> Table:
    """The proposal, the published kernels, and `lines` more choices that cost no more than is allowed."""
    grid = tuning.proposal.grid
    title = f"kernels for {len(grid)} scales over a range of {grid.largest / grid.smallest:.3g}"
    table = Table(box=SIMPLE_HEAD, title=title, caption=_caption(tuning, images))
    for column in ("", "orders", "N_b", "σ₀", "window", "Δ", "separable", "dense"):
        table.add_column(column, no_wrap=True)
    _add(table, "proposal", tuning.proposal, "bold")
    _add(table, "published", tuning.published, None)
    table.add_section()
    for each in runners_up(tuning)[:lines]:
        _add(table, "", each, "dim")
    return table


def runners_up(tuning: Tuning) -> list[Candidate]:
    """The best allowed window for every set of orders and smallest sigma, the smallest Delta first."""
    best: dict[object, Candidate] = {}
    within = [each for each in tuning.candidates if each.separable_macs <= tuning.macs]
    for each in sorted(within, key=lambda c: c.delta):
        best.setdefault((each.orders, each.grid), each)
    return [each for each in best.values() if each != tuning.proposal]


def _add(table: Table, name: str, each: Candidate, style: str | None) -> None:
    table.add_row(
        name,
        each.orders.label,
        str(each.functions),
        f"{each.grid.smallest:g}",
        "wide" if each.kernel_size is None else f"V={each.kernel_size}",
        f"{each.delta:.1e}",
        f"{each.separable_macs / 1e9:.3g} G",
        f"{each.dense_macs / 1e9:.3g} G",
        style=style,
    )


def _caption(tuning: Tuning, images: str) -> str:
    return (
        f"Δ of one layer for one step of the grid ({tuning.proposal.grid.ratio:.3g}), {images}; floor of the probe "
        f"{tuning.proposal.floor:.1e}. Choices near the floor or within a factor of two cannot be told apart: of these "
        "the proposal has the most functions, then the smallest σ₀. Separable, dense: nominal multiply-adds of one "
        f"layer on one image, {tuning.channels} channels, {tuning.side} x {tuning.side}; allowed are "
        f"{tuning.macs / 1e9:.3g} G on the separable path."
    )


def draw_tuning(tuning: Tuning) -> Figure:
    """Delta against the cost of both algorithms; save it with `sesn.tools.drawing.save`."""
    with mpl.rc_context({**STYLE, "font.size": 8}):
        figure = Figure(figsize=(7.0, 3.4), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (name, cost) in zip(panels, PANELS.items(), strict=True):
            _panel(axes, tuning, cost)
            axes.set_xlabel(f"multiply-adds, {name} ({tuning.channels} channels, {tuning.side} × {tuning.side})")
        panels[0].axvline(tuning.macs, color="0.45", ls="--", lw=1, zorder=0, label="allowed")
        _name_columns(panels[0], tuning)
        panels[0].set_ylabel(f"Δ of one layer, downscale {tuning.proposal.grid.ratio:.3g}")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    return figure


def _panel(axes: Any, tuning: Tuning, cost: Callable[[Candidate], int]) -> None:
    for kind, marker in (("paper", "."), ("wide", "x")):
        shown = [each for each in tuning.candidates if (each.kernel_size is None) == (kind == "wide")]
        where = [cost(each) for each in shown], [each.delta for each in shown]
        axes.plot(*where, marker, ms=4, alpha=0.75, color=COLOURS[kind], label=f"{kind} windows")
    front = tuning.front(cost)
    most = max(cost(each) for each in tuning.candidates)  # whoever pays more can have the last one too
    steps = [*(cost(each) for each in front), most], [*(each.delta for each in front), front[-1].delta]
    axes.plot(*steps, drawstyle="steps-post", color="black", lw=1, label="smallest Δ for the cost")
    look: Any = {"mec": "black", "mew": 0.6, "ls": "none"}
    for each, label, marker, size in (
        (tuning.published, "published STL-10 kernels", "*", 11),
        (tuning.proposal, "proposal", "D", 6),
    ):
        axes.plot([cost(each)], [each.delta], marker, ms=size, color=COLOURS[label], label=label, **look)
    axes.axhline(tuning.proposal.floor, color="0.45", ls=":", lw=1, zorder=0, label="floor of the probe")
    axes.set_xscale("log")
    axes.set_yscale("log")


def _name_columns(axes: Any, tuning: Tuning) -> None:
    """On the separable path the cost depends on the functions alone: say how many each column has."""
    columns = {each.separable_macs: each.functions for each in tuning.candidates if each.orders.type == "A"}
    where = axes.get_xaxis_transform(), "offset points"
    for cost, functions in columns.items():
        axes.annotate(f"{functions}", (cost, 1.0), (0, 1), *where, ha="center", fontsize=7)
    axes.annotate("N_b =", (min(columns), 1.0), (-6, 1), *where, ha="right", fontsize=7)
