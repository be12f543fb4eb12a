"""The time of an epoch: which steps are timed, in which order, and what the rows say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from harness.plan import EXPERIMENTS
from harness.records import Cell, Measurement, Scalar
from harness.request import Request
from harness.run import timing
from harness.run.context import Context, Skip
from harness.run.timing import digit_batches, epoch_time
from harness.steps import training_step
from harness.stopwatch import interleave

CPU = torch.device("cpu")


def planned(**changes: Scalar) -> Cell:
    (cell,) = [
        p.cell
        for p in EXPERIMENTS["epoch-time"].plan(Request(methods=("sesn-scalar", "dss-scalar")))
        if p.cell.settings["resolution"] == 28
    ]
    return replace(cell, settings={**cell.settings, "batch": 4, "steps": 3, "warmup": 1, **changes})


@pytest.fixture(scope="module")
def found() -> list[Measurement]:
    return epoch_time(planned(), Context())


def of(found: list[Measurement], metric: str, method: str) -> Measurement:
    (one,) = [m for m in found if m.metric == metric and m.at["method"] == method]
    return one


def test_the_reference_runs_whether_asked_for_or_not(found: list[Measurement]) -> None:
    assert {m.at["method"] for m in found} == {"cnn", "sesn-scalar", "dss-scalar"}
    assert of(found, "time_ratio", "cnn").values == (1.0, 1.0, 1.0)


def test_raw_samples_are_kept_and_ratios_are_taken_within_a_round(found: list[Measurement]) -> None:
    for key in ("sesn-scalar", "dss-scalar"):
        own, base = of(found, "step_time", key).values, of(found, "step_time", "cnn").values
        assert len(own) == 3
        assert of(found, "time_ratio", key).values == pytest.approx([a / b for a, b in zip(own, base, strict=True)])
        assert of(found, "images_per_second", key).values == pytest.approx([4e3 / a for a in own])


def test_a_row_says_that_fewer_steps_were_timed_than_an_epoch_has(found: list[Measurement]) -> None:
    epoch, step = of(found, "epoch_time", "sesn-scalar"), of(found, "step_time", "sesn-scalar")
    assert (epoch.at["steps_timed"], epoch.at["steps_per_epoch"]) == (3, 2500)
    assert epoch.values == pytest.approx([2.5 * milliseconds for milliseconds in step.values])


def test_work_and_memory_are_those_of_the_network(found: list[Measurement]) -> None:
    for key in ("cnn", "sesn-scalar", "dss-scalar"):
        assert of(found, "multiply_adds", key).values[0] > 1e6
        assert of(found, "peak_memory", key).values[0] > 0.1
    # A lift of four scales does at least as many times the work of its first layer.
    assert of(found, "multiply_adds", "dss-scalar").values[0] > of(found, "multiply_adds", "cnn").values[0]


def test_nothing_asked_for_is_nothing_to_measure() -> None:
    with pytest.raises(Skip, match="no method"):
        epoch_time(planned(methods=""), Context())


def test_batches_hold_digits_of_all_classes() -> None:
    batches = digit_batches(64, CPU)
    assert len(batches) == timing.BATCHES
    for images, labels in batches:
        assert images.shape == (64, 28, 28)
        assert images.dtype == torch.uint8
        assert len(labels.unique()) > 5


def test_the_caller_s_random_numbers_are_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    timing._networks(planned(), CPU)
    assert torch.equal(torch.rand(3), expected)


# --- the step and the rounds


class Seen(nn.Module):
    """Counts what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, 3))
        self.given: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        self.given.append(float(x[0, 0]))
        return x @ self.weight


def test_a_step_trains_on_the_batches_in_turn_after_preparing_them() -> None:
    network = Seen().eval()
    batches = [(torch.full((4, 2), float(number)), torch.tensor([0, 1, 2, 0])) for number in (1, 2)]
    step = training_step(network, batches, lambda images: 10 * images)
    assert network.training
    for _ in range(3):
        before = network.weight.detach().clone()
        step()
        assert not torch.equal(network.weight, before)
    assert network.given == [10.0, 20.0, 10.0]


def test_rounds_interleave_and_the_warm_up_is_not_timed() -> None:
    order: list[str] = []
    told: list[float] = []
    steps = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    samples = interleave(steps, 2, CPU, warmup=1, on_round=told.append)
    assert order == ["a", "b"] * 3
    assert {name: len(values) for name, values in samples.items()} == {"a": 2, "b": 2}
    assert told == pytest.approx([0, 1 / 3, 2 / 3])
