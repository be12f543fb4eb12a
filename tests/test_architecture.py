"""The architecture's rules hold here, and the checker sees each of them broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import architecture
import pytest

ROOT = Path(__file__).resolve().parents[1]


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_this_repository_keeps_the_rules() -> None:
    assert architecture.violations(ROOT) == []


def test_the_check_of_this_repository_looks_at_its_files() -> None:
    assert len(architecture.sources(ROOT / "sesn")) > 1
    assert len(architecture.sources(ROOT / "harness")) > 1


ALLOWED = {
    "library": ("sesn/layers/conv.py", "import torch\nimport numpy as np\nfrom sesn.basis import basis_a\n"),
    "facade": ("sesn/__init__.py", "from sesn.layers.conv import ScaleConv\nfrom sesn.methods import METHODS\n"),
    "facade of the meter": ("sesn/__init__.py", "from sesn.meter.compare import equivariance_error as e\n"),
    "meter": ("sesn/meter/diagnosis.py", "from sesn.layers.conv import ScaleConv\nfrom sesn.meter import compare\n"),
    "harness measures": ("harness/records.py", "from sesn import Meter\nfrom sesn.meter.compare import middle\n"),
    "an action": ("harness/experiments/properties.py", "from sesn import Meter, rescale\n"),
    "network": ("sesn/networks/wrn.py", "from sesn import ScaleConv\n"),
    "method": ("sesn/methods/dss.py", "from sesn.networks import wrn\n"),
    "stage": ("harness/store/frame.py", "from sesn.methods import METHODS\n"),
    "own stage": ("harness/report/page.py", "from . import figures\n"),
    "figures": ("harness/report/figures.py", "import matplotlib\nfrom harness import records\n"),
    "run reads data": ("harness/run/training/job.py", "from harness.data import mnist\n"),
    "experiments train": ("harness/experiments/training.py", "from harness.run.training import cells\n"),
    "a tool draws": (
        "sesn/tools/picture.py",
        "import matplotlib\nfrom sesn import Meter\n",
    ),
    "strategies": ("sesn/strategies.py", "import hypothesis\nfrom sesn.tools.images import random_images\n"),
    "harness takes a tool": ("harness/records.py", "from sesn.tools.machine import provenance\n"),
    "command line": ("harness/cli.py", "from harness import experiments, run, store\nprint()\n"),
    "a method named print": ("sesn/layers/pool.py", "class A:\n    def show(self):\n        self.print()\n"),
}


@pytest.mark.parametrize(("path", "text"), ALLOWED.values(), ids=ALLOWED)
def test_what_is_allowed_passes(tmp_path: Path, path: str, text: str) -> None:
    assert architecture.violations(tree(tmp_path, {path: text})) == []


PLANTED = {
    "library imports harness": ("sesn/layers/conv.py", "import harness\n", "harness"),
    "library imports a stage": ("sesn/networks/wrn.py", "from harness.run import x\n", "harness.run"),
    "library imports pandas": ("sesn/layers/conv.py", "import pandas as pd\n", "pandas"),
    "library imports matplotlib": ("sesn/layers/conv.py", "from matplotlib import pyplot\n", "matplotlib"),
    "library imports an extra": ("sesn/basis.py", "import scipy.special\n", "torch"),
    "hidden in a function": ("sesn/layers/conv.py", "def f():\n    import pandas\n", "pandas"),
    "library imports a tool": ("sesn/layers/conv.py", "from sesn.tools.files import replacing\n", "above"),
    "meter imports a tool": ("sesn/meter/compare.py", "from sesn.tools.machine import provenance\n", "above"),
    "a tool imports harness": ("sesn/tools/check.py", "from harness.data import stl10\n", "above"),
    "a tool imports pandas": ("sesn/tools/check.py", "import pandas\n", "pandas"),
    "the plugin imports hypothesis": ("sesn/pytest_plugin.py", "import hypothesis\n", "pytest"),
    "library prints": ("sesn/layers/conv.py", "def f():\n    print(1)\n", "prints"),
    "layer imports the meter": ("sesn/layers/conv.py", "from sesn.meter.action import rescale\n", "above"),
    "network imports the meter": ("sesn/networks/wrn.py", "from sesn import meter\n", "above"),
    "a tool compares": ("sesn/tools/tune.py", "from sesn.meter.compare import compare\n", "Meter"),
    "a tool crops": ("sesn/tools/tune.py", "from sesn.meter.extent import output_crop\n", "Meter"),
    "a tool rescales": ("sesn/tools/causes.py", "from sesn import rescale\n", "Meter"),
    "a tool takes a part of the meter": ("sesn/tools/tune.py", "from sesn.meter import compare\n", "Meter"),
    "an action compares": ("harness/experiments/properties.py", "from sesn.meter.compare import compare\n", "Meter"),
    "meter imports a method": ("sesn/meter/diagnosis.py", "from sesn.methods import dss\n", "above"),
    "layer imports method": ("sesn/layers/conv.py", "from sesn.methods.dss import D\n", "above"),
    "facade imports harness": ("sesn/__init__.py", "import harness.experiments\n", "above"),
    "network imports method": ("sesn/networks/wrn.py", "from sesn.methods import dss\n", "above"),
    "relative": ("sesn/networks/wrn.py", "from ..methods import dss\n", "above"),
    "records import a stage": ("harness/records.py", "from harness import experiments\n", "above"),
    "run names an experiment": ("harness/run/imports.py", "from harness.experiments import EXPERIMENTS\n", "cli"),
    "an experiment writes": ("harness/experiments/delta.py", "from harness.store import writing\n", "cli"),
    "stage imports stage": ("harness/run/timing.py", "from harness.store import append\n", "cli"),
    "report imports the store": ("harness/report/page.py", "import harness.store.frame\n", "cli"),
    "data imports run": ("harness/data/mnist.py", "from harness.run import x\n", "cli"),
    "stage imports the command line": ("harness/run/imports.py", "from harness.cli import commands\n", "above"),
    "run draws": ("harness/run/timing.py", "import matplotlib.pyplot\n", "draw"),
    "command line draws": ("harness/cli.py", "import matplotlib\n", "draw"),
    "a module without a place": ("harness/utils.py", "x = 1\n", "LAYERS"),
    "too long": ("harness/cli.py", "x = 1\n" * 401, "401 lines"),
    "too long a test": ("tests/test_x.py", "x = 1\n" * 401, "401 lines"),
}


@pytest.mark.parametrize(("path", "text", "word"), PLANTED.values(), ids=PLANTED)
def test_a_planted_violation_is_found(tmp_path: Path, path: str, text: str, word: str) -> None:
    found = architecture.violations(tree(tmp_path, {path: text}))
    assert len(found) == 1
    assert found[0].startswith(path)
    assert word in found[0]


def test_the_script_that_lint_runs_fails_on_a_violation(tmp_path: Path) -> None:
    tree(tmp_path, {"sesn/layers/conv.py": "import pandas\n"})
    command = [sys.executable, architecture.__file__, str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    assert "sesn/layers/conv.py:1: sesn.layers.conv imports pandas" in finished.stdout
