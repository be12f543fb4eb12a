"""Checkpoints: a run that is interrupted anywhere ends as if it had not been, and a bad file is never used."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_training as tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.experiment import Context
from harness.run.training import trainer
from harness.run.training.cells import train
from harness.run.training.trainer import Checkpoint, Snapshot, checkpoint_in

STEPS = 9  # of tiny.cell(): three epochs of three


class Interrupted(Exception):
    pass


def interrupt_after(steps: int) -> Context:
    left = [steps]

    def told(_fraction: float, _doing: str) -> None:
        left[0] -= 1
        if not left[0]:
            raise Interrupted

    return Context(on_progress=told)


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, dict[tuple[str, str], tuple[float, ...]]]:
    return {
        recipe: tiny.values(train(tiny.job, tiny.cell("full", recipe), Context(scratch=None)))
        for recipe in ("adam", "sgd")
    }


# --- going on


@pytest.mark.parametrize("every_step", [True, False])
@pytest.mark.parametrize("recipe", ["adam", "sgd"])
def test_a_run_interrupted_at_any_step_ends_with_the_same_bits(
    recipe: str, every_step: bool, undisturbed: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if every_step:
        monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
    cell = tiny.cell("full", recipe)
    for steps in range(1, STEPS + 1):
        scratch = tmp_path / str(steps)
        with pytest.raises(Interrupted):
            train(tiny.job, cell, replace(interrupt_after(steps), scratch=scratch))
        assert (scratch / "training.safetensors").exists() == (every_step or steps > 3)
        assert tiny.values(train(tiny.job, cell, Context(scratch=scratch))) == undisturbed[recipe]


def test_a_run_interrupted_after_every_single_step_ends_with_the_same_bits(
    undisturbed: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
    for _ in range(STEPS):
        with pytest.raises(Interrupted):
            train(tiny.job, tiny.cell(), replace(interrupt_after(1), scratch=tmp_path))
    found = train(tiny.job, tiny.cell(), Context(scratch=tmp_path))
    assert tiny.values(found) == undisturbed["adam"]


def test_a_finished_run_is_not_trained_again(undisturbed: dict, tmp_path: Path) -> None:
    train(tiny.job, tiny.cell(), Context(scratch=tmp_path))
    told: list[str] = []
    again = train(tiny.job, tiny.cell(), Context(scratch=tmp_path, on_progress=lambda _, doing: told.append(doing)))
    assert told == ["testing on 40 images"]
    assert tiny.values(again) == undisturbed["adam"]


@pytest.mark.parametrize(
    ("moment", "count"),
    [("step", 2), ("write", 3), *(pytest.param("step", n, marks=pytest.mark.slow) for n in (1, 3, 9))]
    + [pytest.param("write", n, marks=pytest.mark.slow) for n in (2, 7, 8, 24)],
)
def test_a_killed_process_goes_on_with_the_same_bits(
    moment: str, count: int, undisturbed: dict, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    command = [sys.executable, tiny.__file__, str(scratch), moment, str(count)]
    assert subprocess.run(command, check=False, capture_output=True, timeout=120).returncode == -9
    left = [path.name for path in scratch.iterdir()]
    # Files are written through first, then their folder: an odd call is the file's.
    assert any("partial" in name for name in left) == (moment == "write" and count % 2 == 1)
    assert tiny.values(train(tiny.job, tiny.cell(), Context(scratch=scratch))) == undisturbed["adam"]
    assert [path.name for path in scratch.iterdir()] == ["training.safetensors"]


def test_the_time_of_an_interrupted_epoch_is_the_sum_of_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
    clock = iter(range(1000))
    monkeypatch.setattr(trainer.time, "perf_counter", lambda: float(next(clock)))
    with pytest.raises(Interrupted):
        train(tiny.job, tiny.cell(), replace(interrupt_after(2), scratch=tmp_path))
    found = train(tiny.job, tiny.cell(), Context(scratch=tmp_path))
    assert tiny.curve(found, "epoch_time") == (3.0, 3.0, 3.0)  # a step takes one tick of this clock


def test_checkpoints_are_written_at_most_so_often_within_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    monkeypatch.setattr(Checkpoint, "write", lambda self, snapshot: written.append(snapshot.notes["step"]))
    clock = iter(range(0, 100_000, 25))
    monkeypatch.setattr(trainer.time, "monotonic", lambda: float(next(clock)))
    train(tiny.job, tiny.cell(epochs=2), Context(scratch=tmp_path))
    assert written == [3, 0, 3, 0]


# --- files that cannot be used


def interrupted_run(scratch: Path) -> Path:
    with pytest.raises(Interrupted):
        train(tiny.job, tiny.cell(), replace(interrupt_after(5), scratch=scratch))
    return scratch / "training.safetensors"


def starts_anew(scratch: Path, undisturbed: dict, words: str) -> None:
    with pytest.warns(UserWarning, match=rf"training\.safetensors is not used, so training starts again: .*{words}"):
        found = train(tiny.job, tiny.cell(), Context(scratch=scratch))
    assert tiny.values(found) == undisturbed["adam"]


@pytest.mark.parametrize("kept", [0, 4, 100, 0.5, -1])
def test_a_checkpoint_that_was_cut_off_is_not_used(kept: float, undisturbed: dict, tmp_path: Path) -> None:
    path = interrupted_run(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    starts_anew(tmp_path, undisturbed, "damaged")


def test_a_checkpoint_with_a_flipped_bit_is_not_used(undisturbed: dict, tmp_path: Path) -> None:
    path = interrupted_run(tmp_path)
    content = bytearray(path.read_bytes())
    content[-100] ^= 16
    path.write_bytes(content)
    starts_anew(tmp_path, undisturbed, "its checksum differs")


def test_the_checkpoint_of_another_cell_is_not_used(undisturbed: dict, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(tiny.job, tiny.cell(rate=0.02), replace(interrupt_after(5), scratch=tmp_path))
    starts_anew(tmp_path, undisturbed, f"its run is '[0-9a-f]+', this run's is '{tiny.cell().id}'")


def test_a_checkpoint_of_another_format_is_not_used(
    undisturbed: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "FORMAT", trainer.FORMAT + 1)
        interrupted_run(tmp_path)
    starts_anew(tmp_path, undisturbed, "its format is")


def test_a_checkpoint_of_another_network_is_not_used(undisturbed: dict, tmp_path: Path) -> None:
    checkpoint = checkpoint_in(tmp_path, tiny.cell().id)
    assert checkpoint is not None
    checkpoint.write(Snapshot({"network.0.weight": torch.ones(2)}, {}))
    starts_anew(tmp_path, undisturbed, "not those of this network")


def test_a_checkpoint_with_other_notes_is_not_used(undisturbed: dict, tmp_path: Path) -> None:
    checkpoint = checkpoint_in(tmp_path, tiny.cell().id)
    assert checkpoint is not None
    network = tiny.job(tiny.cell(), None).network.state_dict()
    checkpoint.write(Snapshot({f"network.{name}": value for name, value in network.items()}, {"mood": 3}))
    starts_anew(tmp_path, undisturbed, "notes are not those of this version")


def test_a_checkpoint_for_other_constants_is_not_used(
    undisturbed: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "meanings", lambda network: {"stem": {"sigmas": [1.5]}})
        interrupted_run(tmp_path)
    monkeypatch.setattr(trainer, "meanings", lambda network: {"stem": {"sigmas": [2.5]}})
    starts_anew(tmp_path, undisturbed, r"the weights of stem .* `sigmas` is \(1.5\) there and \(2.5\) here")


def test_a_checkpoint_that_names_no_constants_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = interrupted_run(tmp_path)
    checkpoint = Checkpoint(path, tiny.cell().id)
    snapshot = checkpoint.read()
    assert snapshot is not None
    checkpoint.write(Snapshot(snapshot.tensors, {k: v for k, v in snapshot.notes.items() if k != "meanings"}))
    monkeypatch.setattr(trainer, "meanings", lambda network: {"stem": {"sigmas": [2.5]}})
    told: list[float] = []
    train(tiny.job, tiny.cell(), Context(scratch=tmp_path, on_resume=told.append))
    assert told


def test_a_folder_in_the_checkpoints_place_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.warns(UserWarning, match="damaged"):
        assert Checkpoint(tmp_path / "run", "run").read() is None


# --- the file itself

tensors = st.dictionaries(
    st.sampled_from(["a", "b", "network.0.weight"]),
    st.builds(
        lambda start, shape, dtype: (torch.arange(math.prod(shape)) + start).reshape(shape).to(dtype).transpose(0, -1),
        st.integers(0, 99),
        st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
        st.sampled_from([torch.float32, torch.int64, torch.float64, torch.uint8]),
    ),
)


@given(tensors, st.dictionaries(st.sampled_from("xyz"), st.floats(allow_nan=False) | st.lists(st.integers())))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, written: dict[str, torch.Tensor], notes: dict[str, object]
) -> None:
    checkpoint = Checkpoint(tmp_path_factory.mktemp("checkpoint") / "deep" / "a.safetensors", "run")
    assert checkpoint.read() is None
    checkpoint.write(Snapshot(written, notes))
    read = checkpoint.read()
    assert read is not None
    assert read.notes == notes
    assert read.tensors.keys() == written.keys()
    assert all(torch.equal(read.tensors[name], value) for name, value in written.items())


def test_tensors_that_share_memory_are_stored(tmp_path: Path) -> None:
    whole = torch.arange(6.0)
    checkpoint = Checkpoint(tmp_path / "a.safetensors", "run")
    checkpoint.write(Snapshot({"whole": whole, "again": whole, "part": whole[2:4]}, {}))
    read = checkpoint.read()
    assert read is not None
    assert torch.equal(read.tensors["part"], torch.tensor([2.0, 3.0]))


def test_any_flipped_byte_is_seen(tmp_path: Path) -> None:
    """No byte of a file can change without either a refusal or the very same content."""
    path = tmp_path / "a.safetensors"
    checkpoint = Checkpoint(path, "run")
    checkpoint.write(Snapshot({"a": torch.arange(5.0)}, {"epoch": 3}))
    good = path.read_bytes()
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1
        path.write_bytes(bad)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = checkpoint.read()
        assert read is None or (torch.equal(read.tensors["a"], torch.arange(5.0)) and read.notes == {"epoch": 3})


def test_the_seconds_of_an_interrupted_run_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
    clock = [0.0]

    def ticking() -> float:
        clock[0] += 1.0
        return clock[0]

    monkeypatch.setattr(trainer.time, "monotonic", ticking)
    with pytest.raises(Interrupted):
        train(tiny.job, tiny.cell(), replace(interrupt_after(4), scratch=tmp_path))
    spent = clock[0]
    told: list[float] = []
    train(tiny.job, tiny.cell(), Context(scratch=tmp_path, on_resume=told.append))
    assert len(told) == 1
    assert 0 < told[0] <= spent
