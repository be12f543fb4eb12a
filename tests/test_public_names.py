"""The package imports its public names late: those that type checkers see are those that Python finds."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import sesn


def test_python_and_type_checkers_agree_on_the_public_names() -> None:
    """The stub is all that a type checker sees of the package: imports under the same name, and the version."""
    _, *imports, version = ast.parse(Path(sesn.__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    assert ast.unparse(version) == "__version__: str"
    told = {name.asname: one.module for one in imports if isinstance(one, ast.ImportFrom) for name in one.names}
    assert len(told) == len(imports)
    assert {name: home for name, home in told.items() if home != "sesn"} == sesn._HOMES
    assert sorted(sesn._HOMES) == sesn.__all__


def test_the_version_is_that_of_the_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sesn.__version__ == metadata.version("sesn")

    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert sesn._version() == "0+unknown"


def test_dir_lists_the_modules_and_the_version_and_nothing_that_was_only_imported() -> None:
    listed = set(dir(sesn))
    assert {"__version__", "meter", "methods", "tools", *sesn.__all__} <= listed
    assert not {"re", "Path", "Any", "import_module"} & listed


@pytest.mark.parametrize("name", sesn._MODULES)
def test_every_module_is_found(name: str) -> None:
    assert getattr(sesn, name).__name__ == f"sesn.{name}"


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
