"""Rows of different versions, budgets, devices, data or settings never stand together; times not of machines, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import synthetic

from harness.experiments import EXPERIMENTS
from harness.paper import published
from harness.records import Cell, Measurement, Result
from harness.report.select import cleaned, select

MNIST = EXPERIMENTS["mnist-scale"]


def trained(method: str = "cnn", seed: int = 0, version: int = 1, budget: Any = "lite", **changes: Any) -> Result:
    settings = {"data": "mnist", "recipe": "paper", "epochs": 3, "resolution": 28, "augmented": False}
    provenance = {**synthetic.PROVENANCE, **{k: v for k, v in changes.items() if k in synthetic.PROVENANCE}}
    settings |= {k: v for k, v in changes.items() if k not in synthetic.PROVENANCE}
    cell = Cell("mnist-scale", version, budget, method, settings, seed)
    return Result(cell, "ok", (Measurement("test_error", (2.0,)),), "", provenance, synthetic.STARTED, 1.0)


def chosen(*results: Result, version: int = 1) -> Any:
    return select(synthetic.frame(results), published(), replace(MNIST, version=version))


def test_the_current_version_wins_over_everything() -> None:
    found = chosen(trained(version=1, budget="paper"), trained(version=2, budget="smoke"), version=2)
    assert found.facts["budget"] == "smoke"
    assert set(found.rows["version"]) == {2}
    assert found.left_out == ("1 cell of version 1, paper budget, cpu, data=mnist, recipe=paper",)


def test_rows_of_other_versions_alone_are_not_shown_but_listed() -> None:
    found = chosen(trained(version=1), version=2)
    assert found.empty
    assert len(found.left_out) == 1


def test_the_highest_budget_with_data() -> None:
    failed = Result(trained(budget="paper").cell, "failed", (), "no memory", synthetic.PROVENANCE)
    found = chosen(trained(budget="smoke"), trained(budget="lite"), failed)
    assert set(found.rows["budget"]) == {"lite"}


def test_one_long_run_does_not_hide_a_full_table() -> None:
    short = [trained(method) for method in ("cnn", "sesn-vector", "ss-cnn")]
    found = chosen(*short, *(trained(seed=s, budget="paper", epochs=60) for s in range(6)))
    assert set(found.rows["budget"]) == {"lite"}
    assert found.left_out == ("6 cells of version 1, paper budget, cpu, data=mnist, recipe=paper",)


def test_the_longest_runs_can_be_asked_for() -> None:
    rows = synthetic.frame([trained("cnn"), trained("ss-cnn"), trained(budget="paper", epochs=60)])
    found = select(rows, published(), MNIST, budgets=("paper", "lite"))
    assert set(found.rows["budget"]) == {"paper"}


def test_only_the_budgets_that_are_asked_for_are_shown_the_first_that_has_rows() -> None:
    rows = synthetic.frame([trained(budget="smoke"), trained("ss-cnn"), trained(budget="paper", epochs=60)])
    assert set(select(rows, published(), MNIST, budgets=("lite", "smoke")).rows["budget"]) == {"lite"}
    without = rows[~rows["budget"].eq("lite")]
    assert set(select(without, published(), MNIST, budgets=("lite", "smoke")).rows["budget"]) == {"smoke"}
    assert select(without, published(), MNIST, budgets=("lite",)).empty


def test_as_many_places_at_a_higher_budget_win() -> None:
    found = chosen(trained(seed=0), trained(seed=1), trained(budget="paper", epochs=60))
    assert set(found.rows["budget"]) == {"paper"}


def test_a_full_smoke_test_does_not_hide_a_measurement() -> None:
    found = chosen(trained("cnn", budget="smoke"), trained("ss-cnn", budget="smoke"), trained("cnn"))
    assert set(found.rows["budget"]) == {"lite"}


def test_errors_of_several_machines_stand_together_and_the_machines_are_named() -> None:
    found = chosen(trained(seed=0, machine="old"), trained(seed=1, machine="new"), trained(seed=2, machine="new"))
    assert set(found.rows["seed"]) == {0, 1, 2}
    assert found.facts["machine"] == "new and old"
    assert found.left_out == ()


def test_times_of_several_machines_never_stand_together() -> None:
    results = [result for result in synthetic.results() if result.cell.experiment == "epoch-time"]
    elsewhere = [replace(one, provenance={**one.provenance, "machine": "another"}) for one in results[:1]]
    moved = [replace(one, cell=replace(one.cell, seed=9)) for one in elsewhere]
    found = select(synthetic.frame([*results, *moved]), published(), EXPERIMENTS["epoch-time"])
    assert found.rows["machine"].nunique() == 1
    assert any("another (cpu)" in line for line in found.left_out)


def test_on_several_machines_budgets_and_settings_do_not_mix_either() -> None:
    long = trained(seed=0, machine="old", budget="paper", epochs=60)
    found = chosen(trained(seed=0, machine="old"), trained(seed=1, machine="new"), long)
    assert len(set(found.rows["budget"])) == 1
    assert len(set(found.rows["epochs"])) == 1
    assert len(found.left_out) == 1


def test_devices_do_not_mix() -> None:
    found = chosen(trained(seed=0, device="cuda"), trained(seed=1, device="cpu"), trained(seed=2, device="cpu"))
    assert set(found.rows["device"]) == {"cpu"}


def test_the_gpus_of_one_machine_stand_together() -> None:
    found = chosen(trained(seed=0, device="cuda:0"), trained(seed=1, device="cuda:1"), trained(seed=2, device="cpu"))
    assert set(found.rows["seed"]) == {0, 1}
    assert found.facts["device"] == "cuda"


def test_the_papers_data_go_before_more_embedded_ones() -> None:
    found = chosen(*(trained(seed=s, data="embedded") for s in range(5)), trained(data="mnist"))
    assert set(found.rows["data"]) == {"mnist"}


def test_a_setting_that_is_not_laid_out_does_not_mix() -> None:
    found = chosen(*(trained(seed=s, epochs=3) for s in range(2)), trained(seed=3, epochs=5))
    assert set(found.rows["epochs"]) == {3}
    (left_out,) = found.left_out
    assert left_out.endswith("data=mnist, recipe=paper, epochs=5")


def test_a_setting_that_only_some_cells_have_does_not_mix() -> None:
    found = chosen(trained(seed=0), trained(seed=1), trained(seed=2, precision="amp"))
    assert len(found.rows) == 2


def test_settings_that_are_laid_out_stand_together() -> None:
    found = chosen(trained(), trained(resolution=56), trained(augmented=True))
    assert len(found.rows) == 3
    assert found.left_out == ()


def test_settings_that_the_place_decides_stand_together() -> None:
    """Each window has its own kernels: no mixture."""
    found = select(synthetic.frame(synthetic.results()), published(), EXPERIMENTS["delta-depth"])
    assert set(found.rows["window"]) == {"published", "wide", "periodic"}
    assert found.left_out == ()


def test_reasons_of_absent_cells() -> None:
    skipped = Result(trained("ss-cnn", resolution=56).cell, "skipped", (), "too long", synthetic.PROVENANCE)
    found = chosen(trained(), skipped)
    assert found.reason("ss-cnn", resolution=56, augmented=False) == "too long"
    assert found.reason("ss-cnn", resolution=28, augmented=False) == "not run"


def test_unknown_methods_and_metrics_are_left_out_and_named() -> None:
    frame = synthetic.frame([trained()])
    strange = frame.astype({"method": object, "metric": object}).assign(method="perceptron")
    other = frame.astype({"method": object, "metric": object}).assign(metric="happiness")
    import pandas as pd

    rows, notes = cleaned(pd.concat([frame, strange, other], ignore_index=True))
    assert len(rows) == 1
    assert notes == [
        "1 rows of the unknown metric 'happiness' are left out",
        "1 rows of the unknown method 'perceptron' are left out",
    ]


def test_an_empty_store_selects_nothing() -> None:
    found = select(synthetic.frame([]), published(), MNIST)
    assert found.empty
    assert len(found.paper) > 0
