"""Files of times: they travel, keep what others wrote, and are refused in words where they are damaged."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from small_layers import SHAPE, conv, field

import sesn
from sesn import UsageError
from sesn.algorithms import timing, tuning
from sesn.algorithms.memory import Memory, Times, remembering


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(timing, "MOST", 0)  # with real times, but in haste
    with remembering(Memory()) as fresh:
        yield fresh


def test_a_file_brings_the_times_to_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "times.json"
    layer = conv()
    with sesn.tuning(file=path):
        layer(field())
        plan = layer.plan(SHAPE)
    monkeypatch.setattr(tuning, "least_milliseconds", lambda *_: pytest.fail("it was timed again"))
    for enabled in (True, False):
        with remembering(Memory()), sesn.tuning(enabled, file=str(path)):
            assert layer.plan(SHAPE) == plan
            layer(field())
    assert list(path.parent.iterdir()) == [path]  # nothing is left of writing


texts = st.text(st.characters(codec="utf-8"), max_size=8)
ways = st.lists(st.sampled_from(["dense", "separable", "spectral", "fused"]), min_size=1, max_size=4).map(tuple)
entries = st.builds(
    lambda ways, time: Times(ways, {tuning.named(ways): time}), ways, st.floats(1e-9, 1e9, allow_subnormal=False)
)


@given(told=st.lists(st.tuples(texts, texts, st.integers(1, 999), entries), max_size=8))
def test_a_file_comes_back_as_it_was_and_keeps_what_others_wrote(
    told: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("times") / "times.json"
    expected = {(device, key, batch): times for device, key, batch, times in told}
    for entry in told:  # each by a process of its own
        one = Memory()
        one.add(*entry)
        one.write(path)
    found = Memory()
    if told:
        found.read(path)
    assert len(found) == len(expected)
    for (device, key, batch), times in expected.items():
        assert found.get(device, key, batch, 1) == times


GOOD = {
    "sesn": "tuning",
    "format": 1,
    "devices": {"cpu": {"layer": {"2": {"ways": ["dense"], "milliseconds": {"dense": 1.0}}}}},
}


def damaged(**entry: Any) -> str:
    whole = json.loads(json.dumps(GOOD))
    whole["devices"]["cpu"]["layer"]["2"] |= entry
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        (json.dumps(GOOD)[:-5], "cannot be read as JSON"),
        ("[]", "was not written by sesn.tuning"),
        ('{"settings": 1}', "was not written by sesn.tuning"),
        (json.dumps(GOOD | {"format": 99}), "has the format 99, and this version of sesn reads 1"),
        (json.dumps(GOOD | {"devices": []}), "damaged"),
        (json.dumps(GOOD | {"devices": {"cpu": {"layer": {"0": {}}}}}), "damaged.*batch 0"),
        (json.dumps(GOOD | {"devices": {"cpu": {"layer": {"2": {}}}}}), "damaged.*ways"),
        (damaged(ways=["quick"]), r"damaged.*\['quick'\]"),
        (damaged(ways=[]), "damaged"),
        (damaged(ways="dense"), "damaged"),
        (damaged(milliseconds={"dense": -1.0}), "damaged.*-1.0 milliseconds"),
        (damaged(milliseconds={"dense": True}), "damaged.*True milliseconds"),
        (damaged(milliseconds={"dense": float("nan")}), "damaged.*nan milliseconds"),
        (damaged(milliseconds={"quick": 1.0}), "damaged.*'quick'"),
        (damaged(milliseconds={"dense": 10**400}), "damaged.*Overflow"),
        (damaged(milliseconds={}), "damaged.*'dense' is not the quickest"),
        (damaged(milliseconds={"separable": 1.0}), "damaged.*'dense' is not the quickest"),
        (damaged(milliseconds={"dense": 2.0, "separable": 1.0}), "damaged.*'dense' is not the quickest"),
    ],
)
def test_a_damaged_file_is_refused_and_kept(content: str, told: str, tmp_path: Path, memory: Memory) -> None:
    path = tmp_path / "times.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=rf"(?s)`file` \(='.*times.json'\) .*{told}.*give the name of another file"):
        sesn.tuning(file=path)
    assert path.read_text() == content
    assert not len(memory)


def test_a_good_file_is_taken_and_what_does_not_fit_the_layer_is_not_used(tmp_path: Path) -> None:
    layer = conv()
    job = layer._job(torch.device("cpu"), "float32", "gradients", 2, *layer._placed(SHAPE[-2:]))
    plan = layer.plan(SHAPE)
    for ways, used in ((["fused"] * 2, False), (["dense"], False), (["spectral"] * 2, True)):
        told = {"ways": ways, "milliseconds": {ways[0]: 1.0}}
        (tmp_path / "t.json").write_text(json.dumps(GOOD | {"devices": {plan.device: {job.key: {"2": told}}}}))
        with remembering(Memory()), sesn.tuning(False, file=tmp_path / "t.json"):
            assert (layer.plan(SHAPE).algorithms == tuple(ways)) == used
            assert layer.plan(SHAPE).reason == ("measured" if used else "model")


@pytest.mark.parametrize("name", ["", "file/times.json", "file/new/times.json"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_timed(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"(?s)`file` \(='.*give the name of another file"):
        sesn.tuning(file=tmp_path / name)
    assert not tuning._SETTING.enabled


def test_what_is_no_plain_file_is_not_read() -> None:
    with pytest.raises(UsageError, match="is not a plain file; give the name of another file"):
        sesn.tuning(file=os.devnull)


@pytest.mark.parametrize("fault", ["damaged", "full"])
def test_a_file_that_fails_later_stops_no_network(
    fault: str, tmp_path: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "times.json"
    with sesn.tuning(file=path):
        if fault == "damaged":
            path.write_text("{")
        else:
            monkeypatch.setattr(Path, "replace", full)
        with pytest.warns(RuntimeWarning, match=r"not kept in a file.*(No space left|cannot be read as JSON)"):
            conv()(field())
    assert len(memory) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == (["times.json"] if fault == "damaged" else [])


def full(*_: object) -> None:
    raise OSError(28, "No space left")


def _write_own(path: Path, process: int) -> None:
    for number in range(20):
        own = Memory()
        own.add("cpu", f"{process} {number}", 1, Times(("dense",), {"dense": 1.0}))
        own.write(path)


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_own, args=(path, process)) for process in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    (found := Memory()).read(path)
    assert len(found) == 80
