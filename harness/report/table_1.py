"""The paper's Table 1 beside what was measured: every mark with its number, and whether they agree. All is computed.

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
from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.report.findings import sentence
from harness.report.select import Selection, first, where
from harness.report.summaries import summarised
from harness.report.tables import Table, TableEntry, absent, named, numeric, rule_above_later
from sesn.methods import METHODS

#: At most this part of the plain convolution's Delta is small.
SMALL = 1 / 4
#: Where what Delta leaves out would change it by more than this factor, the table says so.
TELLING = 1.5
#: The families from the narrowest to the widest, and the paper's words for them.
FAMILIES = {"integer": "Integer", "grid": "Grid", "any": "Any"}
#: The columns of the paper's table that are measured.
HEADINGS = {"equivariance": "equivariant", "admissible": "admissible", "interscale": "interscale"}
QUESTIONS = tuple(HEADINGS)
AGREES = {"yes": "✓", "no": "✗", "": ""}
COLUMNS = (
    *("method", "label", "approach", "delta", "delta_all", "delta_cnn", "ratio"),
    *("ratio_integer", "ratio_grid", "ratio_any", "worst_ratio", "worst_downscale", "built", "refused"),
    *("reach", "translation_error", "claimed_in"),
    *("best_scale", "best_scale_delta", "worst_scale", "worst_scale_delta"),
    *(f"{question}_{part}" for question in QUESTIONS for part in ("paper", "measured", "agree")),
)


def frame(selections: Mapping[str, Selection]) -> Any:
    """One line per method that was measured, in the order of METHODS."""
    chosen = selections["properties"]
    return property_frame(chosen.rows, chosen.paper)


def property_frame(rows: Any, paper: Any) -> Any:
    """The lines from the rows of the experiment "properties" and the published marks."""
    ratios = factor_ratios(rows)
    there = [key for key in METHODS if (rows["method"] == key).any()]
    lines = [_line(key, *(where(part, method=key) for part in (rows, ratios, paper))) for key in there]
    return pd.DataFrame(lines, columns=list(COLUMNS))


def factor_ratios(rows: Any) -> Any:
    """Per method, family and downscale: the medians of Delta and of the plain convolution's, and their ratio."""
    by, metrics = ["method", "family", "downscale"], ["delta", "delta_all", "delta_cnn"]
    known = rows[rows["metric"].isin(metrics) & rows["family"].isin(["own", *FAMILIES])]
    medians = summarised(known, [*by, "metric"]).pivot(index=by, columns="metric", values="median")
    medians = medians.reindex(columns=metrics)
    return medians.assign(ratio=medians["delta"] / medians["delta_cnn"]).reset_index()


def is_small(ratio: float) -> bool:
    """Whether a ratio is small by the rule; one that could not be measured is not."""
    return ratio <= SMALL


def admissible(ratios: dict[str, float], built: dict[str, bool]) -> str:
    """The widest family that holds with all those within it; in brackets if it is by building alone."""
    small = {family: built[family] and is_small(ratios[family]) for family in FAMILIES}
    if any(small.values()) or not any(built.values()):
        return _widest(small)
    return f"({_widest(built)})"


def _widest(holds: dict[str, bool]) -> str:
    mark = "none"
    for family, word in FAMILIES.items():
        if not holds[family]:
            break
        mark = word
    return mark


def _line(key: str, rows: Any, ratios: Any, paper: Any) -> dict[str, Any]:
    own = where(ratios, family="own").iloc[0]
    families = {family: where(ratios, family=family) for family in FAMILIES}
    typical = {family: _median(part["ratio"]) for family, part in families.items()}
    built = {family: bool(part["delta"].notna().all()) for family, part in families.items()}
    worst = ratios[ratios["family"].isin(list(FAMILIES))].sort_values("ratio").dropna(subset=["ratio"]).iloc[-1:]
    reach = where(rows, metric="interscale_reach")["value"].max()
    refused = list(rows["refused"].dropna()) if "refused" in rows else []
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
        "worst_ratio": first(worst, "ratio"),
        "worst_downscale": first(worst, "downscale"),
        "built": _widest(built),
        # The layer's own words about the first factor that it could not be built for.
        "refused": str(refused[0]) if refused else "",
        "reach": int(reach),
        "translation_error": _median(where(rows, metric="translation_error")["value"]),
        "claimed_in": "".join(paper["claimed_in"].dropna().head(1)) if "claimed_in" in paper else "",
        **_scales(rows),
        **_marks(measured, paper),
    }


def _scales(rows: Any) -> dict[str, float]:
    """The scales of the published layer with the least and the largest Delta, and these; nothing without any scales."""
    known = where(rows, metric="delta", family="own, by scale")
    if not len(known):
        return {}
    medians = summarised(known, ["scale"]).set_index("scale")["median"]
    ends = {"best": medians.idxmin(), "worst": medians.idxmax()}
    told = {f"{end}_scale": float(scale) for end, scale in ends.items()}
    return told | {f"{end}_scale_delta": float(medians[scale]) for end, scale in ends.items()}


def _marks(measured: dict[str, str], paper: Any) -> dict[str, str]:
    """The published mark, the measured one, and yes or no; nothing where there is none."""
    marks: dict[str, str] = {}
    for question, mark in measured.items():
        published = "".join(paper[question].dropna().astype(str).head(1))
        same = "yes" if mark.strip("()") == published else "no" if published else ""
        marks |= {f"{question}_paper": published, f"{question}_measured": mark, f"{question}_agree": same}
    return marks


def _median(values: Any) -> float:
    """The median, which is NaN if any of the values is."""
    return float(values.median(skipna=False)) if len(values) else math.nan


def table(frame: Any) -> Table:
    """For each question the paper's mark, and here the mark, its number and whether the two agree."""
    heading = [words for question in HEADINGS.values() for words in (f"{question}: paper", "here")]
    lines = [
        (named(line["method"]), *(entry for question in QUESTIONS for entry in _question(line, question)))
        for line in frame.to_dict("records")
    ]
    return Table(("Method", *heading), tuple(lines), rule_above_later(frame))


def _question(line: dict[str, Any], question: str) -> list[TableEntry]:
    published, here, agree = (line[f"{question}_{part}"] for part in ("paper", "measured", "agree"))
    family = here.strip("()").lower()
    # How many other scales are seen; a mark by families has the ratio of its own.
    numbers = {"equivariance": line["ratio"], "interscale": line["reach"] or None}
    number = numbers.get(question, line.get(f"ratio_{family}"))
    words = [here, "" if number is None or math.isnan(number) else f"{number:.2g}", AGREES[agree]]
    mark = TableEntry(" ".join(filter(None, words)), number, bold=agree == "no")
    later = METHODS[line["method"]].later
    source = f"as its authors claim: {line['claimed_in']}" if later else ""
    why_not = "its authors' claim is not known here" if later else "the paper has no such row"
    return [TableEntry(published, note=source) if published else absent(why_not), mark]


def details_table(frame: Any) -> Table:
    """The numbers behind the marks."""
    columns = {"delta": "Δ", "delta_cnn": "Δ of a CNN", "ratio": "ratio"}
    columns |= {f"ratio_{family}": f"ratio, {family}" for family in FAMILIES}
    columns |= {"worst_ratio": "worst ratio", "worst_downscale": "at downscale"}
    columns |= {"reach": "scales seen", "translation_error": "shift error"}
    lines = [
        (named(line["method"]), *(numeric(line[name], "{:.2g}", _why_not(line)) for name in columns))
        for line in frame.to_dict("records")
    ]
    return Table(("Method", *columns.values()), tuple(lines), rule_above_later(frame))


def _why_not(line: dict[str, Any]) -> str:
    return "the layer cannot be built for such factors" if line["refused"] else "not measured"


def left_out(frame: Any) -> list[str]:
    """Where what Delta leaves out would change it."""
    telling = frame[frame["delta_all"] > TELLING * frame["delta"]]
    return [sentence("mark-left-out", **line) for line in telling.to_dict("records")]


def remarks(frame: Any) -> list[str]:
    """The rule behind the marks, and where a layer that is not marked equivariant is so between some of its scales."""
    rules = [sentence(f"mark-{name}", small=SMALL) for name in ("equivariant", "admissible", "brackets")]
    uneven = frame[frame["equivariance_measured"].eq("no") & frame["best_scale_delta"].le(SMALL * frame["delta_cnn"])]
    alike = uneven.groupby(["worst_scale", "worst_scale_delta", "best_scale", "best_scale_delta"], sort=False)
    lines = [part.iloc[0].to_dict() | {"label": " and ".join(part["label"])} for _, part in alike]
    return rules + [sentence("mark-by-scale", **line) for line in lines]
