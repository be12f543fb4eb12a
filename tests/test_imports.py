"""Nothing is imported from the current directory: a file named like a module is neither run nor in the way there."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import engine_sample
import pytest
from test_run_command import cells

TESTS = Path(engine_sample.__file__).parent
ENGINE_SAMPLE = [sys.executable, engine_sample.__file__]
#: What a standard module, a dependency and this project itself are called.
NAMES = ("queue.py", "random.py", "torch.py", "harness/__init__.py", "sesn/__init__.py", "sitecustomize.py")
TRAP = """
import pathlib
(pathlib.Path(__file__).parents[{up}] / "sprung").touch()
raise ImportError("imported from the current directory")
"""


@pytest.fixture
def traps(tmp_path: Path) -> Path:
    """A folder with modules that must not be imported; each that is leaves the file `sprung`."""
    folder = tmp_path / "current"
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(TRAP.format(up=name.count("/")), encoding="utf-8")
    return folder


def carried_out(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in that folder, without a path of imports of its own."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    return subprocess.run(
        command, cwd=folder, env={**inherited, **environment}, capture_output=True, text=True, check=False
    )


def test_workers_do_not_import_from_the_current_directory(traps: Path) -> None:
    command = [*ENGINE_SAMPLE, "run", "selftest", "--rows", "rows", "--threads", "1"]
    ended = carried_out(command, traps, SELFTEST=cells({}))
    assert ended.returncode == 0, ended.stderr
    assert not (traps / "sprung").exists()


@pytest.mark.slow
def test_ranks_do_not_import_from_the_current_directory(traps: Path) -> None:
    # Python itself would put the current directory first for `-c`.
    code = f"import sys; sys.path.append({str(TESTS)!r}); import tiny_training as t; "
    code += "from harness.run.training.cells import train; from harness.experiment import Context; "
    code += "from harness.run.training.job import Numerics; "
    code += "print(len(train(t.job, t.cell('plain'), Context(), Numerics(ranks=2))))"
    ended = carried_out([sys.executable, "-P", "-c", code], traps)
    assert ended.returncode == 0, ended.stderr
    assert not (traps / "sprung").exists()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra `cluster` is not installed")
def test_workers_of_ray_do_not_import_from_the_current_directory(traps: Path) -> None:
    command = [*ENGINE_SAMPLE, "run", "selftest", "--rows", "rows", "--threads", "1", "--engine", "ray"]
    ended = carried_out(command, traps, SELFTEST=cells({}))
    assert ended.returncode == 0, ended.stderr
    assert not (traps / "sprung").exists()


def test_python_m_does_not_import_from_the_current_directory_either(traps: Path) -> None:
    """Except the package that is named: `python -m harness` asks for the one that stands there."""
    for name in ("harness", "sesn"):
        (traps / name / "__init__.py").unlink()
        (traps / name).rmdir()
    (traps / "sitecustomize.py").unlink()
    ended = carried_out([sys.executable, "-m", "harness", "data"], traps)
    assert ended.returncode == 0, ended.stderr
    assert not (traps / "sprung").exists()


def test_the_sesn_command_does_not_import_from_the_current_directory(traps: Path) -> None:
    script = "import sys; sys.argv = ['sesn', 'data']; from sesn.tools.command import main; main()"
    (traps.parent / "bin").mkdir()
    (traps.parent / "bin" / "sesn").write_text(script, encoding="utf-8")
    ended = carried_out([sys.executable, str(traps.parent / "bin" / "sesn")], traps)
    assert ended.returncode == 0, ended.stderr
    assert not (traps / "sprung").exists()
