"""Where the processes that a run starts import from: exactly where this one does, and never the current directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from harness.records import Planned
from sesn._source import digest
from sesn.methods import PASSED_ON, passed_on


def environment() -> dict[str, str]:
    """Variables that have a process, and those that it starts, import as this one does, methods of files included."""
    return paths() | passed_on()


def paths() -> dict[str, str]:
    """Variables that have a Python process, and those that it starts, import from where this process does.

    The whole path is named, with Python's own folders in their order, so that a module of the same name further down
    cannot take their place. `python -m`, which starts workers, would put the current directory before all of them.
    """
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}


# --- for machines that do not have the files of methods and experiments from outside


def shipped(cells: Iterable[Planned]) -> dict[str, Path]:
    """The files that the cells and the methods come from, by the names under which workers of a cluster find them."""
    homes = {*passed_on().get(PASSED_ON, "").split(","), *(planned.runner for planned in cells)}
    return {shipped_name(home).rpartition(":")[0]: _file(home) for home in homes if _is_file(home)}


def shipped_methods() -> dict[str, str]:
    """The variable that names the files of methods, as those workers find them."""
    return {name: ",".join(map(shipped_name, homes.split(","))) for name, homes in passed_on().items()}


def shipped_name(home: str) -> str:
    """FILE.py:NAME as a worker finds it in its folder, where no module can be called like the file; else unchanged."""
    if not _is_file(home):
        return home
    return f"sesn_file_{digest(str(_file(home)).encode())}.py:{home.rpartition(':')[2]}"


def _is_file(home: str) -> bool:
    return _file(home).suffix == ".py"


def _file(home: str) -> Path:
    return Path(home.rpartition(":")[0])
