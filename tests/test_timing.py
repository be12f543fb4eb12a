"""The time of an epoch: which steps are timed, in which order, and what the rows say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from harness import stopwatch
from harness.bench import methods as bench
from harness.experiment import Context, Request, Skip
from harness.experiments import EXPERIMENTS
from harness.experiments import epoch_time as timing
from harness.experiments.epoch_time import digit_batches, epoch_time
from harness.records import Cell, Measurement, Scalar
from harness.stopwatch import interleave, training_step

CPU = torch.device("cpu")


def planned(key: str, network: str = "mnist", **changes: Scalar) -> Cell:
    cells = [one.cell for one in EXPERIMENTS["epoch-time"].plan(Request("lite", methods=(key,)))]
    (cell,) = [
        one for one in cells if one.settings.get("network", "mnist") == network and one.settings["resolution"] < 56
    ]
    return replace(cell, settings={**cell.settings, "batch": 4, "steps": 3, "warmup": 1, **changes})


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Measurement]]:
    keys = ("cnn", "sesn-scalar", "dss-scalar")
    return {key: {one.metric: one for one in epoch_time(planned(key), Context())} for key in keys}


def test_every_method_has_a_cell_of_its_own_and_is_timed_in_turn_with_the_plain_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns: list[list[str]] = []

    def note(networks: dict[str, nn.Module], *_: object) -> None:
        turns.append(list(networks))
        raise Skip

    monkeypatch.setattr(timing, "time_training", note)
    for cell in (planned("dss-vector"), planned("cnn"), planned("sesn-b", "stl10"), planned("wrn", "stl10")):
        with pytest.raises(Skip):
            epoch_time(cell, Context())
    assert turns == [["cnn", "dss-vector"], ["cnn"], ["wrn", "sesn-b"], ["wrn"]]


def test_adding_a_method_leaves_the_cells_of_the_others() -> None:
    every = {one.cell.id for one in EXPERIMENTS["epoch-time"].plan(Request())}
    some = {one.cell.id for one in EXPERIMENTS["epoch-time"].plan(Request(methods=("cnn", "wrn", "dss-vector")))}
    assert some < every
    assert len(some) == 2 + 1 + 2 + 1


def test_raw_samples_are_kept_and_ratios_are_taken_within_a_round(found: dict[str, dict[str, Measurement]]) -> None:
    assert found["cnn"]["time_ratio"].values == (1.0, 1.0, 1.0)
    for key, of in found.items():
        own = of["step_time"].values
        assert len(own) == len(of["time_ratio"].values) == 3
        assert of["images_per_second"].values == pytest.approx([4e3 / a for a in own])
        assert all(ratio > 0 for ratio in of["time_ratio"].values), key


def test_a_row_says_that_fewer_steps_were_timed_than_an_epoch_has(found: dict[str, dict[str, Measurement]]) -> None:
    epoch, step = found["sesn-scalar"]["epoch_time"], found["sesn-scalar"]["step_time"]
    assert (epoch.at["steps_timed"], epoch.at["steps_per_epoch"]) == (3, 2500)
    assert epoch.values == pytest.approx([2.5 * milliseconds for milliseconds in step.values])


def test_work_and_memory_are_those_of_the_network(found: dict[str, dict[str, Measurement]]) -> None:
    for of in found.values():
        assert of["multiply_adds"].values[0] > 1e6
        assert of["peak_memory"].values[0] > 0.1
    # A lift of four scales does at least as many times the work of its first layer.
    assert found["dss-scalar"]["multiply_adds"].values[0] > found["cnn"]["multiply_adds"].values[0]


def test_the_reduced_network_of_stl10_is_timed_on_images_of_its_size() -> None:
    cell = planned("sesn-a", "stl10", steps=1, warmup=0)
    assert {name: cell.settings[name] for name in ("depth", "width", "resolution")} == {
        "depth": 10,
        "width": 1,
        "resolution": 48,
    }
    of = {one.metric: one for one in epoch_time(cell, Context())}
    assert of["epoch_time"].at["steps_per_epoch"] == 1250
    assert of["multiply_adds"].values[0] > 1e6


def test_the_benchmark_of_methods_and_the_experiment_time_with_the_same_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Skip("timed")

    for module in (timing, bench):
        monkeypatch.setattr(module, "time_training", refuse)
    with pytest.raises(Skip, match="timed"):
        epoch_time(planned("cnn"), Context())
    with pytest.raises(Skip, match="timed"):
        bench.measure_methods(1, CPU, "cnn", 2)
    assert stopwatch.time_training is not refuse


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
    cell = planned("cnn")
    timing.networks(cell, timing.TimeSettings.of(cell), CPU, "cnn")
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
    samples = interleave(steps, 9, CPU, warmup=1, on_round=told.append)
    rounds = ["".join(order[start : start + 2]) for start in range(0, len(order), 2)]
    assert set(rounds) == {"ab", "ba"}  # no step always follows the same one
    assert len(rounds) == 10
    assert {name: len(values) for name, values in samples.items()} == {"a": 9, "b": 9}
    assert told == pytest.approx([index / 10 for index in range(10)])
