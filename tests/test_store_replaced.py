"""Rows that other programs replace while a run writes them: what finished is on the disk, or the run says it is not."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from test_run_command import cells, invoke, started
from test_store import result, write

from harness.commands.engines import Where
from harness.experiment import Context
from harness.records import Planned
from harness.run.engines.work import Listener, carry_out
from harness.store.lines import StoreError, StoreWarning, encode
from harness.store.reading import finished, stored
from harness.store.writing import Writer

#: What happens to the folder of rows after some cells, by their number.
Events = dict[int, Callable[[Path], None]]


def git(rows: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=rows.parent, check=True, capture_output=True)


def commit(rows: Path) -> None:
    git(rows, "init", "-q")
    git(rows, "add", "rows/selftest.jsonl")
    git(rows, "commit", "-qm", "rows")


def stash(rows: Path) -> None:
    git(rows, "stash")


def pop(rows: Path) -> None:
    git(rows, "checkout", "--", "rows")
    git(rows, "stash", "pop")


def stash_and_pop(rows: Path) -> None:
    stash(rows)
    git(rows, "stash", "pop")


def stash_and_drop(rows: Path) -> None:
    stash(rows)
    git(rows, "stash", "drop")


def first_cell(rows: Path) -> bytes:
    """What the file of rows was when it had one cell."""
    content = (rows / "selftest.jsonl").read_bytes()
    return content[: content.index(b"\n", content.index(b'{"format"')) + 1]


def save(rows: Path) -> None:
    """As editors do: a new file takes the name of the old one. What the editor read was older."""
    saved = rows / "selftest.jsonl~"
    saved.write_bytes(first_cell(rows))
    saved.replace(rows / "selftest.jsonl")


def remove(rows: Path) -> None:
    for _ in range(20):
        # A run that goes on puts new files into a folder that is being emptied.
        with suppress(OSError):
            shutil.rmtree(rows)
            return


def remove_file(rows: Path) -> None:
    (rows / "selftest.jsonl").unlink()


def truncate(rows: Path) -> None:
    (rows / "selftest.jsonl").write_bytes(b"")


def copy_over(rows: Path) -> None:
    """Onto the same inode."""
    (rows / "selftest.jsonl").write_bytes(first_cell(rows))


WAYS: dict[str, Events] = {
    "git stash, then pop": {1: commit, 2: stash, 4: pop},
    "git stash and pop at once": {1: commit, 3: stash_and_pop},
    "git stash": {1: commit, 3: stash_and_drop},
    "git stash after the last cell": {1: commit, 6: stash_and_drop},
    "an editor's save": {3: save},
    "an editor's save after the last cell": {6: save},
    "rm -rf": {3: remove},
    "rm -rf after the last cell": {6: remove},
    "rm": {3: remove_file},
    "truncation": {3: truncate},
    "cp": {3: copy_over},
    "cp after the last cell": {6: copy_over},
    "all at once": {1: copy_over, 2: remove, 3: save, 4: truncate, 5: remove_file},
}


class Interrupted:
    """An engine in this process: something happens to the rows after some of its cells."""

    def __init__(self, place: Context, rows: Path, events: Events) -> None:
        self._place, self._rows, self._events = place, rows, events

    def run(self, tasks: Sequence[Planned], listener: Listener) -> None:
        for number, task in enumerate(tasks, 1):
            listener.started(task.cell)
            listener.finished(carry_out(task, self._place, lambda *_: None))
            self._events.get(number, lambda _: None)(self._rows)


@pytest.fixture
def run_with(selftest: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """`sesn run` of six cells into tmp_path / "rows", with events."""
    rows, scratch = tmp_path / "rows", tmp_path / "checkpoints"
    selftest.setenv("SELFTEST", cells(*({"do": "count", "steps": 1, "number": number} for number in range(6))))

    def run(events: Events) -> Any:
        selftest.setattr(Where, "build", lambda _where: Interrupted(Context(scratch=scratch), rows, events))
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            return invoke("run", "selftest", "--rows", rows, "--scratch", scratch)

    return run


@pytest.mark.parametrize("events", WAYS.values(), ids=WAYS)
def test_rows_that_are_replaced_during_a_run_are_all_there_at_its_end(
    run_with: Callable[..., Any], tmp_path: Path, events: Events
) -> None:
    ended = run_with(events)
    assert ended.exit_code == 0, ended.output
    assert "6 ok, 0 failed" in ended.stdout
    assert len(finished(tmp_path / "rows")) == 6
    assert not any(tmp_path.glob("checkpoints/*/"))


def test_cells_that_were_taken_away_are_told_of(run_with: Callable[..., Any], tmp_path: Path) -> None:
    ended = run_with({3: save})
    assert re.search(r"warning: .*selftest\.jsonl was replaced during the run; .* written again: 2;", ended.stderr)
    path = tmp_path / "rows" / "selftest.jsonl"
    assert path.read_bytes().count(b'{"format"') == 6, "each is written again once"


def spoil(rows: Path) -> None:
    (rows / "selftest.jsonl").write_text("<html>not what you think</html>\n")


def replace_by_directory(rows: Path) -> None:
    (rows / "selftest.jsonl").unlink()
    (rows / "selftest.jsonl").mkdir()


@pytest.mark.parametrize("spoiling", [spoil, replace_by_directory])
@pytest.mark.parametrize("moment", [3, 6])
def test_rows_that_are_replaced_by_something_else_stop_the_run_and_are_kept_beside(
    run_with: Callable[..., Any], tmp_path: Path, spoiling: Callable[[Path], None], moment: int
) -> None:
    ended = run_with({moment: spoiling})
    rows = tmp_path / "rows"
    assert ended.exit_code == 2
    assert " ok" not in ended.stdout
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert f"that it may lack: {moment}, kept in {rows / 'selftest.jsonl.rescued'}; append that to it" in last
    # The cell that could not be stored keeps its checkpoint.
    assert len(list(tmp_path.glob("checkpoints/*/done"))) == (1 if moment < 6 else 0)
    path = rows / "selftest.jsonl"
    path.rmdir() if path.is_dir() else path.unlink()
    path.write_bytes(path.with_name("selftest.jsonl.rescued").read_bytes())
    assert len(finished(rows)) == moment
    assert "6 ok" not in run_with({}).stdout, "only the others run again"
    assert len(finished(rows)) == 6


def test_nothing_is_written_while_nothing_is_replaced(tmp_path: Path) -> None:
    path = write(tmp_path, result(0))
    with Writer(tmp_path) as writer:
        for seed in range(1, 5):
            writer.append(result(seed))
            path.touch()
    assert path.read_bytes() == b"".join(encode(result(seed)) for seed in range(5))
    assert sorted(one.name for one in tmp_path.iterdir()) == [".lock", "parameters.jsonl"]


def test_cells_of_earlier_runs_that_are_taken_away_are_told_of(tmp_path: Path) -> None:
    path = write(tmp_path, result(0), result(1))
    with Writer(tmp_path) as writer:
        writer.append(result(2))
        path.unlink()
        with pytest.warns(StoreWarning, match=r"written again: 1; .* not done: 2$"):
            writer.append(result(3))
    assert list(stored(tmp_path)) == [result(2).cell.id, result(3).cell.id]


def test_the_lock_is_taken_again_where_it_was_removed(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    with Writer(rows) as writer:
        writer.append(result(0))
        shutil.rmtree(rows)
        with pytest.warns(StoreWarning, match="was replaced during the run"):
            writer.append(result(1))
        with pytest.raises(StoreError, match="another run"), Writer(rows):
            pass


def test_two_writers_of_a_folder_that_was_removed_do_not_share_it(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    with pytest.raises(StoreError, match="another run"), Writer(rows) as first:  # noqa: PT012
        first.append(result(0))
        shutil.rmtree(rows)
        with Writer(rows) as second:
            second.append(result(1))
            first.append(result(2))


def test_a_stopped_run_has_stored_what_it_says(run_with: Callable[..., Any], tmp_path: Path) -> None:
    def stop(rows: Path) -> None:
        truncate(rows)
        raise KeyboardInterrupt

    ended = run_with({4: stop})
    assert ended.exit_code == 130
    assert "stopped; all that finished is stored" in ended.stderr
    assert len(finished(tmp_path / "rows")) == 4


def test_a_damaged_cell_runs_again_and_is_then_whole(run_with: Callable[..., Any], tmp_path: Path) -> None:
    rows, path = tmp_path / "rows", tmp_path / "rows" / "selftest.jsonl"
    run_with({})
    intact = path.read_bytes()
    path.write_bytes(intact.replace(b"[1.0,0.1,", b"[1.0,0.7,"))
    assert path.read_bytes() != intact
    for command in ("status", "plan"):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            ended = invoke(command, "selftest", "--rows", rows)
        assert ended.exit_code == 0, ended.output
        assert f"warning: {path}:4: damaged" in ended.stderr
    again = run_with({})
    assert again.exit_code == 0, again.output
    assert "1 cell in" in again.stdout
    # Nothing is missing any more, and a warning would be an error here.
    assert len(finished(rows)) == 6


# --- the same with real workers


@pytest.mark.slow
@pytest.mark.parametrize("events", [stash_and_drop, save, remove, copy_over])
def test_a_real_run_survives_it(tmp_path: Path, events: Callable[[Path], None]) -> None:
    rows = tmp_path / "rows"
    process = started(rows, cells(*({"do": "sleep", "duration": 0.05} for _ in range(38))), "--jobs", "2")
    while process.poll() is None and not (rows / "selftest.jsonl").exists():
        time.sleep(0.01)
    time.sleep(0.3)
    if events is stash_and_drop:
        commit(rows)
    time.sleep(0.3)
    events(rows)
    told, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "38 ok, 0 failed" in told
    assert len(finished(rows)) == 38
