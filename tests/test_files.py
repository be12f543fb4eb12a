"""What is said when the system refuses: which file it is, why, and what helps against that."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from test_run_command import invoke
from test_store import result, write

from harness.store.lines import StoreError
from harness.store.writing import Writer
from sesn._files import replacing
from sesn.tools.files import os_error_words

ADVICE = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EACCES: "get the permission",
    errno.EROFS: "get the permission",
    errno.EFBIG: "ulimit -f",
    errno.EMFILE: "ulimit -n",
    errno.EIO: "the disk reports an error",
}


def refusing(number: int) -> Any:
    """A call of the system on an open file: its errors have no name."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("number", ADVICE)
def test_a_store_that_cannot_be_written_gets_advice_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with Writer(tmp_path) as writer:
        writer.append(result(0))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", refusing(number))
            with pytest.raises(StoreError) as refused:
                writer.append(result(1))
    said = str(refused.value)
    assert f"cannot write to {tmp_path / 'parameters.jsonl'} ({os.strerror(number)})" in said
    assert ADVICE[number] in said.partition("nothing that finished before is lost: ")[2]
    assert ("make room" in said) == (ADVICE[number] == "make room")


def test_the_lock_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "ftruncate", refusing(errno.ENOSPC))
    ended = invoke("run", "parameters", "--rows", tmp_path)
    assert ended.exit_code == 2
    assert ended.stderr == f"error: {tmp_path / '.lock'}: No space left on device; make room\n"


def test_a_file_that_cannot_be_read_is_named_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, result(0))

    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("harness.store.reading.read_regular", refuse)
    ended = invoke("status", "--rows", tmp_path)
    assert ended.exit_code == 2
    assert ended.stderr == f"error: {path}: Permission denied; get the permission, or name another folder\n"


def test_a_name_that_the_system_refuses_is_told_in_one_line(tmp_path: Path) -> None:
    ended = invoke("run", "parameters", "--rows", tmp_path / ("x" * 300))
    assert ended.exit_code == 2
    assert ended.stderr.count("\n") == 1
    assert ": File name too long; give a shorter name" in ended.stderr


def test_what_is_written_all_or_nothing_is_named_when_it_fails(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="table") as refused, replacing(tmp_path / "table.csv"):
        refusing(errno.ENOSPC)()
    assert os_error_words(refused.value) == f"{tmp_path / 'table.csv'}: No space left on device; make room"
    assert not list(tmp_path.iterdir())


def test_an_error_of_our_own_is_told_as_it_is() -> None:
    assert os_error_words(FileNotFoundError("no folder was named: use --data")) == "no folder was named: use --data"
    unknown = OSError(errno.ETXTBSY, "Text file busy", "a.out")
    assert os_error_words(unknown) == str(unknown)
