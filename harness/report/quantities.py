"""The quantities that claims of the paper bound: what the paper printed, and what the frame of an artefact shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from harness.report import delta
from harness.report.configurations import rounds_to_print
from harness.report.findings import WORDS, listed
from harness.report.select import where
from harness.report.summaries import LEAST_RUNS, Sample, agreement
from harness.report.tables import rounded_count
from sesn.methods import METHODS, REFERENCE, methods_on

Claim = Mapping[str, Any]
Numbers = dict[str, Any]
#: The columns of the table of times: the ratio to the CNN, its interval, and how many steps were timed.
RATIO = ("ratio", "ratio_low", "ratio_high", "steps")

#: A point whose floor is more than this part of it says more about the meter than about the network.
MOST_FLOOR = 0.2


class Case(NamedTuple):
    """A quantity under one configuration, with its interval, and the numbers that its words need."""

    value: float
    low: float
    high: float
    n: int
    numbers: Mapping[str, Any]
    configuration: str = ""
    #: whether all was measured that must be for a claim to be confirmed
    complete: bool = True
    #: whether it is counted, so that once is enough
    counted: bool = False

    @property
    def sampled_enough(self) -> bool:
        """Whether there are as many runs as an interval needs."""
        return self.counted or self.n >= LEAST_RUNS


class Quantity(NamedTuple):
    """The numbers of the paper for its words, from published rows; and the cases that a frame shows."""

    published: Callable[[Claim, Any], Numbers]
    cases: Callable[[Claim, Any], Sequence[Case]]


# --- Delta


def _of_windows(claim: Claim, points: Any, read: Callable[[Any], Case | None]) -> list[Case]:
    """A case for each kind of windows and nonlinearity: the claim's own, then the same nonlinearity, then the rest."""
    own = claim["window"], claim["nonlinearity"]
    curves = where(points, experiment=claim["experiment"]).sort_values("x")
    parts = curves[curves["window"].isin(list(delta.WINDOWS))].groupby(["window", "nonlinearity"], sort=False)
    found = {key: case for key, part in parts if (case := read(part))}
    order = sorted(found, key=lambda key: (key != own, key[1] != own[1], key))
    names = {key: f"{delta.WINDOWS[key[0]]}, {delta.NAMES.get(key[1], key[1])}" for key in found}
    return [found[key]._replace(configuration=names[key]) for key in order]


def _curve(points: Any, series: str = "") -> Any:
    """The points of a series; of none, those of the first of their panel, which is the paper's."""
    first = {panel.experiment: next(iter(panel.styles)) for panel in delta.PANELS}
    return where(points, series=series or first[points["experiment"].iloc[0]]).dropna(subset=["median"])


def _after_layers(claim: Claim, points: Any) -> list[Case]:
    def read(part: Any) -> Case | None:
        for deep in where(_curve(part), x=claim["depth"]).to_dict("records"):
            return Case(deep["median"], deep["low"], deep["high"], int(deep["draws"]), {})
        return None

    return _of_windows(claim, points, read)


def _rise(claim: Claim, points: Any) -> list[Case]:
    """On the smallest images on which it can be told from the meter's own floor."""

    def read(part: Any) -> Case | None:
        for series in sorted(set(part["series"]), key=lambda name: int(name.split()[0])):
            curve = _curve(part, series)
            curve = curve[~(curve["floor"] > MOST_FLOOR * curve["median"])]
            beyond = curve["x"] > 1.01 * claim["downscale"]
            if case := _times_as_large(curve[beyond], curve[~beyond]):
                return case
        return None

    return _of_windows(claim, points, read)


def _truncation(claim: Claim, points: Any) -> list[Case]:
    return _of_windows(claim, points, lambda part: _times_as_large(_curve(part), _curve(part, delta.LONGER)))


def _times_as_large(first: Any, second: Any) -> Case | None:
    """The ratio of the last medians of two curves, if there are any."""
    return _ratio(*(curve.iloc[-1].to_dict() for curve in (first, second))) if len(first) and len(second) else None


def _ratio(top: Numbers, bottom: Numbers, names: Sequence[str] = ("median", "low", "high", "draws")) -> Case:
    """How many times as large one number is as another, at least and at most."""
    value, low, high, n = names

    def over(above: str, below: str) -> float:
        return float(top[above] / bottom[below]) if bottom[below] else math.inf

    ends = over(value, value), over(low, high), over(high, low)
    return Case(*ends, int(min(top[n], bottom[n])), {"top": top, "bottom": bottom})


# --- marks and counts


def _papers(lines: Any) -> Any:
    """The lines of the methods that the paper compares."""
    return lines[[METHODS[key].in_paper for key in lines["method"]]]


def _marks(claim: Claim, frame: Any) -> list[Case]:
    question = claim["column"]
    marked = _papers(frame[frame[f"{question}_agree"].isin(["yes", "no"])]).to_dict("records")
    words = WORDS["claims"]["mark-differs"]
    others = [
        words.format(label=line["label"], paper=line[f"{question}_paper"], here=line[f"{question}_measured"])
        for line in marked
        if line[f"{question}_agree"] == "no"
    ]
    return _agreeing(claim, others, len(marked))


def _counts(claim: Claim, frame: Any) -> list[Case]:
    """The parameters of the networks after the paper, and of the released ones."""
    known = [line for line in frame.to_dict("records") if math.isfinite(line["paper"])]
    cases = []
    for column, configuration in WORDS["claims"]["recipes"].items():
        counted = [line for line in known if line[column] > 0]
        others = [
            WORDS["claims"]["count-differs"].format(
                here=int(line[column]), printed=rounded_count(line["paper"]), **line
            )
            for line in counted
            if not rounds_to_print(line[column], line["paper"])
        ]
        cases += [case._replace(configuration=configuration) for case in _agreeing(claim, others, len(counted))]
    return cases


def _agreeing(claim: Claim, others: list[str], count: int) -> list[Case]:
    """The part that agrees with the printed ones."""
    if not count:
        return []
    good, printed = count - len(others), claim["printed"]["count"]
    numbers = {"good": good, "compared": count, "count": printed, "others": listed(others) if others else ""}
    return [Case(*(good / count,) * 3, count, numbers, complete=count == printed, counted=True)]


# --- test errors


def _here(frame: Any, claim: Claim, keys: Sequence[str], column: str = "here") -> list[Numbers]:
    """The lines of some methods in the claim's setting that have a number, the lowest first."""
    setting = {name: claim[name] for name in ("resolution", "augmented") if name in frame}
    part = where(frame, **setting)
    lines = part[part["method"].isin(list(keys)) & part[column].notna()].sort_values([column, "method"])
    return [{**line, "label": METHODS[line["method"]].label} for line in lines.to_dict("records")]


def _sides(claim: Claim) -> tuple[list[str], list[str]]:
    """The methods that a claim is about, and those that it compares them with."""
    rivals = (row for row in methods_on("mnist") if row.in_paper and not row.ours)
    others = [row.key for row in rivals if "mnist/error" not in row.absences]
    return claim["of"].split(), claim["than"].split() or others


def _lead(claim: Claim, frame: Any) -> list[Case]:
    """By how much the best is better than the best of the others."""
    own, others = (_here(frame, claim, keys) for keys in _sides(claim))
    if not own or not others:
        return []
    best, rival = own[0], others[0]
    found = agreement(*(Sample(line["here"], line["deviation"], int(line["n"])) for line in (best, rival)))
    numbers = {"best": best, "rival": rival, "compared": len(others), "count": len(_sides(claim)[1])}
    ends = found.difference, found.difference - found.half_width, found.difference + found.half_width
    complete = numbers["compared"] == numbers["count"]
    return [Case(*ends, int(min(best["n"], rival["n"])), numbers, complete=complete)]


def _printed_errors(claim: Claim, paper: Any) -> Numbers:
    own, others = (_here(where(paper, metric="test_error"), claim, keys, "value") for keys in _sides(claim))
    return {"best": own[0], "rival": others[0]}


def _offset(claim: Claim, frame: Any) -> list[Case]:
    """How far an error lies from the published one, in half widths of their combined interval."""
    for line in _here(frame, claim, _sides(claim)[0]):
        off = abs(line["here"] - line["paper"]) / line["half_width"] if line["half_width"] else math.nan
        return [Case(off, off, off, int(line["n"]), line)]
    return []


# --- times


def _rescaling() -> list[str]:
    return [row.key for row in methods_on("mnist") if row.resamples and row.in_paper]


def _speed_up(claim: Claim, frame: Any) -> list[Case]:
    """How many times as long the fastest method that rescales takes as the slowest of the claim's."""
    own, others = (_here(frame, claim, keys, RATIO[0]) for keys in (_sides(claim)[0], _rescaling()))
    return [_ratio(others[0], own[-1], RATIO)] if own and others else []


def _time(claim: Claim, frame: Any) -> list[Case]:
    lines = _here(frame, claim, _sides(claim)[0], RATIO[0])
    return [Case(line["ratio"], line["ratio_low"], line["ratio_high"], int(line["steps"]), line) for line in lines]


def _printed_times(claim: Claim, paper: Any) -> Numbers:
    times = where(paper, metric="epoch_time")
    own, others, reference = (
        _here(times, claim, keys, "value") for keys in (_sides(claim)[0], _rescaling(), [REFERENCE])
    )
    return {"speed_up": others[0]["value"] / own[-1]["value"], "time": own[-1]["value"] / reference[0]["value"]}


def _printed_rows(claim: Claim, paper: Any) -> Numbers:
    rows = _papers(paper[paper["method"].notna()])
    return {"count": len(where(rows, network=claim["network"]).dropna(subset=["value"]) if claim["network"] else rows)}


#: By the name that claims.csv gives them.
QUANTITIES: dict[str, Quantity] = {
    "delta-after-layers": Quantity(lambda *_: {}, _after_layers),
    "delta-rise": Quantity(lambda *_: {}, _rise),
    "delta-of-truncation": Quantity(lambda *_: {}, _truncation),
    "marks": Quantity(_printed_rows, _marks),
    "counts": Quantity(_printed_rows, _counts),
    "lead": Quantity(_printed_errors, _lead),
    "offset": Quantity(_printed_errors, _offset),
    "speed-up": Quantity(_printed_times, _speed_up),
    "time": Quantity(_printed_times, _time),
}
