"""The paper's Table 1 beside what was measured: every mark with its number, and whether they agree. All computed.

The rule, for every method and family alike: Delta is *small* if it is at most SMALL times that of a plain convolution
on the same images. Delta is a squared distance, so the output is then at least twice as near to the rescaled one.

- *Equivariance* is the rule at the method's own, published scales.
- *Admissible scales* is the widest of the families that the method can be built for with a small Delta; those within it
  must hold as well. A method whose Delta is small nowhere can only be asked which factors it can be built for, which is
  all that the paper's mark can mean for the methods that it calls not equivariant: the mark is in brackets then.
- *Interscale* is whether a scale of the output has a gradient to another scale of the input.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from harness.report.summaries import summarised
from sesn.methods import METHODS

#: At most this part of the plain convolution's Delta is small.
SMALL = 1 / 4
#: Where what Delta leaves out would change it by more than this factor, the table says so.
TELLING = 1.5
#: The families from the narrowest to the widest, and the paper's words for them.
FAMILIES = {"integer": "Integer", "grid": "Grid", "any": "Any"}
#: The columns of the paper's table that are measured.
QUESTIONS = ("equivariance", "admissible", "interscale")
NONE = "none"
COLUMNS = (
    *("method", "label", "approach", "delta", "delta_all", "delta_cnn", "ratio"),
    *("ratio_integer", "ratio_grid", "ratio_any", "worst_ratio", "worst_downscale", "built", "refused"),
    *("reach", "translation_error"),
    *(f"{question}_{part}" for question in QUESTIONS for part in ("paper", "measured", "agree")),
)


def property_frame(rows: Any, paper: Any) -> Any:
    """One line per method of the rows, in the order of METHODS.

    Args:
        rows: measured rows of the experiment "properties", as `harness.run.properties` makes them.
        paper: the published marks (method, equivariance, admissible, approach, interscale).
    """
    ratios = factor_ratios(rows)
    lines = [
        _line(key, rows[rows["method"] == key], ratios[ratios["method"] == key], paper[paper["method"] == key])
        for key in METHODS
        if (rows["method"] == key).any()
    ]
    return pd.DataFrame(lines, columns=list(COLUMNS))


def factor_ratios(rows: Any) -> Any:
    """Per method, family and downscale: the medians of Delta and of the plain convolution's, and their ratio."""
    by, metrics = ["method", "family", "downscale"], ["delta", "delta_all", "delta_cnn"]
    known = rows[rows["metric"].isin(metrics) & rows["family"].isin(["own", *FAMILIES])]
    medians = summarised(known, [*by, "metric"]).pivot(index=by, columns="metric", values="median")
    medians = medians.reindex(columns=metrics)
    return medians.assign(ratio=medians["delta"] / medians["delta_cnn"]).reset_index()


def is_small(ratio: float) -> bool:
    """The rule; what could not be measured is not small."""
    return ratio <= SMALL


def admissible(ratios: dict[str, float], built: dict[str, bool]) -> str:
    """The widest family that holds with all those within it; in brackets if it is by building alone."""
    small = {family: built[family] and is_small(ratios[family]) for family in FAMILIES}
    if any(small.values()) or not any(built.values()):
        return _widest(small)
    return f"({_widest(built)})"


def _widest(holds: dict[str, bool]) -> str:
    mark = NONE
    for family, word in FAMILIES.items():
        if not holds[family]:
            break
        mark = word
    return mark


def _line(key: str, rows: Any, ratios: Any, paper: Any) -> dict[str, Any]:
    own = ratios[ratios["family"] == "own"].iloc[0]
    families = {family: ratios[ratios["family"] == family] for family in FAMILIES}
    typical = {family: _median(part["ratio"]) for family, part in families.items()}
    built = {family: bool(part["delta"].notna().all()) for family, part in families.items()}
    worst = ratios[ratios["family"].isin(list(FAMILIES))].sort_values("ratio").dropna(subset=["ratio"]).iloc[-1:]
    reach = rows[rows["metric"] == "interscale_reach"]["value"].max()
    measured = {
        "equivariance": "yes" if is_small(own["ratio"]) else "no",
        "admissible": admissible(typical, built),
        "interscale": "yes" if reach > 0 else "no",
    }
    return {
        "method": key,
        "label": METHODS[key].label,
        "approach": METHODS[key].source.approach,
        **{name: float(own[name]) for name in ("delta", "delta_all", "delta_cnn", "ratio")},
        **{f"ratio_{family}": value for family, value in typical.items()},
        "worst_ratio": float(worst["ratio"].sum()) if len(worst) else math.nan,
        "worst_downscale": float(worst["downscale"].sum()) if len(worst) else math.nan,
        "built": _widest(built),
        "refused": _refusal(rows),
        "reach": int(reach),
        "translation_error": _median(rows[rows["metric"] == "translation_error"]["value"]),
        **_marks(measured, paper),
    }


def _marks(measured: dict[str, str], paper: Any) -> dict[str, str]:
    """The paper's mark, the measured one, and yes or no; nothing where the paper has no such row."""
    marks: dict[str, str] = {}
    for question, mark in measured.items():
        published = str(paper[question].iloc[0]) if len(paper) else ""
        same = "yes" if mark.strip("()") == published else "no"
        marks |= {
            f"{question}_paper": published,
            f"{question}_measured": mark,
            f"{question}_agree": same if published else "",
        }
    return marks


def _refusal(rows: Any) -> str:
    """The layer's own words about the first factor that it could not be built for."""
    words = list(rows["refused"].dropna()) if "refused" in rows else []
    return str(words[0]) if words else ""


def _median(values: Any) -> float:
    """NaN if any is, as everywhere."""
    return float(values.median(skipna=False)) if len(values) else math.nan


# For reading


def property_notes(frame: Any) -> list[str]:
    """What the numbers are, in words."""
    notes = [
        f"Equivariant: the median Δ of the published layer is at most {SMALL:g} of a plain convolution's.",
        "Admissible: Δ over the plain convolution's, of layers built for each factor; median over a family's factors. "
        "The published layer has a step of its own, so the two columns may differ: one is about that layer, the other "
        "about what can be built.",
        "A mark in brackets: Δ is small for no family, so it only says which factors the layer can be built for.",
        "Shift error: median squared relative error under shifts by whole pixels, away from the border.",
    ]
    return notes + [
        f"{line.label}: Δ leaves out what has no partner among the scales, on either side; with it the published "
        f"layer's Δ is {line.delta_all:.2g} instead of {line.delta:.2g} (a plain convolution: {line.delta_cnn:.2g})."
        for line in frame.itertuples()
        if line.delta_all > TELLING * line.delta
    ]
