"""`sesn add-rows`: what others have measured is stored unchanged; a file with anything wrong in it, not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from harness.experiments import EXPERIMENTS, Request
from harness.records import Cell, Measurement, Result
from harness.store import sent, writing
from harness.store.lines import encode, sealed
from harness.store.reading import stored
from harness.store.writing import Writer
from sesn.tools.app import app

FACTS = {"code": "0.1.0 abc", "machine": "NVIDIA A100", "torch": "2.13.0", "device": "cuda:0", "threads": 4}
STARTED = "2026-01-31T12:00:00+00:00"
CELLS = [one.cell for one in EXPERIMENTS["parameters"].plan(Request()) if not one.reason]


def result(cell: Cell, value: float = 3.0, status: Any = "ok") -> Result:
    seen = (Measurement("parameters", (value,)), Measurement("parameters_used", (value,), {"of": "all"}))
    reason = "" if status == "ok" else "it broke"
    return Result(cell, status, seen if status == "ok" else (), reason, FACTS, STARTED, 1.5)


GOOD = b"".join(map(encode, (result(CELLS[0]), result(CELLS[1], 4.0))))


def run(file: Path, rows: Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["add-rows", str(file), "--rows", str(rows)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, " ".join(done.output.split())


def refused(data: bytes, tmp_path: Path) -> str:
    """What is said of a file of these bytes, of which nothing may be stored."""
    (file := tmp_path / "sent.jsonl").write_bytes(data)
    rows = tmp_path / "rows"
    before = {path.name: path.read_bytes() for path in rows.glob("*.jsonl")}
    status, said = run(file, rows)
    assert status == 2, said
    assert {path.name: path.read_bytes() for path in rows.glob("*.jsonl")} == before
    return said


def changed(change: Callable[[list[dict[str, Any]]], Any], *results: Result) -> bytes:
    """The cells with some fields changed, and sealed as if they had been so from the start."""
    made = b""
    for one in results or (result(CELLS[0]),):
        lines = [json.loads(line) for line in encode(one).splitlines()]
        change(lines)
        lines[-1].pop("digest")
        made += sealed([json.dumps(line, separators=(",", ":")).encode() for line in lines])
    return made


def test_good_rows_are_stored_and_named(tmp_path: Path) -> None:
    (file := tmp_path / "any-name.txt").write_bytes(GOOD)
    status, said = run(file, tmp_path / "rows")
    assert status == 0
    assert (tmp_path / "rows" / "parameters.jsonl").read_bytes() == GOOD
    assert "added 2 cells (2 ok) with 4 numbers" in said
    assert "measured on NVIDIA A100 (cuda:0) with sesn 0.1.0 abc" in said


def test_the_same_rows_change_nothing(tmp_path: Path) -> None:
    (file := tmp_path / "sent").write_bytes(GOOD)
    assert run(file, tmp_path / "rows")[0] == 0
    status, said = run(file, tmp_path / "rows")
    assert status == 0
    assert "nothing to add: all 2 cells are stored already" in said
    assert (tmp_path / "rows" / "parameters.jsonl").read_bytes() == GOOD


def test_a_file_that_has_grown_is_sent_again(tmp_path: Path) -> None:
    (file := tmp_path / "sent").write_bytes(GOOD + encode(result(CELLS[2], status="failed")))
    assert run(file, tmp_path / "rows")[0] == 0
    again = encode(result(CELLS[2], 5.0))
    file.write_bytes(file.read_bytes() + again)
    status, said = run(file, tmp_path / "rows")
    assert status == 0, said
    assert "added 1 cells (1 ok) with 2 numbers" in said
    assert "2 cells were stored already" in said
    assert (tmp_path / "rows" / "parameters.jsonl").read_bytes().endswith(again)
    assert [entry.status for entry in stored(tmp_path / "rows").values()] == ["ok"] * 3


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_a_cell_that_was_run_again_counts_as_it_ended(status: str, tmp_path: Path) -> None:
    file = tmp_path / "sent"
    file.write_bytes(encode(result(CELLS[0], status=status)) + encode(result(CELLS[0])))
    assert run(file, tmp_path / "rows")[0] == 0
    assert (tmp_path / "rows" / "parameters.jsonl").read_bytes() == encode(result(CELLS[0]))
    assert ":4: its cell" in refused(encode(result(CELLS[0])) + encode(result(CELLS[0], status=status)), tmp_path)


def test_rows_are_added_to_those_that_are_there(tmp_path: Path) -> None:
    with Writer(tmp_path / "rows") as writer:
        writer.append(result(CELLS[2]))
        writer.append(result(CELLS[0], status="failed"))
    (file := tmp_path / "sent").write_bytes(GOOD)
    assert run(file, tmp_path / "rows")[0] == 0
    found = stored(tmp_path / "rows")
    assert {name: entry.status for name, entry in found.items()} == dict.fromkeys((c.id for c in CELLS[:3]), "ok")


def test_a_cell_that_is_stored_is_not_contradicted(tmp_path: Path) -> None:
    with Writer(tmp_path / "rows") as writer:
        writer.append(result(CELLS[1], 5.0))
    said = refused(GOOD, tmp_path)
    assert ":6: " in said
    assert "stored already (ok, NVIDIA A100" in said
    assert "with other numbers" in said


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"\n \n", "it is empty"),
        (bytes(range(256)), ":1: this line cannot be read"),
        (b"\xff\xfe" + GOOD.decode().encode("utf-16-le"), ":1: this is not text in UTF-8"),
        (GOOD.replace(b"a100".upper(), b"\xe9"), "this is not text in UTF-8"),
        (b"hello\n", ":1: this line cannot be read"),
        (b"[1]\n", ":1: this line cannot be read (it is no object)"),
        (GOOD[:-30], ":6: this line cannot be read"),
        (b"".join(GOOD.splitlines(True)[:-1]), ":5: the line that closes the last cell is missing"),
        (GOOD.replace(b"[3.0]", b"[3.5]", 1), ":3: its digest is another"),
        (GOOD + GOOD, ":9: its cell"),
        (GOOD.replace(b"\n", b"\r\n")[:-2] + b"x", ":6: this line cannot be read"),
        (b"\n".join(GOOD.splitlines()[1:]), ":2: the lines before it are not those of its cell"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_what_is_no_file_of_rows_is_refused(data: bytes, reason: str, tmp_path: Path) -> None:
    assert reason in refused(data, tmp_path)


def of(**fields: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda lines: lines[-1].update(fields)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda lines: lines[0].update(values=["nan"]), ":3: line 1 has a value that is not a finite number"),
        (lambda lines: lines[0].update(values=[1e999]), ":1: this line cannot be read"),
        (lambda lines: lines[1].update(values=["inf"]), "line 2 has a value"),
        (lambda lines: lines[0].update(values=[]), "`values` must be a list of numbers"),
        (lambda lines: lines[0].update(values=["3"]), "is no number"),
        (lambda lines: lines[0].update(metric="beauty"), "`metric` (='beauty') must be one of"),
        (lambda lines: lines[1].update(at={"not a name": 1}), "its names must be identifiers"),
        (lambda lines: lines[1].update(at={"of": None}), "neither text nor a finite number"),
        (of(machine=""), "`machine` (='') must be text"),
        (of(device=" "), "`device` (=' ') must be text"),
        (of(code=3), "`code` (=3) must be text"),
        (of(torch=None), "`torch` (=None) must be text"),
        (of(threads=0), "`threads` (=0) must be a number of at least 1"),
        (of(threads=True), "`threads` (=True) must be a number"),
        (of(seconds=-1.0), "`seconds` (=-1.0) must be a number of at least 0"),
        (of(started="yesterday"), "`started` (='yesterday') must be a date"),
        (of(source="paper"), "published numbers are not sent"),
        (of(status="fine"), "`status` must be one of"),
        (of(status="failed", reason="why"), "must not have values"),
        (of(format=1), "`format` (=1) must be 2"),
        (of(budget="huge"), "its settings are those of cell"),
        (of(method="cnn2"), "its settings are those of cell"),
        (lambda lines: lines[-1].pop("machine"), "it lacks 'machine'"),
        (lambda lines: lines[0].update(cell="x"), "the lines before it are not those of its cell"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_every_field_is_checked(change: Any, reason: str, tmp_path: Path) -> None:
    data = changed(change).replace(b"Infinity", b"1e999x")
    assert reason in refused(data, tmp_path)


NO_CELLS = {
    "an unknown experiment": (Cell("unknown", 1, "smoke", "cnn", {}), "`experiment` (='unknown') must be one of"),
    "an old version": (Cell("parameters", 9, "smoke", "cnn", CELLS[0].settings), "`version` (=9) must be 1"),
    "an unknown method": (Cell("parameters", 1, "smoke", "best", CELLS[0].settings), "`method` (='best') must be one"),
    "no method": (Cell("parameters", 1, "smoke", "", CELLS[0].settings), "`method` (='') must be one"),
    "a setting too many": (
        Cell("parameters", 1, "smoke", "cnn", {**CELLS[0].settings, "colour": "red"}),
        "look at colour",
    ),
    "a setting too few": (Cell("parameters", 1, "smoke", "cnn", {"network": "mnist"}), "look at recipe"),
    "a wrong type": (
        Cell("parameters", 1, "smoke", "cnn", {"network": 3, "recipe": "paper"}),
        "`network` (=3) must be of type str",
    ),
    "a seed below zero": (Cell("parameters", 1, "smoke", "cnn", CELLS[0].settings, -1), "`seed` (=-1)"),
    "a method of one's own": (
        Cell("parameters", 1, "smoke", "cnn", {**CELLS[0].settings, "method_source": "abc"}),
        "rows of methods or experiments of one's own",
    ),
}


@pytest.mark.parametrize("name", NO_CELLS)
def test_a_cell_that_no_plan_has_is_refused(name: str, tmp_path: Path) -> None:
    cell, reason = NO_CELLS[name]
    said = refused(encode(result(CELLS[1])) + encode(result(cell)), tmp_path)
    assert reason in said or "send one file each" in said
    assert reason in refused(encode(result(cell)), tmp_path)


def test_two_experiments_need_two_files(tmp_path: Path) -> None:
    other = EXPERIMENTS["epoch-time"].plan(Request())[0].cell
    assert ":6: it is of epoch-time, but the lines before are of parameters" in refused(
        encode(result(CELLS[0])) + encode(result(other)), tmp_path
    )


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name, reason in {
        "folder": "it is a folder",
        "absent": "there is no such file",
        os.devnull: "a plain file",
    }.items():
        status, said = run(tmp_path / name, tmp_path / "rows")
        assert (status, reason in said) == (2, True), said


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(sent.MOST_BYTES + 1)
    status, said = run(tmp_path / "huge", tmp_path / "rows")
    assert status == 2
    assert "at most 256 MB" in said


def test_a_full_disk_leaves_the_store_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Writer(tmp_path / "rows") as writer:
        writer.append(result(CELLS[2]))

    def full(descriptor: int, block: bytes) -> int:
        if len(block) < 1000:
            raise OSError(28, "No space left on device")
        return write(descriptor, block[:500])

    write = os.write
    monkeypatch.setattr(writing.os, "write", full)
    assert "No space left" in refused(GOOD, tmp_path)


@settings(max_examples=60)
@given(place=st.integers(0, len(GOOD) - 1), byte=st.integers(0, 255), cut=st.booleans())
def test_no_changed_byte_passes(place: int, byte: int, cut: bool) -> None:
    data = GOOD[:place] if cut else GOOD[:place] + bytes([byte]) + GOOD[place + 1 :]
    whole = data.split() == GOOD.split() or data in (encode(result(CELLS[0])), encode(result(CELLS[0])).rstrip())
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder) / "sent").write_bytes(data)
        status, said = run(file, Path(folder) / "rows")
        assert status == (0 if whole else 2), said
        assert (Path(folder) / "rows" / "parameters.jsonl").exists() == whole
