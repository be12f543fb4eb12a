"""The scorecard: every claim of the paper that can be tested (harness/paper/claims.csv), and what the rows say to it.

A claim bounds one quantity, from above or from below. It is confirmed where the whole interval of the quantity keeps
the bound, not confirmed where none of it does, and undecided in between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import pandas as pd

from harness.report.findings import WORDS
from harness.report.quantities import QUANTITIES, Case, Claim
from harness.report.select import published_rows
from harness.report.summaries import LEAST_RUNS
from harness.report.tables import Table, TableEntry

KEY = "scorecard"
Verdict = Literal["confirmed", "confirmed under another configuration", "not confirmed", "undecided", "not measured"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
#: What a run must share with the paper to be compared with it, where both say it.
CONDITIONS = ("epochs", "data", "images", "train_images", "test_images")
COLUMNS = (
    *("id", "claim", "place", "quote", "paper", "here", "verdict", "why", "budget", "artefact"),
    *("value", "low", "high", "n", "configuration"),
)
#: How the paper's LaTeX is shown as text.
PLAIN = {"\\%": "%", "$\\pm$": "±", "$": "", "``": "“", "''": "”"}


class Evidence(NamedTuple):
    """The frame of an artefact, what the rows of each experiment behind it share, and how to measure them."""

    frame: Any
    facts: Mapping[str, Mapping[str, Any]]
    command: str


class Judgement(NamedTuple):
    """The verdict on a claim, the case that it rests on, another that confirms it, and the key of the reason."""

    verdict: Verdict
    case: Case | None = None
    other: Case | None = None
    reason: str = ""


def decided(case: Case, rule: str, bound: float) -> Verdict:
    """Whether a quantity keeps its bound, by its interval alone."""
    if case.n < LEAST_RUNS or not (math.isfinite(case.low) and math.isfinite(case.high)):
        return "undecided"
    good, bad = (case.high <= bound, case.low > bound) if rule == "at most" else (case.low >= bound, case.high < bound)
    return "not confirmed" if bad else "confirmed" if good and case.complete else "undecided"


def judge(claim: Claim, evidence: Evidence, conditions: Mapping[str, Any]) -> Judgement:
    """The verdict on a claim; the first case is of the paper's configuration, or the nearest to it."""
    cases = QUANTITIES[claim["quantity"]].cases(claim, evidence.frame) if len(evidence.frame) else []
    if not cases:
        return Judgement("not measured", reason="not-measured")
    if unlike := _unlike(evidence.facts[claim["experiment"]], conditions):
        return Judgement("undecided", cases[0], reason=unlike)
    bound = claim["threshold"] * (1.0 if pd.isna(claim["value"]) else claim["value"])
    verdict, *others = (decided(case, claim["rule"], bound) for case in cases)
    if verdict != "confirmed" and "confirmed" in others:
        other = cases[1 + others.index("confirmed")]
        return Judgement("confirmed under another configuration", cases[0], other, "another")
    return Judgement(verdict, cases[0], reason=_reason(cases[0], verdict))


def _unlike(facts: Mapping[str, Any], conditions: Mapping[str, Any]) -> str:
    """Why a run is no test of what the paper says: the key of the reason, or nothing."""
    if facts.get("budget") == "smoke":
        return "smoke"
    return next((name for name, value in conditions.items() if facts.get(name) and facts[name] != value), "")


def _reason(case: Case, verdict: Verdict) -> str:
    if verdict != "undecided":
        return "others" if case.numbers.get("others") else ""
    return "few" if case.n < LEAST_RUNS else "open" if case.complete else "incomplete"


# --- the scorecard


def claims_of(paper: Any) -> list[dict[str, Any]]:
    """The claims among the published rows; text that a claim lacks is empty."""
    rows = paper[paper["rule"].notna()]
    texts = {
        name: rows[name].astype(object).where(rows[name].notna(), "") for name in ("of", "than", "network", "readme")
    }
    return list(rows.assign(**texts).to_dict("records"))


def conditions_of(rows: Any) -> dict[str, Any]:
    """What the paper says of how an experiment was run."""
    there = [name for name in CONDITIONS if name in rows and rows[name].notna().any()]
    return {name: rows[name].dropna().iloc[0] for name in there}


def nothing_read(_selections: Mapping[str, Any]) -> Any:
    """The scorecard reads no rows of its own: `scorecard` makes it of what the artefacts show."""
    return pd.DataFrame(columns=list(COLUMNS))


def scorecard(paper: Any, evidence: Mapping[str, Evidence]) -> Any:
    """One line per claim: the paper, here, the verdict and why. `evidence` is by artefact."""
    lines = []
    for claim in claims_of(paper):
        published = published_rows(paper, claim["experiment"])
        conditions = conditions_of(published)
        shown = evidence[claim["artefact"]]
        found = judge(claim, shown, conditions)
        lines.append(claim | _words(claim, published, conditions, shown, found))
    return pd.DataFrame(lines, columns=list(COLUMNS))


def _words(claim: Claim, published: Any, conditions: Mapping[str, Any], shown: Evidence, found: Judgement) -> Any:
    """The texts of templates/words.toml, with the numbers in their places."""
    words = WORDS["claims"]
    texts = words["quantities"][claim["quantity"]]
    cases = [texts["here"].format(**{**case.numbers, **case._asdict()}) for case in (found.case, found.other) if case]
    case = found.case or Case(math.nan, math.nan, math.nan, 0, {})
    known = case.n >= LEAST_RUNS
    facts = shown.facts.get(claim["experiment"], {})
    values = {"facts": facts, "paper": conditions, "command": shown.command, "case": case, "other": found.other}
    return {
        "paper": texts["paper"].format(**{**claim, **QUANTITIES[claim["quantity"]].published(claim, published)}),
        "here": "; ".join(cases),
        "verdict": found.verdict,
        "why": words["reasons"][found.reason].format(**values) if found.reason else "",
        "quote": _plain(claim["quote"]),
        "budget": facts.get("budget", "") if found.case else "",
        **{
            name: getattr(case, name) if known or name in ("value", "n", "configuration") else math.nan
            for name in Case._fields[:4]
        },
        "configuration": (found.other or case).configuration,
    }


def _plain(quote: str) -> str:
    for latex, text in PLAIN.items():
        quote = quote.replace(latex, text)
    return quote


def context(frames: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows of the scorecard, from the frames by artefact."""
    lines = frames[KEY].to_dict("records") if KEY in frames else []
    marks = WORDS["claims"]["verdicts"]
    return {
        "scorecard": [
            {**{name: line[name] for name in COLUMNS[:10]}, "mark": marks[line["verdict"]]} for line in lines
        ],
        "verdict_counts": {word: sum(line["verdict"] == word for line in lines) for word in VERDICTS},
    }


def table(frame: Any) -> Table:
    """What a reader wants to know first."""
    names = WORDS["claims"]["columns"]
    lines = [tuple(TableEntry(str(line[name])) for name in names) for line in frame.to_dict("records")]
    return Table(tuple(names.values()), tuple(lines), words=True)
