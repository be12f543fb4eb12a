"""How both networks are set up, method by method, their parameters beside the published counts; and the list of where
the paper's text and the released code differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pandas as pd
import torch

from harness.report.findings import listed, sentence
from harness.report.select import Selection, first, where
from harness.report.tables import Table, TableEntry, absent, named, numeric, rounded_count, rule_above_later
from sesn.methods import Method, methods_on, scales_of
from sesn.networks import Recipe

COLUMNS = (
    *("method", "label", "widths", "scales", "widths_paper", "scales_paper"),
    *("parameters", "used", "paper", "difference", "released", "released_used", "reason"),
)


UNPRINTED, SILENT = "the paper has no such row", "the paper does not say"
NAMES = {"mnist": "MNIST-scale", "stl10": "STL-10"}
DIFFERENCES = {"where": "Where", "in_paper": "Paper", "in_release": "Released code", "here": "Here"}


class Setup(NamedTuple):
    """The channels of the three stages or groups (those of the wide ResNet before widening), and how many scales.

    A network that is not built on the common skeleton does not declare them: `widths` is then empty and `scales` is 0.
    """

    widths: str
    scales: int


def setup(row: Method, network: str, recipe: Recipe = "paper") -> Setup:
    """How a method's network is set up."""
    widths = row.widths(network, recipe)
    if not widths:
        return Setup("", 0)
    with torch.device("meta"):
        grid = scales_of(row.first_layer(1, 1, recipe, network))
    return Setup("-".join(map(str, widths)), 1 if grid is None else len(grid))


def frame(network: str) -> Callable[[Mapping[str, Selection]], Any]:
    """One line per method that has the network, in the order of METHODS."""
    return lambda selections: parameter_frame(selections["parameters"].rows, selections["parameters"].paper, network)


def parameter_frame(rows: Any, paper: Any, network: str) -> Any:
    """The lines from the rows of the experiment "parameters" and the published ones."""
    lines = [
        _line(row, network, *(where(part, network=network, method=row.key) for part in (rows, paper)))
        for row in methods_on(network)
    ]
    return pd.DataFrame(lines, columns=list(COLUMNS))


def _line(row: Method, network: str, rows: Any, published: Any) -> dict[str, Any]:
    def count(recipe: str, metric: str) -> float:
        return first(where(rows, recipe=recipe, metric=metric), "value")

    own, printed, total = setup(row, network), first(published, "value"), count("paper", "parameters")
    return {
        "method": row.key,
        "label": row.label_on(network),
        "widths": own.widths,
        "scales": own.scales,
        "widths_paper": "".join(published["widths"].dropna().head(1)),
        "scales_paper": first(published, "scale_count"),
        "parameters": total,
        "used": count("paper", "parameters_used"),
        "paper": printed,
        "difference": 100 * (total / printed - 1),
        "released": count("released", "parameters"),
        "released_used": count("released", "parameters_used"),
        "reason": row.lacks(network, "released") or "",
    }


def table(frame: Any) -> Table:
    """Channels, scales and parameters: paper and here."""
    sides = [f"{what} {side}" for what in ("channels", "scales", "# params") for side in ("paper", "here")]
    heading = ("Method", *sides, "difference", "used", "# params released", "used")
    return Table(heading, tuple(_entries(line) for line in frame.to_dict("records")), rule_above_later(frame))


def _entries(line: dict[str, Any]) -> tuple[TableEntry, ...]:
    paper, uncounted = line["paper"], line["reason"] or "not counted"
    within = "in" if rounds_to_print(line["parameters"], paper) else "out"
    return (
        named(line["method"], line["label"]),
        TableEntry(line["widths_paper"]) if line["widths_paper"] else absent(SILENT),
        TableEntry(line["widths"]),
        numeric(line["scales_paper"], "{:,.0f}", SILENT),
        numeric(line["scales"], "{:,.0f}", ""),
        absent(UNPRINTED) if math.isnan(paper) else TableEntry(rounded_count(paper), paper),
        numeric(line["parameters"], "{:,.0f}", "not counted"),
        numeric(line["difference"], f"{{:+.2f}} % {within}", UNPRINTED),
        numeric(line["used"], "{:,.0f}", "not counted"),
        numeric(line["released"], "{:,.0f}", uncounted),
        numeric(line["released_used"], "{:,.0f}", uncounted),
    )


def rounds_to_print(count: float, printed: float) -> bool:
    """Whether a count rounds to what the paper prints, which is thousands or tenths of millions."""
    return abs(count - printed) <= (50_000 if printed >= 1e6 else 500)


def says(network: str) -> Callable[[Any], list[str]]:
    """Say whose printed counts include parameters that never reach the output."""

    def said(frame: Any) -> list[str]:
        unused = list(frame[frame["released"] > frame["released_used"]]["label"])
        return [sentence("unused-counted", network=NAMES[network], methods=listed(unused))] if unused else []

    return said


# --- the differences


def differences_frame(selections: Mapping[str, Selection]) -> Any:
    """The list as it is kept beside the published numbers."""
    return selections["differences"].paper.reindex(columns=list(DIFFERENCES))


def differences_table(frame: Any) -> Table:
    """The list as a table of sentences."""
    lines = tuple(tuple(TableEntry(str(line[name])) for name in DIFFERENCES) for line in frame.to_dict("records"))
    return Table(tuple(DIFFERENCES.values()), lines, words=True)
