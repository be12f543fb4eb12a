"""Where the processes that a run starts import from: exactly where this one does, and never the current directory."""

from __future__ import annotations

import os
import sys

from sesn.methods import passed_on


def environment() -> dict[str, str]:
    """Variables that have a Python process, and those that it starts, import from where this process does.

    They name the files of methods from outside, too.

    The whole path is named, with Python's own folders in their order, so that a module of the same name further down
    cannot take their place. `python -m`, which starts workers, would put the current directory before all of them.
    """
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1", **passed_on()}
