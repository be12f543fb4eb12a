"""The package imports its public names late: those that type checkers see are those that Python finds."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sesn


def test_python_and_type_checkers_agree_on_the_public_names() -> None:
    """The stub is all that a type checker sees of the package, and it has nothing but imports under the same name."""
    _, *imports = ast.parse(Path(sesn.__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    told = {name.asname: one.module for one in imports if isinstance(one, ast.ImportFrom) for name in one.names}
    assert len(told) == len(imports)
    assert told == sesn._HOMES
    assert sorted(told) == sesn.__all__


@pytest.mark.parametrize("name", sesn.__all__)
def test_every_public_name_is_found(name: str) -> None:
    assert getattr(sesn, name).__name__ == name
    assert name in dir(sesn)


def test_an_unknown_name_is_said_to_be_unknown() -> None:
    with pytest.raises(AttributeError, match="module 'sesn' has no attribute 'ScaleLfit'"):
        _ = sesn.ScaleLfit


@pytest.mark.parametrize("module", ["sesn", "sesn.errors", "sesn.pytest_plugin", "sesn.tools.command"])
def test_what_is_imported_early_does_not_wait_for_torch(module: str) -> None:
    script = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_modules_are_found_without_an_import_of_their_own() -> None:
    """A fresh interpreter, because here other tests have imported them."""
    script = "import sesn; print(sesn.methods.METHODS['cnn'].key, sesn.meter.__name__, sesn.layers.__name__)"
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["cnn", "sesn.meter", "sesn.layers"]
