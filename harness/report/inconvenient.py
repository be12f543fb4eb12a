"""What speaks against the method, in paragraphs of its own: computed from rows, and shown only where there are any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.report.errors import setting_name
from harness.report.findings import WORDS, listed
from harness.report.panels import SETTING
from harness.report.select import first, where
from harness.report.summaries import rank_correlation
from harness.report.training import DOWNSCALE
from sesn.methods import METHODS, REFERENCE
from sesn.tools.statistics import LEVEL

#: The artefact that shows Delta of trained networks, and those with the layers and the scale axis behind it.
TRAINED, LAYERS, AXIS = "delta-accuracy", "table-1", "truncation"
#: A Delta is about as large as another if it is at least this part of it.
ABOUT = 0.5
#: Of fewer methods, no order has a probability below 5 %.
LEAST_METHODS = 5


def inconvenient(frames: Mapping[str, Any]) -> list[dict[str, str]]:
    """Title, text and artefact of each paragraph, from the frames by artefact."""
    if TRAINED not in frames or not len(frames[TRAINED]):
        return []
    # A network that diverged has no Delta, and hence no rank.
    scores = where(frames[TRAINED], of="logits").dropna(subset=["delta", "error"])
    # The paper's comparison: later methods are none of its evidence.
    scores = scores[[not METHODS[key].later for key in scores["method"]]]
    groups = [(setting_name(*setting), group) for setting, group in scores.groupby(SETTING)]
    setting, group = max(groups, key=lambda each: len(each[1]), default=("", scores))
    texts = {"scores": _scores(setting, group, frames), "ranks": _ranks(setting, group)}
    words = WORDS["inconvenient"]
    return [{"title": words[key]["title"], "text": text, "artefact": TRAINED} for key, text in texts.items() if text]


def _scores(setting: str, group: Any, frames: Mapping[str, Any]) -> str:
    """Class scores should not depend on scale; those of the method do, about as much as a plain network's."""
    levels = dict(zip(group["method"], group["delta"], strict=True))
    ours = {key: level for key, level in levels.items() if METHODS[key].ours and not METHODS[key].digest}
    if not ours or min(ours.values()) < ABOUT * levels.get(REFERENCE, float("inf")):
        return ""
    words, each = (
        WORDS["inconvenient"]["scores"],
        [f"{level:.2f} ({METHODS[key].label})" for key, level in ours.items()],
    )
    runs = int(group["realisations"].min())
    text = words["text"].format(
        setting=setting, factor=DOWNSCALE, each=listed(each), plain=levels[REFERENCE], runs=runs
    )
    return " ".join([text, *_why(words, frames)])


def _why(words: Mapping[str, str], frames: Mapping[str, Any]) -> list[str]:
    """What the maximum over a scale axis that ends costs, and what a longer axis saves; as far as it was measured."""
    found = []
    if LAYERS in frames and len(frames[LAYERS]):
        projected, field = (
            first(where(frames[LAYERS], method=words[name]), "delta") for name in ("projected", "field")
        )
        found = [words["why"].format(projected=projected, field=field)] if projected > field else []
    for claim in frames["scorecard"].to_dict("records") if "scorecard" in frames else ():
        if claim["id"] == AXIS and claim["verdict"] == "confirmed":
            found.append(words["helps"].format(times=claim["value"]))
    return found


def _ranks(setting: str, group: Any) -> str:
    """That a smaller Delta does not go with a smaller error; empty where it does, or too few methods were trained."""
    if len(group) < LEAST_METHODS:
        return ""
    rank, chance = rank_correlation(group["delta"], group["error"])
    values = {"setting": setting, "factor": DOWNSCALE, "rank": rank, "chance": chance, "count": len(group)}
    return WORDS["inconvenient"]["ranks"]["text"].format(**values) if chance > 1 - LEVEL else ""
