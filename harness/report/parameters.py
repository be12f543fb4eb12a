"""How both networks are set up, method by method, and how many parameters they have beside the published counts."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pandas as pd
import torch

from sesn.methods import METHODS, Method, scales_of
from sesn.networks import Recipe

COLUMNS = (
    *("method", "label", "widths", "scales", "widths_paper", "scales_paper"),
    *("parameters", "used", "paper", "difference", "released", "released_used", "reason"),
)


class Setup(NamedTuple):
    """The channels of the three stages or groups (those of the wide ResNet before widening), and how many scales.

    Empty, and 0, of a network that is not built on the skeleton: nobody has said.
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


def parameter_frame(rows: Any, paper: Any, network: str) -> Any:
    """One line per method that has the network, in the order of METHODS.

    Args:
        rows: measured rows of the experiment "parameters" (method, network, recipe, metric, value).
        paper: its published rows (method, network, value, printed, widths, scale_count).
        network: "mnist" or "stl10".
    """
    here, there = rows[rows["network"] == network], paper[paper["network"] == network]
    lines = [_line(row, network, here, there) for row in METHODS.values() if row.lacks(network) is None]
    return pd.DataFrame(lines, columns=list(COLUMNS))


def _line(row: Method, network: str, rows: Any, paper: Any) -> dict[str, Any]:
    rows, published = rows[rows["method"] == row.key], paper[paper["method"] == row.key]
    own, printed = setup(row, network), _first(published, "value")
    total = _count(rows, "paper", "parameters")
    return {
        "method": row.key,
        "label": row.label_on(network),
        "widths": own.widths,
        "scales": own.scales,
        "widths_paper": _words(published, "widths"),
        "scales_paper": _first(published, "scale_count"),
        "parameters": total,
        "used": _count(rows, "paper", "parameters_used"),
        "paper": printed,
        "difference": 100 * (total / printed - 1),
        "released": _count(rows, "released", "parameters"),
        "released_used": _count(rows, "released", "parameters_used"),
        "reason": row.lacks(network, "released") or "",
    }


def _count(rows: Any, recipe: str, metric: str) -> float:
    """NaN where there is no such network, or nothing was counted."""
    return _first(rows[(rows["recipe"] == recipe) & (rows["metric"] == metric)], "value")


def _first(rows: Any, column: str) -> float:
    return float(rows[column].iloc[0]) if len(rows) else math.nan


def _words(rows: Any, column: str) -> str:
    return str(rows[column].dropna().iloc[0]) if rows[column].notna().any() else ""
