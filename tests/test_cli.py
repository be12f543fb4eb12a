"""The command line starts, and says which version it is."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

from typer.testing import CliRunner

from harness.cli import app

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
    script = "import sys, harness.cli; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
