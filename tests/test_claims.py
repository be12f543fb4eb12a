"""The scorecard: what each rule makes of rows, and what it must never make of them."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.experiments import EXPERIMENTS
from harness.paper import published
from harness.records import Cell, Measurement, Result
from harness.report.artefacts import ARTEFACTS
from harness.report.claims import VERDICTS, Evidence, claims_of, context, decided, judge, scorecard
from harness.report.findings import WORDS
from harness.report.inconvenient import inconvenient
from harness.report.quantities import QUANTITIES, Case
from harness.report.rendering import Material, rendered
from harness.report.select import Selection, published_rows, select

PAPER = published()
CLAIMS = {claim["id"]: claim for claim in claims_of(PAPER)}
numbers = st.floats(-1e6, 1e6)
RULES = st.sampled_from(["at most", "at least"])


def card(results: Any) -> dict[str, dict[str, Any]]:
    """The lines of the scorecard on some rows, by the claim's id."""
    material = Material(synthetic.frame(results), PAPER, EXPERIMENTS, pd.DataFrame())
    ((one,), _) = rendered(material, "scorecard")
    return {line["id"]: line for line in one.frame.to_dict("records")}


def trained(method: str, errors: list[float], budget: Any = "paper", **other: Any) -> list[Result]:
    settings = {"data": "mnist", "recipe": "paper", "epochs": 60, "resolution": 28, "augmented": False} | other
    return [
        Result(
            Cell("mnist-scale", 1, budget, method, settings, seed),
            *("ok", (Measurement("test_error", (error,)),), "", synthetic.PROVENANCE, synthetic.STARTED, 1.0),
        )
        for seed, error in enumerate(errors)
    ]


def everybody(best: list[float], others: list[float], **settings: Any) -> list[Result]:
    """All methods of the table: SESN has the first errors, the others the second."""
    return [
        result
        for row in synthetic.compared("mnist")
        for result in trained(row.key, best if row.ours else others, **settings)
    ]


def deep(window: str, level: float, draws: int = 3) -> list[Result]:
    settings = {"window": window, "nonlinearity": "relu", "images": "stl10", "image_count": 2, "layers": 50}
    found = Measurement("delta", (level, 1.01 * level), {"depth": 50})
    cells = [Cell("delta-depth", 1, "lite", "", settings, draw) for draw in range(draws)]
    return [Result(cell, "ok", (found,), "", synthetic.PROVENANCE, synthetic.STARTED, 1.0) for cell in cells]


# --- the rule


@given(numbers, numbers, numbers, numbers, st.integers(0, 9), RULES, st.booleans())
def test_a_looser_bound_never_makes_a_verdict_worse(
    low: float, width: float, bound: float, slack: float, n: int, rule: str, complete: bool
) -> None:
    case = Case(low, low, low + abs(width), n, {}, complete=complete)
    loose = bound + abs(slack) if rule == "at most" else bound - abs(slack)
    order = ["not confirmed", "undecided", "confirmed"]
    assert order.index(decided(case, rule, loose)) >= order.index(decided(case, rule, bound))


@given(numbers, numbers, numbers, st.integers(0, 9), RULES)
def test_a_verdict_is_one_and_few_runs_have_none(low: float, width: float, bound: float, n: int, rule: str) -> None:
    case = Case(low, low, low + abs(width), n, {})
    verdict = decided(case, rule, bound)
    if n < 3:
        assert verdict == "undecided"
    else:
        inside, outside = bound - case.high, case.low - bound
        expected = {"at most": (inside >= 0, outside > 0), "at least": (outside >= 0, inside > 0)}[rule]
        assert expected != (True, True)
        assert verdict == {(True, False): "confirmed", (False, True): "not confirmed"}.get(expected, "undecided")


def test_what_is_incomplete_can_be_refuted_but_not_confirmed() -> None:
    assert decided(Case(2, 1, 3, 5, {}, complete=False), "at least", 0) == "undecided"
    assert decided(Case(-2, -3, -1, 5, {}, complete=False), "at least", 0) == "not confirmed"


# --- claims on rows


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """The frames of the artefacts that claims are judged from, of made-up rows."""
    keys = dict.fromkeys(claim["artefact"] for claim in CLAIMS.values())
    material = Material(synthetic.frame(synthetic.results()), PAPER, EXPERIMENTS, pd.DataFrame())
    return {key: rendered(material, key)[0][0].frame for key in keys}


def of_budget(claim: Any, frame: Any, budget: str) -> Evidence:
    paper = published_rows(PAPER, claim["experiment"])
    return Evidence(frame, {claim["experiment"]: Selection(budget, None, None, paper, {"budget": budget})}, "lite")


@pytest.mark.parametrize("key", list(CLAIMS))
@settings(max_examples=10)
@given(st.randoms(use_true_random=False), st.floats(1e-3, 1e3))
def test_the_order_of_rows_and_a_smoke_run_decide_nothing(shown: Any, key: str, random: Any, threshold: float) -> None:
    claim = CLAIMS[key] | {"threshold": threshold}
    frame = shown[claim["artefact"]]
    order = list(range(len(frame)))
    random.shuffle(order)
    found = [judge(claim, of_budget(claim, each, "lite")) for each in (frame, frame.iloc[order])]
    assert found[0].verdict == found[1].verdict
    assert found[0].case is None or found[0].case.value == found[1].case.value or math.isnan(found[0].case.value)
    assert judge(claim, of_budget(claim, frame, "smoke")).verdict in ("undecided", "not measured")


def test_rows_of_the_smoke_budget_confirm_nothing() -> None:
    apart, close = [2.0, 2.1, 2.05], [2.4, 2.5, 2.45]
    assert card(everybody(apart, close))["best-28"]["verdict"] == "confirmed"
    smoke = [*synthetic.results("smoke"), *everybody(apart, close, budget="smoke")]
    lines = card(result for result in smoke if not result.cell.experiment.startswith("delta"))
    assert {line["verdict"] for line in lines.values()} == {"undecided", "not measured"}
    assert "only shows that everything works" in lines["best-28"]["why"]
    assert {line["here"] for line in lines.values()} == {""}


def test_without_rows_every_claim_names_its_command() -> None:
    lines = card([])
    assert lines.keys() == CLAIMS.keys()
    assert len(lines) <= 20
    assert {line["verdict"] for line in lines.values()} == {"not measured"}
    assert lines["depth"]["why"].endswith("sesn run delta-depth --budget lite")
    assert lines["best-28"]["why"].endswith("sesn run mnist-scale --budget paper")
    assert (lines["error-28"]["paper"], lines["depth"]["paper"]) == ("2.08 ± 0.09 %", "about 6%")


def test_sesn_is_best_only_beyond_chance_and_beside_all_methods() -> None:
    apart, close = [2.0, 2.1, 2.05], [2.4, 2.5, 2.45]
    assert card(everybody(close, apart))["best-28"]["verdict"] == "not confirmed"
    open_one = card(everybody([2.0, 2.6, 2.3], [2.1, 2.7, 2.4]))["best-28"]
    assert (open_one["verdict"], "leaves it open" in open_one["why"]) == ("undecided", True)
    few = card([*trained("sesn-vector", apart), *trained("cnn", close)])["best-28"]
    assert (few["verdict"], few["why"]) == ("undecided", "Methods to compare with that were measured: 1 of 8.")
    two = card(everybody(apart[:2], close[:2]))["best-28"]
    assert (two["verdict"], math.isnan(two["low"])) == ("undecided", True)
    assert two["why"] == "At least three realisations are needed to show a spread; the number here is 2."


def test_an_error_is_the_printed_one_within_the_combined_interval() -> None:
    assert card(trained("sesn-vector", [2.0, 2.1, 2.2]))["error-28"]["verdict"] == "confirmed"
    assert card(trained("sesn-vector", [3.0, 3.1, 3.2]))["error-28"]["verdict"] == "not confirmed"
    assert card(trained("sesn-vector", [3.0, 3.1, 3.2]))["error-56"]["verdict"] == "not measured"


def test_some_of_the_printed_counts_confirm_nothing() -> None:
    cell = Cell("parameters", 1, "lite", "cnn", {"network": "mnist", "recipe": "paper"})
    line = card(synthetic.rows(cell, [Measurement("parameters", (494_549.0,))]))["counts-mnist"]
    assert (line["here"], line["verdict"]) == ("1 of 1 agree, by the paper's recipe", "undecided")


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"epochs": 12}, "Trained for 12 of the paper's 60 epochs."),
        ({"data": "embedded"}, "Measured on the data embedded, not on the paper's (mnist)."),
        ({"test_images": 500}, "Tested on 500 images, the paper on 50000."),
    ],
)
def test_a_run_that_is_unlike_the_papers_is_not_compared(other: dict[str, Any], why: str) -> None:
    line = card(trained("sesn-vector", [3.0, 3.1, 3.2], **other))["error-28"]
    assert (line["verdict"], line["why"]) == ("undecided", why)


def test_another_configuration_is_named() -> None:
    line = card([*deep("published", 1.2), *deep("wide", 0.005)])["depth"]
    assert line["verdict"] == "confirmed under another configuration"
    assert line["why"] == "It holds with wide windows (4.5 σ), ReLU."
    assert line["here"].startswith("Δ 1.2 with published windows, ReLU; Δ 0.005 with wide windows")
    assert card(deep("published", 0.07))["depth"]["verdict"] == "confirmed"
    assert card(deep("published", 0.2))["depth"]["verdict"] == "not confirmed"
    assert card(deep("wide", 0.2, draws=2))["depth"]["verdict"] == "undecided"


def rising(floor: float) -> pd.DataFrame:
    """Delta over downscale on two sizes of image; on the small ones it rises more, above some floor."""
    levels = {"96 pixels": 0.05, "384 pixels": 0.02}
    same = {"experiment": "delta-downscale", "window": "published", "nonlinearity": "linear", "draws": 8}
    lines = [
        {**same, "series": series, "x": x, "median": level, "low": level, "high": level, "floor": low}
        for series, last in levels.items()
        for x, level, low in ((16, 0.01, 0.0), (32, last, floor if series == "96 pixels" else 0.0))
    ]
    return pd.DataFrame(lines)


@pytest.mark.parametrize(("floor", "value", "series"), [(0.001, 5, "96 pixels"), (0.03, 2, "384 pixels")])
def test_what_the_floor_of_the_meter_explains_is_not_judged(floor: float, value: float, series: str) -> None:
    (case,) = QUANTITIES["delta-rise"].cases(CLAIMS["knee"], rising(floor))
    assert (case.value, case.numbers["top"]["series"]) == (pytest.approx(value), series)


# --- words


def test_every_verdict_quantity_and_artefact_of_a_claim_is_known() -> None:
    assert tuple(WORDS["claims"]["verdicts"]) == VERDICTS
    assert WORDS["claims"]["quantities"].keys() == QUANTITIES.keys()
    assert {claim["quantity"] for claim in CLAIMS.values()} == QUANTITIES.keys()
    assert {claim["artefact"] for claim in CLAIMS.values()} <= ARTEFACTS.keys()
    assert all(claim["quote"] and claim["place"] and claim["claim"] for claim in CLAIMS.values())


def test_the_page_is_given_plain_lines_and_their_counts() -> None:
    frame = scorecard(PAPER, {key: _nothing(key) for key in ARTEFACTS})
    found = context({"scorecard": frame})
    wanted = {"id", "claim", "quote", "place", "paper", "here", "verdict", "mark", "why", "budget", "artefact"}
    assert all(line.keys() == wanted for line in found["scorecard"])
    assert found["verdict_counts"] == dict.fromkeys(VERDICTS, 0) | {"not measured": len(CLAIMS)}
    assert context({})["scorecard"] == []


def _nothing(key: str) -> Evidence:
    rows = synthetic.frame([])
    chosen = {name: select(rows, PAPER, record) for name, record in EXPERIMENTS.items()}
    return Evidence(pd.DataFrame(), chosen, ARTEFACTS[key].budget)


# --- what is inconvenient


def scores(**deltas: float) -> Any:
    lines = [
        {"of": "logits", "method": key.replace("_", "-"), "resolution": 28, "augmented": False, "delta": level}
        for key, level in deltas.items()
    ]
    return pd.DataFrame(lines).assign(error=range(len(lines)), realisations=2)


def test_scores_that_depend_on_scale_as_a_cnns_do_are_told() -> None:
    (found,) = inconvenient({"delta-accuracy": scores(cnn=0.4, sesn_vector=0.55)})
    assert "it is 0.55 (SESN Vector), and 0.40 for the CNN (realisations: 2)." in found["text"]
    assert found["artefact"] in ARTEFACTS
    layers = pd.DataFrame({"method": ["sesn-scalar", "sesn-vector"], "delta": [0.2, 0.008]})
    (found,) = inconvenient({"delta-accuracy": scores(cnn=0.4, sesn_vector=0.55), "table-1": layers})
    assert "Δ 0.008 on the scales that have a partner, and 0.2 after the maximum" in found["text"]


def test_what_is_not_so_or_not_measured_is_not_told() -> None:
    assert inconvenient({"delta-accuracy": scores(cnn=0.4, sesn_vector=0.05)}) == []
    assert inconvenient({"delta-accuracy": scores(cnn=0.4)}) == []
    assert inconvenient({"delta-accuracy": pd.DataFrame()}) == []
    assert inconvenient({}) == []


def test_the_rank_correlation_is_told_where_it_shows_nothing() -> None:
    methods = {"sicnn_vector": 0.5, "si_convnet": 0.1, "ss_cnn": 0.3, "dss_vector": 0.2}
    (found,) = inconvenient({"delta-accuracy": scores(cnn=0.4, **methods)})
    assert "Over 5 methods" in found["text"]
    assert "rank correlation" in found["text"]
    assert inconvenient({"delta-accuracy": scores(**methods)}) == []
    diverged = scores(cnn=math.nan, **methods)  # has no Delta, and hence no rank
    assert inconvenient({"delta-accuracy": diverged}) == []
    ordered = dict(zip(["cnn", *methods], (0.1, 0.2, 0.3, 0.4, 0.5), strict=True))
    assert inconvenient({"delta-accuracy": scores(**ordered)}) == []
