"""Training in two gloo processes against training in one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_training as tiny
import torch
from torch import Tensor, nn
from torch.func import functional_call

from harness.experiment import Context
from harness.records import Cell
from harness.run.training.cells import train, train_in
from harness.run.training.job import Job, Numerics, Schedule, Team

TWO = Numerics(ranks=2)
pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")


@pytest.fixture(autouse=True)
def _ranks_find_this_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))


class Halves(nn.Module):
    """A network that takes its statistics from either half of a batch, and remembers those of the first."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: Tensor) -> Tensor:
        first, second = torch.tensor_split(batch, 2)
        forgotten = {name: value.clone() for name, value in self.network.named_buffers()}
        return torch.cat([self.network(first), functional_call(self.network, forgotten, (second,))])


class HalfTeam(Team):
    def joined(self, network: nn.Module) -> nn.Module:
        return Halves(network)


@pytest.mark.parametrize(("network", "recipe"), [("plain", "sgd"), ("norm", "adam")])
def test_two_processes_train_as_one_that_takes_statistics_from_halves(network: str, recipe: str) -> None:
    """Without batch norm that is ordinary training. The last batch has 13 images, 7 and 6 for the two."""
    told: list[float] = []
    telling = Context(on_progress=lambda part, _: told.append(part))
    two = train(tiny.job, tiny.cell(network, recipe), telling, TWO)
    team = Team() if network == "plain" else HalfTeam()
    one = train_in(team, tiny.job, tiny.cell(network, recipe), Context())
    for metric in ("train_loss", "test_error") + (("validation_error",) if recipe == "adam" else ()):
        assert tiny.curve(two, metric) == pytest.approx(tiny.curve(one, metric), abs=1e-5)
    assert [found.at for found in two] == [found.at for found in one]
    assert told == sorted(told)
    assert len(told) == 10


def test_whole_batch_statistics_give_other_losses() -> None:
    """So the comparison above can fail."""
    whole, halves = (train_in(team, tiny.job, tiny.cell("norm"), Context()) for team in (Team(), HalfTeam()))
    difference = tiny.curve(whole, "train_loss")[-1] - tiny.curve(halves, "train_loss")[-1]
    assert abs(difference) > 1e-4


@pytest.mark.slow
def test_ranks_go_on_after_an_interruption_with_the_same_bits(tmp_path: Path) -> None:
    cell = tiny.cell("full")
    undisturbed = tiny.values(train(tiny.job, cell, Context(), TWO))

    def stop(fraction: float, _doing: str) -> None:
        if fraction > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tiny.job, cell, Context(scratch=tmp_path, on_progress=stop), TWO)
    assert (tmp_path / "training.safetensors").exists()
    told: list[float] = []
    again = train(tiny.job, cell, Context(scratch=tmp_path, on_progress=lambda part, _: told.append(part)), TWO)
    assert told[0] > 0.3
    assert tiny.values(again) == undisturbed


def exploding(cell: Cell, root: Path | None) -> Job:
    job = tiny.job(cell, root)
    return replace(job, schedule=Schedule(1e30, 3, 0.1, ()))


def dying(cell: Cell, root: Path | None) -> Job:
    os._exit(3)


@pytest.mark.slow
def test_why_the_ranks_failed_is_said() -> None:
    with pytest.raises(RuntimeError, match=r"FloatingPointError: the training loss is (nan|inf) at epoch 1, step"):
        train(exploding, tiny.cell("plain"), Context(), TWO)
    with pytest.raises(RuntimeError, match=r"the 2 processes ended without a result: .*exit code 3"):
        train(dying, tiny.cell("plain"), Context(), TWO)


ENDLESS = """
import os, pathlib, signal, sys
import tiny_training as tiny
from harness.experiment import Context
from harness.run.training.cells import train
from harness.run.training.job import Numerics

def die(fraction, doing):
    os.kill(os.getpid(), signal.SIGKILL)

context = Context(scratch=pathlib.Path(sys.argv[1]), on_progress=die)
train(tiny.job, tiny.cell(epochs=100_000), context, Numerics(ranks=2))
"""


@pytest.mark.slow
def test_ranks_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDLESS, str(tmp_path)]
    assert subprocess.run(command, check=False, timeout=120).returncode == -9
    file, deadline = tmp_path / "training.safetensors", time.monotonic() + 60
    while time.monotonic() < deadline:
        before = file.stat().st_mtime_ns if file.exists() else 0
        time.sleep(3)
        if before == (file.stat().st_mtime_ns if file.exists() else 0):
            return  # nobody writes checkpoints any more
    pytest.fail("the ranks still train")
