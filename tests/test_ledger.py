"""How long cells will take: in proportion to their work, from those of their kind, on this machine if there are any."""

from __future__ import annotations

import pytest

from harness.commands.ledger import Estimates, Ledger, Total, standing
from harness.plan import Planned
from harness.records import Cell
from harness.run.engines.display import spoken


def planned(method: str, work: float, **settings: int) -> Planned:
    return Planned(Cell("mnist-scale", 1, "lite", method, settings), work)


def test_estimates_are_in_proportion_to_work_by_method_and_size() -> None:
    known = Estimates("here", "cpu")
    for seconds in (10.0, 20.0, 60.0):
        known.learn(planned("cnn", 10.0, resolution=28), seconds, "here", "cpu")
    assert known.seconds(planned("cnn", 5.0, resolution=28)) == 10.0
    assert known.seconds(planned("cnn", 5.0, resolution=56)) is None
    assert known.seconds(planned("wrn", 5.0, resolution=28)) is None
    assert known.total([planned("cnn", 5.0, resolution=28), planned("wrn", 1.0)]) == Total(10.0, 1)


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


def test_the_time_left_is_shared_by_jobs_except_where_cells_run_alone() -> None:
    known = Estimates("here", "cpu")
    alone = Planned(Cell("epoch-time", 1, "lite", ""), 1.0)
    for one in (planned("cnn", 1.0), alone):
        known.learn(one, 10.0, "here", "cpu")
    ledger = Ledger([standing(one, {}) for one in (planned("cnn", 1.0), planned("cnn", 2.0), alone)], known, jobs=2)
    assert ledger.left(ledger.standings) == Total(25.0, 0)
    assert Total(25.0, 0).words(spoken) == "25 s"
    assert Total(25.0, 1).words(spoken) == "≥ 25 s"
    assert Total(0.0, 1).words(spoken) == "?"


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
