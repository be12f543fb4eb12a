"""Table 1, the two configuration tables and the list of differences, rendered from their frames."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd

from harness.report.findings import Statement, claim, listed
from harness.report.parameters import COLUMNS as PARAMETER_COLUMNS
from harness.report.parameters import parameter_frame
from harness.report.properties import COLUMNS as PROPERTY_COLUMNS
from harness.report.properties import FAMILIES, QUESTIONS, property_frame, property_notes
from harness.report.select import Selection
from harness.report.tables import Entry, Table, absent
from sesn.methods import METHODS

UNPRINTED = "the paper has no such row"

# --- Table 1


def properties_frame(selections: Mapping[str, Selection]) -> Any:
    """One line per method."""
    chosen = selections["properties"]
    return pd.DataFrame(columns=list(PROPERTY_COLUMNS)) if chosen.empty else property_frame(chosen.rows, chosen.paper)


def properties_table(frame: Any) -> Table:
    """The paper's mark, the mark here, whether they agree, and the numbers behind it."""
    heading = ["Method"]
    heading += ["equivariant: paper", "here", "agrees", "Δ", "Δ of a CNN"]
    heading += ["admissible: paper", "here", "agrees", *(f"Δ ratio, {family}" for family in FAMILIES)]
    heading += ["interscale: paper", "here", "agrees", "scales seen", "shift error"]
    return Table(tuple(heading), tuple(_property_line(line) for line in frame.to_dict("records")))


def _property_line(line: dict[str, Any]) -> tuple[Entry, ...]:
    equivariance, scales, interscale = (_question(line, question) for question in QUESTIONS)
    deltas = [_number(line[name]) for name in ("delta", "delta_cnn")]
    ratios = [_number(line[f"ratio_{family}"], _unbuilt(line["refused"])) for family in FAMILIES]
    reach = [Entry(str(line["reach"]), line["reach"]), _number(line["translation_error"])]
    return (Entry(line["label"]), *equivariance, *deltas, *scales, *ratios, *interscale, *reach)


def _question(line: dict[str, Any], question: str) -> list[Entry]:
    published, here, agree = (line[f"{question}_{part}"] for part in ("paper", "measured", "agree"))
    if not published:
        return [absent(UNPRINTED), Entry(here), absent(UNPRINTED)]
    return [Entry(published), Entry(here), Entry(agree, bold=agree == "no")]


def _unbuilt(refused: str) -> str:
    """In words, what the layer said when it was to be built for such factors."""
    return f"no such layer can be built: {refused}" if refused else ""


def _number(value: float, reason: str = "") -> Entry:
    return absent(reason or "not measured") if math.isnan(value) else Entry(f"{value:.2g}", value)


def properties_says(frame: Any) -> list[Statement]:
    """Which marks of the paper the measurement confirms."""
    found = []
    for question in QUESTIONS:
        marked = frame[frame[f"{question}_agree"].isin(["yes", "no"])]
        if not len(marked):
            continue
        wrong = marked[marked[f"{question}_agree"].eq("no")]
        text = f"Table 1, {question}: {len(marked) - len(wrong)} of {len(marked)} marks of the paper are confirmed"
        others = [
            f"{line['label']} (paper {line[f'{question}_paper']}, here {line[f'{question}_measured']})"
            for line in wrong.to_dict("records")
        ]
        found.append(claim(not others, text + (f"; not those of {listed(others)}." if others else ".")))
    return found


def properties_caption(frame: Any) -> list[str]:
    """The rule behind the marks."""
    return property_notes(frame)


# --- configurations


def configuration_frame(network: str) -> Callable[[Mapping[str, Selection]], Any]:
    """One line per method that has the network."""

    def frame(selections: Mapping[str, Selection]) -> Any:
        chosen = selections["parameters"]
        if chosen.empty:
            return pd.DataFrame(columns=list(PARAMETER_COLUMNS))
        return parameter_frame(chosen.rows, chosen.paper, network)

    return frame


def configuration_table(frame: Any) -> Table:
    """Channels, scales and parameters: paper and here."""
    heading: tuple[str, ...] = (
        "Method",
        "channels paper",
        "channels here",
        "scales paper",
        "scales here",
        "# params paper",
    )
    heading += ("# params here", "difference", "used", "# params released", "used")
    lines = []
    for line in frame.to_dict("records"):
        known = math.isfinite(line["paper"]) and math.isfinite(line["parameters"])
        difference = f"{line['difference']:+.2f} % {_within_rounding(line)}"
        lines.append(
            (
                Entry(line["label"]),
                Entry(line["widths_paper"]) if line["widths_paper"] else absent("the paper does not say"),
                Entry(line["widths"]),
                _whole(line["scales_paper"], "the paper does not say"),
                _whole(line["scales"], ""),
                Entry(_printed(line["paper"]), line["paper"]) if math.isfinite(line["paper"]) else absent(UNPRINTED),
                _whole(line["parameters"], "not counted"),
                Entry(difference, line["difference"]) if known else absent(UNPRINTED),
                _whole(line["used"], "not counted"),
                _whole(line["released"], line["reason"] or "not counted"),
                _whole(line["released_used"], line["reason"] or "not counted"),
            )
        )
    return Table(heading, tuple(lines))


def _whole(value: float, reason: str) -> Entry:
    return absent(reason) if math.isnan(value) else Entry(f"{int(value):,}", value)


def _printed(value: float) -> str:
    return f"{value / 1e6:.1f} M" if value >= 1e6 else f"{value / 1e3:.0f} K"


def _within_rounding(line: dict[str, Any], which: str = "parameters") -> str:
    """The paper prints thousands, or tenths of millions."""
    half = 50_000 if line["paper"] >= 1e6 else 500
    return "in" if abs(line[which] - line["paper"]) <= half else "out"


def _why(line: dict[str, Any]) -> str:
    """The count, and whether that of the released network, with parameters that it never uses, is the published one."""
    words = f"{int(line['parameters']):,}; the paper's {_printed(line['paper'])}"
    unused = line["released"] - line["released_used"]
    if unused > 0 and _within_rounding(line, "released") == "in":
        words += f" includes {int(unused):,} that are never used"
    return words


def configuration_says(network: str) -> Callable[[Any], list[Statement]]:
    """How many counts are the published ones."""

    def says(frame: Any) -> list[Statement]:
        return list(_counts(frame, network))

    return says


def _counts(frame: Any, network: str) -> Iterator[Statement]:
    known = [line for line in frame.to_dict("records") if math.isfinite(line["paper"]) and line["parameters"] > 0]
    if not known:
        return
    wrong = [line for line in known if _within_rounding(line) == "out"]
    name = {"mnist": "MNIST-scale", "stl10": "STL-10"}[network]
    text = f"{len(known) - len(wrong)} of {len(known)} parameter counts on {name} round to the published ones"
    others = [f"{line['label']} ({_why(line)})" for line in wrong]
    yield claim(not others, text + (f"; not {listed(others)}." if others else "."))
    other_scales = [
        f"{METHODS[line['method']].label_on(network)} ({line['scales']:g}, paper {line['scales_paper']:g})"
        for line in known
        if math.isfinite(line["scales_paper"]) and line["scales"] != line["scales_paper"]
    ]
    if other_scales:
        yield Statement("differs", f"The number of scales on {name} is not the printed one for {listed(other_scales)}.")


# --- the differences

DIFFERENCES = {"where": "Where", "in_paper": "Paper", "in_release": "Released code", "here": "Here"}


def differences_frame(selections: Mapping[str, Selection]) -> Any:
    """The list as it is kept beside the published numbers."""
    return selections["differences"].paper.reindex(columns=list(DIFFERENCES))


def differences_table(frame: Any) -> Table:
    """Words only."""
    lines = tuple(tuple(Entry(str(line[name])) for name in DIFFERENCES) for line in frame.to_dict("records"))
    return Table(tuple(DIFFERENCES.values()), lines, words=True)


def differences_says(frame: Any) -> list[Statement]:
    """How many there are."""
    text = f"The paper's text and the released code differ, or one is silent, in {len(frame)} places of the table"
    return [Statement("differs", text + "; networks can be built by either recipe.")] if len(frame) else []
