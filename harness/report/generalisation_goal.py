"""How far each SESN is from a goal: to beat the best published method with a small Delta and at a moderate cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from harness.report.findings import sentence
from harness.report.generalisation import PLACE, SERIES, place_label, series_label
from harness.report.select import first, where
from sesn.methods import METHODS, PLAIN

LARGEST_DELTA = 1e-2
#: Times the time of the CNN.
MOST_TIME = 3.0


def says(frame: Any) -> list[str]:
    """The goal, and of every SESN what it has reached, wherever the rival's accuracy is published."""
    told = []
    for place, part in frame.groupby(PLACE, sort=False, observed=True):
        ours = part[part["method"].map(lambda key: METHODS[key].ours) & part["published_rival"].notna()]
        if len(ours):
            rival = {"rival": METHODS[ours["rival"].iloc[0]].label, "accuracy": first(ours, "published_rival")}
            bounds = {"delta": LARGEST_DELTA, "most": MOST_TIME}
            told.append(sentence("generalisation-goal", place=place_label(*place), **rival, **bounds))
        base = first(where(part, method=PLAIN["stir"], augmented=False), "least_epoch_time")
        told += [_reached(line, base) for line in ours.to_dict("records")]
    return told


def _reached(line: Mapping[str, Any], base: float) -> str:
    cost = line["least_epoch_time"] / base
    met = line["everywhere"] > line["published_rival"] and line["largest_delta"] <= LARGEST_DELTA and cost <= MOST_TIME
    numbers = {name: line[name] for name in ("everywhere", "largest_delta", "largest_delta_scale")}
    if not all(map(math.isfinite, (*numbers.values(), cost))):
        return sentence("generalisation-unknown", label=series_label(*(line[name] for name in SERIES)))
    label = series_label(*(line[name] for name in SERIES))
    return sentence("generalisation-met" if met else "generalisation-missed", label=label, cost=cost, **numbers)
