"""The command line starts, says which version it is, prints on any terminal, and ends with the right status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from unittest.mock import Mock

import pytest
from drill import odd_folder, sesn
from typer.main import get_command
from typer.testing import CliRunner

from sesn.tools import check
from sesn.tools.app import app

runner = CliRunner()


def test_version() -> None:
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"sesn {version('sesn')}\n"


def test_python_m_harness_is_the_same_command() -> None:
    command = [sys.executable, "-m", "harness", "--version"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert finished.stdout == f"sesn {version('sesn')}\n"


def test_help_does_not_wait_for_torch() -> None:
    script = "import sys, sesn.tools.command; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_paragraphs_of_help_fill_the_terminal() -> None:
    """Typer keeps the line breaks of a docstring, which are those of our source and not of the terminal."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert {"check", "run", "gpu"} <= set(commands)
    assert all("\n" not in part for one in commands.values() for part in one.help.split("\n\n"))


# --- other terminals

SMALL = ("odd.py:empty_network", "--input", "1x48x48", "--downscale", "2", "--count", "2", "--images", "white")


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd_folder(tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "koi8-r"])
def test_marks_that_a_terminal_lacks_are_written_in_letters(encoding: str) -> None:
    ran = sesn("check", *SMALL, "--tolerance", "1", encoding=encoding)
    assert ran.status == 0, ran
    assert ("Delta median" if encoding != "cp437" else "verdict") in ran.out


@pytest.mark.usefixtures("odd")
def test_letters_that_a_terminal_lacks_are_escaped() -> None:
    ran = sesn("check", "odd.py:ж", encoding="ascii")
    assert ran.status == 2
    assert "has no name `\\u0436`" in ran.complaint


@pytest.mark.parametrize("command", ["check", "tune", "plan", "report"])
def test_help_is_printed_on_any_terminal(command: str) -> None:
    ran = sesn(command, "--help", encoding="ascii")
    assert (ran.status, ran.err) == (0, "")


@pytest.mark.usefixtures("odd")
def test_a_name_that_is_no_text_is_written_and_printed() -> None:
    name = os.fsdecode(b"out-\xff.json")
    ran = sesn("check", *SMALL, "--json", name)
    assert ran.status == 0, ran
    assert "wrote out-<U+DCFF>.json" in ran.out
    assert b"out-\\xff.json" in Path(name).read_bytes().replace(b"\\\\", b"\\")


# --- statuses


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize("kind", [RuntimeError, KeyError, AssertionError, ValueError, TypeError])
def test_a_bug_shows_its_traceback_and_is_no_verdict(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "check", Mock(side_effect=kind("a bug")))
    ran = sesn("check", *SMALL, "--tolerance", "1")
    assert ran.status == 70
    assert "Traceback" in ran.err
    assert "a bug" in ran.err


@pytest.mark.slow
@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize(("name", "status"), [("exits", 2), ("raises_exit", 2), ("conv", 1), ("at_exit", 1)])
def test_the_process_ends_with_the_status_of_the_verdict(name: str, status: int) -> None:
    command = [sys.executable, "-m", "harness", "check", f"odd.py:{name}", *SMALL[1:], "--tolerance", "1e-9"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    assert subprocess.run(command, capture_output=True, check=False, env=environment).returncode == status


@pytest.mark.slow
@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize("both", [False, True])
def test_a_reader_that_leaves_is_no_verdict(both: bool) -> None:
    command = [sys.executable, "-m", "harness", "check", *SMALL, "--tolerance", "1"]
    errors = subprocess.STDOUT if both else subprocess.DEVNULL
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait() == 128 + signal.SIGPIPE
