"""Where downloaded data sets lie."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "SESN_DATA"


def data_root(given: Path | None = None) -> Path:
    """The folder that holds downloaded data sets: the one given, else that of $SESN_DATA."""
    named = given if given is not None else os.environ.get(VARIABLE)
    if not named:
        raise FileNotFoundError(f"no folder of data sets was named: set ${VARIABLE} or give --data")
    root = Path(named)
    if not root.is_dir():
        raise FileNotFoundError(f"the folder of data sets {root} does not exist; set ${VARIABLE} or give --data")
    return root
