"""`sesn` as `pip install sesn` brings it: without the harness beside it, and without the packages of its extras."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sesn

LIBRARY = Path(sesn.__file__).parent
#: Where the packages that both need are installed.
PACKAGES = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
RUN = "import sys; sys.argv[0] = 'sesn'; from sesn.tools.command import main; main()"
FOREIGN = "raise RuntimeError('a foreign package was imported')\n"
NETWORK = "from torch import nn\n\ndef conv():\n    return nn.Conv2d(1, 1, 3, padding=1)\n"
SMALL = ["--input", "1x48x48", "--images", "white", "--count", "2", "--downscale", "2"]


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """A folder with the library and a network, and no harness."""
    shutil.copytree(LIBRARY, tmp_path / "sesn", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "network.py").write_text(NETWORK, encoding="utf-8")
    return tmp_path


def run(folder: Path, *words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """The command line in that folder, after some lines of Python."""
    paths = f"import sys; sys.path[:] = [{str(folder)!r}] + [p for p in sys.path if 'python' in p] + {PACKAGES!r}\n"
    command = [sys.executable, "-I", "-S", "-c", f"{paths}{before}\n{RUN}", *words]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("foreign", [False, True])
def test_the_tools_are_offered_without_the_harness(alone: Path, foreign: bool) -> None:
    if foreign:
        (alone / "harness").mkdir()
        (alone / "harness" / "__init__.py").write_text(FOREIGN, encoding="utf-8")
    helped = run(alone, "--help")
    assert helped.returncode == 0, helped.stderr
    assert "causes" in helped.stdout
    assert "reproduce" not in helped.stdout
    assert "come with a clone of the repository" in helped.stdout


@pytest.mark.slow
def test_a_network_is_checked_without_the_harness(alone: Path) -> None:
    checked = run(alone, "check", "network.py:conv", *SMALL, "--json", "out.json")
    assert checked.returncode == 0, checked.stderr
    assert (alone / "out.json").exists()


@pytest.mark.slow
def test_what_the_harness_brings_is_not_offered(alone: Path) -> None:
    asked = run(alone, "check", "network.py:conv", "--images", "stl10")
    assert asked.returncode == 2
    assert "must be one of embedded, white, 1/f, 1/f2, or a directory" in asked.stderr


HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {names!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Hidden())
"""


@pytest.mark.parametrize("words", [["--help"], ["check", "network.py:conv", *SMALL], ["report"]])
def test_without_the_extra_the_command_says_how_to_install_it(alone: Path, words: list[str]) -> None:
    ran = run(alone, *words, before=HIDE.format(names=("typer", "rich", "matplotlib")))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == 'error: the package typer is not installed; run python -m pip install "sesn[tools]"\n'


@pytest.mark.slow
def test_a_picture_without_matplotlib_is_refused_before_anything_is_measured(alone: Path) -> None:
    words = ["check", "network.py:conv", *SMALL, "--picture", "out.png"]
    ran = run(alone, *words, before=HIDE.format(names=("matplotlib",)))
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr == 'error: the package matplotlib is not installed; run python -m pip install "sesn[tools]"\n'
    assert "verdict" not in ran.stdout


def test_another_missing_package_is_a_bug(alone: Path) -> None:
    (alone / "sesn" / "tools" / "app.py").write_text("import nowhere\n", encoding="utf-8")
    ran = run(alone, "--help")
    assert ran.returncode == 70
    assert "Traceback" in ran.stderr


def test_the_plugin_needs_no_extra(alone: Path) -> None:
    """What its fixture does, without the packages of the extra `tools` and without hypothesis."""
    names = ("typer", "rich", "matplotlib", "PIL", "skimage", "sklearn", "hypothesis")
    measure = "from torch import nn; from sesn.pytest_plugin import DEFAULTS, _check; "
    measure += "_check(nn.Identity(), {**DEFAULTS, 'input': '1x32x32', 'tolerance': 1.0}); sys.exit(0)"
    ran = run(alone, before=HIDE.format(names=names) + measure)
    assert ran.returncode == 0, ran.stderr
