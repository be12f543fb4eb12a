"""The harness beside this package: the experiments' commands and data sets take part where it is installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType


def harness_part(name: str) -> ModuleType | None:
    """The module harness.NAME; None where the harness of this project is not installed.

    Another package that is called `harness` is left alone: ours lies in the same folder as `sesn`.
    """
    found = find_spec("harness")
    ours = Path(__file__).resolve().parents[2] / "harness" / "__init__.py"
    if found is None or found.origin is None or Path(found.origin).resolve() != ours:
        return None
    return import_module(f"harness.{name}")
