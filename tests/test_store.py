"""The store: what is written comes back, nothing torn counts, nothing corrupt passes, and there is one writer."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records import CORE, METRICS, Cell, Measurement, Result
from harness.store.frame import load
from harness.store.lines import FORMAT, StoreError, StoreWarning, encode
from harness.store.reading import finished, read, size, stored
from harness.store.writing import Writer

FACTS = {"code": "1", "machine": "a machine", "torch": "2", "device": "cpu", "threads": 2}


def result(seed: int, *, status: str = "ok", reason: str = "", values: tuple[float, ...] = (0.5, 1.5)) -> Result:
    cell = Cell("parameters", 1, "smoke", "cnn", {"network": "mnist"}, seed)
    seen = (Measurement("delta", values, {"depth": seed}), Measurement("floor", (1e-9,)))
    kept = seen if status == "ok" else ()
    return Result(cell, status, kept, reason, FACTS, "2026-01-01T00:00:00+00:00", 1.5)  # type: ignore[arg-type]


def write(rows: Path, *results: Result) -> Path:
    with Writer(rows) as writer:
        for one in results:
            writer.append(one)
    return rows / "parameters.jsonl"


def quietly_stored(rows: Path) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        return list(stored(rows))


# --- what is written comes back


def test_the_frame_has_one_number_a_row_and_every_column(tmp_path: Path) -> None:
    write(tmp_path, result(0), result(1, status="failed", reason="it broke"))
    frame = load(tmp_path)
    assert list(frame.columns) == [*CORE, "network", "depth"]
    assert frame["value"].tolist()[:3] == [0.5, 1.5, 1e-9]
    assert np.isnan(frame["value"].iloc[3])
    assert frame["metric"].tolist() == ["delta", "delta", "floor", ""]
    assert frame["repeat"].tolist() == [0, 1, 0, 0]
    assert frame["status"].tolist() == ["ok", "ok", "ok", "failed"]
    assert frame["reason"].tolist()[3] == "it broke"
    assert frame["depth"].isna().tolist() == [False, False, True, True]
    assert frame["source"].unique().tolist() == ["measured"]
    assert frame["threads"].dtype == np.int64
    assert frame["seconds"].dtype == np.float64


@given(values=st.lists(st.floats(), min_size=1, max_size=5), reason=st.text(min_size=1))
def test_any_number_and_any_text_come_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[float], reason: str
) -> None:
    rows = tmp_path_factory.mktemp("rows")
    write(rows, result(0, values=tuple(values)), result(1, status="skipped", reason=reason))
    frame = load(rows)
    np.testing.assert_array_equal(frame.loc[frame["metric"] == "delta", "value"], values)
    assert frame["reason"].iloc[-1] == reason


def test_each_line_is_strict_json(tmp_path: Path) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    path = write(tmp_path, result(0, values=(float("nan"), float("inf"), float("-inf"))))
    for line in path.read_text(encoding="utf-8").splitlines():
        json.loads(line, parse_constant=refuse)


def test_a_coordinate_named_method_is_the_method_of_its_row(tmp_path: Path) -> None:
    cell = Cell("epoch-time", 1, "smoke", "", {"steps": 2})
    seen = tuple(Measurement("step_time", (1.0,), {"method": key}) for key in ("cnn", "sesn-scalar"))
    write(tmp_path, Result(cell, "ok", seen, provenance=FACTS))
    frame = load(tmp_path)
    assert frame["method"].tolist() == ["cnn", "sesn-scalar"]
    assert frame["unit"].tolist() == ["ms", "ms"]


def test_settings_keep_their_types(tmp_path: Path) -> None:
    settings = {"augmented": True, "epochs": 3, "rate": 0.1, "data": "mnist"}
    cell = Cell("mnist-scale", 1, "smoke", "cnn", settings)
    write(tmp_path, Result(cell, "ok", (Measurement("test_error", (1.0,)),), provenance=FACTS))
    frame = load(tmp_path)
    assert [frame[name].dtype for name in ("augmented", "epochs", "rate")] == [np.bool_, np.int64, np.float64]
    assert isinstance(frame["data"].dtype, pd.CategoricalDtype)


def test_some_experiments_only(tmp_path: Path) -> None:
    write(tmp_path, result(0), Result(Cell("stl10", 1, "smoke", "wrn"), "skipped", (), "no data", FACTS))
    assert load(tmp_path, ["stl10"])["experiment"].tolist() == ["stl10"]
    assert len(load(tmp_path)) == 4


def test_a_folder_that_is_not_there_is_an_empty_store(tmp_path: Path) -> None:
    frame = load(tmp_path / "none")
    assert list(frame.columns) == list(CORE)
    assert frame.empty
    assert finished(tmp_path / "none") == set()


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"`rows` \(='.*parameters\.jsonl'\) must be a folder"):
        load(write(tmp_path, result(0)))


def test_a_cell_that_was_run_again_counts_once(tmp_path: Path) -> None:
    write(tmp_path, result(0, status="failed", reason="it broke"), result(1))
    assert finished(tmp_path) == {result(1).cell.id}
    write(tmp_path, result(0))
    assert finished(tmp_path) == {result(0).cell.id, result(1).cell.id}
    assert set(load(tmp_path)["status"]) == {"ok"}


def test_a_failure_does_not_undo_what_was_measured(tmp_path: Path) -> None:
    write(tmp_path, result(0))
    write(tmp_path, result(0, status="failed", reason="it broke on another machine"))
    assert set(load(tmp_path)["status"]) == {"ok"}


# --- torn and corrupt files


def unsealed(block: bytes) -> bytes:
    """The same lines in format 1, which has no digest: all that is wrong with them is an error."""
    return re.sub(rb',"lines":\d+,"digest":"\w+"', b"", block.replace(b'{"format":2', b'{"format":1'))


def write_unsealed(rows: Path, *results: Result) -> Path:
    path = rows / "parameters.jsonl"
    path.write_bytes(b"".join(unsealed(encode(one)) for one in results))
    return path


BLOCKS = [encode(result(0)), encode(result(1, status="failed", reason="it broke")), encode(result(2))]
UNSEALED = [unsealed(block) for block in BLOCKS]


@given(cut=st.integers(0, len(b"".join(BLOCKS))))
def test_a_file_cut_anywhere_loads_to_its_first_cells_and_can_be_continued(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    rows = tmp_path_factory.mktemp("rows")
    (rows / "parameters.jsonl").write_bytes(b"".join(BLOCKS)[:cut])
    # A cell counts once its closing line is whole, its line break or not.
    ends = np.cumsum([len(block) for block in BLOCKS])
    expected = [result(seed).cell.id for seed in range(3) if cut >= ends[seed] - 1]
    assert quietly_stored(rows) == expected
    write(rows, *(result(seed) for seed in range(3) if result(seed).cell.id not in expected))
    assert set(stored(rows)) == {result(seed).cell.id for seed in range(3)}


def test_a_torn_end_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, result(0), result(1))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.warns(StoreWarning, match=r"parameters\.jsonl:4: the end is incomplete"):
        load(tmp_path)


@given(st.data())
def test_a_changed_byte_is_an_error_or_changes_nothing_but_values(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """No damage loses or invents a cell silently, unless it is at the very end."""
    whole = b"".join(UNSEALED)
    position = data.draw(st.integers(0, len(UNSEALED[0]) + len(UNSEALED[1]) - 1))
    damaged = whole[:position] + bytes([data.draw(st.integers(0, 255))]) + whole[position + 1 :]
    rows = tmp_path_factory.mktemp("rows")
    (rows / "parameters.jsonl").write_bytes(damaged)
    with suppress(StoreError):
        assert quietly_stored(rows) == [result(seed).cell.id for seed in range(3)]


CORRUPT = {
    "no JSON": (b"nonsense\n", "Expecting value"),
    "no object": (b"[1]\n", "no object"),
    "no metric": (b'{"cell":"x","at":{},"values":[1]}\n', "lacks 'metric'"),
    "text for a number": (b'{"cell":"x","metric":"delta","at":{},"values":["many"]}\n', "no number"),
    "no values": (b'{"cell":"x","metric":"delta","at":{},"values":[]}\n', "list of numbers"),
    "a truth value": (b'{"cell":"x","metric":"delta","at":{},"values":[true]}\n', "no number"),
    "too large a number": (b'{"cell":"x","metric":"delta","at":{},"values":[1%s]}\n' % (b"0" * 400), "too large"),
    "too deep": (b"[" * 100_000 + b"\n", "recursion"),
    "a column's name": (b'{"cell":"x","metric":"delta","at":{"value":2},"values":[1]}\n', "names of columns: value"),
    "another format": (
        UNSEALED[0].replace(b'"format":1', b'"format":"1"'),
        "must be one of 1, 2",
    ),
    "no digest": (UNSEALED[0].replace(b'"format":1', b'"format":2'), "lacks 'lines'"),
    "another budget": (UNSEALED[0].replace(b"smoke", b"smoky"), "settings are those of"),
    "another status": (UNSEALED[0].replace(b'"status":"ok"', b'"status":"fine"'), "`status` must be"),
    "another source": (UNSEALED[0].replace(b"measured", b"invented"), "`source` must be"),
    "another cell's values": (encode(result(0)).splitlines(keepends=True)[0], "begins before cell"),
    "another file's": (
        encode(Result(Cell("stl10", 1, "smoke", "wrn"), "skipped", (), "x")),
        "belongs in stl10.jsonl",
    ),
}


@pytest.mark.parametrize(("line", "word"), CORRUPT.values(), ids=CORRUPT)
def test_a_corrupt_line_is_an_error_with_its_place_and_a_remedy(tmp_path: Path, line: bytes, word: str) -> None:
    path = write_unsealed(tmp_path, result(1))
    path.write_bytes(path.read_bytes() + line + UNSEALED[2])
    for use in (load, finished):
        with pytest.raises(StoreError, match=rf"parameters\.jsonl:[4-7]: .*{word}.*will run again"):
            use(tmp_path)


@pytest.mark.parametrize("lines", [b'{"a":1},{"b":2}\n', b'{"a":\n1}\n', b'{"a":"x\ny"}\n', b'0\n{"a":1},0\n'])
def test_lines_that_are_only_json_together_are_corrupt(tmp_path: Path, lines: bytes) -> None:
    path = write_unsealed(tmp_path, result(0))
    path.write_bytes(lines + path.read_bytes())
    with pytest.raises(StoreError, match=r"jsonl:1: "):
        load(tmp_path)


def test_a_corrupt_file_is_not_written_to(tmp_path: Path) -> None:
    path = write_unsealed(tmp_path, result(0))
    damaged = b"nonsense\n" + path.read_bytes()
    path.write_bytes(damaged)
    with pytest.raises(StoreError, match="jsonl:1: "):
        write(tmp_path, result(1))
    assert path.read_bytes() == damaged


def test_unknown_metrics_and_methods_are_kept_with_a_warning(tmp_path: Path) -> None:
    path = write_unsealed(tmp_path, result(0))
    path.write_bytes(path.read_bytes().replace(b'"metric":"floor"', b'"metric":"taste"'))
    with pytest.warns(StoreWarning, match="metric that this sesn does not know: taste"):
        frame = load(tmp_path)
    assert frame["metric"].tolist()[-1] == "taste"
    assert "taste" not in METRICS


# --- formats


def test_the_older_format_still_loads_and_can_be_appended_to(tmp_path: Path) -> None:
    path = write(tmp_path, result(0))
    *values, closing = path.read_text(encoding="utf-8").splitlines()
    fields = {**json.loads(closing), "format": 1}
    older = {name: value for name, value in fields.items() if name not in ("lines", "digest")}
    path.write_text("\n".join([*values, json.dumps(older), ""]), encoding="utf-8")
    before = load(tmp_path)
    write(tmp_path, result(1))
    assert load(tmp_path)[: len(before)]["value"].tolist() == before["value"].tolist() == [0.5, 1.5, 1e-9]


def test_a_newer_format_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = write(tmp_path, result(0))
    newer = f'{{"packed":"AAAA"}}\n{{"format":{FORMAT + 1},"cell":"x"}}\n'
    path.write_bytes(path.read_bytes() + newer.encode())
    with pytest.raises(StoreError, match=rf"jsonl:5: format {FORMAT + 1} was written by a newer sesn.*upgrade"):
        load(tmp_path)


# --- writing


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Half of what is written fits."""
    write_all = os.write

    def write_some(descriptor: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_all(descriptor, data[: len(data) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_some)
        yield


def test_a_full_disk_loses_nothing_that_was_finished(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with Writer(tmp_path) as writer:
        writer.append(result(0))
        before = (tmp_path / "parameters.jsonl").read_bytes()
        request.getfixturevalue("full_disk")
        with pytest.raises(StoreError, match=r"No space left.*nothing that finished before is lost.*same command"):
            writer.append(result(1))
    assert (tmp_path / "parameters.jsonl").read_bytes() == before


LIMITED = """
import resource, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_store import Writer, result
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
with Writer(Path({rows!r})) as writer:
    for seed in range(100):
        writer.append(result(seed))
"""


def test_a_real_limit_of_the_system_does_the_same(tmp_path: Path) -> None:
    block = len(encode(result(0)))
    script = LIMITED.format(tests=str(Path(__file__).parent), limit=3 * block + block // 2, rows=str(tmp_path))
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "File too large" in ended.stderr
    contents = read(tmp_path / "parameters.jsonl")
    assert len(contents.entries) == 3
    assert contents.end == size(tmp_path)


def test_the_second_writer_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    with Writer(tmp_path):
        with pytest.raises(StoreError, match=rf"another run \(pid {os.getpid()} on .*--rows"), Writer(tmp_path):
            pass
        # A refused one leaves the note as it was.
        with pytest.raises(StoreError, match=rf"pid {os.getpid()}"), Writer(tmp_path):
            pass
    with Writer(tmp_path):
        pass


def test_the_lock_vanishes_with_a_killed_process(tmp_path: Path) -> None:
    script = (
        f"from pathlib import Path; from harness.store.writing import Writer; import os\n"
        f"Writer(Path({str(tmp_path)!r})).__enter__(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    write(tmp_path, result(0))


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file is no directory"), Writer(tmp_path / "file" / "rows"):
        pass


# --- size and speed


def many(cells: int, lines: int, values: int) -> bytes:
    numbers = np.random.default_rng(0).random(values).tolist()
    blocks = []
    for seed in range(cells):
        seen = tuple(Measurement("delta", tuple(numbers), {"depth": depth}) for depth in range(lines))
        blocks.append(encode(Result(Cell("delta-depth", 1, "lite", "", {"side": 96}, seed), "ok", seen, "", FACTS)))
    return b"".join(blocks)


@pytest.mark.parametrize(
    ("cells", "lines", "values"),
    [(20, 50, 100), (1, 1, 100_000), (100, 1000, 1), pytest.param(200, 50, 100, marks=pytest.mark.slow)],
)
def test_a_million_rows_load_within_ten_seconds(tmp_path: Path, cells: int, lines: int, values: int) -> None:
    (tmp_path / "delta-depth.jsonl").write_bytes(many(cells, lines, values))
    begun = time.process_time()
    frame = load(tmp_path)
    seconds = time.process_time() - begun
    assert len(frame) == cells * lines * values
    assert seconds < 10 * len(frame) / 1e6 + 0.5


def test_the_committed_rows_are_small() -> None:
    rows = Path(__file__).resolve().parents[1] / "reports" / "rows"
    assert size(rows) < 50e6
