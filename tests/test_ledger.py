"""How long cells will take: in proportion to their work, from those of their kind, on this machine if there are any."""

from __future__ import annotations

import pytest

from harness.commands.ledger import Estimates, Ledger, Total, estimates, standing
from harness.experiment import Request
from harness.experiments import plan
from harness.records import Cell, Planned
from harness.run.engines.display import spoken
from harness.store.lines import StoredCell, Values


def planned(method: str, work: float, **settings: int) -> Planned:
    return Planned(Cell("stl10" if "depth" in settings else "mnist-scale", 1, "lite", method, settings), work)


def left(known: Estimates, cells: list[Planned]) -> Total:
    return Ledger(cells, known).left(cells)


def test_estimates_are_in_proportion_to_work_by_method_and_size() -> None:
    known = Estimates("here", "cpu")
    for seconds in (10.0, 20.0, 60.0):
        known.learn(planned("cnn", 10.0, resolution=28), seconds, "here", "cpu")
    assert known.seconds(planned("cnn", 5.0, resolution=28)) == 10.0
    assert known.seconds(planned("cnn", 5.0, resolution=56)) is None
    assert known.seconds(planned("wrn", 5.0, resolution=28)) is None
    assert left(known, [planned("cnn", 5.0, resolution=28), planned("wrn", 1.0)]) == Total(10.0, 1)


def test_a_thin_network_teaches_nothing_about_a_wide_one() -> None:
    known = Estimates("here", "cpu")
    known.learn(planned("wrn", 1.0, depth=10, width=1), 1.0, "here", "cpu")
    assert known.seconds(planned("wrn", 2.0, depth=10, width=1)) == 2.0
    assert known.seconds(planned("wrn", 1.0, depth=16, width=8)) is None


def test_estimates_come_from_the_finished_cells_of_the_nearest_work() -> None:
    known = Estimates("here", "cpu")
    known.learn(planned("cnn", 1.0), 50.0, "here", "cpu")
    known.learn(planned("cnn", 100.0), 150.0, "here", "cpu")
    assert known.seconds(planned("cnn", 1000.0)) == 1500.0
    assert known.seconds(planned("cnn", 2.0)) == 100.0


def test_estimates_prefer_this_machine_and_device() -> None:
    known = Estimates("here", "cuda:1")
    known.learn(planned("cnn", 1.0), 9.0, "there", "cuda:0")
    assert known.seconds(planned("cnn", 1.0)) == 9.0
    known.learn(planned("cnn", 1.0), 100.0, "here", "cpu")
    known.learn(planned("cnn", 1.0), 2.0, "here", "cuda:0")
    assert known.seconds(planned("cnn", 1.0)) == 2.0


def test_two_threads_take_half_the_time_of_one_and_on_a_gpu_threads_do_not_count() -> None:
    known = Estimates("here", "cpu", threads=2)
    known.learn(planned("cnn", 1.0), 8.0, "here", "cpu", 1)
    known.learn(planned("wrn", 1.0), 8.0, "here", "cpu", 4)
    assert (known.seconds(planned("cnn", 1.0)), known.seconds(planned("wrn", 1.0))) == (4.0, 16.0)
    known = Estimates("here", "cuda", threads=2)
    known.learn(planned("cnn", 1.0), 8.0, "here", "cuda", 1)
    assert known.seconds(planned("cnn", 1.0)) == 8.0


def timed() -> StoredCell:
    """Two methods in one cell, on two threads: 10,000 images in 30 and in 90 seconds."""
    cell = Cell("epoch-time", 1, "lite", "", {**plan(Request("lite"), ["epoch-time"])[0].cell.settings})
    lines = [Values("epoch_time", {"method": key}, [seconds]) for key, seconds in (("cnn", 30.0), ("dss-vector", 90.0))]
    facts = {"status": "ok", "machine": "here", "device": "cpu", "threads": 2, "seconds": 500.0}
    return StoredCell(cell, facts, lines)


def test_measured_epoch_times_predict_training_until_a_cell_of_its_kind_has_finished() -> None:
    known = estimates({timed().cell.id: timed()}, "here", "cpu")
    cells = {one.cell.method: one for one in plan(Request("lite"), ["mnist-scale"])[:11]}
    epochs = cells["cnn"].work / (10_000 * 28**2)
    assert known.seconds(cells["cnn"]) == pytest.approx(2 * 30 * epochs)
    assert known.seconds(cells["dss-vector"]) == pytest.approx(2 * 90 * epochs)
    assert known.seconds(cells["ss-cnn"]) is None
    known.learn(cells["cnn"], 7.0, "there", "cpu")
    assert known.seconds(cells["cnn"]) == 7.0


def test_the_reduced_network_of_stl10_is_predicted_by_its_own_epoch_time_and_mnist_scale_is_not() -> None:
    """So that `sesn plan --budget lite` states hours before any of its cells has finished."""
    facts = {"status": "ok", "machine": "here", "device": "cpu", "threads": 1, "seconds": 5.0}
    timed = [one.cell for one in plan(Request("lite"), ["epoch-time"]) if one.cell.settings.get("network") == "stl10"]
    wanted = plan(Request("lite"), ["stl10-reduced"])
    assert {cell.method for cell in timed} == {one.cell.method for one in wanted}
    seconds = {cell.method: 20.0 + number for number, cell in enumerate(timed)}
    rows = {cell.id: StoredCell(cell, facts, [Values("epoch_time", {}, [seconds[cell.method]])]) for cell in timed}
    known = estimates(rows, "here", "cpu")
    assert left(known, wanted).unknown == 0
    for one in wanted:
        epochs = one.work / (5000 * 48**2)
        assert known.seconds(one) == pytest.approx(seconds[one.cell.method] * epochs)
    assert left(known, plan(Request("lite"), ["mnist-scale"])).seconds == 0


def test_cells_on_other_data_and_of_other_budgets_teach_how_long_a_cell_takes() -> None:
    stored, wanted = (plan(Request("lite", digits=name), ["mnist-scale"])[0] for name in ("mnist", "embedded"))
    facts = {"status": "ok", "machine": "here", "device": "cpu", "threads": 1, "seconds": 60.0}
    known = estimates({stored.cell.id: StoredCell(stored.cell, facts, [])}, "here", "cpu")
    assert known.seconds(wanted) == pytest.approx(60.0 * wanted.work / stored.work)
    retired = Cell.from_dict({**stored.cell.as_dict(), "version": 0})
    assert estimates({retired.id: StoredCell(retired, facts, [])}, "here", "cpu").seconds(wanted) is None


def test_by_worth_one_realisation_of_all_comes_before_the_second_of_any_and_cheap_before_dear() -> None:
    known = Estimates("here", "cpu")
    seconds = {"sevf-vector": 9.0, "cnn": 1.0, "sesn-vector": 3.0}
    cells = plan(Request("paper", methods=tuple(seconds)), ["mnist-scale"])
    for one in cells:
        known.learn(one, seconds[one.cell.method] * one.work, "here", "cpu")
    ordered = [one.cell for one in Ledger([standing(one, {}) for one in cells], known).by_worth().standings]
    assert sorted(cell.id for cell in ordered) == sorted(one.cell.id for one in cells)
    assert [cell.seed for cell in ordered] == sorted(cell.seed for cell in ordered)
    first = [(cell.settings["resolution"], cell.settings["augmented"], cell.method) for cell in ordered[:12]]
    settings = ((28, False), (28, True), (56, False), (56, True))
    assert first == [(*place, key) for place in settings for key in ("cnn", "sesn-vector", "sevf-vector")]


def test_the_time_left_is_shared_by_jobs_except_where_cells_run_alone() -> None:
    known = Estimates("here", "cpu")
    alone = Planned(Cell("epoch-time", 1, "lite", ""), 1.0, alone=True)
    for one in (planned("cnn", 1.0), alone):
        known.learn(one, 10.0, "here", "cpu")
    ledger = Ledger([standing(one, {}) for one in (planned("cnn", 1.0), planned("cnn", 2.0), alone)], known, jobs=2)
    assert ledger.left(ledger.standings) == Total(25.0, 0)
    assert Total(25.0, 0).words == "25 s"
    assert Total(25.0, 1).words == "≥ 25 s"
    assert Total(0.0, 1).words == "?"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.25, "0.2 s"),
        (99, "99 s"),
        (100, "2 min"),
        (3599, "60 min"),
        (3600, "1.0 h"),
        (90000, "25 h"),
        (200000, "2.3 days"),
    ],
)
def test_durations_are_readable(seconds: float, words: str) -> None:
    assert spoken(seconds) == words
    assert spoken(None) == "?"
