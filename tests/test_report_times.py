"""Times of an epoch: older cells timed many methods at once, later ones are of one method each."""

from __future__ import annotations

from typing import Any

import synthetic

from harness.experiments import EXPERIMENTS
from harness.paper import published
from harness.records import Cell, Measurement, Result, Scalar
from harness.report import times
from harness.report.select import select

SHARED: dict[str, Scalar] = {"recipe": "paper", "batch": 128, "steps": 3, "warmup": 1, "epoch_images": 10_000}


def result(method: str, values: dict[str, float], machine: str = "one", **settings: Scalar) -> Result:
    """Epochs of so many seconds, of each method, at one resolution."""
    cell = Cell("epoch-time", 1, "lite", method, {**SHARED, "resolution": 28, **settings})
    found = [
        Measurement(metric, (seconds,) * 3, {} if method else {"method": key})
        for key, seconds in values.items()
        for metric in ("epoch_time", "time_ratio")
    ]
    return Result(cell, "ok", tuple(found), "", {**synthetic.PROVENANCE, "machine": machine}, synthetic.STARTED, 1.0)


OLDER = result("", {"cnn": 1.0, "dss-vector": 4.0, "sesn-vector": 5.0}, methods="cnn,dss-vector,sesn-vector")


def seconds(*results: Result) -> dict[str, float]:
    chosen = select(times.current(synthetic.frame(results)), published(), EXPERIMENTS["epoch-time"])
    frame: Any = times.frame({"epoch-time": chosen})
    measured = frame[frame["epoch_time"].notna() & frame["resolution"].eq(28)]
    return dict(zip(measured["method"], measured["epoch_time"], strict=True))


def test_older_cells_are_shown_until_a_method_has_one_of_its_own() -> None:
    assert seconds(OLDER) == {"cnn": 1.0, "dss-vector": 4.0, "sesn-vector": 5.0}
    later = result("dss-vector", {"dss-vector": 3.0})
    assert seconds(OLDER, later) == {"cnn": 1.0, "dss-vector": 3.0, "sesn-vector": 5.0}
    assert seconds(later) == {"dss-vector": 3.0}


def test_a_later_cell_of_another_machine_takes_nothing_away() -> None:
    assert seconds(OLDER, result("dss-vector", {"dss-vector": 3.0}, machine="two")) == seconds(OLDER)


def test_the_network_of_stl10_is_not_in_the_table_of_mnist_scale() -> None:
    reduced = result("wrn", {"wrn": 9.0}, network="stl10", depth=10, width=1, resolution=48, epoch_images=5000)
    assert seconds(OLDER, reduced) == seconds(OLDER)
    assert seconds(reduced) == {}


def test_a_smoke_run_is_not_compared_with_the_published_times() -> None:
    for budget, compared in (("lite", True), ("smoke", False)):
        found = synthetic.frame(one for one in synthetic.results(budget) if one.cell.experiment == "epoch-time")
        chosen = select(times.current(found), published(), EXPERIMENTS["epoch-time"])
        frame: Any = times.frame({"epoch-time": chosen})
        assert frame["difference"].notna().any() == frame["within"].ne("").any() == compared
        table = times.table(frame)
        assert ("difference" in table.heading) == compared
        assert {len(line) for line in table.lines} == {len(table.heading)}
