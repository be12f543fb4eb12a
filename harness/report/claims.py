"""The scorecard: every claim of the paper that can be tested (harness/paper/claims.csv), and what the rows say to it.

A claim bounds one quantity, from above or from below. It is confirmed where the whole interval of the quantity keeps
the bound, not confirmed where none of it does, and undecided in between.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import pandas as pd

from harness.report.escapes import TEMPLATES
from harness.report.findings import WORDS
from harness.report.inconvenient import inconvenient
from harness.report.quantities import QUANTITIES, Case, Claim
from harness.report.select import Selection
from harness.report.tables import Table, TableEntry
from sesn.errors import UsageError

KEY = "scorecard"
Verdict = Literal["confirmed", "confirmed under another configuration", "not confirmed", "undecided", "not measured"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
COLUMNS = (
    *("id", "claim", "place", "quote", "paper", "here", "verdict", "why", "budget", "artefact"),
    *("value", "low", "high", "n", "configuration", "readme"),
)
#: A README's table of results stands between these.
RESULTS = ("<!-- results -->", "<!-- /results -->")
#: How the paper's LaTeX is shown as text.
PLAIN = {"\\%": "%", "$\\pm$": "±", "$": "", "``": "“", "''": "”"}


class Evidence(NamedTuple):
    """The frame of an artefact, the selections that it is made of, and the smallest budget that measures it."""

    frame: Any
    selections: Mapping[str, Selection]
    budget: str


class Judgement(NamedTuple):
    """The verdict on a claim, the case that it rests on, another that confirms it, and the key of the reason."""

    verdict: Verdict
    case: Case | None = None
    other: Case | None = None
    reason: str = ""


def decided(case: Case, rule: str, bound: float) -> Verdict:
    """Whether a quantity keeps its bound, by its interval alone."""
    if not case.sampled_enough or not (math.isfinite(case.low) and math.isfinite(case.high)):
        return "undecided"
    good, bad = (case.high <= bound, case.low > bound) if rule == "at most" else (case.low >= bound, case.high < bound)
    return "not confirmed" if bad else "confirmed" if good and case.complete else "undecided"


def judge(claim: Claim, evidence: Evidence) -> Judgement:
    """The verdict on a claim; the first case is of the paper's configuration, or the nearest to it."""
    quantity, chosen = QUANTITIES[claim["quantity"]], evidence.selections[claim["experiment"]]
    asked = {**claim, "printed": quantity.published(claim, chosen.paper)}
    cases = quantity.cases(asked, evidence.frame) if len(evidence.frame) else []
    if not cases:
        return Judgement("not measured", reason="not-measured")
    if unlike := chosen.unlike:
        # The numbers of a smoke run do not even stand beside the paper's.
        return Judgement("undecided", None if unlike == "smoke" else cases[0], reason=unlike)
    bound = claim["threshold"] * (1.0 if pd.isna(claim["value"]) else claim["value"])
    verdict, *others = (decided(case, claim["rule"], bound) for case in cases)
    if verdict != "confirmed" and "confirmed" in others:
        other = cases[1 + others.index("confirmed")]
        return Judgement("confirmed under another configuration", cases[0], other, "another")
    return Judgement(verdict, cases[0], reason=_reason(cases[0], verdict))


def _reason(case: Case, verdict: Verdict) -> str:
    if verdict != "undecided":
        return "others" if case.numbers.get("others") else ""
    return "few" if not case.sampled_enough else "open" if case.complete else "incomplete"


# --- the scorecard


def claims_of(paper: Any) -> list[dict[str, Any]]:
    """The claims among the published rows; text that a claim lacks is empty."""
    rows = paper[paper["rule"].notna()]
    return list(rows.fillna(dict.fromkeys(("of", "than", "network", "readme"), "")).to_dict("records"))


def scorecard(paper: Any, evidence: Mapping[str, Evidence]) -> Any:
    """One line per claim: the paper, here, the verdict and why. `evidence` is by artefact."""
    lines = [claim | _line(claim, evidence[claim["artefact"]]) for claim in claims_of(paper)]
    return pd.DataFrame(lines, columns=list(COLUMNS))


def _line(claim: Claim, evidence: Evidence) -> dict[str, Any]:
    """The verdict with its numbers, and the texts of templates/words.toml with theirs."""
    found, words, quantity = judge(claim, evidence), WORDS["claims"], QUANTITIES[claim["quantity"]]
    chosen, texts = evidence.selections[claim["experiment"]], words["quantities"][claim["quantity"]]
    case = found.case or Case(math.nan, math.nan, math.nan, 0, {})
    cases = [each for each in (found.case, found.other) if each]
    values: dict[str, Any] = {"facts": chosen.facts, "paper": chosen.conditions, "case": case, "other": found.other}
    values["command"] = f"sesn run {claim['experiment']} --budget {evidence.budget}"
    ends = (case.low, case.high) if case.sampled_enough else (math.nan, math.nan)
    return {
        "quote": _plain(claim["quote"]),
        "paper": texts["paper"].format(**{**claim, **quantity.published(claim, chosen.paper)}),
        "here": "; ".join(texts["here"].format(**{**each.numbers, **each._asdict()}) for each in cases),
        "verdict": found.verdict,
        "why": words["reasons"][found.reason].format(**values) if found.reason else "",
        "budget": chosen.facts.get("budget", "") if cases else "",
        **{"value": case.value, "low": ends[0], "high": ends[1], "n": case.n},
        "configuration": cases[-1].configuration if cases else "",
    }


def _plain(quote: str) -> str:
    for latex, text in PLAIN.items():
        quote = quote.replace(latex, text)
    return quote


def with_results(readme: str, scorecard: bytes, folder: str) -> str:
    """The text of a README with its table of results, between the markers, of a scorecard's CSV in that folder."""
    counts = [readme.count(marker) for marker in RESULTS]
    before, _, rest = readme.partition(RESULTS[0])
    _, end, after = rest.partition(RESULTS[1])
    if counts == [0, 0]:
        return readme
    if counts != [1, 1] or not end:
        raise UsageError(f"README.md must have {RESULTS[0]} once and {RESULTS[1]} once after it, or neither; mend them")
    frame = pd.read_csv(io.BytesIO(scorecard), keep_default_na=False)
    found, lines = context({KEY: frame}), context({KEY: frame[frame["readme"].ne("")]})["scorecard"]
    template = TEMPLATES.get_template("results.md.jinja")
    text = template.render(lines=lines, counts=found["verdict_counts"], folder=folder)
    return f"{before}{RESULTS[0]}\n{text}{end}{after}"


def context(frames: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows of the scorecard, from the frames by artefact."""
    lines = frames[KEY].to_dict("records") if KEY in frames else []
    marks = WORDS["claims"]["verdicts"]
    return {
        "scorecard": [
            {**{name: line[name] for name in COLUMNS[:10]}, "mark": marks[line["verdict"]]} for line in lines
        ],
        "inconvenient": inconvenient(frames),
        "verdict_counts": {word: sum(line["verdict"] == word for line in lines) for word in VERDICTS},
    }


def table(frame: Any) -> Table:
    """What a reader wants to know first."""
    names = WORDS["claims"]["columns"]
    lines = [tuple(TableEntry(str(line[name])) for name in names) for line in frame.to_dict("records")]
    return Table(tuple(names.values()), tuple(lines), words=True)
