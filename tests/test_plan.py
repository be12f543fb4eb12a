"""The plan has the cells that the paper's figures and tables need, each once, whatever is asked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib import import_module

import pytest

from harness.experiment import Request
from harness.experiments import EXPERIMENTS, experiment, plan
from harness.experiments.training import REALISATIONS, RESOLUTIONS, mnist_schedule
from harness.records import BUDGETS, Budget, Cell
from sesn.methods import METHODS, methods_on

REQUESTS = [
    Request(budget, recipe=recipe, no_stl10=no_stl10)
    for budget in BUDGETS
    for recipe in ("paper", "released")
    for no_stl10 in (None, "not there")
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: f"{r.budget}-{r.recipe}-{r.no_stl10}")
def test_every_cell_is_planned_once_with_a_positive_amount_of_work(request_: Request) -> None:
    planned = plan(request_)
    assert max(Counter(one.cell.id for one in planned).values()) == 1
    assert all(one.work > 0 for one in planned)
    assert {one.cell.budget for one in planned} == {request_.budget}
    assert {one.cell.method for one in planned} <= METHODS.keys() | {""}


def test_an_experiment_that_is_named_twice_is_planned_once() -> None:
    assert plan(Request(), ["parameters", "stl10", "parameters"]) == plan(Request(), ["parameters", "stl10"])


def test_every_experiment_has_cells_and_somebody_who_runs_them() -> None:
    assert {one.cell.experiment for one in plan(Request())} == set(EXPERIMENTS)
    for planned in plan(Request()):
        module, _, name = planned.runner.partition(":")
        assert callable(getattr(import_module(module), name))


def test_the_paper_trains_every_method_at_both_resolutions_with_and_without_augmentation() -> None:
    cells = [one.cell for one in plan(Request("paper"), ["mnist-scale"]) if not one.reason]
    assert len(cells) == len(methods_on("mnist", "paper")) * REALISATIONS * len(RESOLUTIONS) * 2
    assert len([cell for cell in cells if METHODS[cell.method].in_paper]) == 264
    assert {cell.settings["epochs"] for cell in cells} == {60}
    assert {cell.seed for cell in cells} == set(range(6))


def test_budgets_share_no_cell() -> None:
    ids = {budget: {one.cell.id for one in plan(Request(budget))} for budget in BUDGETS}
    assert not ids["smoke"] & ids["lite"] | ids["lite"] & ids["paper"] | ids["smoke"] & ids["paper"]


@pytest.mark.parametrize("change", [{"digits": "mnist"}, {"recipe": "released"}, {"training": {"ranks": 2}}])
def test_what_changes_a_training_result_changes_its_cell(change: dict[str, object]) -> None:
    base = Request("lite")
    before = {one.cell.id for one in plan(base, ["mnist-scale"])}
    assert not before & {one.cell.id for one in plan(replace(base, **change), ["mnist-scale"])}  # type: ignore[arg-type]


def test_a_prefix_of_a_data_set_makes_other_cells_and_smaller_budgets_do_not_care() -> None:
    whole, prefix = Request("paper"), Request("paper", digit_counts=(1500, 3000), stl10_counts=(5000, 2000))
    for key, counts in (("mnist-scale", (1500, 3000)), ("stl10", (5000, 2000)), ("stl10-reduced", (5000, 2000))):
        cells = [one.cell for one in plan(prefix, [key])]
        assert {(cell.settings["train_images"], cell.settings["test_images"]) for cell in cells} == {counts}
        assert not {cell.id for cell in cells} & {one.cell.id for one in plan(whole, [key])}
    assert plan(replace(whole, budget="smoke")) == plan(replace(prefix, budget="smoke"))


def test_methods_that_were_not_asked_for_are_left_out() -> None:
    for one in plan(Request(methods=("cnn",)), ["mnist-scale", "parameters", "properties"]):
        assert one.cell.method == "cnn"
    timed = plan(Request(methods=("cnn", "wrn")), ["epoch-time"])
    assert [one.cell.method for one in timed] == ["cnn", "cnn", "wrn"]


def test_the_lite_budget_trains_a_fifth_of_the_papers_epochs_and_keeps_the_drops_of_the_rate_in_proportion() -> None:
    cells = [one.cell for one in plan(Request("lite"), ["mnist-scale"]) if not one.reason]
    assert {cell.settings["epochs"] for cell in cells} == {12}
    schedule = mnist_schedule(0.01, 12)
    assert [schedule.rate_at(epoch) for epoch in range(12)] == pytest.approx([0.01] * 4 + [0.001] * 4 + [0.0001] * 4)
    at_28, at_56 = ([cell for cell in cells if cell.settings["resolution"] == side] for side in (28, 56))
    assert Counter(cell.method for cell in at_28) == {row.key: 4 for row in methods_on("mnist")}
    assert Counter((cell.method, cell.seed) for cell in at_56) == {
        (row.key, 0): 2 for row in methods_on("mnist") if row.representative
    }
    assert {cell.method for cell in at_56} == {"cnn", "sicnn-vector", "dss-vector", "sesn-scalar", "sesn-vector"}


def test_the_reduced_network_is_trained_with_every_method_for_one_seed_and_then_for_a_second() -> None:
    cells = [one.cell for one in plan(Request("lite"), ["stl10-reduced"])]
    keys = [row.key for row in methods_on("stl10")]
    assert len([key for key in keys if METHODS[key].in_paper]) == 10
    assert [(cell.seed, cell.method) for cell in cells] == [(seed, key) for seed in (0, 1) for key in keys]
    sizes = {name: {cell.settings[name] for cell in cells} for name in ("depth", "width", "resolution", "epochs")}
    assert sizes == {"depth": {10}, "width": {1}, "resolution": {48}, "epochs": {40}}


def test_work_is_known_of_a_cell_whatever_data_it_is_on() -> None:
    """So that stored cells teach how long others take, on data that are not there any more as well."""
    for one in plan(Request("lite", digits="mnist", images="stl10")):
        row = EXPERIMENTS[one.cell.experiment]
        assert row.work(row.settings.of(Cell.from_dict(one.cell.as_dict()))) == one.work


def test_without_stl10_its_cells_carry_the_reason() -> None:
    reasons = {one.reason for one in plan(Request(no_stl10="no folder"), ["stl10", "stl10-reduced"])}
    assert reasons == {"no folder"}


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_first_draw_of_all_comes_before_the_second_of_any(budget: Budget) -> None:
    draws = [one.cell.seed for one in plan(Request(budget), ["delta-depth"])]
    assert draws == sorted(draws)


def test_what_measures_time_runs_alone() -> None:
    assert [key for key, row in EXPERIMENTS.items() if row.alone] == ["epoch-time", "gpu"]


def test_bad_requests_are_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match=r"`experiment` \(='mnist'\) must be one of .*did you mean 'mnist-scale'"):
        experiment("mnist")
    with pytest.raises(ValueError, match=r"`budget` \(='full'\) must be one of smoke"):
        Request("full")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cnn"):
        Request(methods=("resnet",))
