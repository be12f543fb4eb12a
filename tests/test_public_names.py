"""The package imports its public names late: those that type checkers see are those that Python finds."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sesn


def told_to_type_checkers() -> dict[str, str]:
    tree = ast.parse(Path(sesn.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {a.asname: str(node.module) for node in imports for a in node.names if a.asname is not None}


def test_python_and_type_checkers_agree_on_the_public_names() -> None:
    homes = {name: home for home, names in sesn._HOMES.items() for name in names.split()}
    assert homes == told_to_type_checkers()
    assert sorted(homes) == sesn.__all__


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
