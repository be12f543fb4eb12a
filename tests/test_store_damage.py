"""Damage to stored rows: no changed byte goes unnoticed, and nothing is thrown away to repair a file."""

from __future__ import annotations

import os
import random
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_run_command import invoke
from test_store import result, unsealed, write

from harness.records import Cell, Measurement, Result
from harness.store.lines import StoreError, encode, sealed
from harness.store.reading import stored
from harness.store.writing import Writer

RESULTS = [
    result(0),
    result(1, status="failed", reason='it broke: ,"digest":"0"}'),
    result(2, values=(float("nan"), 1e-300, 3.0)),
    result(0, values=(0.25,)),
    result(3, status="skipped", reason="no data"),
    result(4),
]
BLOCKS = [encode(one) for one in RESULTS]
ANY_ROW = [result(seed).cell.id for seed in range(5)]


def placed(rows: Path, content: bytes) -> Path:
    path = rows / "parameters.jsonl"
    path.write_bytes(content)
    return path


def seen(rows: Path) -> tuple[dict[str, str], list[str]]:
    """Each stored cell with all that is stored of it, and what was warned of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = {name: repr(entry) for name, entry in stored(rows).items()}
    return found, [str(one.message) for one in told]


def refusal(use: Callable[[Path], object], rows: Path) -> str:
    """What is said against using the rows; empty if nothing."""
    try:
        use(rows)
    except StoreError as error:
        return str(error)
    return ""


# --- what is changed is noticed


def test_of_500_changed_bytes_none_changes_a_row_in_silence(tmp_path: Path) -> None:
    whole, chance = b"".join(BLOCKS), random.Random(14)
    placed(tmp_path, whole)
    intact, told = seen(tmp_path)
    assert set(intact) == set(ANY_ROW)
    assert told == []
    outcomes = {"error": 0, "left out": 0, "harmless": 0}
    for _ in range(500):
        position = chance.randrange(len(whole))
        byte = chance.choice([one for one in range(256) if one != whole[position]])
        placed(tmp_path, whole[:position] + bytes([byte]) + whole[position + 1 :])
        if said := refusal(seen, tmp_path):
            # All that is an error: every other change costs one or two cells, and the rest is used.
            assert any(word in said for word in ("newer sesn", "carriage return"))
            outcomes["error"] += 1
            continue
        found, told = seen(tmp_path)
        if not told:
            assert list(found.items()) == list(intact.items()), f"byte {position} became {byte:#x} and nobody was told"
            assert position < len(BLOCKS[0]) or position == len(whole) - 1, "only what was measured again since"
            outcomes["harmless"] += 1
            continue
        assert f"{tmp_path / 'parameters.jsonl'}:" in told[0]
        changed = [name for name in intact if found.get(name) != intact[name]]
        assert len(changed) <= 2
        # The first of its two entries is used where the second is damaged, and that is told.
        assert all(name not in found or name == ANY_ROW[0] for name in changed)
        outcomes["left out"] += 1
    assert outcomes["left out"] > 400
    assert outcomes["error"] < 10


LINES = b"".join(BLOCKS).splitlines(keepends=True)


def edited(change: Callable[[list[bytes]], None]) -> bytes:
    lines = list(LINES)
    change(lines)
    return b"".join(lines)


def swap(lines: list[bytes]) -> None:
    """The first lines of the first and of the third cell."""
    lines[0], lines[4] = lines[4], lines[0]


EDITS: dict[str, tuple[Callable[[list[bytes]], None], set[str]]] = {
    "a line of values deleted": (lambda lines: lines.__delitem__(5), {ANY_ROW[2]}),
    "the first line of values doubled": (lambda lines: lines.insert(4, lines[4]), set()),
    "the second line of values doubled": (lambda lines: lines.insert(5, lines[5]), {ANY_ROW[2]}),
    "two lines of a cell in another order": (lambda lines: lines.insert(5, lines.pop(4)), {ANY_ROW[2]}),
    "lines of two cells exchanged": (swap, {ANY_ROW[2]}),
    "a closing line deleted": (lambda lines: lines.__delitem__(6), {ANY_ROW[2]}),
    "a line from elsewhere": (lambda lines: lines.insert(4, b"<<<<<<< HEAD\n"), set()),
}


@pytest.mark.parametrize(("change", "lost"), EDITS.values(), ids=EDITS)
def test_lines_that_are_added_moved_or_missing_are_noticed(
    tmp_path: Path, change: Callable[[list[bytes]], None], lost: set[str]
) -> None:
    placed(tmp_path, b"".join(BLOCKS))
    intact, _ = seen(tmp_path)
    placed(tmp_path, edited(change))
    found, told = seen(tmp_path)
    # A line too much before a whole cell of the same name takes nothing away.
    assert len(told) == (0 if change is EDITS["the first line of values doubled"][0] else 1)
    assert all("parameters.jsonl:" in one and "damaged" in one for one in told)
    assert intact.keys() - found.keys() == lost
    assert all(found[name] == intact[name] for name in found)


def test_a_changed_format_does_not_take_the_seal_off(tmp_path: Path) -> None:
    """A cell of format 2 whose format was changed to 1 must not pass for one that never had a digest."""
    placed(tmp_path, BLOCKS[0].replace(b'"format":2', b'"format":1'))
    assert seen(tmp_path)[0] == {}
    placed(tmp_path, unsealed(BLOCKS[0]))
    assert list(seen(tmp_path)[0]) == ANY_ROW[:1]


def test_white_space_around_lines_is_no_damage(tmp_path: Path) -> None:
    placed(tmp_path, b"".join(BLOCKS))
    intact, _ = seen(tmp_path)
    placed(tmp_path, b"".join(BLOCKS).replace(b"\n", b" \r\n\r\n"))
    assert seen(tmp_path) == (intact, [])


def test_the_digest_is_the_documented_one() -> None:
    """docs/running-experiments.md: rows that are committed must be readable for ever."""
    seen_at = Measurement("delta", (0.5,), {"depth": 7})
    block = encode(Result(result(7).cell, "ok", (seen_at,), started="today"))
    facts = b'"source":"measured","status":"ok","reason":"","code":"","machine":"","torch":"","device":"","threads":0,'
    assert block == (
        b'{"cell":"ID","metric":"delta","at":{"depth":7},"values":[0.5]}\n'
        b'{"format":2,"cell":"ID","experiment":"parameters","version":1,"budget":"smoke","method":"cnn",'
        b'"settings":{"network":"mnist"},"seed":7,FACTS"started":"today","seconds":0.0,"lines":1,'
        # By `b2sum -l 64` of all that is before this comma.
        b'"digest":"e1a0bf13ebbd8931"}\n'
    ).replace(b"ID", b"ff8aae87ba67781d").replace(b"FACTS", facts)


def test_a_rule_that_is_broken_under_a_valid_digest_is_an_error(tmp_path: Path) -> None:
    lines = BLOCKS[0].replace(b'"status":"ok"', b'"status":"fine"').splitlines()
    lines[-1] = lines[-1].partition(b',"digest"')[0] + b"}"
    placed(tmp_path, sealed(lines))
    with pytest.raises(StoreError, match=r"parameters\.jsonl:3: .*`status` must be"):
        stored(tmp_path)


# --- what a damaged cell means for the commands


def test_the_report_leaves_a_damaged_cell_out_with_a_note(tmp_path: Path) -> None:
    settings = {"network": "mnist", "recipe": "paper"}
    counts = tuple(Measurement(name, (495_194.0,)) for name in ("parameters", "parameters_used"))
    keys = ("cnn", "sesn-scalar")
    path = write(
        tmp_path / "rows", *(Result(Cell("parameters", 1, "smoke", key, settings), "ok", counts) for key in keys)
    )
    path.write_bytes(path.read_bytes().replace(b"[495194.0]", b"[495195.0]", 1))
    only = ("--only", "configuration-mnist")
    ended = invoke("report", "--rows", tmp_path / "rows", "--out", tmp_path / "out", *only)
    assert ended.exit_code == 0, ended.output
    assert f"note: {path}:1: damaged" in " ".join(ended.stdout.split())


# --- what is repaired is kept


def copies(rows: Path) -> bytes:
    path = rows / "parameters.jsonl.cut"
    return path.read_bytes() if path.exists() else b""


@given(cut=st.integers(0, len(b"".join(BLOCKS))))
def test_what_is_cut_off_a_torn_end_is_kept_beside_the_file(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    rows = tmp_path_factory.mktemp("rows")
    torn = b"".join(BLOCKS)[:cut]
    path = placed(rows, torn)
    write(rows, result(9))
    kept = path.read_bytes().removesuffix(encode(result(9)))
    assert kept + copies(rows) in (torn, torn + b"\n")
    assert list(rows.glob("*.jsonl")) == [path]


JOINED = [b"\r", b" ", b"", b"\0", b"\x85", b","]


@pytest.mark.parametrize("end", JOINED)
@pytest.mark.parametrize("content", [b"".join(BLOCKS), b"".join(map(unsealed, BLOCKS))], ids=["sealed", "unsealed"])
@pytest.mark.parametrize("first", [0, len(BLOCKS[0])], ids=["all", "but the first cell"])
def test_no_repair_cuts_what_holds_a_closing_line(tmp_path: Path, end: bytes, content: bytes, first: int) -> None:
    """A file of many cells whose line ends became something else looks like one torn line."""
    first = content.index(b"\n", content.index(b'{"format"')) + 1 if first else 0
    spoilt = content[:first] + content[first:].replace(b"\n", end)
    path = placed(tmp_path, spoilt)
    said = refusal(lambda rows: write(rows, result(9)), tmp_path)
    assert not said or (str(path) in said and "version control" in said)
    assert path.read_bytes().startswith(spoilt)
    assert copies(tmp_path) == b""


def test_a_file_whose_line_ends_became_cr_is_refused_with_a_remedy(tmp_path: Path) -> None:
    whole = b"".join(encode(result(seed)) for seed in range(48))
    path = placed(tmp_path, whole.replace(b"\n", b"\r"))
    for use in (stored, lambda rows: write(rows, result(50))):
        with pytest.raises(StoreError, match=r"parameters\.jsonl:1: .*carriage return.*nothing was changed.*tr '"):
            use(tmp_path)
    placed(tmp_path, path.read_bytes().replace(b"\r", b"\n"))
    assert len(stored(tmp_path)) == 48


# --- what is no plain file


def make_directory(path: Path) -> None:
    path.mkdir()


def link_to_device(path: Path) -> None:
    path.symlink_to("/dev/null")


@pytest.fixture
def impatience() -> Iterator[None]:
    """What waits for a pipe would wait for ever."""

    def give_up(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("impatience")
@pytest.mark.parametrize(
    ("make", "kind"), [(os.mkfifo, r"a pipe \(FIFO\)"), (link_to_device, "a device"), (make_directory, "a directory")]
)
def test_what_is_no_file_of_rows_is_refused_and_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None], kind: str
) -> None:
    make(tmp_path / "parameters.jsonl")
    for use in (stored, lambda rows: write(rows, result(0))):
        with pytest.raises(ValueError, match=rf"parameters\.jsonl must be a plain file, and is {kind}; move it"):
            use(tmp_path)
    for command in ("status", "run"):
        ended = invoke(command, "parameters", "--rows", tmp_path)
        assert ended.exit_code == 2
        assert ended.stderr.count("\n") == 1
        assert "must be a plain file" in ended.stderr


def test_a_link_to_a_file_of_rows_is_followed(tmp_path: Path) -> None:
    kept = write(tmp_path / "elsewhere", result(0))
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "parameters.jsonl").symlink_to(kept)
    write(tmp_path / "rows", result(1))
    assert len(stored(tmp_path / "elsewhere")) == 2


@pytest.mark.parametrize("name", [".lock", "parameters.jsonl.cut"])
def test_no_link_leads_our_own_files_elsewhere(tmp_path: Path, name: str) -> None:
    precious, rows = tmp_path / "precious", tmp_path / "rows"
    precious.write_text("do not touch")
    rows.mkdir()
    (rows / name).symlink_to(precious)
    placed(rows, BLOCKS[0] + BLOCKS[2][:20])
    with pytest.raises(ValueError, match=rf"{name} must be a plain file, and is a link"):
        write(rows, result(9))
    assert precious.read_text() == "do not touch"
    assert (rows / "parameters.jsonl").read_bytes() == BLOCKS[0] + BLOCKS[2][:20]


def test_the_lock_may_not_be_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(ValueError, match=r"\.lock must be a plain file, and is a pipe"), Writer(tmp_path):
        pass
