"""What an installed wheel does in an empty environment: `nox -s build` copies this file there and runs it with pytest.

It is run twice, without and with the extra `tools`. Nothing of the clone is in reach, and a foreign package called
`harness` is installed beside the wheel.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

SITE = Path(sysconfig.get_path("purelib"))
TOOLS = find_spec("typer") is not None
with_tools = pytest.mark.skipif(not TOOLS, reason="the extra `tools` is not installed")
without_tools = pytest.mark.skipif(TOOLS, reason="the extra `tools` is installed")
SMALL = ["--input", "1x64x64", "--downscale", "2", "--count", "2"]
NETWORK = """
import torch
from torch import nn
from sesn import ScaleGrid, ScaleLift, ScaleProjection, basis_a

def build():
    torch.manual_seed(0)
    basis = basis_a(ScaleGrid.geometric(1.5, 2.0, 3), "wide", 2)
    return nn.Sequential(ScaleLift(1, 2, basis), nn.ReLU(), ScaleProjection())
"""
OURS = """
import pytest
from torch import nn
from network import build

@pytest.mark.scale_equivariance(input="1x64x64", downscale=2, tolerance=1e-2)
def test_steerable(scale_equivariance):
    scale_equivariance(build()[0])

@pytest.mark.xfail(strict=True)
def test_ordinary(scale_equivariance):
    scale_equivariance(nn.Conv2d(1, 2, 7, padding=3), input="1x64x64", tolerance=1e-2)
"""
#: Another repository: its plugins, fixtures, markers, doctests and its package called `harness` are its own affair.
FOREIGN = {
    "pytest.ini": "[pytest]\nmarkers =\n    scale_equivariance: theirs\naddopts = --strict-markers --strict-config\n",
    "conftest.py": """
import pytest

@pytest.fixture
def scale_equivariance():
    return 7

def pytest_collection_modifyitems(session, config, items):
    items.reverse()
""",
    "test_theirs.py": '''
import unittest
import harness
import pytest

@pytest.mark.scale_equivariance(7)
def test_marker():
    assert harness.NAME == "foreign"

def test_fixture(scale_equivariance):
    """
    >>> 1 + 1
    2
    """
    assert scale_equivariance == 7

class TestOld(unittest.TestCase):
    def test_old(self):
        self.assertTrue(True)
''',
}


@pytest.fixture(autouse=True, scope="session")
def foreign_harness() -> None:
    """A package of that name which is somebody else's; not in an environment for work, where it would hide ours."""
    if find_spec("harness") is not None and not (SITE / "harness").exists():
        pytest.exit("these tests are for the empty environment of `nox -s build`, not for one that holds the clone", 2)
    folder = SITE / "harness"
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text('NAME = "foreign"\n', encoding="utf-8")
    (folder / "cli.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def sesn(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "network.py").write_text(NETWORK, encoding="utf-8")
    return run(folder, str(Path(sysconfig.get_path("scripts"), "sesn")), *words)


def test_the_wheel_brings_sesn_alone() -> None:
    files = metadata.distribution("sesn").files or []
    homes = {path.parts[0] for path in files if path.parts[0] != ".."}
    assert homes == {"sesn", f"sesn-{metadata.version('sesn')}.dist-info"}
    assert {path.name for path in files if path.parts[0] == ".."} <= {"sesn", "sesn.exe"}
    located = find_spec("sesn")
    assert located is not None
    assert located.origin == str(SITE / "sesn" / "__init__.py")


def test_another_package_called_harness_stays_importable_and_is_not_taken_for_ours(tmp_path: Path) -> None:
    asked = run(tmp_path, sys.executable, "-c", "import sesn.tools.command as c, harness; print(harness.NAME)")
    assert asked.stdout == "foreign\n", asked.stderr
    found = run(tmp_path, sys.executable, "-c", "import sesn.tools.command as c; print(c.harness_part('cli'))")
    assert found.stdout == "None\n", found.stderr


def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    """As an index shows it, from the metadata of the wheel."""
    described = metadata.metadata("sesn")
    text = described["Description"] or str(described.get_payload())  # type: ignore[attr-defined]
    example = re.search(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert example is not None
    ran = run(tmp_path, sys.executable, "-W", "error", "-c", example[1])
    assert ran.returncode == 0, ran.stderr


def test_every_module_that_needs_no_extra_is_imported(tmp_path: Path) -> None:
    script = "import sesn\nfor name in sesn.__all__: getattr(sesn, name)\nprint(sesn.__version__)"
    ran = run(tmp_path, sys.executable, "-c", script)
    assert ran.stdout.strip() == metadata.version("sesn"), ran.stderr


def test_the_plugin_measures(tmp_path: Path) -> None:
    (tmp_path / "network.py").write_text(NETWORK, encoding="utf-8")
    (tmp_path / "test_ours.py").write_text(OURS, encoding="utf-8")
    ran = run(tmp_path, sys.executable, "-m", "pytest", "-q", "--strict-markers")
    assert "1 passed, 1 xfailed" in ran.stdout, ran.stdout


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["-W", "error"],
        ["-p", "no:sesn"],
        ["-p", "no:cacheprovider", "--assert=plain"],
        ["--doctest-modules", "--import-mode=importlib"],
        ["--strict-markers", "-m", "scale_equivariance or not scale_equivariance"],
        ["-p", "no:unittest", "--collect-only"],
    ],
    ids=" ".join,
)
def test_the_tests_of_another_repository_run_as_before(tmp_path: Path, options: list[str]) -> None:
    for name, text in FOREIGN.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    ran = run(tmp_path, sys.executable, "-m", "pytest", *options)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@without_tools
@pytest.mark.parametrize("words", [[], ["--help"], ["check", "network.py:build"], ["tune"]])
def test_without_the_extra_the_command_names_it_in_one_line(tmp_path: Path, words: list[str]) -> None:
    ran = sesn(tmp_path, *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == 'error: the package typer is not installed; run python -m pip install "sesn[tools]"\n'


@with_tools
def test_the_command_offers_the_tools_and_no_experiments(tmp_path: Path) -> None:
    ran = sesn(tmp_path, "--help")
    assert ran.returncode == 0, ran.stderr
    assert all(name in ran.stdout for name in ("check", "profile", "causes", "tune"))
    assert "reproduce" not in ran.stdout


@with_tools
@pytest.mark.parametrize(
    "words",
    [
        ["check", "network.py:build", *SMALL, "--images", "1/f", "--picture", "out.png"],
        ["check", "network.py:build", *SMALL],  # photographs, which come with the extra
        ["profile", "network.py:build", *SMALL],
        ["causes", "network.py:build", *SMALL, "--picture", "out.png"],
        ["tune", "--scales", "2", "--range", "2", "--count", "1"],
    ],
    ids=["check", "photographs", "profile", "causes", "tune"],
)
def test_the_tools_work(tmp_path: Path, words: list[str]) -> None:
    ran = sesn(tmp_path, *words, "--json", "out.json")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
    assert (tmp_path / "out.json").stat().st_size > 100
    assert "out.png" not in words or (tmp_path / "out.png").stat().st_size > 1000
